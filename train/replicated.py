"""The step under `jax.pmap`: one program a device, gradients averaged by hand. `jax.jit` on a mesh is the trainer; they agree."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from train.step import Numbers, Program


def pmap_step(program: Program) -> Callable[[Any, Any], tuple[Any, Numbers]]:
    """step(state, batch) of `program` with a batch divided over this process's devices; the state is a copy on each.

    >>> import jax.numpy as jnp, optax
    >>> from zoo import MLP
    >>> program = Program(MLP(8, 1), optax.sgd(0.1), lambda f, y: ((f - y) ** 2).mean())
    >>> state, numbers = pmap_step(program)(program.initial(0, jnp.ones((4, 3))), (np.ones((4, 3)), np.ones((4, 1))))
    >>> int(state.step)
    1
    """
    mapped = dataclasses.replace(program, mapped="devices")
    step = jax.pmap(mapped.step, axis_name="devices", in_axes=(None, 0), out_axes=(None, None))

    def run(state: Any, batch: Any) -> tuple[Any, Numbers]:
        return step(state, jax.tree.map(_divided, batch))

    return run


def _divided(a: Any) -> Any:
    count = jax.local_device_count()
    if len(a) % count:
        raise ValueError(f"A batch of {len(a)} does not divide over {count} devices: change its size.")
    return np.reshape(a, (count, len(a) // count, *np.shape(a)[1:]))
