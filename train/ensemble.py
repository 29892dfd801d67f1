"""The finite side of a comparison: many networks of one definition, trained at once."""

import math
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import Progress, TimeElapsedColumn

from limits import Task, Trajectory
from limits.fields.sweep import OVERFLOWS
from limits.finite.forward import checked_kernels, shows_inside, unrecorded
from limits.finite.observables import DEFAULT, OBSERVABLES
from limits.inputs import as_fed, check_outputs, task_of
from limits.kept.memory import memory_left
from limits.kept.precision import full_products
from limits.program.closed import check_scale
from limits.program.undefined import check_defined
from limits.runs import Reduce, Runs
from limits.training import LearningRate, Training, checked_times, record_times
from limits.types import Provenance
from train.members import Data, Dials, Steps, member_keys, programs
from zoo import checks
from zoo.abstract import abstract
from zoo.definition import check_definition, definition_of, is_ours

_LARGEST_CHUNK = 64
_DIGITS = 1e-4  # of targets: rounding of outputs, of which 200 steps make some ten times as much
_CPU_CHUNK_BYTES = 2**26  # more at once is slower on a CPU: buffers leave the cache and their pages are new each time


def member_bytes(net: Any, task: Task, recorded: int, kernels: tuple[str, ...]) -> int:
    """About what one member needs while it trains and while its kernels are measured."""
    n, real = len(task.x), jnp.asarray(0.0).dtype
    size, kind = real.itemsize, task.x.dtype if task.x.dtype.kind in "iu" else real

    def shapes(key: Any, x: Any) -> Any:
        variables = net.init(key, x[:1])
        return variables["params"], net.apply(variables, x, intermediates=True)[1]["h"] if shows_inside(net) else ()

    params, hidden = jax.eval_shape(shapes, jax.random.key(0), abstract(task.x.shape, kind))
    weights, fields = (sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree)) for tree in (params, hidden))
    window = definition_of(net).kernel ** 2 if "ntk" in kernels else 1  # the tangent kernel needs what each window sees
    held = (recorded + 2) * n * n * sum(len(hidden) if OBSERVABLES[name].layered else 1 for name in kernels)
    return size * (4 * weights + 2 * fields * (1 + task.outputs + window) + held)


