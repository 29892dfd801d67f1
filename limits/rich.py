"""Training with feature learning: dynamical mean-field theory, by a causal sweep with sampled neurons."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track

from limits.fields.network import coordinates_needed
from limits.fields.sweep import Sweep, check_finite, check_rank
from limits.lazy import losses, record_times
from limits.rule import Rule
from limits.trajectory import Trajectory
from limits.types import AbsentError, Provenance, Task
from zoo import CNN, MLP, ResNet, activation_function, parameterization
from zoo.activations import PiecewiseLinear

_MOST_COORDINATES = 8192  # of an exact linear sweep

_NOT_RICH = (
    "{name} has no limit with feature learning: in the {p} parameterization {what}. "
    'Use parameterization="mup", whose features move by O(1) at any width{instead}.'
)


def rich(
    twin: Any,
    task: Task,
    steps: int,
    learning_rate: float,
    samples: int = 2048,
    replicas: int = 4,
    key: Any = 0,
    times: Sequence[int] | np.ndarray | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    trained: tuple[str, ...] | None = None,
    centred: bool = False,
    kernels: tuple[str, ...] = ("phi", "g", "ntk"),
    dtype: Any = np.float32,
    progress: bool = False,
) -> Trajectory:
    """Full-batch gradient descent at infinite width in `mup`: features, gradients and predictions move together.

    Every matrix between hidden layers stays Gaussian along all directions it has not met, so that `samples` neurons a
    layer suffice (see `limits.fields.matrix`): the law is that of a network of width `samples`, whose deviation from the
    limit is O(1/samples), at a cost linear in `samples`. Numbers are means over `replicas` independent sweeps, with
    standard errors. f(0) is 0 in this limit, so what sampling leaves of it is subtracted, with `centred` or without.
    Linear MLPs, CNNs and ResNets are exact: coordinates take the place of samples (`limits.fields.exact`). `momentum`,
    `weight_decay` and `trained` are those of `ensemble`.

    >>> from zoo import MLP
    >>> from limits import twin
    >>> task = Task([[1.0, 0.0]], [1.0], [[0.0, 1.0]], [0.0])
    >>> net = MLP(width=8, depth=2, activation="erf", parameterization="mup")
    >>> run = twin(net).rich(task, steps=10, learning_rate=0.5, samples=256, kernels=())
    >>> bool(run.loss[-1] < 0.1 * run.loss[0]), run.f_train.shape
    (True, (11, 1, 1))

    Reference: Bordelon & Pehlevan (2022), Self-consistent dynamical field theory of kernel evolution in wide neural
    networks. Divergence: there the kernels and responses are iterated to a fixed point; here time is swept once.
    """
    del centred
    recorded = record_times(steps, times)
    rule = Rule(task.loss, momentum, weight_decay, True, trained)
    each, how = sweeps(twin.net, task, rule, learning_rate, recorded, samples, replicas, key, kernels, dtype, progress)
    return _trajectory(task, recorded, each, kernels, how)


def sweeps(
    net: Any,
    task: Task,
    rule: Rule,
    rate: float,
    times: np.ndarray,
    samples: int,
    replicas: int,
    key: Any = 0,
    kernels: tuple[str, ...] = (),
    dtype: Any = np.float32,
    progress: bool = False,
    kernel_times: Sequence[int] | np.ndarray | None = None,
) -> tuple[dict[str, Any], Provenance]:
    """(what independent sweeps saw: leaves [replica, time, …], where the numbers come from); one sweep if it is exact.

    Kernels, which cost more than outputs, are taken at `kernel_times` (default: all times).
    """
    at = times if kernel_times is None else np.asarray(kernel_times)
    _check(net)
    if samples < 2 or replicas < 2:
        raise ValueError(f"rich: samples and replicas must be at least 2, got {samples} and {replicas}.")
    if _is_linear(net):
        exact = _exact(net, task, rule, times, rate, kernels, at)
        if exact is not None:
            return exact, Provenance("exact", "linear network: closed equations of its kernels")
    root = jax.random.key(key) if isinstance(key, int) else key
    with jax.enable_x64(dtype == np.float64):
        x, y, n = jnp.asarray(task.x, dtype), jnp.asarray(task.y_train, dtype), len(task.x_train)
        sweep = _sweep(net.clone(width=samples), rule, x.shape, n, str(x.dtype))
        chosen = track(
            range(replicas),
            f"{replicas} sweeps of {samples} samples",
            console=Console(stderr=True),
            disable=not progress,
        )
        runs = [_run(sweep, jax.random.fold_in(root, r), x, y, n, times, rate, kernels, at) for r in chosen]
    each = jax.tree.map(lambda *parts: np.stack(parts).astype(np.float64), *runs)
    return each, Provenance("monte_carlo", f"{replicas} sweeps of {samples} samples; O(1/{samples}) dropped")


def _is_linear(net: Any) -> bool:
    phi = activation_function(net.activation)
    return isinstance(net, (MLP, CNN, ResNet)) and isinstance(phi, PiecewiseLinear) and phi.negative == phi.positive


def _exact(
    net: Any, task: Task, rule: Rule, times: np.ndarray, rate: float, kernels: tuple[str, ...], at: Any
) -> dict[str, Any] | None:
    """A linear network without sampling, in float64; None where that needs too many coordinates."""
    with jax.enable_x64(True):
        x, y, n = jnp.asarray(task.x), jnp.asarray(task.y_train), len(task.x_train)
        plain = _sweep(net, rule, x.shape, n, "float64")
        room = (1 + task.outputs) * plain.at_start + (int(times[-1]) + 1) * plain.per_pass
        needed = coordinates_needed(net, jax.ShapeDtypeStruct(x.shape, x.dtype), room)
        if needed > _MOST_COORDINATES:
            return None
        stages = 2 ** (getattr(net, "stages", 1) - 1)
        sweep = _sweep(net.clone(width=-(-needed // stages) * stages), rule, x.shape, n, "float64", room)
        run = _run(sweep, jax.random.key(0), x, y, n, times, rate, kernels, at)
    return jax.tree.map(lambda a: np.stack([a]), run)


@functools.lru_cache(maxsize=16)
def _sweep(net: Any, rule: Rule, shape: tuple[int, ...], n_train: int, dtype: str, exact: int | None = None) -> Sweep:
    return Sweep(net, rule, shape, n_train, dtype, exact)


def _check(net: Any) -> None:
    """Raises unless features learn in this parameterization, and stay finite."""
    p, name = parameterization(net.parameterization), type(net).__name__
    if p.d < 0.5 and p.tangent_exponent("hidden") <= 0:
        instead = "; or lazy, which is this network's own limit"
        raise AbsentError(_NOT_RICH.format(name=name, p=p.name, what="features stay where they are", instead=instead))
    if p.d != 0.5 or p.tangent_exponent("hidden") != 0:
        raise AbsentError(
            _NOT_RICH.format(name=name, p=p.name, what="outputs or features move without bound", instead="")
        )
    if getattr(net, "norm", None) == "batch":
        raise AbsentError(f'{name}: rich does not cover batch normalisation; use norm="layer" or norm=None.')


def _run(
    sweep: Sweep,
    key: Any,
    x: Any,
    y: Any,
    n: int,
    times: np.ndarray,
    rate: float,
    kernels: tuple[str, ...],
    at: np.ndarray,
) -> dict[str, Any]:
    """What was seen at the recorded times, and of the kernels at the times `at`: leaves [time, …]."""
    begin, walk, look = (jax.random.fold_in(key, i) for i in range(3))
    state, now = sweep.begin(begin, x), 0
    offset, outputs, seen = np.asarray(state.offset), [], []
    for t in times.tolist():
        while now < t:
            state, _ = sweep.step(state, x[:n], y, jax.random.fold_in(walk, now), rate)
            now += 1
        check_rank(state, t, sweep.at_start + int(times[-1]) * sweep.per_pass)
        names = kernels if t in at else ()
        found = jax.tree.map(np.asarray, sweep.measure(state, x, jax.random.fold_in(look, t), names))
        check_finite(found["f"], t, rate)
        outputs.append(found["f"] - offset)
        if names:
            seen.append({name: found[name] for name in names})
    return {"f": np.stack(outputs), **(jax.tree.map(lambda *parts: np.stack(parts), *seen) if seen else {})}


def _trajectory(
    task: Task, times: np.ndarray, runs: dict[str, Any], kernels: tuple[str, ...], how: Provenance
) -> Trajectory:
    """Means over the first axis, with their standard errors (zero where there is one run, which is exact)."""
    n, f = len(task.x_train), runs["f"]
    each = {"f_train": f[:, :, :n], "f_test": f[:, :, n:], "loss": losses(task, f[:, :, :n], task.y_train)}
    if len(task.x_test):
        each["test_loss"] = losses(task, f[:, :, n:], task.y_test)
    each |= {name: runs[name] for name in kernels}
    values = jax.tree.map(lambda a: a.mean(0), each)
    errors = jax.tree.map(lambda a: a.std(0, ddof=1) / len(a) ** 0.5, each) if len(f) > 1 else {}
    zero: dict[str, Any] = {
        name: np.zeros((len(times), size, size))
        for name, size in (("f_train_cov", n), ("f_test_cov", len(task.x_test)))
    }
    return Trajectory(
        times=times,
        **values,
        **zero,
        errors=errors,
        provenance=dict.fromkeys(values, how) | dict.fromkeys(zero, Provenance("exact", "no spread at infinite width")),
        source="rich",
    )
