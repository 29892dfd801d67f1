"""What the rooms exchange: a task, the kernels of a limit, and the trajectory of a training run."""

import dataclasses
from typing import Any, Literal, get_args

import numpy as np

from zoo import checks

Loss = Literal["mse", "cross_entropy"]


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where a number comes from: exact, Monte-Carlo (it has a standard error), approximate, or absent; and a reason."""

    kind: Literal["exact", "monte_carlo", "approximate", "absent"]
    detail: str = ""

    @classmethod
    def monte_carlo(cls, detail: str, runs: int) -> "Provenance":
        """A mean over so many independent runs: a few standard errors are a level only with Student's t.

        >>> Provenance.monte_carlo("4 networks", 4).detail
        '4 networks; standard errors have 3 degrees of freedom'
        """
        return cls("monte_carlo", f"{detail}; standard errors have {runs - 1} degrees of freedom")


class AbsentError(ValueError):
    """A quantity was asked for that does not exist in this limit; the message says why and what to do instead."""


class _KnowsAbsence:
    """Reading a field that holds `Provenance("absent", reason)` raises `AbsentError(reason)`."""

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if isinstance(value, Provenance) and value.kind == "absent":
            raise AbsentError(f"{name}: {value.detail}")
        return value

    def has(self, name: str) -> bool:
        """Whether the quantity exists."""
        value = object.__getattribute__(self, name)
        return value is not None and not isinstance(value, Provenance)


@dataclasses.dataclass(frozen=True, repr=False)
class Kernels(_KnowsAbsence):
    """NNGP and NTK of a limit: NumPy arrays [n1, n2] ([n] if only the diagonal was asked for).

    `errors` holds the standard errors of those that are Monte-Carlo; `nngp_sem` and `ntk_sem` are these, or zero.
    """

    nngp: Any
    ntk: Any
    provenance: dict[str, Provenance] = dataclasses.field(default_factory=dict[str, Provenance])
    errors: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    @property
    def nngp_sem(self) -> np.ndarray:
        """The standard error of `nngp`."""
        return self.errors.get("nngp", np.zeros_like(self.nngp))

    @property
    def ntk_sem(self) -> np.ndarray:
        """The standard error of `ntk`."""
        return self.errors.get("ntk", np.zeros_like(self.ntk))

    def __repr__(self) -> str:
        shapes = [
            f"{name}: {np.shape(getattr(self, name)) if self.has(name) else 'absent'}" for name in ("nngp", "ntk")
        ]
        return f"Kernels({', '.join(shapes)})"


def _checked(name: str, value: Any) -> np.ndarray:
    if np.iscomplexobj(value):
        raise ValueError(f"Task: {name} holds complex numbers; give real ones.")
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Task: {name} must be an array of numbers ({error}).") from None
    if not array.ndim:
        raise ValueError(f"Task: {name} must hold samples along its first axis, [n, …]; got the number {array}.")
    bad = int(array.size - np.isfinite(array).sum())
    if bad:
        raise ValueError(
            f"Task: {name} holds {bad} values that are NaN or infinite (of {array.size}); remove them first."
        )
    return array


@checks.arguments(name=checks.Check("a word", lambda v: isinstance(v, str)), loss=checks.choice(*get_args(Loss)))
@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """Inputs and targets to learn and to predict, and the loss: the one description that both readings train on.

    "mse" is the mean over samples of ½ (f − y)², summed over outputs; "cross_entropy" the mean over samples of
    −Σ y log softmax(f), with targets y that are probabilities (one-hot labels). Targets of shape [n] mean one output. Test
    points may be without targets (y_test None): then there are predictions and no test loss.

    >>> Task([[1.0, 0.0]], [1.0], [[0.0, 1.0]], [-1.0]).y_train.shape
    (1, 1)
    """

    x_train: Any
    y_train: Any
    x_test: Any = None
    y_test: Any = None
    loss: Loss = "mse"
    name: str = "task"

    def __post_init__(self) -> None:
        x, y = _checked("x_train", self.x_train), _checked("y_train", self.y_train)
        y = y[:, None] if y.ndim == 1 else y
        if self.x_test is None and self.y_test is not None:
            raise ValueError("Task: y_test are the targets of x_test, which is missing: give x_test too.")
        known = self.x_test is None or self.y_test is not None
        x_test = np.zeros((0, *x.shape[1:])) if self.x_test is None else _checked("x_test", self.x_test)
        unknown = np.zeros((len(x_test), *y.shape[1:]))
        y_test = unknown if self.y_test is None else _checked("y_test", self.y_test)
        y_test = y_test[:, None] if y_test.ndim == 1 else y_test
        for part, inputs, targets in (("train", x, y), ("test", x_test, y_test)):
            if len(inputs) != len(targets):
                raise ValueError(f"Task: x_{part} has {len(inputs)} samples and y_{part} has {len(targets)}.")
        if not len(x):
            raise ValueError("Task: there are no training samples.")
        if x.shape[1:] != x_test.shape[1:] or y.shape[1:] != y_test.shape[1:] or y.ndim != 2:
            raise ValueError(
                f"Task: train and test must have samples of one shape and targets [n, outputs]; x_train has samples "
                f"{x.shape[1:]} and x_test {x_test.shape[1:]}, y_train is {y.shape} and y_test {y_test.shape}."
            )
        if self.loss == "cross_entropy":
            for part, targets in (("train", y), ("test", y_test if known else y)):
                if np.any(targets < 0) or not np.allclose(targets.sum(1), 1):
                    raise ValueError(
                        f"Task: cross-entropy needs one-hot labels or probabilities in y_{part} (rows sum to 1)."
                    )
        for field, value in (("x_train", x), ("y_train", y), ("x_test", x_test), ("y_test", y_test if known else None)):
            object.__setattr__(self, field, value)

    @property
    def x(self) -> np.ndarray:
        """All inputs, train points then test points."""
        return np.concatenate([self.x_train, self.x_test])

    @property
    def scored(self) -> bool:
        """Whether there are test points with targets."""
        return self.y_test is not None and len(self.x_test) > 0

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return self.y_train.shape[1]
