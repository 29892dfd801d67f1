"""The numbers of a definition that data prefer: evidence maximisation with the kernel of its limit."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from limits.fit_plot import plot_fit
from limits.inputs import check_whole, task_of, twin_of
from limits.posterior.infer import check_prior
from limits.predict.evidence import leave_one_out, log_marginal_likelihood
from limits.twin import twin
from limits.types import Task
from limits.waiting import patient_bar
from zoo import checks
from zoo.definition import name_of
from zoo.messages import did_you_mean

if TYPE_CHECKING:
    import matplotlib.figure

NOISE = "noise"
_TINY = -14.0  # logarithm of a noise over its start, from which on it is compared with the kernel
_FLAT = 5.0  # standard error of a logarithm that says nothing


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """A definition with the numbers that data prefer, and how sure that is.

    `values` and their standard errors `errors` by name (the noise is a variance); `objective` that was reached, of what
    `maximised` names; `trace`: by name the values after every step, and the objective under "objective". `net` is the
    definition (or combination of kernels) with these values, `noise` the noise that goes with it, a number or one a point.
    """

    net: Any
    noise: Any
    values: dict[str, Any]
    errors: dict[str, Any]
    objective: float
    trace: dict[str, np.ndarray]
    maximised: str = "evidence"

    def plot(self, task: Task) -> "matplotlib.figure.Figure":
        """Functions of prior and posterior (inputs [n, 1]), and the evidence over the first two numbers."""
        return plot_fit(self, task)

    def __repr__(self) -> str:
        parts = [f"{name} {_shown(self.values[name], self.errors[name])}" for name in self.values if name != NOISE]
        if NOISE in self.values:
            parts.append(_shown_noise(self.values[NOISE], self.errors[NOISE], self.trace[NOISE][0]))
        what = "log evidence" if self.maximised == "evidence" else "leave-one-out log density"
        return f"Fit({', '.join(parts)}; {what} {self.objective:.4g} after {len(self.trace['objective']) - 1} steps)"


def _shown(value: Any, error: Any) -> str:
    pairs = zip(np.atleast_1d(value), np.atleast_1d(error), strict=True)
    return " ".join(f"{v:.4g} ± {e:.2g}" for v, e in pairs)


def _shown_noise(value: Any, error: Any, start: Any) -> str:
    if not np.ndim(value):
        return f"{NOISE} {_shown(value, error)}"
    return f"{NOISE} of {len(value)} points × {_shown(value[0] / start[0], error[0] / start[0])}"


@checks.arguments(
    net=checks.module | twin_of,
    task=task_of,
    over=checks.names,
    noise=checks.number(positive=True) | checks.array(None),
    steps=checks.count(),
    tolerance=checks.number(positive=True),
    objective=checks.choice("evidence", "leave_one_out"),
)
def fit(
    net: Any,
    task: Task,
    over: tuple[str, ...] = ("w_std", "b_std", NOISE),
    *,
    noise: Any = 0.1,
    steps: int = 200,
    tolerance: float = 1e-5,
    objective: str = "evidence",
) -> Fit:
    """Numbers of a definition (`over`; "noise" is the variance of y − f) at which its limit explains a task best.

    What is maximised is log p(y_train) of the Gaussian process with the NNGP, or with objective="leave_one_out" the sum of the
    log densities of each point given all others, by L-BFGS in the logarithms, from the definition's values and `noise`, until no
    component of the gradient is above `tolerance` a point. Of a noise for every point [n] what is fitted is a common factor.
    Standard errors are those of the logarithms, times the values: by the Fisher information ½ tr(A⁻¹ ∂A A⁻¹ ∂A), A = K + noise,
    and of leave-one-out, which tells less of the numbers, by H⁻¹ J H⁻¹ with the mean curvature H of what is maximised and the
    covariance J = ½ tr(∂B A ∂B A) of its slopes, B = A⁻¹ diag(A⁻¹)⁻¹ A⁻¹, both for y ~ N(0, A) (one output; J and H are times
    their number). Where these say nothing, as two numbers that only scale the same thing, or one that wants to be 0, that is an
    error which names the direction.

    >>> from zoo import MLP
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> task = Task(x, np.sin(2 * x))
    >>> found = fit(MLP(width=1, depth=1, activation="erf", b_std=1.0), task, over=("w_std", "b_std"), noise=1e-3)
    >>> bool(found.objective > found.trace["objective"][0]), len(found.trace["w_std"]) == len(found.trace["objective"])
    (True, True)

    Reference: Rasmussen & Williams (2006), Gaussian processes for machine learning, chapter 5.
    """
    limit = twin(net) if isinstance(net, nn.Module) else net
    check_prior(limit, task, None)
    check_whole("fit", task)
    task = limit.fed(task)
    limit.check_outputs("fit", task)
    function = limit.kernel_function(like=task.x_train)
    noise = _as_noise(noise, len(task.x_train))
    start = _start(net, function.hyperparameters, over, noise)
    if NOISE in start and not task.y_train.any():
        raise ValueError(
            "fit: all targets are 0, which are the more probable the smaller kernel and noise are: there is no maximum. Give "
            "other targets, or leave noise out of `over`."
        )
    with jax.enable_x64(True):
        x, y = jnp.asarray(task.x_train), jnp.asarray(task.y_train)
        u = {name: jnp.zeros(() if name == NOISE else np.shape(value)) for name, value in start.items()}

        def objectives(function: Any) -> tuple[Any, Any]:
            @jax.jit  # traced once, for values, slopes and searches along lines
            def matrix(u: dict[str, Any]) -> tuple[Any, Any]:
                values = {name: start[name] * jnp.exp(each) for name, each in u.items()}
                variance = values.pop(NOISE, noise)
                return function(x, **values).nngp, variance

            @jax.jit
            def loss(u: dict[str, Any]) -> Any:
                k, variance = matrix(u)
                if objective == "evidence":
                    return -log_marginal_likelihood(k, y, variance) / len(x)
                return -leave_one_out(k, y, variance).log_density.mean()

            return matrix, loss

        trace = list[Any]()
        while True:
            matrix, loss = objectives(function)
            way, function = _minimised(loss, u, steps, tolerance, len(x), _Check(limit, function, start, x, matrix, u))
            trace, u = trace[:-1] + way, way[-1][0]  # where one began again stands once
            if function is None:
                break
        errors = _errors(matrix, u, y.shape[1], objective)
    points = [{name: start[name] * np.exp(each[name]) for name in start} for each, _ in trace]
    history = {name: np.array([point[name] for point in points]) for name in start}
    history["objective"] = -len(x) * np.array([value for _, value in trace])
    values: dict[str, Any] = {name: history[name][-1] for name in start}
    values = {name: value if np.ndim(value) else float(value) for name, value in values.items()}
    spread = {name: abs(values[name]) * errors[name] for name in start}
    found = limit.with_hyperparameters(**_own(values))
    return Fit(found.net if isinstance(net, nn.Module) else found, values.get(NOISE, noise), values, spread,
               float(history["objective"][-1]), history, objective)  # fmt: skip


def _as_noise(noise: Any, points: int) -> Any:
    """A variance as a number, or one for each of so many points, all positive."""
    given = np.asarray(noise, float)
    if given.shape not in ((), (points,)) or (given <= 0).any():
        raise ValueError(
            f"fit: noise is a variance, a number above 0 or one for each of the {points} points; got {checks.shown(noise)}."
        )
    return given if given.ndim else float(given)


def _start(net: Any, known: dict[str, Any], over: tuple[str, ...], noise: Any) -> dict[str, Any]:
    found = {}
    for name in dict.fromkeys(over):
        if name != NOISE and name not in known:
            zero = getattr(net, name, None) == 0
            why = (
                f"{name} is 0 in the definition: start from another value"
                if zero
                else did_you_mean(name, [*known, NOISE])
            )
            raise ValueError(f"fit: {name_of(net)} has no number {name} to fit. {why}")
        found[name] = noise if name == NOISE else np.array(known[name], float)
    if not found:
        raise ValueError(f"fit: over is empty; name what to fit, of {', '.join([*known, NOISE])}.")
    return {name: value if np.ndim(value) else float(value) for name, value in found.items()}


def _minimised(
    loss: Callable[[Any], Any],
    u: dict[str, Any],
    steps: int,
    tolerance: float,
    points: int,
    check: "_Check",
) -> tuple[list[tuple[dict[str, Any], float]], Any]:
    """(the way to the minimum of the loss, None), or (that to where series are too short, a kernel function of longer ones)."""
    optimiser = optax.lbfgs()
    state, both = optimiser.init(u), optax.value_and_grad_from_state(loss)

    @jax.jit
    def step(u: Any, state: Any) -> Any:
        value, slope = both(u, state=state)
        updates, state = optimiser.update(slope, state, u, value=value, grad=slope, value_fn=loss)
        return optax.apply_updates(u, updates), state, value, optax.tree.norm(slope, ord=jnp.inf)

    trace = []
    with patient_bar("steps of L-BFGS", steps + 1) as advance:
        for _ in range(steps + 1):
            after, state, value, size = step(u, state)
            trace.append((jax.tree.map(np.asarray, u), float(value)))
            if not np.isfinite(value):
                raise ValueError(
                    f"fit: after {len(trace) - 1} steps the kernel plus noise is not positive definite at {_at(u)}: start from a "
                    "larger noise, or fit fewer numbers."
                )
            done = bool(float(size) <= tolerance)
            longer = check.longer(u, done)
            if done or longer is not None:
                return trace, longer
            check.noise(u)
            u = after
            advance()
    raise ValueError(
        f"fit: after {steps} steps the gradient of the objective is still {float(size) * points:.2e} (it must fall below "
        f"tolerance × points = {tolerance * points:.2e}) at {_at(u)}: raise steps or tolerance, or fit fewer numbers."
    )


class _Check:
    """What is asked on the way: whether noise is left, and whether the series of a kernel function are long enough."""

    def __init__(self, limit: Any, function: Any, start: dict[str, Any], x: Any, matrix: Callable, u: Any) -> None:
        self.limit, self.function, self.start, self.x, self.matrix, self.seen = limit, function, start, x, matrix, u

    def noise(self, u: dict[str, Any]) -> None:
        """Raises where the noise has become less than rounding of the kernel."""
        if NOISE not in u or u[NOISE] > _TINY:
            return
        k, variance = self.matrix(u)
        if np.max(variance) < len(k) * np.finfo(float).eps * np.diagonal(k).mean():
            raise ValueError(
                f"fit: what is maximised rises without bound as the noise goes to 0 (now {_at(u)} of their start, where the "
                "noise is less than rounding of the kernel): targets are the same where inputs are, or a function of few "
                "numbers, such as a constant. Leave noise out of `over` and give it, or give each input once."
            )

    def longer(self, u: dict[str, Any], done: bool) -> Any:
        """The kernel function of a definition with these numbers, where that has longer series; otherwise None.

        Series are as long as the numbers need at which one starts. They are asked for in the end, and where numbers have doubled;
        half the orders that kernels keep to rounding are more than enough beside the error of what is found.
        """
        moved = [np.abs(np.asarray(u[name]) - np.asarray(self.seen[name])).max() for name in u if name != NOISE]
        if not moved or max(moved) < (1e-3 if done else np.log(2)):
            return None
        self.seen = u
        found = self.limit.with_hyperparameters(
            **_own({name: self.start[name] * np.exp(each) for name, each in u.items()})
        )
        other = found.kernel_function(like=np.asarray(self.function.like))
        pairs = zip(self.function.orders(self.x), other.orders(self.x), strict=False)
        return other if any(needed >= 4 * had for had, needed in pairs) else None


def _own(values: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a definition among these."""
    return {name: tuple(v.tolist()) if np.ndim(v) else float(v) for name, v in values.items() if name != NOISE}


