"""Batches of samples that lie on the devices: their order from the host, all else in compiled programs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from train.data.batches import Batches, epoch_order
from train.data.changes import CHANGES, NORMALISATIONS
from train.data.draws import PositionDraws, counters, key_of
from train.data.normalise import tokens
from train.data.sources import Arrays

LARGEST = 2**30  # bytes of samples that lie on every device unless told otherwise
CHUNK, CHUNK_BYTES = 32, 2**26  # batches that are made at once: so many, or as many as fit


class Resident:
    """The batches of `batches` (of one process of one), a chunk at a time: inputs and targets [batch, chunk, …].

    On `mesh`, samples are copies on every device, and each makes its own rows of a batch, divided over the axis "data". Order and
    draws are those of the host, so batches differ from `batches.at(step)` by rounding (see `train.data.changes`).

    >>> from train.data import source
    >>> from train.mesh import make_mesh
    >>> host = Batches(source("digits"), 64, augment=["crop", "rotation"])
    >>> x, y = Resident(host, make_mesh(data=1)).chunk(3)
    >>> x.shape, bool(np.allclose(x[:, 5], host.at(3 * 32 + 5)[0], atol=1e-4))
    ((64, 32, 8, 8, 1), True)
    """

    def __init__(self, batches: Batches, mesh: Mesh) -> None:
        if flaw := lacking(batches):
            raise ValueError(f"The samples of {batches.source.name} cannot lie on the devices: {flaw}.")
        self.batches = batches
        source: Any = batches.source
        self.size = max(1, min(CHUNK, CHUNK_BYTES // (4 * batches.batch * int(np.prod(source.shape)))))
        self._rows, copied = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
        kind = (
            np.int32
            if batches.normalise.func is tokens
            else np.uint8
            if source.inputs.dtype == np.uint8
            else np.float32
        )
        inputs = source.inputs.astype(kind, copy=False)
        targets = source.targets.astype(np.float32 if source.classes is None else np.int32)
        self._samples = tuple(_placed(a, copied) for a in (inputs, targets))
        self._key = _placed(key_of(batches.seed), copied)

        # Each change in a program of its own: in one, XLA works out an image again wherever the next change looks at it.
        parts = [self._pick, *map(_change, batches.augment.steps), self._finish]
        specs = [(P(), P(), P("data")), *[(P("data"),) * 2] * (len(parts) - 1)]
        self._programs = [
            jax.jit(jax.shard_map(part, mesh=mesh, in_specs=spec, out_specs=P("data"), check_vma=False))
            for part, spec in zip(parts, specs, strict=True)
        ]

    def chunk(self, number: int) -> tuple[Any, Any]:
        """The batches of the steps from number · size on."""
        steps, size = number * self.size + np.arange(self.size), self.batches.batch
        positions = counters(steps * size + np.arange(size)[:, None])
        pick, *changes, finish = self._programs
        rows = _placed((self._order(steps), *positions), self._rows)
        x, y, draws = pick(self._samples, self._key, rows)
        for change in changes:
            x, draws = change(x, draws)
        return finish(x, y)

    def _order(self, steps: np.ndarray) -> np.ndarray:
        """The samples of these steps: [batch, steps]."""
        size, count = self.batches.batch, len(self.batches.source)
        found = np.empty((size, len(steps)), np.int32)
        for i, step in enumerate(steps.tolist()):
            epoch, within = divmod(step, self.batches.steps_per_epoch)
            found[:, i] = epoch_order(count, self.batches.seed, epoch)[within * size : (within + 1) * size]
        return found

    def _pick(self, samples: tuple[Any, Any], key: Any, rows: tuple[Any, Any, Any]) -> tuple[Any, Any, PositionDraws]:
        at, *positions = (part.reshape(-1) for part in rows)
        x, y = (a.at[at].get(mode="promise_in_bounds") for a in samples)
        x = x.astype(jnp.float32) / 255 if x.dtype == np.uint8 else x
        return x, y, PositionDraws(key, positions)

    def _finish(self, x: Any, y: Any) -> tuple[Any, Any]:
        normalise, classes = self.batches.normalise, self.batches.source.classes
        x = NORMALISATIONS[normalise.func](x, **normalise.keywords)
        y = y if classes is None else (y[:, None] == jnp.arange(classes)[None]).astype(jnp.float32)
        return tuple(a.reshape(-1, self.size, *a.shape[1:]) for a in (x, y))


def _change(step: Any) -> Any:
    return lambda x, draws: (CHANGES[step.func](x, draws, **step.keywords), draws)


def lacking(batches: Batches) -> str:
    """Why these batches cannot be made from samples on the devices, in words, or an empty string."""
    if not isinstance(batches.source, Arrays):
        return "they are read from files, one by one (memory=True keeps them)"
    if batches.normalise.func not in NORMALISATIONS:
        return "they are taken as they are stored (normalise=None)"
    strange = [change for change in batches.augment.steps if getattr(change, "func", None) not in CHANGES]
    return f"there is no compiled form of {', '.join(map(str, strange))}" if strange else ""


def fits(batches: Batches) -> bool:
    """Whether the samples are to lie on the devices where nothing is said about it: the same on every machine."""
    source = batches.source
    if not isinstance(source, Arrays) or lacking(batches):
        return False
    return source.inputs.nbytes + source.targets.nbytes <= LARGEST


def _placed(arrays: Any, sharding: NamedSharding) -> Any:
    """On the devices, from a process that has all of them."""
    with jax.transfer_guard_host_to_device("allow"):
        return jax.tree.map(
            lambda a: jax.make_array_from_callback(a.shape, sharding, lambda index, a=a: a[index]), arrays
        )
