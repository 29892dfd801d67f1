"""What only this environment measures for `launch.bench`: feature learning, a learning-rate sweep, the training loop."""

import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import zoo
from launch.bench_child import SIZES, inputs, megabytes, resident, timed
from launch.common import packaged
from launch.plain_gpt import by_hand
from limits import Task, twin
from limits.fields.fixed_point import solve
from limits.fields.sweep import CausalSweep
from limits.kept.precision import full_products
from limits.predict import log_marginal_likelihood
from limits.training import Training
from train.data import image_batches
from train.loop import Loop, one_by_one
from train.memory import keep_freed_memory
from train.preemption import Preemption
from train.records import Records
from train.study.experiment import Experiment, load
from train.study.regression import KernelJob, Regression, Samples
from train.transfer.runs import train_scored
from zoo import MLP, Parameterization, scaled

SECONDS = 1.5  # of one turn
LONGEST = 1_000_000  # steps that the run is told it has
RATES, SEEDS, STEPS = tuple(2.0**k for k in range(-12, -3)), 3, 100


def fields(side: str, samples: int, steps: int, optimizer: str = "", against: str = "dense") -> dict:
    """Training with feature learning, 16 points, 3 hidden layers: a sweep, or a dense network as wide as its samples.

    With an `optimizer` (default: gradient descent without Optax). against "sgd": the other side is a sweep under SGD by Optax.
    """
    net = MLP(width=samples, depth=3, activation="tanh", parameterization="mup")
    x, y = (jnp.asarray(part) for part in points(16))
    if side == "theirs" and against != "dense":
        side, optimizer = "ours", against
    rate = 0.02 if optimizer == "muon" else 0.1
    task = Task(np.asarray(x), np.asarray(y))
    training = Training.of(task, steps, rate, optimizer=optimizer or None, net=net)
    if side == "ours":
        sweep = CausalSweep(net, training, x.shape, len(x), "float32")

        def begin() -> Any:
            return sweep.begin(jax.random.key(0), x)

        def step(state: Any, t: int) -> Any:
            return sweep.step(state, x, y, np.arange(16), jax.random.key(t + 1), rate)[0]

    else:
        tx = training.optimiser(net, x, rate)

        def loss(params: Any) -> Any:
            f: Any = net.apply({"params": params}, x)
            return 0.5 * jnp.mean((f - y) ** 2)

        def advance(state: Any) -> Any:
            _, gradient = jax.value_and_grad(loss)(state[0])
            updates, kept = tx.update(gradient, state[1], state[0])
            return jax.tree.map(jnp.add, state[0], updates), kept

        start = jax.jit(lambda key: net.init(key, x)["params"])
        donated = jax.jit(advance, donate_argnums=0)

        def begin() -> Any:
            params = start(jax.random.key(0))
            return params, tx.init(params)

        def step(state: Any, t: int) -> Any:
            del t
            return donated(state)

    def run(steps: int) -> float:
        state = jax.block_until_ready(begin())
        start = time.perf_counter()
        for t in range(steps):
            state = step(state, t)
        jax.block_until_ready(state)
        return time.perf_counter() - start

    idle = resident()
    with full_products():  # as `rich` and `ensemble` have them
        first = run(
            steps if side == "ours" else 1
        )  # a sweep compiles again as its bases grow, a dense network does not
        seconds = run(steps)
        seconds = min(seconds, run(steps)) if seconds < 30 else seconds
    return {"seconds": seconds, "compilation": first - seconds, "megabytes": megabytes() - idle}