def chunk_size(net: Any, task: Task, members: int, recorded: int, kernels: tuple[str, ...] = DEFAULT) -> int:
    """How many members run at once: a multiple of the devices, within half of the free memory."""
    need, have = member_bytes(net, task, recorded, kernels), memory_left()
    devices = jax.device_count()
    fitting = int(have / 2 // max(need, 1)) // devices * devices
    if fitting < 1:
        raise MemoryError(
            f"One member needs about {need * devices / 2**30:.1f} GiB on {devices} device(s) and {have / 2**30:.1f} GiB are "
            f"free: use fewer points (now {len(task.x)}), fewer recorded times (now {recorded}), or kernels=()."
        )
    largest = _LARGEST_CHUNK
    while jax.default_backend() == "cpu" and largest > devices and largest * need > _CPU_CHUNK_BYTES:
        largest //= 2
    even = -(
        -members // -(-members // min(largest, fitting))
    )  # 96 members: twice 48 rather than 64 and 32 padded to 64
    return min(fitting, -(-even // devices) * devices)


def run_members(
    net: Any,
    task: Task,
    training: Training,
    members: int,
    times: Sequence[int] | np.ndarray | None = None,
    seed: int = 0,
    kernels: tuple[str, ...] = DEFAULT,
    kernel_times: Sequence[int] | np.ndarray | None = None,
    observe: Callable[[Any, Any, Any], Any] | None = None,
    chunk: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Trains members a chunk at a time and yields what was seen: each leaf is [members of the chunk, time, …].

    Keys: f [.., n, outputs], of targets at positions [.., n, t, outputs]; of `kernels` phi and g (tuples by layer), ntk
    [.., n, n]; "observed" where asked for. The kernels, which cost more than the outputs, are taken at `kernel_times`
    (default: all recorded times).
    """
    if members < 1:
        raise ValueError(f"ensemble: members must be at least 1, got {members}.")
    task = as_fed(net, task)
    check_outputs("ensemble", net, task)
    if not is_ours(net):
        check_scale(net, task.x_train)
    recorded = record_times(len(training.rates), times)
    data, dials, n = Data.of(task), Dials.of(net), len(task.x_train)
    at = recorded if kernel_times is None else np.asarray(kernel_times)
    absent = unrecorded(net, task.x)
    kernels = tuple(name for name in kernels if name not in absent)
    compiled = programs(net, task, training, kernels, observe)
    size = chunk or chunk_size(net, task, members, len(at), kernels)
    for first in range(0, members, size):
        variables, state = compiled.init(member_keys(seed, first, size), dials, data)
        start, now, outputs, seen = variables, 0, [], []
        if training.centred and not first:  # else what is learned is as large as the outputs
            _check_digits(np.asarray(compiled.outputs(start, dials, data)), task)
        for t in recorded.tolist():
            if t > now:
                variables, state = compiled.advance(variables, state, start, dials, data, Steps.of(training, n, now, t))
                now = t
            outputs.append(np.asarray(compiled.outputs(variables, dials, data)))
            check_defined(net, task.x, outputs[-1])
            _check_finite(outputs[-1], t, first, training.largest_rate)
            if t in at and (kernels or observe):
                seen.append(jax.tree.map(np.asarray, compiled.kernels(variables, dials, data)))
        f = np.stack(outputs, axis=1)
        if training.centred:
            f -= f[:, :1] if recorded[0] == 0 else np.asarray(compiled.outputs(start, dials, data))[:, None]
        together = jax.tree.map(lambda *parts: np.stack(parts, axis=1), *seen) if seen else {}
        kept = slice(min(size, members - first))
        yield {name: jax.tree.map(operator.itemgetter(kept), value) for name, value in {"f": f, **together}.items()}


def _check_digits(f: np.ndarray, task: Task) -> None:
    """Warns where the rounding of outputs at the start counts beside what they are to learn."""
    size = float(np.sqrt(np.mean(task.targets**2))) if task.loss == "mse" else 1.0
    largest = float(np.abs(f).max(initial=0))
    rounding = float(np.finfo(f.dtype).eps) * largest
    if np.isfinite(largest) and rounding > _DIGITS * size > 0:
        warnings.warn(
            f"ensemble: outputs at the start reach {largest:.1e}, which {f.dtype} rounds by {rounding:.0e} at every step, and "
            f"targets are of size {size:.1g}: of what is learned few digits are right. Divide the inputs by their size, or run "
            "in float64: with jax.enable_x64(True).",
            stacklevel=5,
        )


def _check_finite(f: np.ndarray, step: int, first: int, learning_rate: float | None) -> None:
    broken = ~np.isfinite(f).all(axis=tuple(range(1, f.ndim)))
    if broken.any():
        what = "the learning rate" if learning_rate is None else f"the learning rate {learning_rate:g}"
        why = f"{what} is too large for this width, or the signal overflows; lower learning_rate or w_std."
        why = why if step else OVERFLOWS
        raise FloatingPointError(
            f"{broken.sum()} of {len(f)} members had infinite or NaN outputs at step {step} (first: member "
            f"{first + int(np.argmax(broken))}): {why}"
        )


@checks.arguments(
    net=checks.module,
    members=checks.whole & checks.count(-(2**31)),
    task=task_of,
    learning_rate=checks.real | checks.function,
    optimizer=checks.word | checks.transformation | checks.function,
    seed=checks.key,
    momentum=checks.real,
    weight_decay=checks.number(),
    trained=checks.names,
    batches=checks.array(least=1),
    centred=checks.flag,
    observe=checks.function,
    progress=checks.flag,
    reduce=checks.function,
)
@full_products()
def ensemble(
    net: Any,
    task: Task,
    members: int,
    steps: int,
    learning_rate: LearningRate | None = None,
    *,
    optimizer: Any = None,
    times: Sequence[int] | np.ndarray | None = None,
    seed: int = 0,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    trained: tuple[str, ...] | None = None,
    batches: Any = None,
    centred: bool = False,
    kernels: tuple[str, ...] = DEFAULT,
    observe: Callable[[Any, Any, Any], Any] | None = None,
    progress: bool = False,
    kernel_times: Sequence[int] | np.ndarray | None = None,
    reduce: Reduce | None = None,
) -> Trajectory:
    """Trains `members` networks by gradient descent; means over members, with standard errors.

    learning_rate is η₀: the definition's width, depth and γ₀ factors come on top; it may be a function of the step (an
    Optax schedule). `batches` [steps, size] names the training points of every step (default: all). `centred` subtracts
    f(0) in the loss and the output; `momentum`, `weight_decay` and `trained` are explained in `limits.Training`.
    `observe(net, variables, x)` may return any array, recorded as observed["observe"]. In float32, or in float64 under
    `jax.enable_x64(True)`. `kernels` names the kernels to record, of phi, g, ntk. Members are spread over the devices
    there are. Networks with batch normalisation: see `rich`. Of targets at positions, the outputs recorded are those of the
    positions that count, sample by sample, [time, points, outputs]; phi is a mean over positions, g and ntk are absent.

    Members are trained a chunk at a time, and of each only its share of the means stays. `reduce` is given every chunk, as a
    `Trajectory` with a first axis of members; what it returns, a dictionary of arrays with that axis, is put together in
    `reduced`: whatever is wanted of single members, however many there are. Outputs are recorded at `times` (default: eleven,
    evenly from 0 to `steps`), kernels, which cost more, at `kernel_times`, some of them (default: `times`).

    >>> from zoo import MLP
    >>> task = Task([[1.0, 0.0]], [1.0], [[0.0, 1.0]], [0.0])
    >>> run = ensemble(MLP(width=16, depth=1), task, members=4, steps=10, learning_rate=0.5)
    >>> run.f_train.shape, run.ntk_sem.shape, bool(run.loss[-1] < run.loss[0])
    ((11, 1, 1), (11, 2, 2), True)
    >>> each = ensemble(MLP(width=16, depth=1), task, 4, 10, 0.5, kernels=(), reduce=lambda runs: {"end": runs.f_test[:, -1]})
    >>> each.reduced["end"].shape
    (4, 1, 1)
    """
    check_definition("ensemble", net)
    task, recorded, kernels = as_fed(net, task), record_times(steps, times), checked_kernels(kernels)
    at = checked_times(kernel_times, recorded)
    training = Training.of(
        task, steps, learning_rate, momentum, weight_decay, centred, trained, batches, optimizer, net
    )
    training.check_optimizer("ensemble", net, task.x)
    runs, everyone = Runs(task, recorded, unrecorded(net, task.x), at, reduce), []
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), disable=not progress) as bar:
        counter = bar.add_task(f"{members} × width {net.width}", total=members)
        for seen in run_members(net, task, training, members, recorded, seed, kernels, at, observe):
            runs.add(seen, {"observe": seen["observed"]} if "observed" in seen else {})
            everyone.append(task.at_points(seen["f"].astype(np.float64), 2))
            bar.advance(counter, len(seen["f"]))
    spread, errors = _spread(np.concatenate(everyone), task.n_train)
    how = Provenance.monte_carlo(f"{members} members of width {net.width}", members)
    return runs.mean(how, f"ensemble of {members}, width {net.width}", spread, errors)


def _spread(f: np.ndarray, n: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(the covariances of outputs f [member, time, n, k] over members, averaged over outputs; their standard errors)."""
    away = f - f.mean(0)
    freedom = (len(f) - 1) * f.shape[-1] or np.nan  # one network says nothing of it
    cov = np.einsum("mtik,mtjk->tij", away, away) / freedom
    spread = {"f_train_cov": cov[:, :n, :n], "f_test_cov": cov[:, n:, n:]}
    errors = {}
    for name, part in spread.items():  # the sampling error of a Gaussian covariance
        variance = np.diagonal(part, axis1=1, axis2=2)
        errors[name] = np.sqrt((part**2 + variance[:, :, None] * variance[:, None, :]) / freedom)
    return spread, errors
