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


def _checked(name: str, value: Any, whole: bool = False) -> np.ndarray:
    """As float64; `whole`: whole numbers as they are."""
    checks.one_array(f"Task: {name}", value)
    if np.iscomplexobj(value):
        raise ValueError(f"Task: {name} holds complex numbers; give real ones.")
    try:
        array = np.asarray(value)
        array = array if whole and array.dtype.kind in "iu" else array.astype(np.float64, copy=False)
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


def _as_targets(parts: list[tuple[str, Any, Any]], loss: str, classes: int | None) -> list[Any]:
    """Targets of (name, inputs, values) as [n, outputs] or [n, t, outputs]; class numbers become one-hot labels."""
    unknown = [name == "y_test" and value is None for name, _, value in parts]
    found = [None if no else _checked(name, y, whole=True) for no, (name, _, y) in zip(unknown, parts, strict=True)]
    known = [y for y in found if y is not None]
    inputs = [np.shape(x) for (_, x, _), y in zip(parts, found, strict=True) if y is not None]
    if _are_numbers(known, inputs, loss, classes):
        most = max((int(y.max(initial=0)) for y in known), default=0)
        least = min((int(y.min(initial=0)) for y in known), default=0)
        count = most + 1 if classes is None else classes
        if least < 0 or most >= count:
            raise ValueError(
                f"Task: class numbers go from {least} to {most} and must be from 0 to {count - 1}; leave what has no class out "
                "by a mask."
            )
        return [None if y is None else np.eye(count)[y] for y in found]
    hot = [None if y is None else np.asarray(y[:, None] if y.ndim == 1 else y, np.float64) for y in found]
    wrong = [y.shape for y in hot if y is not None and classes is not None and y.shape[-1] != classes]
    if wrong:
        raise ValueError(
            f"Task: targets of {classes} classes must be [n, {classes}] or class numbers; they are {wrong[0]}."
        )
    return hot


def _are_numbers(known: list[np.ndarray], inputs: list[tuple[int, ...]], loss: str, classes: int | None) -> bool:
    """Whether targets are class numbers: whole, and said to be so, or no table of one-hot labels."""
    if loss != "cross_entropy" or not known or any(y.dtype.kind not in "iu" for y in known):
        return False
    if classes is not None or all(y.ndim == 1 for y in known):
        return True
    hot = all(np.all((y == 0) | (y == 1)) and np.all(y.sum(-1) == 1) for y in known)
    return not hot and all(y.shape == x[:2] for y, x in zip(known, inputs, strict=True))


def _as_mask(name: str, value: Any, targets: np.ndarray) -> np.ndarray | None:
    if value is None:
        return None
    mask = np.asarray(value)
    if targets.ndim != 3 or mask.shape != targets.shape[:2]:
        raise ValueError(
            f"Task: {name} says which positions count, [n, t], of targets [n, t, outputs]; it is {list(mask.shape)} and the "
            f"targets are {list(targets.shape)}. A sample that does not count is left out."
        )
    if mask.dtype.kind not in "biuf" or not np.all((mask == 0) | (mask == 1)):
        raise ValueError(f"Task: {name} must hold True and False, [n, t]; it holds other values ({mask.dtype}).")
    empty = int((~mask.any(1)).sum())
    if empty:
        raise ValueError(
            f"Task: {name} leaves {empty} of {len(mask)} samples without a position; leave these samples out."
        )
    return mask.astype(bool)