def points(n: int) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, targets [n, 1]) to learn."""
    return inputs(n, 16, 0.0, "float32"), np.sign(np.sin(np.arange(n) + 0.5)).astype("float32")[:, None]


def fixed_point(side: str, samples: int, steps: int, replicas: int = 4) -> dict:
    """The limit by a sweep, or by an iterated fixed point: 8 points, 3 hidden layers; time a replica and scatter of f."""
    x, y = points(8)
    seconds, found = [], []
    if side == "ours":
        limit, task = twin(MLP(8, 3, activation="tanh", parameterization="mup")), Task(x, y)

        def run(seed: int) -> Any:
            how = {"samples": samples, "replicas": 2, "kernels": (), "times": [0, steps], "key": seed}
            run = limit.rich(task, steps, 0.5, **how)
            return run.f_train[-1, :, 0]

        share, scatter = 0.5, 2**0.5  # two replicas at once, and their mean
    else:

        def run(seed: int) -> Any:
            how = (0.5, 1.0, 3, samples, steps, jax.random.key(seed))
            return np.asarray(solve(jnp.asarray(x), jnp.asarray(y[:, 0]), *how, damping=1.0)[0][-1])

        share = scatter = 1.0
    run(0)
    for seed in range(1, replicas + 1):
        start = time.perf_counter()
        found.append(run(seed))
        seconds.append(share * (time.perf_counter() - start))
    spread = scatter * float(np.sqrt(np.mean(np.var(found, axis=0, ddof=1))))
    return {"seconds": min(seconds), "standard error": spread, "mean": float(np.mean(np.abs(found)))}


def transfer(side: str, width: int, against: str, steps: int = STEPS, apart: bool = False) -> dict[str, float]:
    """9 learning rates × 3 seeds of an MLP with three hidden layers: by `train_runs`, by one compiled program that runs them
    one after the other ("one loop"), or with a compilation for each ("each compiled"). apart: compilation is not counted."""
    net = MLP(width, 3, outputs=10, w_std=2**0.5, parameterization=Parameterization.mup.based(64))
    batches = list(image_batches("digits", 64, steps))
    x, y = (jnp.asarray(np.stack(part), "float32") for part in zip(*batches, strict=True))
    jobs = [(rate, seed) for rate in RATES for seed in range(SEEDS)]

    def loss(f: Any, y: Any) -> Any:
        return jnp.mean(optax.losses.softmax_cross_entropy(f, y))

    def adam(rate: Any) -> Any:
        return scaled(optax.adam(rate), net)

    def run(rate: Any, key: Any) -> Any:
        tx, params = adam(rate), net.init(key, x[0])

        def step(carry: Any, batch: Any) -> Any:
            params, state = carry
            value, slope = jax.value_and_grad(lambda params: loss(net.apply(params, batch[0]), batch[1]))(params)
            updates, state = tx.update(slope, state, params)
            return (optax.apply_updates(params, updates), state), value

        return jax.lax.scan(step, (params, tx.init(params)), (x, y))[1]

    once, compiled = jax.jit(run), {}

    def together() -> Any:
        if side == "ours":
            rates, seeds = zip(*jobs, strict=True)
            how = (loss, batches, steps, {"rate": rates}, seeds)
            return train_scored(lambda job: (net, adam(job["rate"])), *how, compiled=compiled)[0]
        if against == "one loop":
            return [np.asarray(once(rate, jax.random.fold_in(jax.random.key(0), seed))) for rate, seed in jobs]
        return [
            np.asarray(jax.jit(lambda key, rate=rate: run(rate, key))(jax.random.fold_in(jax.random.key(0), seed)))
            for rate, seed in jobs
        ]

    def turn() -> float:
        start = time.perf_counter()
        found.append(float(np.stack(list(together()))[:, :10].sum()))
        return time.perf_counter() - start

    found: list[float] = []
    seconds = turn()
    if not apart:
        return {"seconds": seconds, "sum": found[0]}
    again = turn()
    return {"seconds": again, "compilation": seconds - again, "sum": found[1]}


def entries(name: str, dtype: str = "float32", images: int = 60_000) -> dict[str, float]:
    """Entries of NNGP and NTK a second for 32 × 32 × 3 inputs, and the hours of K(x, x) of so many: arithmetic."""
    definition, arguments = SIZES[name]
    x = inputs(1024, 3072, 0.0, dtype).reshape(-1, 32, 32, 3)
    data = Samples("waves", x, np.zeros((len(x), 10)), x[:1], np.zeros((1, 10)))
    limit, how = twin(getattr(zoo, definition)(width=8, outputs=10, **arguments)), Regression(dtype=dtype)
    rate = KernelJob(name, 0, limit, data, how, Path()).rate()
    return {"rate": rate, "hours": images * (images + 1) / 2 / rate / 3600}


def machine() -> dict[str, Any]:
    """The device, and seconds of a matrix product of 2048 × 2048 on it ("product")."""
    device, a = jax.devices()[0], jnp.ones((2048, 2048))
    product = jax.jit(lambda a: a @ a)
    seconds = timed(lambda: jax.block_until_ready(product(a)), 20)
    return {"kind": device.device_kind, "platform": device.platform, "count": jax.device_count(), "product": seconds}


def largest(first: int = 2**16, most: int = 2**26) -> dict[str, float]:
    """The largest sweep that the device has memory for, by powers of two of the samples, and its seconds a step."""
    found, samples, factor = {"samples": 0.0, "seconds": float("inf")}, first, 8
    while samples <= most:
        try:
            seconds = fields("ours", samples, 2)["seconds"] / 2
            found = {"samples": float(samples), "seconds": seconds}
        except Exception as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            if factor == 2:
                break
            samples, factor = samples // factor, 2  # closer, from the last that fitted
        samples *= factor
    return found


def train(config: str, rounds: int) -> dict[str, list[float]]:
    """Seconds a step of each turn: "step", the compiled step alone on one batch that lies on the device (of "gpt" one written by
    hand); "loop", one step a dispatch, with the log, the checks and the transfer of a batch that is ready; "loop and data", all
    of `launch.train` but evaluation and checkpoints; "data", making a batch; "… of processors",
    their processor time."""
    from launch.train import FUNCTIONS, prepare  # it has flags

    keep_freed_memory()
    path = packaged()["train_gpt" if config == "gpt" else "training"]
    fields = load(path).get_config(*(() if config == "gpt" else (config,)))
    fields.steps, fields.warmup = LONGEST, 10
    run = prepare(Experiment(str(path), fields, FUNCTIONS), Path(tempfile.mkdtemp()))
    trainer, first, done = run.trainer, next(run.batches(0)), 0
    batch, state = trainer.place(first), trainer.initial()
    records, stopped = Records(run.folder / "log.jsonl"), Preemption().at
    advance, at_once = run.advance(0)
    made: Any = advance
    own = run.batches(0)

    def data(count: int) -> None:
        if run.from_memory:
            jax.block_until_ready([made.resident.chunk(i) for i in range(count // at_once)])
        else:
            _ = [next(own) for _ in range(count)]

    def step(count: int) -> None:
        nonlocal state
        for _ in range(count):
            state, _ = trainer.compiled_step(state, batch)

    def loop(count: int, advance: Any = advance, at_once: int = at_once) -> None:
        nonlocal state, done
        between = {"stopped": stopped, "at_once": at_once, "rates": run.rates}
        state, _ = Loop(advance, done, done + count, records.write, **between).run(state)
        done += count

    sides: dict[str, Callable[[int], object]] = {
        "step": by_hand(fields.width, fields.depth, fields.learning_rate, batch) if config == "gpt" else step,
        "loop": lambda count: loop(count, one_by_one(trainer.step, itertools.repeat(first)), 1),
        "loop and data": loop,
        "data": data,
    }

    def timed(side: str, count: int) -> tuple[float, float]:
        start, used = time.perf_counter(), time.process_time()
        sides[side](count)
        jax.block_until_ready(state)
        return time.perf_counter() - start, time.process_time() - used

    for compiled in sides.values():
        compiled(2 * at_once)  # until the loop knows how many steps a dispatch may have
    count = at_once * max(1, round(10 * SECONDS / timed("step", 10)[0] / at_once))
    found: dict[str, list[float]] = {name: [] for side in sides for name in (side, f"{side} of processors")}
    for turn in range(rounds):
        for side in list(sides)[:: 1 if turn % 2 else -1]:  # a drift of the machine falls on all alike
            for name, seconds in zip((side, f"{side} of processors"), timed(side, count), strict=True):
                found[name].append(seconds / count)
    return found


def evidence(activation: str, n: int) -> dict:
    """The log evidence of a Gaussian process with an NNGP of depth 3, and with its gradient by w_std, b_std and noise."""
    jax.config.update("jax_enable_x64", True)
    x, y = inputs(n, 10, 0.0, "float64"), inputs(n, 1, 0.0, "float64")
    k = twin(MLP(width=8, depth=3, activation=activation, w_std=1.4, b_std=0.3)).kernel_function()

    def log_evidence(numbers: Any, x: Any) -> Any:
        noise, *stds = numbers
        return log_marginal_likelihood(k(x, w_std=stds[0], b_std=stds[1]).nngp, y, noise)

    numbers = (jnp.asarray(0.1), jnp.asarray(1.4), jnp.asarray(0.3))
    runs = {"value": jax.jit(log_evidence), "seconds": jax.jit(jax.value_and_grad(log_evidence))}
    for run in runs.values():
        jax.block_until_ready(run(numbers, x))
    return {name: timed(lambda run=run: jax.block_until_ready(run(numbers, x)), 30) for name, run in runs.items()}
