"""One measurement of `launch.bench`, in a process and an environment of its own. Prints one JSON line.

Runs in this project's environment ("ours") or in neural-tangents' ("theirs"), so it imports neither at the top.
"""

import importlib
import json
import math
import resource
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

DEPTH, W_STD, B_STD = 10, 1.4, 0.1
_COMMON = {"activation": "relu", "w_std": W_STD, "b_std": B_STD}
_CNN = {**_COMMON, "depth": 5, "kernel": 3, "padding": "SAME", "strides": 1}
_CNN |= {"pool": "average", "pool_after": (), "pool_size": 2}
_RESNET = {**_COMMON, "depth": 5, "form": "conv", "kernel": 3, "padding": "SAME", "beta": 1.0, "residual": "uniform"}
_VIT = {
    **_COMMON,
    "depth": 3,
    "patch": 4,
    "heads": 4,
    "logits": "1/d",
    "tied": True,
    "attention": "softmax",
    "norm": "layer",
}
_VIT |= {"norm_affine": False, "norm_epsilon": 1e-12, "positions": None, "pool": "mean", "beta": 1.0}
# name → (definition, its arguments, image, inputs)
ARCHITECTURES = {
    "conv flatten 16": ("CNN", {**_CNN, "readout": "flatten"}, (16, 16, 3), 100),
    "conv flatten 32": ("CNN", {**_CNN, "readout": "flatten"}, (32, 32, 3), 50),
    "conv average 16": ("CNN", {**_CNN, "readout": "average"}, (16, 16, 3), 6),
    "conv average 32": ("CNN", {**_CNN, "readout": "average"}, (32, 32, 3), 2),
    "conv average 32 depth 21": ("CNN", {**_CNN, "depth": 21, "readout": "average"}, (32, 32, 3), 1),
    "residual conv 16": ("ResNet", {**_RESNET, "branch_layers": 1, "stages": 1, "readout": "average"}, (16, 16, 3), 6),
    "attention 32": ("ViT", _VIT, (32, 32, 3), 12),
}


def inputs(n: int, d: int, phase: float, dtype: str) -> np.ndarray:
    """n points of R^d, the same in both environments."""
    i, j = np.arange(n)[:, None], np.arange(d)[None, :]
    return (np.sin(1.7 * i * (j + 1) + phase) + 0.3 * np.cos(0.9 * i + j * j)).astype(dtype)


def megabytes() -> float:
    """Peak resident memory so far (Linux counts kilobytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident() -> float:
    """Resident memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def timed(function, repeats: int) -> float:
    """The fastest of some runs, after one that compiles."""
    function()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def kernels(side: str, activation: str, dtype: str, pair: str, n: int) -> dict:
    """NNGP and NTK of a dense network of depth 10."""
    x, z = inputs(n, 512, 0.0, dtype), None if pair == "xx" else inputs(n, 512, 1.0, dtype)
    if side == "ours":
        from zoo import MLP

        run = ours(MLP(width=8, depth=DEPTH, activation=activation, w_std=W_STD, b_std=B_STD), dtype)
        few = slice(min(n, 400))
        run(x[few], z if z is None else z[few])  # its blocks are compiled then
    else:
        from neural_tangents import stax  # pyright: ignore

        act = {"relu": stax.Relu, "erf": stax.Erf}[activation]
        layers = [layer for _ in range(DEPTH) for layer in (stax.Dense(8, W_STD, B_STD), act())]
        run = theirs(stax.serial(*layers, stax.Dense(1, W_STD, B_STD)), dtype)
    return cost(lambda: run(x, z), 5, "memory / output")


def architecture(side: str, name: str, dtype: str) -> dict:
    """NNGP and NTK of a convolutional, residual or attention network."""
    definition, arguments, shape, n = ARCHITECTURES[name]
    x = inputs(n, math.prod(shape), 0.0, dtype).reshape(n, *shape)
    if side == "ours":
        import zoo

        run = ours(getattr(zoo, definition)(width=8, **arguments), dtype)
        run(x, None)
    else:
        golden = Path(__file__).parent.parent / "tests" / "golden"
        sys.path.insert(0, str(golden))
        networks = runpy.run_path(str(golden / "make_architecture_goldens.py"))["NETWORKS"]
        run = theirs(networks[definition](arguments), dtype)
    return cost(lambda: run(x, None), 3, "megabytes")


def ours(net: Any, dtype: str) -> Any:
    """(x, z or None) → (NNGP, NTK) of the twin."""
    from limits import twin

    limit = twin(net)

    def run(x: Any, z: Any) -> Any:
        k = limit.kernels(x, z, dtype=np.dtype(dtype).type)
        return k.nngp, k.ntk

    return run