def _at(u: dict[str, Any]) -> str:
    """How far the numbers have gone."""
    return ", ".join(f"{name} × {np.array2string(np.exp(np.asarray(each)), precision=3)}" for name, each in u.items())


def _errors(matrix: Callable[[Any], Any], u: dict[str, Any], outputs: int, objective: str) -> dict[str, Any]:
    """Standard errors of the logarithms, by the Fisher information or what takes its place."""

    def with_noise(flat: Any) -> Any:
        k, variance = matrix(unflatten(flat))
        return k + jnp.diag(jnp.broadcast_to(variance, (len(k),)))

    flat, unflatten = ravel_pytree(u)
    work = _fisher if objective == "evidence" else _curvature_and_slopes
    curvature, slopes = (outputs * np.asarray(a) for a in jax.jit(lambda flat: work(with_noise, flat))(flat))
    size, directions = np.linalg.eigh((curvature + curvature.T) / 2)
    flat_here = size[0] < _FLAT**-2
    if not flat_here:
        inverse = (directions / size) @ directions.T
        covariance = inverse @ slopes @ inverse
        spread, across = np.linalg.eigh((covariance + covariance.T) / 2)
        flat_here = spread[-1] > _FLAT**2
        directions = across[:, ::-1]
    if flat_here:
        names = [
            f"{name}[{i}]" if np.ndim(each) else name for name, each in sorted(u.items()) for i in range(np.size(each))
        ]
        moves = [f"{name} × {np.exp(d):.3g}" for name, d in zip(names, directions[:, 0], strict=True) if abs(d) > 0.1]
        raise ValueError(
            f"fit: the data do not determine these numbers: along {', '.join(moves)} (or the inverse) the kernel does not "
            f"change, or one of them goes to 0 (now {_at(u)} of their start). Leave one out of `over`, or give another noise."
        )
    return jax.tree.map(np.asarray, unflatten(jnp.sqrt(jnp.asarray(np.diag(covariance)))))


