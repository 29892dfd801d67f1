"""How a network is trained: one object, the same for finite networks and for their limits."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax

from limits.kept.first import first_alike
from limits.types import Task
from zoo import checks, learning_rate_factors, roles, scale_gradients, scaled
from zoo.abstract import abstract, variables_of
from zoo.definition import name_of
from zoo.messages import did_you_mean
from zoo.parameterization import ROLES
from zoo.roles import factors
from zoo.scaled import at_size

LearningRate = float | Callable[[int], Any]
_NEEDS_MORE = (
    "{caller}: this optimiser could not be run with gradients and parameters alone ({error}). What needs the value of the loss "
    "(polyak_sgd, momo, reduce_on_plateau), the loss as a function (sophia), a search along a line (lbfgs) or a second set of "
    "parameters (lookahead) is not supported. Take one that goes by gradients: Adam, Muon, optax.lbfgs(rate, linesearch=None)."
)
_OTHER_TREE = (
    "{caller}: the optimizer names parameters that {name} has not, or leaves some without a rule ({error}). Masks and labels "
    "must be trees like its parameters, {layers}, or functions of them."
)


@dataclasses.dataclass(frozen=True)
class ByName:
    """From a learning rate to an optimiser that `zoo.scaled` knows by name."""

    name: str
    net: Any = dataclasses.field(compare=False)  # whose factors are replaced by those of the network that is trained
    x: Any = dataclasses.field(compare=False)

    def __call__(self, learning_rate: Any) -> optax.GradientTransformation:
        """The optimiser."""
        return scaled(self.name, self.net, self.x, learning_rate=learning_rate)


@dataclasses.dataclass(frozen=True)
class Training:
    """v ← momentum v + factor ∂loss/∂w,   w ← (1 − η₀ weight_decay) w − η₀ v,   for parameters of `trained` roles.

    The factors are the definition's (`zoo.learning_rate_factors`). `centred`: the outputs at the start are subtracted in
    the loss. `trained` names roles (input, hidden, branch, readout, bias, norm, embedding) and layers (as they are called
    among the parameters, "hidden_2", unless that is a role), None all of them; other parameters stay where they are.
    rates [steps] are the η₀ of every step, batches [steps, size] its training points (None: all of them at every step). With an
    `optimizer`, an Optax transformation, the steps are its own, scaled to the definition as `zoo.scaled` does; a function from
    the rate to a transformation gets that of each step.

    Two trainings are equal where one compiled step serves both: rates and batches are its arguments.
    """

    loss: str
    momentum: float = 0.0
    weight_decay: float = 0.0
    centred: bool = False
    trained: tuple[str, ...] | None = None
    optimizer: Any = None
    rates: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0), compare=False)
    batches: np.ndarray | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.trained is not None and (not checks.names.holds(self.trained) or not self.trained):
            raise ValueError(
                f"trained must be a tuple of roles ({', '.join(ROLES)}) or of layers; got {self.trained!r}."
            )
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum}.")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay}.")

    @classmethod
    def of(
        cls,
        task: Task,
        steps: int,
        learning_rate: LearningRate | None,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        centred: bool = False,
        trained: tuple[str, ...] | None = None,
        batches: Any = None,
        optimizer: Any = None,
        net: Any = None,
    ) -> "Training":
        """From the keywords of `lazy`, `rich` and `ensemble`; a learning rate may be a function of the step (Optax's).

        optimizer: an Optax transformation; or what takes the learning rate, a name that `zoo.scaled` knows (with `net`) or a
        function such as optax.adam, for which one compiled step serves all rates.

        >>> task = Task([[1.0]], [1.0])
        >>> Training.of(task, 3, lambda step: 0.1 / (1 + step)).rates.round(3).tolist()
        [0.1, 0.05, 0.033]
        """
        order = _order(batches, steps, len(task.x_train))
        if optimizer is None:
            if learning_rate is None:
                raise TypeError("learning_rate is missing: give one, or an optimizer that has its own.")
            return cls(task.loss, momentum, weight_decay, centred, trained, None, _rates(steps, learning_rate), order)
        if momentum or weight_decay:
            raise TypeError(
                "momentum and weight_decay are short forms of gradient descent: give them to the optimizer, as in "
                "optimizer=optax.sgd(learning_rate, momentum)."
            )
        optimizer = first_alike(optimizer)
        if _is_made(optimizer):
            if learning_rate is not None:
                raise TypeError("learning_rate and an optimizer that has its own are given: leave learning_rate out.")
            return cls(task.loss, 0.0, 0.0, centred, trained, optimizer, _rates(steps, 1.0), order)
        if learning_rate is None:
            which = f'"{optimizer}"' if isinstance(optimizer, str) else checks.shown(optimizer)
            raise TypeError(f"optimizer={which} needs a learning_rate; with other options give an Optax object.")
        make = ByName(optimizer, net, task.x[:1]) if isinstance(optimizer, str) else optimizer
        rates = _rates(steps, learning_rate)
        if not _is_made(make(1.0)):
            raise TypeError(
                f"optimizer, a function, must return an Optax transformation of a learning rate; {checks.shown(make)} returned "
                f"{checks.shown(make(1.0))}."
            )
        if not isinstance(make, ByName) and not _starts_alike(make):
            make, rates = first_alike(make(learning_rate)), _rates(steps, 1.0)
        return cls(task.loss, 0.0, 0.0, centred, trained, make, rates, order)

    def made(self, rate: Any) -> Any:
        """The optimiser of a step with this rate, where there is one."""
        return self.optimizer if _is_made(self.optimizer) else self.optimizer(rate)

    @property
    def step(self) -> "Training":
        """The part that all steps share, which is what programs are compiled for."""
        return dataclasses.replace(self, rates=np.zeros(0), batches=None)

    @property
    def plain(self) -> bool:
        """Whether every step is the same: all points, one rate."""
        return self.batches is None and (self.rates.strides == (0,) or len(set(self.rates.tolist())) <= 1)

    @property
    def largest_rate(self) -> float | None:
        """The largest η₀ of all steps; None: the optimiser's own."""
        if self.optimizer is not None and _is_made(self.optimizer):
            return None
        return float(self.rates.max(initial=0))

    def rows(self, n: int) -> np.ndarray:
        """The training points of every step, [steps, size]."""
        return np.broadcast_to(np.arange(n), (len(self.rates), n)) if self.batches is None else self.batches

    def weights(self, n: int, sample_of_point: np.ndarray | None = None) -> np.ndarray:
        """How much each point counts in the loss's mean, relative to a mean over all n: [steps, n].

        Of n samples; or of points, each of one of them (`Task.sample_of_point`): [steps, points].

        >>> Training.of(Task([[1.0], [2.0]], [1.0, 1.0]), 1, 0.1, batches=[[0, 0]]).weights(2).tolist()
        [[2.0, 0.0]]
        """
        rows = self.rows(n)
        counts = np.zeros((len(rows), n))
        for each, row in zip(counts, rows, strict=True):
            np.add.at(each, row, n / len(row))
        if sample_of_point is None:
            return counts
        points = counts[:, sample_of_point]
        return points / points.mean(1, keepdims=True)

    def moves(self, net: Any, x: Any) -> Any:
        """Whether each parameter is trained: a tree like the parameters."""
        here = jax.tree_util.tree_map_with_path(lambda path, role: {role, *_layers(path)}, roles(net, x))
        known = set().union(*jax.tree.leaves(here, is_leaf=_is_set))
        for name in self.trained or ():
            if name not in known | set(ROLES):
                raise ValueError(f'trained: {name_of(net)} has no role or layer "{name}". {did_you_mean(name, known)}')
        return jax.tree.map(
            lambda names: self.trained is None or bool(names & set(self.trained)), here, is_leaf=_is_set
        )

    def factors(self, net: Any, x: Any) -> Any:
        """Learning rates over η₀, 0 where nothing moves: a tree like the parameters."""
        return jax.tree.map(
            lambda factor, moves: factor if moves else 0.0, learning_rate_factors(net, x), self.moves(net, x)
        )

    def check_optimizer(self, caller: str, net: Any, x: Any) -> None:
        """Raises unless the optimiser can be run on this network's parameters, with gradients alone. Nothing is computed."""
        if self.optimizer is None or isinstance(self.optimizer, ByName):
            return
        kind = x.dtype if x.dtype.kind in "iu" else np.float32
        params = variables_of(net, abstract(x.shape, kind))["params"]
        rule = self.optimiser(net, x[:1], self.rates[0] if len(self.rates) else 1.0)
        try:
            with warnings.catch_warnings(action="ignore"):  # they are said in the run
                jax.eval_shape(lambda tree: rule.update(tree, rule.init(tree), tree), params)
        except Exception as error:
            said = str(error).splitlines()[0]
            if said.startswith("scaled:"):
                raise
            why = _OTHER_TREE if "pytree" in said or "transformation" in said else _NEEDS_MORE
            layers = ", ".join(map(str, params))
            raise ValueError(why.format(caller=caller, error=said, name=name_of(net), layers=layers)) from error

    def optimiser(self, net: Any, x: Any, learning_rate: Any) -> optax.GradientTransformation:
        """The same for a finite network, by Optax."""
        if self.optimizer is not None:
            moves = self.moves(net, x)
            mask = optax.stateless(lambda updates, _: jax.tree.map(lambda g, m: g if m else 0 * g, updates, moves))
            return optax.chain(mask, at_size(self.made(learning_rate), lambda tree: factors(net, tree, x)), mask)
        parts = [scale_gradients(self.factors(net, x))]
        if self.momentum:
            parts.append(optax.trace(self.momentum))
        if self.weight_decay:
            parts.append(optax.add_decayed_weights(self.weight_decay, mask=self.moves(net, x)))
        return optax.chain(*parts, optax.scale_by_learning_rate(learning_rate))


def _layers(path: tuple) -> set[str]:
    """What the layers of a parameter are called; a name that is a role's is a role."""
    return {entry.key for entry in path[:-1] or path} - set(ROLES)


def _is_set(node: Any) -> bool:
    return isinstance(node, set)


def names_layers(trained: tuple[str, ...] | None) -> bool:
    """Whether single layers are trained, not whole roles.

    >>> names_layers(("hidden", "readout")), names_layers(("hidden_2",)), names_layers(None)
    (False, True, False)
    """
    return any(name not in ROLES for name in trained or ())


def check_roles(trained: tuple[str, ...] | None) -> None:
    """Raises where single layers are named, of an infinitely deep network."""
    if names_layers(trained):
        raise ValueError(
            f"trained: {trained} names layers, of which there are infinitely many at infinite depth; name roles."
        )


def _is_made(optimizer: Any) -> bool:
    return hasattr(optimizer, "init") and hasattr(optimizer, "update")


def _starts_alike(make: Callable[[Any], Any]) -> bool:
    """Whether nothing of the learning rate is in the state at the start, as it is in that of `inject_hyperparams`."""
    params = {"layer": {"kernel": np.ones((2, 2)), "bias": np.ones(2)}}
    try:
        one, two = (jax.tree.leaves(make(rate).init(params)) for rate in (1.0, 2.0))
    except Exception:  # asks for parameters of its own
        return False
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def record_times(steps: int, times: Sequence[int] | np.ndarray | None, name: str = "times") -> np.ndarray:
    """The steps to record: those given, or eleven from 0 to `steps`; `name` is what messages call them.

    >>> record_times(3, None).tolist()
    [0, 1, 2, 3]
    """
    if not checks.count(0).holds(steps):
        raise ValueError(f"steps must be a whole number ≥ 0, got {checks.shown(steps)}.")
    given = np.linspace(0, steps, 11).round() if times is None else np.asarray(times)
    whole = given.size and given.dtype.kind in "iuf" and np.isfinite(given).all()
    if not whole or np.any(given != np.round(given)):
        raise ValueError(f"{name} must be whole numbers of steps, at least one of them; got {checks.shown(times)}.")
    if given.min() < 0 or given.max() > steps:  # before the cast, which huge numbers do not survive
        raise ValueError(f"{name} must lie between 0 and steps = {steps}; got {given.min():g} … {given.max():g}.")
    return np.unique(given.astype(int))


def checked_times(kernel_times: Sequence[int] | np.ndarray | None, times: np.ndarray) -> np.ndarray | None:
    """The times at which to take kernels, if they are some of the recorded ones; None: at all."""
    if kernel_times is None:
        return None
    at = record_times(int(times[-1]), kernel_times, "kernel_times")
    if not np.isin(at, times).all():
        raise ValueError(f"kernel_times {at.tolist()} must be among the recorded times {times.tolist()}.")
    return at


def _rates(steps: int, learning_rate: LearningRate) -> np.ndarray:
    if callable(learning_rate):
        try:
            rates = np.array([float(learning_rate(t)) for t in range(steps)])
        except (TypeError, ValueError):
            raise ValueError(
                "learning_rate, a function of the step, must return one number for each; for step 0 it returns "
                f"{checks.shown(learning_rate(0))}."
            ) from None
    else:
        rates = np.broadcast_to(float(learning_rate), (steps,))  # of no size, however many steps
    some = rates[:1] if rates.strides == (0,) else rates
    wrong = ~(np.isfinite(some) & (some >= 0))
    if wrong.any():
        step = int(np.argmax(wrong))
        raise ValueError(f"learning_rate is {some[step]:g} at step {step}; it must be finite and at least 0.")
    return rates


def _order(batches: Any, steps: int, n: int) -> np.ndarray | None:
    if batches is None:
        return None
    order = np.asarray(batches)
    if order.ndim != 2 or order.shape[0] < steps or not order.shape[1] or not np.issubdtype(order.dtype, np.integer):
        raise ValueError(
            f"batches must be whole numbers [steps, batch size], one row for each of {steps} steps; got {order.dtype} "
            f"{list(order.shape)}. train.data.shuffled_batches makes them."
        )
    if order.min() < 0 or order.max() >= n:
        raise ValueError(
            f"batches must hold numbers of training points, 0 to {n - 1}; got {order.min()} … {order.max()}."
        )
    return order[:steps]
