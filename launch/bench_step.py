"""What a compiled training step takes over the matrix products and convolutions that are in it, each by itself."""

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.extend.core import ClosedJaxpr, Jaxpr

from train import losses
from zoo import GPT, ViT, fused_attention, scaled

PRODUCTS = ("dot_general", "conv_general_dilated")
SECONDS = 0.1  # of the runs of one product, at least
_GPT_2 = {"width": 768, "depth": 12, "heads": 12, "context": 1024, "vocabulary": 50304}
# name → (definition, its fields, one input's shape, batch)
SIZES: dict[str, tuple[Any, dict[str, Any], tuple[int, ...], int]] = {
    "ViT of training:vit": (ViT, {"width": 64, "depth": 4, "patch": 2, "heads": 4, "outputs": 10}, (8, 8, 1), 64),
    "ViT-S/16": (ViT, {"width": 384, "depth": 12, "patch": 16, "heads": 6, "outputs": 1000}, (224, 224, 3), 128),
    "GPT-2 small": (GPT, _GPT_2, (1024,), 8),
}


def products(closed: ClosedJaxpr) -> Counter:
    """{a product: how often it is in the program}, steps of scans counted; a product: its parameters and its arrays' shapes.

    >>> found = products(jax.make_jaxpr(lambda x: (x @ x) @ x)(jnp.ones((2, 2))))
    >>> list(found.values())
    [2]
    """
    found: Counter = Counter()
    for eqn, times in _equations(closed.jaxpr, 1):
        if eqn.primitive.name in PRODUCTS:
            arrays = tuple((v.aval.shape, str(v.aval.dtype)) for v in eqn.invars)
            found[eqn.primitive, tuple(sorted(eqn.params.items(), key=lambda item: item[0])), arrays] += times
    return found


def _equations(jaxpr: Jaxpr, times: int) -> Iterator[tuple[Any, int]]:
    for eqn in jaxpr.eqns:
        yield eqn, times
        inside = times * eqn.params["length"] if eqn.primitive.name == "scan" else times
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: isinstance(v, ClosedJaxpr | Jaxpr)):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                yield from _equations(value.jaxpr if isinstance(value, ClosedJaxpr) else value, inside)


def fastest(run: Callable[[], Any]) -> float:
    """Seconds of the fastest run, after one that compiles; on an accelerator of several in a row, which it is given ahead."""
    jax.block_until_ready(run())
    best, begin, row = float("inf"), time.perf_counter(), 1 if jax.default_backend() == "cpu" else 20
    while best == float("inf") or time.perf_counter() - begin < SECONDS:
        start = time.perf_counter()
        jax.block_until_ready([run() for _ in range(row)][-1])
        best = min(best, (time.perf_counter() - start) / row)
    return best


def alone(product: Any) -> float:
    """Seconds of one product of random arrays."""
    primitive, params, arrays = product
    keys = jax.random.split(jax.random.key(0), len(arrays))
    made = [jax.random.normal(key, shape, dtype) for key, (shape, dtype) in zip(keys, arrays, strict=True)]
    run = jax.jit(functools.partial(primitive.bind, **dict(params)))
    return fastest(lambda: run(*made))


def share(size: str, dtype: str = "float32", batch: int = 0) -> dict[str, float]:
    """Of a step of AdamW: its seconds, those of its products alone, and bytes that it needs beside its arguments.

    The products are those of the program as it is written; the step has one kernel for attention where there is one."""
    definition, fields, shape, usual = SIZES[size]
    net = definition(**fields, dtype=None if dtype == "float32" else dtype, parameterization="mup")
    key, shape = jax.random.key(0), (batch or usual, *shape)
    if definition is GPT:
        x = jax.random.randint(key, shape, 0, net.vocabulary)
        y = jnp.roll(x, -1, 1)
    else:
        x = jax.random.normal(key, shape, dtype)
        y = jnp.arange(len(x)) % net.outputs
    params = jax.jit(net.init)(jax.random.key(1), x)
    optimizer = scaled(optax.adamw(1e-3), net)

    def step(params: Any, state: Any) -> Any:
        slope = jax.grad(lambda p: losses.cross_entropy(net.apply(p, x), y))(params)
        updates, state = optimizer.update(slope, state, params)
        return optax.apply_updates(params, updates), state

    held = params, jax.jit(optimizer.init)(params)
    counted = products(jax.make_jaxpr(lambda *held: step(*held))(*held))  # JAX keeps what it traced of one function
    with fused_attention():
        compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*held).compile()

    def once() -> Any:
        nonlocal held
        held = compiled(*held)
        return held

    memory = compiled.memory_analysis()
    return {
        "seconds": fastest(once),
        "products": sum(times * alone(product) for product, times in counted.items()),
        "bytes": float(getattr(memory, "temp_size_in_bytes", 0)),
        "held": float(sum(leaf.nbytes for leaf in jax.tree.leaves(held))),
    }
