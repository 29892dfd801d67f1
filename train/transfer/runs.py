"""Many training runs of one shape in one compiled program, whose arguments are hyperparameters and seeds; the limit's run."""

import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from limits import Task, twin
from limits.feature_learning import accuracy, check_learns
from limits.fields.heads import in_one_head
from limits.fields.sweeps import Plan, coupled_sweeps, sweeps
from limits.losses import point_loss
from limits.training import Training
from train.data.own import arrays_of, as_now
from train.variables import descend, draws, initial
from zoo import checks

_CHUNK_BYTES = 2**28  # of batches on the device at once


@checks.arguments(
    build=checks.function,
    loss_fn=checks.function,
    steps=checks.count(),
    batches=checks.function
    | checks.Check("pairs (inputs, targets)", lambda v: iter(v) and not isinstance(v, str | Mapping)),
    jobs=checks.Check("a dictionary of arrays [run]", lambda v: all(np.ndim(each) == 1 for each in v.values())),
    seeds=checks.array(None, whole=True),
    together=checks.count(),
    advance=checks.function,
)
def train_runs(
    build: Callable[[dict[str, Any]], tuple[Any, optax.GradientTransformation]],
    loss_fn: Callable[[Any, Any], Any],
    batches: Iterable[Any] | Callable[[int], Iterable[Any]],
    steps: int,
    jobs: Mapping[str, Any],
    seeds: Any,
    together: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """The loss of every run before every step, [run, step]; infinite from the step on at which a run diverged.

    build({name: value}) returns a model and its optimiser; the values, one of each array of `jobs` [run], are traced.
    batches: (inputs, targets), the same for every run, or batches(seed), those of a seed; `loss_fn(outputs, targets)` is a
    number. A model that asks (`train`, `deterministic`) is told that it is trained, and dropout has keys, those of
    `launch.train`. seeds [run] of weights and keys. On a CPU, runs go one by one on each core, on accelerators `together` at a
    time (None: all), spread over the devices. `advance` hears of finished runs.
    """
    return train_scored(build, loss_fn, batches, steps, jobs, seeds, together, advance)[0]


def train_scored(
    build: Callable[[dict[str, Any]], tuple[Any, optax.GradientTransformation]],
    loss_fn: Callable[[Any, Any], Any],
    batches: Iterable[Any] | Callable[[int], Iterable[Any]],
    steps: int,
    jobs: Mapping[str, Any],
    seeds: Any,
    together: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
    score: Callable[[Any, Any], Any] | None = None,
    hopeless: Callable[[np.ndarray], np.ndarray] | None = None,
    compiled: dict[Any, Any] | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """What `train_runs` does, and the score of every run: score(net, its variables) at its end, a number.

    hopeless(losses so far [run, step]) → whether to give each up [run], asked after every quarter of the steps; the rest of its
    curve is not a number. A run that diverged does not go on either: it stays infinite. compiled: programs of earlier calls with
    the same build and loss_fn, and of this one; on a CPU they are the same for any number of runs and seeds.
    """
    alone = jax.default_backend() == "cpu" and jax.device_count() == 1 and together is None
    count = len(np.asarray(seeds))
    # NumPy arrays, and keys made inside: every small program of its own would take as long to compile as a run takes.
    rows = {name: np.asarray(value, jax.dtypes.canonicalize_dtype(float)) for name, value in jobs.items()}
    given = np.asarray(seeds, np.int64)
    if not (-(2**31) <= given.min(initial=0) <= given.max(initial=0) < 2**32):
        raise ValueError(f"train_runs: seeds must be below 2**32; got {given.min()} to {given.max()}.")
    numbers = given.astype(np.uint32)  # what a key is made of, whatever the sign
    each, stream = np.unique(given, return_inverse=True)
    streams = [batches(int(seed)) for seed in each] if callable(batches) else [batches]
    stream = np.asarray(stream if callable(batches) else np.zeros(count), np.int32)

    def own(batches: Any, stream: Any) -> Any:
        return batches if alone else batches[stream]

    def run(carry: Any, job: Any, seed: Any, stream: Any, chunk: Any) -> Any:
        net, tx = build(job)
        key = jax.random.fold_in(jax.random.key(0), seed)
        if carry is None:
            x = jax.tree.map(lambda a: own(a[0], stream), chunk[0])
            trained, state = initial(net, key, x)
            carry = (trained, state, tx.init(trained)), jnp.zeros((), jnp.int32)

        def step(carry: Any, batches: Any) -> Any:
            carry, number = carry
            options = draws(net, jax.random.fold_in(key, 1), number)  # those of `train.step.Program`
            carry, loss = descend(net, tx, loss_fn, carry, jax.tree.map(lambda a: own(a, stream), batches), **options)
            return (carry, number + 1), loss

        return jax.lax.scan(step, carry, chunk)

    def scored(carry: Any, job: Any) -> Any:
        (trained, state, _), _ = carry
        assert score is not None
        return score(build(job)[0], {**trained, **state} if state else trained)

    if alone:
        groups, place, threads = list(np.arange(count)), lambda job: job, os.cpu_count()
    else:
        groups, place, threads = *_spread(count, together or count), 1
        run, scored = jax.vmap(run, in_axes=(0, 0, 0, 0, None)), jax.vmap(scored)
    ends = {steps * part // 4 for part in (1, 2, 3)} if hopeless else set()
    programs = jax.jit(run), jax.jit(scored) if score else None
    chunks = _chunks(streams, steps, ends)
    given, compiled = (rows, numbers, stream), {} if compiled is None else compiled
    curves, scores = _advance(
        programs, compiled, place, groups, count, given, chunks, threads, advance, hopeless, alone
    )
    broken = np.maximum.accumulate(np.isinf(curves), axis=1)  # a run that was lost does not come back
    return np.where(broken, np.inf, curves), scores


@jax.jit
def _of_stream(chunk: Any, stream: Any) -> Any:
    """Of batches [step, stream, …] those of one stream."""
    return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, stream, 1, keepdims=False), chunk)


def _advance(
    programs: Any, compiled: dict[Any, Any], place: Any, groups: list, count: int, jobs: Any,
    chunks: Iterable, threads: int | None, advance: Any, hopeless: Any, alone: bool,
) -> tuple[np.ndarray, np.ndarray | None]:  # fmt: skip
    """(the losses of all runs [run, step], their scores), groups of runs side by side, a chunk of steps at a time."""
    program, scored = programs
    carries: list[Any] = [None] * len(groups)
    placed = [place(jax.tree.map(lambda a, i=i: a[i], jobs)) for i in groups]
    parts, scores, ended = [], np.full(count, np.nan), np.full(count, False)
    given_up = np.full(count, False)
    with ThreadPoolExecutor(threads) as pool:
        for chunk, last in chunks:
            going = [g for g, runs in enumerate(groups) if not ended[runs].all()]
            length = len(jax.tree.leaves(chunk)[0])

            def given(g: int, chunk: Any = chunk) -> Any:
                return carries[g], *placed[g], _of_stream(chunk, placed[g][2]) if alone else chunk

            shape = repr(jax.tree.map(lambda a: (np.shape(a), a.dtype), given(going[0]))) if going else ""
            if going and shape not in compiled:
                compiled[shape] = _compiled(program, given(going[0]))

            def one(g: int, given: Any = given, last: bool = last, go: Any = compiled.get(shape)) -> np.ndarray:  # noqa: B008
                carry, losses = go(*given(g))
                losses = np.asarray(losses, np.float64).reshape(np.size(groups[g]), -1)
                carries[g] = None if last else carry
                if last and scored is not None:
                    scores[groups[g]] = np.asarray(scored(carry, placed[g][0]), np.float64)
                if last:
                    advance(np.size(groups[g]))
                return losses

            losses = np.full((count, length), np.inf)
            for g, found in zip(going, pool.map(one, going), strict=True):
                losses[groups[g]] = found.reshape(np.shape(losses[groups[g]]))
            losses = np.where(np.isfinite(losses), losses, np.inf)
            losses[given_up] = np.nan
            parts.append(losses)
            ended |= np.isinf(losses[:, -1])
            if last:
                advance(sum(np.size(groups[g]) for g in set(range(len(groups))) - set(going)))
            if hopeless is not None and not last:
                given_up |= np.asarray(hopeless(np.concatenate(parts, axis=1))) & ~ended
                ended |= given_up
    return np.concatenate(parts, axis=1), None if scored is None else np.where(
        np.isfinite(scores) & ~ended, scores, np.inf
    )


def _compiled(program: Any, given: Any) -> Any:
    try:
        return program.lower(*given).compile()
    except jax.errors.ConcretizationTypeError as error:
        names = sorted(set(re.findall(r"job\['(\w+)'\]", str(error))))
        raise ValueError(
            f"One compiled program trains at all values of {', '.join(names) or 'what is swept'}, but Python code of the "
            "config, or of a library that it calls, asks for the value itself (an `if`, a `range`, a check of an Optax "
            "schedule). Let jax.numpy decide (jnp.where), or make each value a variant of its own (config.variants)."
        ) from error


def _spread(count: int, together: int) -> tuple[list[np.ndarray], Callable[[Any], Any]]:
    """(groups of about `together` runs, a multiple of the devices each; what spreads a group over the devices)."""
    devices = jax.device_count()
    size = min(-(-together // devices), -(-count // devices)) * devices
    spread = NamedSharding(jax.make_mesh((devices,), ("runs",), axis_types=(AxisType.Auto,)), PartitionSpec("runs"))
    everyone = np.arange(-(-count // size) * size).clip(max=count - 1)  # the last one again where a group is not filled
    return list(everyone.reshape(-1, size)), lambda job: jax.device_put(job, spread)


def shuffled(batches: Iterable[Any], steps: int, seed: int) -> Iterator[Any]:
    """The first batches in an order of the seed's own, as many of them at a time as fit the memory set aside for them.

    >>> batches = [(i, i) for i in range(9)]
    >>> [x for x, _ in shuffled(batches, 9, 0)] != [x for x, _ in shuffled(batches, 9, 1)]
    True
    """
    random, kept, size = np.random.default_rng(seed), [], 0
    for batch in itertools.islice(batches, steps):
        kept.append(jax.tree.map(as_now, batch))
        size += _bytes(batch)
        if size > _CHUNK_BYTES:
            yield from (kept[i] for i in random.permutation(len(kept)))
            kept, size = [], 0
    yield from (kept[i] for i in random.permutation(len(kept)))


def _bytes(batch: Any) -> int:
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(batch))


def _chunks(streams: list[Iterable[Any]], steps: int, ends: Collection[int] = ()) -> Iterator[tuple[Any, bool]]:
    """(batches of all streams on top of each other, [step, stream], as many steps as fit the memory set aside for them, and no
    more than up to the next of `ends`; whether they are the last)."""
    held: list[Any] = []
    size = seen = 0
    for seen, batches in enumerate(itertools.islice(zip(*streams, strict=False), steps), start=1):
        if not all(isinstance(each, tuple | list) and len(each) == 2 for each in batches):
            raise ValueError(
                f"train_runs: batches must be pairs (inputs, targets); number {seen} is {checks.shown(batches[0])}."
            )
        held.append([_arrays(each, f"train_runs: batch {seen}") for each in batches])
        size += _bytes(held[-1])
        if size > _CHUNK_BYTES or seen == steps or seen in ends:
            yield _stack(held), seen == steps
            held, size = [], 0
    if seen < steps:
        raise ValueError(f"The batches end after {seen} of {steps} steps: repeat them, or lower steps.")


def _arrays(batch: Any, what: str) -> Any:
    """A batch as arrays; inputs of several arrays are what the model makes of them."""
    return (
        arrays_of(batch, what)
        if isinstance(batch[0], np.ndarray | jax.Array | list)
        else jax.tree.map(lambda a: np.asarray(as_now(a)), batch)
    )


def _stack(held: list[Any]) -> Any:
    shapes = {tuple(leaf.shape for leaf in jax.tree.leaves(batch)) for batches in held for batch in batches}
    if len(shapes) > 1:
        raise ValueError(
            f"All batches must have one shape, got {', '.join(map(str, sorted(shapes)))}: leave a rest out."
        )
    steps = [jax.tree.map(lambda *parts: np.stack(parts), *batches) for batches in held]
    return jax.tree.map(lambda *parts: _default_float(np.stack(parts)), *steps)


def _default_float(array: np.ndarray) -> Any:
    return jnp.asarray(array, float) if array.dtype == np.float64 else jnp.asarray(array)


def check_has_limit(net: Any) -> None:
    """Raises, with the reason, unless this network has a limit with feature learning."""
    check_learns(twin(net))


def limit_losses(
    net: Any,
    task: Task,
    steps: int,
    value: float,
    optimizer: Callable[[Any], optax.GradientTransformation],
    batches: Any = None,
    samples: int | None = None,
    replicas: int = 4,
    order: int | None = None,
    widths: Sequence[float] | None = None,
) -> np.ndarray:
    """The loss on each step's batch before the step, [replica, step], by `limits.feature_learning`; infinite where it diverges.

    The optimiser is the finite networks' own, from the `value` of what is swept; samples and order as in `rich`. With widths,
    what the limit says of networks of these to first order in 1/width (infinity: of itself), [width, replica, step].

    >>> from zoo import MLP
    >>> net = MLP(width=8, depth=1, activation="tanh", parameterization="mup")
    >>> losses = limit_losses(net, Task([[1.0, 0.5]], [1.0]), 3, 0.2, optax.sgd, samples=64, replicas=2)
    >>> losses.shape, losses[:, 0].tolist()
    ((2, 3), [0.5, 0.5])
    """
    check_has_limit(net)
    task = twin(net).fed(task)
    # A limit starts at f = 0; networks do not, which is of the order 1/width that is asked for with widths.
    training = Training.of(task, steps, value, centred=widths is None, batches=batches, optimizer=optimizer, net=net)
    finite = widths is not None and not np.isinf(widths).all()
    samples, order = accuracy(net, training, task.x, samples, order, finite)
    plan = Plan(in_one_head(net), task, training, np.arange(steps))
    rows, loss = jnp.asarray(training.rows(len(task.x_train))), point_loss(task.loss)
    targets = [jnp.asarray(task.y_train, float)] + ([] if task.mask_train is None else [jnp.asarray(task.mask_train)])
    on_batch = lambda f, rows: loss(f[rows], *(part[rows] for part in targets))  # noqa: E731
    every_step = jax.vmap(jax.vmap(on_batch), in_axes=(0, None))

    def curves(seen: dict[str, Any]) -> np.ndarray:
        return np.asarray(jax.jit(every_step)(jnp.asarray(seen["f"], float), rows), np.float64)

    try:
        if widths is not None:
            found = coupled_sweeps(plan, samples, replicas, finite=finite)[0]
            return np.stack([found.at(None if np.isinf(width) else width, curves) for width in widths])
        if order == 2:
            return coupled_sweeps(plan, samples, replicas)[0].at(None, curves)
        return curves(sweeps(plan, samples, replicas)[0])
    except FloatingPointError:
        return np.full((*([] if widths is None else [len(widths)]), replicas, steps), np.inf)