def _fisher(with_noise: Callable[[Any], Any], flat: Any) -> tuple[Any, Any]:
    """½ tr(A⁻¹ ∂A A⁻¹ ∂A), which is curvature and covariance of slopes of the evidence."""
    a, moves = with_noise(flat), jax.jacfwd(with_noise)(flat)  # [n, n, numbers]
    half = jnp.linalg.solve(a, moves.reshape(len(a), -1)).reshape(moves.shape)
    information = 0.5 * jnp.einsum("abi,baj->ij", half, half)
    return information, information


def _curvature_and_slopes(with_noise: Callable[[Any], Any], flat: Any) -> tuple[Any, Any]:
    """(mean curvature, covariance of slopes) of leave-one-out, −½ yᵀB y + ½ Σ log (A⁻¹)_ii, for y ~ N(0, A)."""
    a = with_noise(flat)

    def parts(flat: Any) -> tuple[Any, Any]:
        inverse = jnp.linalg.inv(with_noise(flat))
        precision = jnp.diag(inverse)
        return (inverse / precision[None]) @ inverse, 0.5 * jnp.log(precision).sum()

    def mean(flat: Any) -> Any:
        b, volume = parts(flat)
        return 0.5 * (b * a).sum() - volume

    moves = jnp.einsum("abi,bc->aci", jax.jacfwd(lambda flat: parts(flat)[0])(flat), a)
    return jax.hessian(mean)(flat), 0.5 * jnp.einsum("abi,baj->ij", moves, moves)