@checks.arguments(
    name=checks.Check("a word", lambda v: isinstance(v, str)),
    loss=checks.choice(*get_args(Loss)),
    classes=checks.nothing | checks.count(),
)
@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """Inputs and targets to learn and to predict, and the loss: the one description that both readings train on.

    "mse" is the mean over samples of ½ (f − y)², summed over outputs; "cross_entropy" the mean over samples of
    −Σ y log softmax(f), with targets y that are probabilities (one-hot labels). Targets of shape [n] mean one output. Test
    points may be without targets (y_test None): then there are predictions and no test loss.

    Inputs that are whole numbers stay such (tokens [n, t]). Targets [n, t, outputs] are those of every position; of these,
    `mask_train` and `mask_test` [n, t] say which count, in batches too: the losses are means over the positions that count,
    of all samples together, each of one weight. A network sees all positions. For "cross_entropy" targets may be class
    numbers, [n] or [n, t], and are kept as one-hot labels: of so many `classes`, or as many as the largest number asks for.

    >>> Task([[1.0, 0.0]], [1.0], [[0.0, 1.0]], [-1.0]).y_train.shape
    (1, 1)
    >>> words = Task([[3, 1, 2]], [[1, 2, 0]], loss="cross_entropy", mask_train=[[1, 1, 0]], classes=4)
    >>> words.y_train.shape, words.targets.shape, words.n_train
    ((1, 3, 4), (2, 4), 2)
    """

    x_train: Any
    y_train: Any
    x_test: Any = None
    y_test: Any = None
    loss: Loss = "mse"
    name: str = "task"
    mask_train: Any = None
    mask_test: Any = None
    classes: dataclasses.InitVar[int | None] = None

    def __post_init__(self, classes: int | None) -> None:
        if self.x_test is None and (self.y_test is not None or self.mask_test is not None):
            what = "y_test are the targets" if self.y_test is not None else "mask_test is that of the targets"
            raise ValueError(f"Task: {what} of x_test, which is missing: give x_test too.")
        x, known = _checked("x_train", self.x_train, whole=True), self.x_test is None or self.y_test is not None
        x_test = np.zeros((0, *x.shape[1:]), x.dtype) if self.x_test is None else self.x_test
        x_test = _checked("x_test", x_test, whole=True)
        if "f" in x.dtype.kind + x_test.dtype.kind:
            x, x_test = (part.astype(np.float64, copy=False) for part in (x, x_test))
        parts = [("y_train", x, self.y_train), ("y_test", x_test, self.y_test)]
        y, given = _as_targets(parts, self.loss, classes)
        y_test = np.zeros((len(x_test), *y.shape[1:])) if given is None else given
        for part, inputs, targets in (("train", x, y), ("test", x_test, y_test)):
            if len(inputs) != len(targets):
                raise ValueError(f"Task: x_{part} has {len(inputs)} samples and y_{part} has {len(targets)}.")
        if not len(x):
            raise ValueError("Task: there are no training samples.")
        at_positions = y.ndim == 3 and (x.ndim > 2 or x.dtype.kind in "iu")
        if x.shape[1:] != x_test.shape[1:] or y.shape[1:] != y_test.shape[1:] or not (y.ndim == 2 or at_positions):
            raise ValueError(
                "Task: train and test must have samples of one shape and targets [n, outputs]; or [n, t, outputs], of whole "
                f"numbers or inputs [n, t, …]; x_train has samples {x.shape[1:]} and x_test {x_test.shape[1:]}, y_train is "
                f"{y.shape} and y_test {y_test.shape}."
            )
        masks = _as_mask("mask_train", self.mask_train, y), _as_mask("mask_test", self.mask_test, y_test)
        if self.loss == "cross_entropy":
            for part, targets, mask in (("train", y, masks[0]), ("test", y_test if known else y[:0], masks[1])):
                counted = targets if mask is None else targets[mask]
                if np.any(counted < 0) or not np.allclose(counted.sum(-1), 1):
                    raise ValueError(
                        f"Task: cross-entropy needs one-hot labels or probabilities in y_{part} (rows sum to 1), or classes' "
                        "numbers."
                    )
        values = {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test if known else None}
        for field, value in (values | dict(zip(("mask_train", "mask_test"), masks, strict=True))).items():
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
        return self.y_train.shape[-1]

    @property
    def positions(self) -> tuple[int, ...]:
        """(t,) where every position has targets, else ()."""
        return self.y_train.shape[1:-1]

    # Points are what a loss is a mean over: samples, or those of their positions that count.

    @property
    def n_train(self) -> int:
        """The number of training points."""
        return len(self.sample_of_point)

    @property
    def sample_of_point(self) -> np.ndarray:
        """The number of the training sample that each training point belongs to."""
        return np.nonzero(self._counts(self.x_train, self.mask_train))[0]

    @property
    def targets(self) -> np.ndarray:
        """Those of the training points, [points, outputs]."""
        return self.y_train[self._counts(self.x_train, self.mask_train)] if self.positions else self.y_train

    @property
    def test_targets(self) -> np.ndarray | None:
        """Those of the test points, [points, outputs]."""
        if not self.positions or self.y_test is None:
            return self.y_test
        return self.y_test[self._counts(self.x_test, self.mask_test)]

    def at_points(self, f: Any, first: int = 0) -> Any:
        """Of f [*, n, …] or [*, n, t, …], n all inputs in the axis number `first`, the points: [*, points, …].

        >>> Task([[3, 1]], np.ones((1, 2, 4)), mask_train=[[0, 1]]).at_points(np.array([[[7.0], [8.0]]])).tolist()
        [[8.0]]
        """
        if not self.positions:
            return f
        parts = ((self.x_train, self.mask_train), (self.x_test, self.mask_test))
        counts = np.concatenate([self._counts(*part) for part in parts])
        return f[(slice(None),) * first + (counts,)]

    def between_points(self, k: np.ndarray) -> np.ndarray:
        """Of a kernel [n, n], or [n, n, t, t] between positions, that between points: [points, points]."""
        return self.at_points(self.at_points(k.transpose(0, 2, 1, 3)), 1) if self.positions else k

    def _counts(self, x: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Which positions count, [n, t]; [n] of whole samples."""
        return np.ones((len(x), *self.positions), bool) if mask is None else mask
