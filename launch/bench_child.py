"""One measurement of `launch.bench`, in a process and an environment of its own. Prints one JSON line.

Runs in this project's environment ("ours") or in neural-tangents' ("theirs"), so it imports neither at the top. What only this
project's environment can measure is in bench_here.py.
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
# Where a measurement stands that only this environment makes, if not in bench_here.py.
HOMES = {"share": "bench_step", "reading": "bench_reading"}
# name → (definition, its arguments), for CIFAR's 32 × 32 × 3
_RELU = {"activation": "relu", "w_std": 2**0.5, "b_std": 0.1}
SIZES = {
    "MLP, depth 3": ("MLP", {**_RELU, "depth": 3}),
    "ResNet, dense, depth 8": ("ResNet", {**_RELU, "depth": 8}),
    "ViT, patches of 8, depth 2": ("ViT", {"b_std": 0.1, "depth": 2, "patch": 8}),
    "CNN, flattened, depth 3": ("CNN", {**_RELU, "depth": 3}),
    "CNN, average, depth 3": ("CNN", {**_RELU, "depth": 3, "readout": "average"}),
    "ResNet, conv, average, depth 8": ("ResNet", {**_RELU, "depth": 8, "form": "conv", "readout": "average"}),
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


def gradients(side: str, of: str, kernels: str, n: int) -> dict:
    """Value and gradient of a kernel's sum of squares, by the inputs or by some numbers: erf, depth 3, float64, inputs of 10."""
    import jax

    jax.config.update("jax_enable_x64", True)
    x, names = inputs(n, 10, 0.0, "float64"), ("nngp",) if kernels == "nngp" else ("nngp", "ntk")
    if side == "ours":
        from limits import twin
        from zoo import MLP

        k: Any = twin(MLP(width=8, depth=3, activation="erf", w_std=W_STD, b_std=B_STD)).kernel_function()
    else:
        from neural_tangents import stax  # pyright: ignore

        def stacked(x: Any, w_std: Any = W_STD, b_std: Any = B_STD) -> Any:
            layers = [layer for _ in range(3) for layer in (stax.Dense(8, w_std, b_std), stax.Erf())]
            return stax.serial(*layers, stax.Dense(1, w_std, b_std))[2](x, None, names)

        k = stacked

    def squares(numbers: Any, x: Any) -> Any:
        found = k(x, **numbers)
        return sum((getattr(found, name) ** 2).sum() for name in names)

    values = {"w_std": W_STD, "b_std": B_STD}
    values = {name: value for name, value in values.items() if name in of}
    run = jax.jit(jax.value_and_grad(squares, argnums=0 if values else 1))
    value, slope = run(values, x)
    seconds = timed(lambda: jax.block_until_ready(run(values, x)), 30)
    return {"seconds": seconds, "sum": float(value) + sum(float((s**2).sum()) for s in jax.tree.leaves(slope)) ** 0.5}


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    what = job.pop("what")
    both = {"kernels": kernels, "architecture": architecture, "tangent": tangent, "gradients": gradients}
    home = importlib.import_module(f"launch.{HOMES.get(what, 'bench_here')}") if what not in both else None
    measured = both[what] if home is None else getattr(home, what)
    print("RESULT " + json.dumps(measured(**job)))
