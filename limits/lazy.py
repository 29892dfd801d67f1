"""Training in the kernel regime: the infinite-width limit in which features stay where they were."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import flax.traverse_util
import jax
import numpy as np

from limits import predict
from limits.finite.forward import AT_POSITIONS, checked_kernels
from limits.finite.observables import DEFAULT
from limits.initial import Initial
from limits.inputs import task_of, twin_of
from limits.kept.precision import full_products
from limits.losses import losses
from limits.predict.steps import MOST
from limits.training import LearningRate, Training, checked_times, record_times
from limits.trajectory import KERNELS, QUANTITIES, Trajectory
from limits.types import AbsentError, Provenance, Task
from zoo import checks
from zoo.abstract import abstract, variables_of
from zoo.roles import factors
from zoo.scaled import at_size


@checks.arguments(
    twin=twin_of,
    task=task_of,
    learning_rate=checks.real | checks.function,
    optimizer=checks.word | checks.transformation | checks.function,
    momentum=checks.real,
    weight_decay=checks.real,
    trained=checks.names,
    batches=checks.array(least=1),
    centred=checks.flag,
    flow=checks.flag,
    samples=checks.count(2),
    seed=checks.seed,
    initial=checks.a(Initial, "a limits.Initial, which twin.initial makes"),
)
@full_products()
def lazy(
    twin: Any,
    task: Task,
    steps: int,
    learning_rate: LearningRate | None = None,
    *,
    optimizer: Any = None,
    times: Sequence[int] | np.ndarray | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    trained: tuple[str, ...] | None = None,
    batches: Any = None,
    centred: bool = False,
    flow: bool = False,
    samples: int = 256,
    seed: int = 0,
    kernels: tuple[str, ...] = DEFAULT,
    kernel_times: Sequence[int] | np.ndarray | None = None,
    initial: Initial | None = None,
) -> Trajectory:
    """Gradient descent (or `flow`) with the twin's NTK: mean and spread over initialisations.

    For "mse" exact: outputs stay Gaussian. For "cross_entropy" the mean over initialisations is taken over `samples`
    draws of f(0) (Monte-Carlo, with standard errors); `centred` (f(0) subtracted) is exact for both. Reported losses are
    means over initialisations, so they include the spread. Recorded are `times` (default: eleven, evenly from 0 to `steps`)
    and, of kernels, those that `kernels` names, at `kernel_times` as in `ensemble`. `learning_rate` may be a function of the
    step, `batches` [steps, size] names the training points of every step, and parameters that are not of the roles and layers
    `trained` stay where they are. Weight decay has no kernel regime: it shrinks the network itself. `optimizer`, as in `rich`: a
    rule that is linear in the gradients and the same for all parameters; under others (Adam, Muon) the outputs do not follow the
    tangent kernel, and it is refused (`limits.predict.LinearRule`). `initial` is `twin.initial(task.x)`,
    where it was made before. Of targets at positions, outputs follow the kernel between positions (points are the positions
    that count).

    >>> from zoo import MLP
    >>> from limits import twin
    >>> task = Task([[1.0, 0.0]], [1.0], [[0.0, 1.0]], [0.0])
    >>> run = twin(MLP(width=8, depth=1)).lazy(task, steps=100, learning_rate=1.0)
    >>> round(float(run.f_train[-1, 0, 0]), 6)
    1.0
    """
    recorded, kernels = record_times(steps, times), checked_kernels(kernels)
    at = checked_times(kernel_times, recorded)
    task = twin.fed(task)
    twin.check_outputs("lazy", task)
    twin.check_training(task.x)
    x, n = task.x, task.n_train
    if weight_decay:
        raise AbsentError(
            f"lazy: weight decay ({weight_decay:g}) moves all weights by O(1), so that no kernel stays constant; use "
            "`rich` in the mup parameterization, or weight_decay=0."
        )
    net = None if optimizer is None else twin.net  # a combination of limits has none
    training = Training.of(task, steps, learning_rate, momentum, 0.0, centred, trained, batches, optimizer, net)
    training.check_optimizer("lazy", net, x)
    if trained is not None:
        twin = twin.of_trained(trained)
    twin.check_start("lazy", x, centred)
    start_of = twin.initial(x) if initial is None else _of_these(initial, twin, x)
    limit = start_of.kernels
    ntk = task.between_points(limit.ntk)
    start = np.zeros_like(ntk) if centred else task.between_points(start_of.covariance)
    how: dict[str, Any] = {
        "momentum": momentum,
        "flow": flow,
        "weights": None if batches is None else training.weights(len(task.x_train), task.sample_of_point),
        "rule": None if training.optimizer is None else _linear(net, training, x, n),
    }
    rate = (float(training.rates[0]) if steps else 0.0) if training.plain else training.rates
    errors, test_targets = dict[str, Any](), task.test_targets if task.scored else None
    if task.loss == "mse" or not start.any():
        if task.loss == "mse":
            with np.errstate(over="ignore", invalid="ignore"):  # said below
                f, cov = predict.mse_ensemble(start, ntk, task.targets, recorded, rate, **how)
        else:
            zero = np.zeros((len(ntk), task.outputs))
            f = _cross_entropy(task, ntk, zero, recorded, rate, how)
            cov = np.zeros((len(recorded), *ntk.shape))
        _check_finite(f, cov, recorded, float(np.max(rate, initial=0.0)))
        variance = np.diagonal(cov, axis1=1, axis2=2)
        loss = losses(task, f[:, :n], task.targets, variance[:, :n])
        test_loss = None if test_targets is None else losses(task, f[:, n:], test_targets, variance[:, n:])
        provenance = kernel_of_training(limit.provenance["ntk"])
    else:
        draws = _draw(start, samples, task.outputs, seed)
        each = _cross_entropy(task, ntk, draws, recorded, rate, how)
        _check_finite(each.reshape(len(each), len(ntk), -1), start[None], recorded, float(np.max(rate, initial=0.0)))
        f = each.mean(1)
        away = each - f[:, None]
        cov = np.einsum("tsik,tsjk->tij", away, away) / ((samples - 1) * task.outputs)
        part = {"loss": losses(task, each[..., :n, :], task.targets)}
        if test_targets is not None:
            part["test_loss"] = losses(task, each[..., n:, :], test_targets)
        loss, test_loss = part["loss"].mean(1), part["test_loss"].mean(1) if task.scored else None
        errors = {name: value.std(1, ddof=1) / samples**0.5 for name, value in part.items()}
        sem = each.std(1, ddof=1) / samples**0.5
        errors |= {"f_train": sem[:, :n], "f_test": sem[:, n:]}
        for name, rows in {"f_train_cov": slice(None, n), "f_test_cov": slice(n, None)}.items():
            errors[name] = _error_of(cov[:, rows, rows], away[:, :, rows])
        provenance = Provenance.monte_carlo(f"{samples} draws of f(0)", samples)
    if how["rule"] is not None and steps > MOST:
        more = f"the optimiser was tried for {MOST} steps"
        provenance = Provenance(provenance.kind, f"{provenance.detail}; {more}")
    origin: dict[str, Provenance] = dict.fromkeys(QUANTITIES, provenance)
    origin |= dict.fromkeys(KERNELS, limit.provenance["ntk"])
    held: dict[str, Any] = {
        name: jax.tree.map(
            lambda k: _held(k, recorded if at is None else at), ntk if name == "ntk" else getattr(start_of, name)
        )
        for name in kernels
        if not (task.positions and name == "g")
    }
    if task.positions:
        held["g"] = origin["g"] = Provenance("absent", AT_POSITIONS.format(positions=task.positions[0]))
    return Trajectory(
        times=recorded,
        loss=loss,
        test_loss=test_loss,
        f_train=f[:, :n],
        f_test=f[:, n:],
        f_train_cov=cov[:, :n, :n],
        f_test_cov=cov[:, n:, n:],
        **held,
        kernel_times=at,
        errors=errors,
        provenance=origin,
        source="lazy",
    )


def _linear(net: Any, training: Training, x: np.ndarray, n: int) -> predict.LinearRule:
    """The optimiser on the coefficients of tangent features, where the factors of width and depth are in the kernel."""
    points = abstract(x.shape, x.dtype)
    params = variables_of(net, points)["params"]
    flat = flax.traverse_util.flatten_dict
    shapes: Any = flat(params)
    table: Any = flat(factors(net, params, points))
    moves: Any = flat(training.moves(net, points))

    def of(tree: Any) -> Any:
        one = {path: dataclasses.replace(table[path], rate=1.0, size=1.0, width=1.0) for path in flat(tree)}
        return flax.traverse_util.unflatten_dict(one)

    moving = {path: leaf.shape for path, leaf in shapes.items() if moves[path]}
    return predict.LinearRule(lambda rate: at_size(training.made(rate), of), moving, n, training.rates)


def _of_these(initial: Initial, twin: Any, x: np.ndarray) -> Initial:
    other = "another network, or other trained roles" if initial.twin != twin else "other inputs"
    if initial.twin != twin or not np.array_equal(np.asarray(initial.x), x):
        raise ValueError(
            f"lazy: initial is that of {other}; it must be twin.initial(task.x) of the same twin. Its inputs have shape "
            f"{np.shape(initial.x)}, the task's {x.shape}."
        )
    return initial


def _check_finite(f: np.ndarray, cov: np.ndarray, times: np.ndarray, rate: float) -> None:
    bad = ~(np.isfinite(f).all((1, 2)) & np.isfinite(cov).all((1, 2)))
    if bad.any():
        raise FloatingPointError(
            f"Training diverged: outputs were infinite or NaN at step {times[np.argmax(bad)]}: the learning rate {rate:g} is "
            "too large for this kernel; lower it."
        )


def kernel_of_training(ntk: Provenance) -> Provenance:
    """Where outputs come from that are closed in the tangent kernel."""
    if ntk.kind == "exact":
        return Provenance("exact", "closed form")
    return Provenance("approximate", f"closed form in a tangent kernel that is {ntk.kind}: {ntk.detail}")


def _held(kernel: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The same kernel at every time (a view: no memory)."""
    return np.broadcast_to(kernel, (len(times), *kernel.shape))


def _cross_entropy(task: Task, ntk: np.ndarray, f0: np.ndarray, times: Any, rate: Any, how: dict) -> np.ndarray:
    n = task.n_train
    both = predict.cross_entropy_dynamics(
        ntk[:n, :n], task.targets, times, rate, ntk[n:, :n], f0[..., :n, :], f0[..., n:, :], **how
    )
    return np.concatenate(both, axis=-2)


def _error_of(cov: np.ndarray, away: np.ndarray) -> np.ndarray:
    """The standard error of cov [time, n, n], a mean over draws of products of away [time, draw, n, outputs]."""
    squares, draws = np.zeros_like(cov), away.shape[1]
    for i in range(draws):  # one by one: n² numbers each
        squares += (away[:, i] @ away[:, i].swapaxes(1, 2) / away.shape[-1] - cov) ** 2
    return np.sqrt(squares / ((draws - 1) * draws))


def _draw(covariance: np.ndarray, samples: int, outputs: int, seed: int) -> np.ndarray:
    """[samples, n, outputs] Gaussian draws with this covariance, independent over outputs."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    return (np.random.default_rng(seed).normal(size=(samples, outputs, len(covariance))) @ root.T).swapaxes(1, 2)
