"""Independent sweeps of one network: what they see at the recorded times, kept on disk if asked for."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from limits.fields.coupled import Coupled, check_observed
from limits.fields.fourth import PAIR, not_normal, pair_size
from limits.fields.heads import dropped
from limits.fields.kept_sweep import Keep
from limits.fields.little import check_moved
from limits.fields.network import REVEALED, coordinates_needed, vectors_met
from limits.fields.record import needs, reduce
from limits.fields.responses import NOTED, all_responses
from limits.fields.rules import moved_by_entry
from limits.fields.sweep import CausalSweep, FullError, NetworkState, check_apart, check_finite, check_rank
from limits.kept.identity import numerics
from limits.kept.precision import computing_in
from limits.kept.remembered import remembered
from limits.program.undefined import check_defined
from limits.training import Training
from limits.types import Provenance, Task
from zoo import CNN, MLP, ResNet, activation_function
from zoo.abstract import abstract
from zoo.activations import PiecewiseLinear
from zoo.definition import definition_of, is_layered, is_ours

_MOST_COORDINATES = 8192  # of an exact linear sweep
_FEW_COORDINATES = 2048  # that are taken without asking whether fewer would do, which may cost a compilation
_LINEAR_STEPS = 100  # whose directions have room at first


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """What is trained, how, and what is looked at.

    Kernels (of phi, g, ntk), which cost more than outputs, are taken at `kernel_times` (None: at all recorded `times`).
    """

    net: Any
    task: Task
    training: Training
    times: np.ndarray
    kernels: tuple[str, ...] = ()
    kernel_times: Any = None
    observe: Any = None
    record: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """How many training points there are."""
        return len(self.task.x_train)

    @property
    def batch(self) -> int | None:
        """How many of them a step uses; None: all."""
        return None if self.training.batches is None else self.training.batches.shape[1]

    def looks(self, t: int) -> tuple[str, ...]:
        """The kernels to take at this time."""
        kernels = self.kernels if self.kernel_times is None or t in np.asarray(self.kernel_times) else ()
        return (*kernels, *needs(self.record))

    @property
    def length(self) -> dict[str, int]:
        """How many steps there are, and how many looks that are kept (or one that is not)."""
        return {"steps": int(self.times[-1]), "looks": len(self.times) if self.record else 1}

    def points(self, dtype: Any) -> tuple[Any, Any]:
        """(all inputs, the training targets; with which of their positions count, where not all do)."""
        task = self.task
        x, y = jnp.asarray(task.x, None if task.x.dtype.kind in "iu" else dtype), jnp.asarray(task.y_train, dtype)
        return x, y if task.mask_train is None else (y, jnp.asarray(task.mask_train))


def sweeps(
    plan: Plan,
    samples: int,
    replicas: int,
    key: Any = 0,
    dtype: Any = np.float32,
    progress: bool | Progress = False,
    folder: str | Path | None = None,
) -> tuple[dict[str, Any], Provenance]:
    """(what independent sweeps saw: leaves [replica, time, …], where the numbers come from); one sweep if it is exact.

    With `folder`, the state at the last recorded time and all that was seen are kept there, and a sweep that was
    interrupted goes on from them.
    """
    if samples < 2 or replicas < 2:
        raise ValueError(f"rich: samples and replicas must be at least 2, got {samples} and {replicas}.")
    found = exactly(plan)
    if found is not None:
        return found, Provenance("exact", "linear network: closed equations of its kernels")
    each = _replicas(plan, samples, replicas, key, dtype, progress, folder)
    return each, Provenance.monte_carlo(
        f"{replicas} sweeps of {samples} samples; {dropped(plan.net, samples)} dropped", replicas
    )


def exactly(plan: Plan) -> dict[str, Any] | None:
    """What a sweep without sampling sees, of linear networks; None of others."""
    by_rotations = plan.training.optimizer is None  # of Adam's steps coordinates are not neurons
    if by_rotations and plan.observe is None and "fields" not in plan.record and _is_linear(plan.net):
        return _exact(plan)
    return None


def coupled_sweeps(
    plan: Plan,
    samples: int,
    replicas: int,
    key: Any = 0,
    dtype: Any = np.float32,
    progress: bool | Progress = False,
    folder: str | Path | None = None,
    finite: bool = False,
) -> tuple[Coupled, Provenance]:
    """What sweeps of `samples` see, and sweeps of their halves, which share their draws (`coupled.py`).

    finite: asked for at finite width, where hidden weights that are not normal count by more than their variance (`fourth.py`).
    """
    if samples < 4 or samples % 2 or replicas < 2:
        raise ValueError(
            f"rich: sweeps and their halves need an even number of samples, at least 4, and two replicas; got {samples} and "
            f"{replicas}."
        )
    if plan.observe is not None:
        with computing_in(dtype):
            x, _ = plan.points(dtype)
            check_observed(_sweep(plan, samples, x, 1), _sweep(plan, samples // 2, x, 2), x)
    settings = (replicas, key, dtype, progress, folder)
    names, size, pair = list(not_normal(plan.net, plan.task.x)) if finite else [], 0, None
    whole = _replicas(plan, samples, *settings, coupled=1)
    halves = tuple(_replicas(plan, samples // 2, *settings, coupled=2, part=part) for part in (0, 1))
    detail = f"{replicas} sweeps of {samples} samples and of their halves; O(1/{samples}²) dropped"
    if names:
        size = pair_size(plan.net, samples // 2)
        pair = tuple(_replicas(plan, size, *settings, coupled=PAIR, part=part) for part in (1, 0))
        detail += f", O(1/{size}) of the effect of {', '.join(names)}, not normal, by pairs of {size} samples"
    found = Coupled(whole, halves, samples, pair, size)  # pyright: ignore[reportArgumentType]
    return found, Provenance.monte_carlo(detail, replicas)


def _replicas(
    plan: Plan,
    samples: int,
    replicas: int,
    key: Any,
    dtype: Any,
    progress: bool | Progress,
    folder: str | Path | None,
    coupled: int = 0,
    part: int = 0,
) -> dict[str, Any]:
    """What independent sweeps saw: leaves [replica, time, …]."""
    root = jax.random.key(key) if isinstance(key, int) else key
    own = Progress(
        *Progress.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True), disable=not progress
    )
    bar, shown = (progress, contextlib.nullcontext()) if isinstance(progress, Progress) else (own, own)
    runs = []
    with computing_in(dtype), shown:
        x, y = plan.points(dtype)
        sweep, kind = _sweep(plan, samples, x, coupled), str(x.dtype)
        count = bar.add_task(f"{replicas} sweeps of {samples} samples", total=replicas * (int(plan.times[-1]) + 1))
        for r in range(replicas):
            mine = jax.random.fold_in(root, r)
            advance = functools.partial(bar.advance, count)
            run = functools.partial(_run, part=part, looks_back=r == 0 and coupled < 2)
            if folder is None:
                runs.append(run(sweep, plan, mine, x, y, None, advance))
                continue
            task = dataclasses.replace(plan.task, name="")
            shared = (coupled, part) if coupled else ()
            kept = dataclasses.replace(plan, net=sweep.net, task=task)
            keep = Keep(folder, f"sweep_{r}", kept, kind, mine, numerics(), *shared)
            with keep.lock():
                runs.append(run(sweep, plan, mine, x, y, keep, advance))
    return jax.tree.map(lambda *parts: np.stack(parts).astype(np.float64), *runs)


def _sweep(plan: Plan, samples: int, x: Any, coupled: int = 0) -> CausalSweep:
    """That of so many samples, for inputs like x."""
    net, how = plan.net.clone(width=samples), dict[str, Any]({"coupled": coupled} if coupled else {})
    if plan.training.optimizer is not None:
        how["dense"] = moved_by_entry(plan.net, plan.training, x)
    step, kind = plan.training.step, str(x.dtype)
    return compiled_sweep(net, step, x.shape, plan.n, kind, plan.batch, observe=plan.observe, **plan.length, **how)


def _is_linear(net: Any) -> bool:
    alike = isinstance(net, (MLP, CNN, ResNet)) and not is_layered(net)
    phi = activation_function(net.activation) if alike else None
    return isinstance(phi, PiecewiseLinear) and phi.negative == phi.positive


def _exact(plan: Plan) -> dict[str, Any] | None:
    """A linear network without sampling, in float64; None where that needs too many coordinates."""
    with jax.enable_x64(True):
        x, y = plan.points(np.float64)
        for room in _rooms(plan, x):
            found = _in_room(plan, x, y, room)
            if found is not None:
                return jax.tree.map(lambda a: np.stack([a]), found)
    return None


def _rooms(plan: Plan, x: Any) -> Iterator[int]:
    """How many directions a matrix may meet, in the order to be tried.

    A pass through a linear network meets as many vectors as there are points, of which few are new: a step adds to every matrix
    a vector for each output, ∂f/∂h, which the matrices behind carry on. So there are about outputs × matrices of them, fewer
    where the outputs have learnt their targets, and more in convolutions; as many as there are points at most.
    """
    net, outputs, steps = plan.net, plan.task.outputs, int(plan.times[-1]) + 1
    plain = compiled_sweep(net, plan.training.step, x.shape, plan.n, "float64", plan.batch)
    least = plain.at_start + plan.length["looks"] * outputs * plain.at_look
    most = least + steps * plain.per_pass
    if _coordinates(plan, x, most) <= _FEW_COORDINATES:
        yield most
        return
    room = least + plain.per_pass + min(steps, _LINEAR_STEPS) * outputs * len(vectors_met(net, x))
    while room < most:
        yield room
        room *= 2
    yield most


def _coordinates(plan: Plan, x: Any, room: int) -> int:
    """How many stand for all that is drawn, where every matrix has room for so many directions."""
    return coordinates_needed(plan.net, abstract(x.shape, x.dtype), room)


def _in_room(plan: Plan, x: Any, y: Any, room: int) -> dict[str, Any] | None:
    """What an exact sweep sees that has room for so many directions; None where they are more, or need too many coordinates."""
    needed = _coordinates(plan, x, room)
    if needed > _MOST_COORDINATES:
        return None
    stages = 2 ** (definition_of(plan.net).stages - 1)
    wide = plan.net.clone(width=-(-needed // stages) * stages)
    sweep = compiled_sweep(wide, plan.training.step, x.shape, plan.n, "float64", plan.batch, exact=room)
    try:
        return _run(sweep, plan, jax.random.key(0), x, y)
    except FullError:
        return None


@remembered(maxsize=16)
def compiled_sweep(*args: Any, **options: Any) -> CausalSweep:
    """A `CausalSweep` of these arguments, whose programs are compiled once a process."""
    return CausalSweep(*args, **options)


def _run(
    sweep: CausalSweep,
    plan: Plan,
    key: Any,
    x: Any,
    y: Any,
    keep: Keep | None = None,
    advance: Any = lambda steps: None,
    part: int = 0,
    looks_back: bool = False,
) -> dict[str, Any]:
    """What one sweep sees at the recorded times, and of the kernels at theirs: leaves [time, …]."""
    begin, walk, look = (jax.random.fold_in(key, i) for i in range(3))
    times, rows, rates = plan.times.tolist(), plan.training.rows(plan.n), plan.training.rates
    kept = None if keep is None else keep.load(lambda: _shapes(sweep, plan, begin, x))
    ahead = _step_ahead(sweep, plan, begin, x, y) if kept is None else None
    state, now, seen = kept or (sweep.begin(begin, x, part), 0, [])
    before = jax.tree.map(np.array, state.variables["params"]) if looks_back and kept is None else None
    advance(now + 1)
    for t in times[len(seen) :]:
        while now < t:
            if ahead is not None:
                ahead.exception()  # waits; a step that fails says so itself
                ahead = None
            state, _ = sweep.step(state, x, y, rows[now], jax.random.fold_in(walk, now), rates[now])
            now += 1
            advance(1)
        found, state = _look(sweep, plan, state, x, t, jax.random.fold_in(look, t))
        seen.append(found)
        if keep is not None:
            keep.save(state, now, seen)
    check_moved(before, state.variables)
    answers = {}
    if "responses" in plan.record:
        answers = all_responses(state.variables[REVEALED], list(vectors_met(sweep.net, x)), seen)
    names = {name for each in seen for name in each} - set(NOTED)
    stacked = {
        name: jax.tree.map(lambda *parts: np.stack(parts), *[each[name] for each in seen if name in each])
        for name in names
    }
    return reduce(stacked, plan.record) | answers


def _step_ahead(sweep: CausalSweep, plan: Plan, key: Any, x: Any, y: Any) -> Future | None:
    """The compilation of a step, begun beside that of the start and of the first look; None where it cannot be told ahead."""
    dtype = jnp.asarray(y[0] if isinstance(y, tuple) else y).dtype
    if sweep.begun or plan.record or not plan.times[-1]:  # a look that is kept leaves a state of another size
        return None
    sweep.begun, state = True, sweep.shapes_at_start(key, x)
    given = x, y, plan.training.rows(plan.n)[0], jax.random.fold_in(key, 0), plan.training.rates[0]

    def compiled() -> None:
        with computing_in(dtype):  # settings belong to a thread
            sweep.step_ahead(state, *given)

    pool = ThreadPoolExecutor(1)
    begun = pool.submit(compiled)
    pool.shutdown(wait=False)
    return begun


def _shapes(sweep: CausalSweep, plan: Plan, key: Any, x: Any) -> tuple[NetworkState, dict[str, Any]]:
    """What a state and a look at it consist of. Nothing is computed."""
    state = sweep.shapes_at_start(key, x)
    looks = [sweep.shapes(state, x, key, names) for names in {plan.looks(t) for t in plan.times.tolist()}]
    return state, {name: value for each in looks for name, value in each.items()}


def _look(
    sweep: CausalSweep, plan: Plan, state: NetworkState, x: Any, t: int, key: Any
) -> tuple[dict[str, Any], NetworkState]:
    """(what is seen at this time, the state: it remembers what a look reveals where times are to be compared)."""
    names = plan.looks(t)
    check_rank(state, t, (sweep.at_start + int(plan.times[-1]) * sweep.per_pass) * max(1, sweep.coupled))
    if plan.record:
        found, state = sweep.measure_and_keep(state, x, key, names)
    else:
        found = sweep.measure(state, x, key, names)
    found = jax.tree.map(np.asarray, found)
    check_defined(plan.net, x, found["f"])
    check_finite(found["f"], t, plan.training.largest_rate)
    if t == 0 and not is_ours(plan.net):
        check_apart(plan.net, found["f"], state.offset)
    if plan.training.centred:
        found["f"] = found["f"] - np.asarray(state.offset)
    return found, state
