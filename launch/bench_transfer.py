"""One measurement of a learning-rate sweep for `launch.bench --what=transfer`, compilation included."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from train.images import image_batches
from train.transfer import train_runs
from zoo import MLP, Parameterization, scaled

RATES, SEEDS, STEPS = tuple(2.0**k for k in range(-12, -3)), 3, 100


def sweep(side: str, width: int, against: str) -> dict[str, float]:
    """9 learning rates × 3 seeds of an MLP with three hidden layers: by `train_runs`, by one compiled program that runs them
    one after the other ("one loop"), or with a compilation for each ("each compiled")."""
    net = MLP(width, 3, outputs=10, w_std=2**0.5, parameterization=Parameterization.mup.based(64))
    batches = list(image_batches("digits", 64, STEPS))
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

    def train() -> Any:
        if side == "ours":
            rates, seeds = zip(*jobs, strict=True)
            return train_runs(lambda job: (net, adam(job["rate"])), loss, batches, STEPS, {"rate": rates}, seeds)
        if against == "one loop":
            once = jax.jit(run)
            return [np.asarray(once(rate, jax.random.fold_in(jax.random.key(0), seed))) for rate, seed in jobs]
        return [
            np.asarray(jax.jit(lambda key, rate=rate: run(rate, key))(jax.random.fold_in(jax.random.key(0), seed)))
            for rate, seed in jobs
        ]

    start = time.perf_counter()
    curves = np.stack(list(train()))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "sum": float(curves[:, :10].sum())}
