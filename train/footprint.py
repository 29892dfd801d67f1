"""What a training state takes on every device, from shapes and shardings alone: nothing is computed and no array is made."""

import math
from typing import Any

import jax
import numpy as np

from train.trainer import Trainer


def bytes_of(shapes: Any, shardings: Any) -> int:
    """The bytes of these arrays on one device.

    >>> from jax.sharding import SingleDeviceSharding
    >>> bytes_of([jax.ShapeDtypeStruct((3, 4), "bfloat16")], [SingleDeviceSharding(jax.devices()[0])])
    24
    """
    leaves = zip(jax.tree.leaves(shapes), jax.tree.leaves(shardings), strict=True)
    return sum(math.prod(s.shard_shape(a.shape)) * np.dtype(a.dtype).itemsize for a, s in leaves)


def footprint(trainer: Trainer) -> dict[str, int]:
    """Bytes on each device: of parameters and their gradients, of the optimiser's memory, of averaged parameters, of the rest."""
    state, where = trainer.shapes, trainer.shardings
    found = {"parameters": bytes_of(state.trained, where.trained)}
    found |= {"gradients": found["parameters"], "optimiser": bytes_of(state.memory, where.memory)}
    found |= {"averaged parameters": bytes_of(state.average, where.average)} if state.average is not None else {}
    found["other variables"] = bytes_of(state.collections, where.collections)
    return {name: size for name, size in found.items() if size}


def described(trainer: Trainer, batch: Any) -> str:
    """`footprint` in words, once the step is traced for a whole batch of these shapes."""
    abstract = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=trainer.placement.batch), batch)
    trainer.compiled_step.lower(trainer.abstract, abstract)
    leaves, mesh, found = jax.tree.leaves(trainer.shapes.trained), trainer.placement.mesh, footprint(trainer)
    lines = [
        f"{sum(math.prod(a.shape) for a in leaves):,} parameters in {len(leaves)} arrays, mesh {dict(mesh.shape)}",
        f"on each of {mesh.size} devices, activations besides:",
    ]
    lines += [f"  {name:20s} {size / 2**20:12,.2f} MiB" for name, size in found.items()]
    lines += [f"  {'together':20s} {sum(found.values()) / 2**20:12,.2f} MiB"]
    return "\n".join(lines + [f"  not divided: {line}" for line in trainer.placement.log])
