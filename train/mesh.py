"""Where arrays live: a mesh of devices, and short rules that place parameters on it."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from zoo import checks
from zoo.messages import did_you_mean

AXES = ("data", "model", "ensemble")
RULES = {
    "replicate": "a copy on every device",
    "fsdp": "the largest dimension that divides, over the data axis",
    "model": "the last dimension (of a matrix: its outputs), over the model axis",
    "fsdp+model": "both",
}


def make_mesh(data: int = -1, model: int = 1, ensemble: int = 1, devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh of data × model × ensemble devices; −1 stands for what is left.

    >>> dict(make_mesh(data=1).shape)
    {'data': 1, 'model': 1, 'ensemble': 1}
    """
    devices = jax.devices() if devices is None else devices
    shape = [data, model, ensemble]
    if not all(checks.count(-1).holds(n) for n in shape) or shape.count(-1) > 1 or 0 in shape:
        raise ValueError(
            f"mesh: sizes must be integers of at least 1, and at most one may be −1; got {dict(zip(AXES, shape, strict=True))}."
        )
    known = math.prod(n for n in shape if n != -1)
    if len(devices) % known or (-1 not in shape and known != len(devices)):
        raise ValueError(
            f"mesh: {dict(zip(AXES, shape, strict=True))} do not fit {len(devices)} devices: their product must be "
            f"{len(devices)}, or divide it with one of them −1."
        )
    shape = [len(devices) // known if n == -1 else n for n in shape]
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * 3, devices=devices)


class Placement:
    """Rules [(pattern, rule), …] for the leaves of a tree, by path: the first pattern found in it decides; else a copy each.

    A rule alone is one for everything. Small arrays (fewer than `least` entries) are copied. With `members`, leading
    dimensions are those of an ensemble. `log` has a line for everything that a rule could not divide.

    >>> mesh = make_mesh(data=1)
    >>> tuple(Placement(mesh, "fsdp").of({"kernel": jax.ShapeDtypeStruct((3, 4), "float32")})["kernel"].spec)
    ()
    """

    def __init__(
        self, mesh: Mesh, rules: str | Iterable[Sequence[str]] = "replicate", members: bool = False, least: int = 1024
    ) -> None:
        self.mesh, self.members, self.least = mesh, members, least
        self.rules = [(".*", rules)] if isinstance(rules, str) else [(pattern, rule) for pattern, rule in rules]
        for _, rule in self.rules:
            if rule not in RULES:
                raise ValueError(f'Unknown placement rule "{rule}". {did_you_mean(rule, RULES)}')
        self.log: list[str] = []

    def of(self, tree: Any) -> Any:
        """The sharding of every leaf."""
        return jax.tree_util.tree_map_with_path(lambda path, leaf: self._leaf(jax.tree_util.keystr(path), leaf), tree)

    def _leaf(self, path: str, leaf: Any) -> NamedSharding:
        shape = tuple(np.shape(leaf))
        first = ("ensemble",) if self.members else ()
        if self.members:
            if shape[0] % self.mesh.shape["ensemble"]:
                raise ValueError(
                    f"{shape[0]} members do not divide over an ensemble axis of {self.mesh.shape['ensemble']} devices: "
                    "change either."
                )
            shape = shape[1:]
        rule = next((rule for pattern, rule in self.rules if re.search(pattern, path)), "replicate")
        spec = self._spec(rule, path, shape)
        return NamedSharding(self.mesh, PartitionSpec(*first, *spec))

    def _spec(self, rule: str, path: str, shape: tuple[int, ...]) -> tuple[str | None, ...]:
        taken: dict[int, str] = {}
        if math.prod(shape) < self.least:
            return ()
        if "model" in rule and (n := self.mesh.shape["model"]) > 1:
            if shape[-1] % n == 0:
                taken[len(shape) - 1] = "model"
            else:
                self.log.append(f"{path}: {shape[-1]} outputs do not divide over {n} devices of the model axis")
        if "fsdp" in rule and (n := self.mesh.shape["data"]) > 1:
            free = [i for i in range(len(shape)) if i not in taken and shape[i] % n == 0]
            if free:
                taken[max(free, key=lambda i: shape[i])] = "data"
            else:
                self.log.append(f"{path}: no dimension of {shape} divides over {n} devices of the data axis")
        return tuple(taken.get(i) for i in range(max(taken, default=-1) + 1))

    @property
    def batch(self) -> NamedSharding:
        """Of the leading dimension of a batch."""
        return NamedSharding(self.mesh, PartitionSpec("data"))

    @property
    def copied(self) -> NamedSharding:
        """A copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())


def rows_here(sharding: NamedSharding, batch: int) -> tuple[int, int]:
    """(part, parts): this process holds the part-th of so many equal parts of a batch.

    Parts are not processes: with a model axis over two hosts, both hold the same rows.
    """
    count = sharding.mesh.shape["data"]
    if batch % count:
        raise ValueError(f"A batch of {batch} does not divide over {count} devices of the data axis: change either.")
    parts: Any = sharding.addressable_devices_indices_map((batch,)).values()
    where = [index[0].indices(batch)[:2] for index in parts]
    start, stop = min(a for a, _ in where), max(b for _, b in where)
    size = stop - start
    if start % size or batch % size:
        raise ValueError(
            f"The rows {start} to {stop} of a batch of {batch} lie on this process, which is not one of equal parts: "
            "give the devices to the mesh host by host."
        )
    return start // size, batch // size


def to_devices(batch: Any, sharding: NamedSharding, size: int) -> Any:
    """A global batch from the rows that this process has."""
    with jax.transfer_guard_host_to_device("allow"):  # with several processes JAX takes this for an oversight
        return jax.tree.map(
            lambda a: jax.make_array_from_process_local_data(sharding, a, (size, *np.shape(a)[1:])), batch
        )