def theirs(network: Any, dtype: str) -> Any:
    """The same of neural-tangents' (init, apply, kernel)."""
    import jax

    jax.config.update("jax_enable_x64", dtype == "float64")
    fn = jax.jit(network[2], static_argnames="get")

    def run(x: Any, z: Any) -> Any:
        k = fn(x, z, get=("nngp", "ntk"))
        return np.asarray(k.nngp), np.asarray(k.ntk)

    return run


def cost(run: Any, repeats: int, memory: str) -> dict:
    """Seconds, memory above idle ("megabytes", or times the "memory / output"), and the NTK's sum, for both sides to agree in."""
    idle = resident()
    first = run()
    above, output = megabytes() - idle, sum(part.nbytes for part in first) / 2**20
    used = above if memory == "megabytes" else above / output
    return {"seconds": timed(run, repeats), memory: used, "sum": float(first[1].sum(dtype=np.float64))}


def tangent(side: str, n: int) -> dict:
    """The tangent kernel [n, n, 10, 10] of a finite network, 3 × 512, inputs of 3072."""
    import jax

    x = inputs(n, 3072, 0.0, "float32")
    if side == "ours":
        from limits import empirical_ntk
        from zoo import MLP

        net = MLP(width=512, depth=3, outputs=10)
        params = net.init(jax.random.key(0), x)
        fn = jax.jit(lambda p, x: empirical_ntk(net.apply, p, x, outputs="full"))
        return {"seconds": timed(lambda: fn(params, x).block_until_ready(), 10)}
    import neural_tangents as nt  # pyright: ignore
    from neural_tangents import stax  # pyright: ignore

    layers = [layer for _ in range(3) for layer in (stax.Dense(512), stax.Relu())]
    init, apply, _ = stax.serial(*layers, stax.Dense(10))
    params = init(jax.random.key(0), x.shape)[1]
    out = {}
    for name, method in (("seconds", 3), ("seconds by Jacobian product", 1)):
        fn = jax.jit(nt.empirical_ntk_fn(apply, trace_axes=(), vmap_axes=0, implementation=method))
        out[name] = timed(lambda fn=fn: fn(x, None, params).block_until_ready(), 10 if method == 3 else 2)
    return out


def fields(side: str, samples: int, steps: int) -> dict:
    """Training with feature learning, 16 points, 3 hidden layers: a sweep, or a dense network as wide as its samples."""
    import jax
    import jax.numpy as jnp

    from limits.fields.sweep import Sweep
    from limits.training import Training
    from zoo import MLP

    net = MLP(width=samples, depth=3, activation="tanh", parameterization="mup")
    x, y = (jnp.asarray(part) for part in points(16))
    training, rate = Training("mse"), 0.1
    if side == "ours":
        sweep = Sweep(net, training, x.shape, len(x), "float32")

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
    first = run(steps if side == "ours" else 1)  # a sweep compiles again as its bases grow, a dense network does not
    seconds = run(steps)
    seconds = min(seconds, run(steps)) if seconds < 30 else seconds
    return {"seconds": seconds, "compilation": first - seconds, "megabytes": megabytes() - idle}


def points(n: int) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, targets [n, 1]) to learn."""
    return inputs(n, 16, 0.0, "float32"), np.sign(np.sin(np.arange(n) + 0.5)).astype("float32")[:, None]


def fixed_point(side: str, samples: int, steps: int, replicas: int = 4) -> dict:
    """The limit by a sweep, or by an iterated fixed point: 8 points, 3 hidden layers; time a replica and scatter of f."""
    import jax
    import jax.numpy as jnp

    x, y = points(8)
    seconds, found = [], []
    if side == "ours":
        from limits import Task, twin
        from zoo import MLP

        limit, task = twin(MLP(8, 3, activation="tanh", parameterization="mup")), Task(x, y)

        def run(seed: int) -> Any:
            how = {"samples": samples, "replicas": 2, "kernels": (), "times": [0, steps], "key": seed}
            run = limit.rich(task, steps, 0.5, **how)
            return run.f_train[-1, :, 0]

        share, scatter = 0.5, 2**0.5  # two replicas at once, and their mean
    else:
        from launch.fixed_point import solve

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


def elsewhere(module: str, function: str) -> Any:
    """What is measured by a module of this project's environment."""
    return lambda **job: getattr(importlib.import_module(f"launch.{module}"), function)(**job)


WHAT = {
    "kernels": kernels,
    "tangent": tangent,
    "architecture": architecture,
    "fields": fields,
    "fixed point": fixed_point,
    "train": elsewhere("bench_train", "turns"),
    "transfer": elsewhere("bench_transfer", "sweep"),
}

if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    print("RESULT " + json.dumps(WHAT[job.pop("what")](**job)))
