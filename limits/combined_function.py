"""Sums, multiples and products of kernels as functions of JAX arrays."""

import functools
import math
from collections.abc import Sequence
from typing import Any

from limits.inputs import check_same_positions
from limits.kernel_function import KernelFunction, KernelPair
from limits.program.read import KERNELS
from limits.types import Provenance


class CombinedFunction(KernelFunction):
    """The kernels of a combination as a function of JAX arrays, of the numbers of its parts and of the scales."""

    @functools.cached_property
    def hyperparameters(self) -> dict[str, Any]:
        """Names and values of what it is a function of beside inputs."""
        return self.twin.hyperparameters

    @functools.cached_property
    def _parts(self) -> list[KernelFunction]:
        return [each.kernel_function(self.like) for each in self.twin._of_roles]

    def provenance(self, x: Any, over: Sequence[str] = ()) -> dict[str, Provenance]:
        """How exact its numbers are, for inputs of this shape; why kernels are absent. over: the numbers it is called with."""
        _, own = self.twin._split(dict.fromkeys(over, 1.0))
        found = [each.provenance(x, tuple(names)) for each, names in zip(self._parts, own, strict=True)]
        return {name: self.twin._provenance([each[name] for each in found]) for name in KERNELS}

    def _read(self, x1: Any, x2: Any, values: dict[str, Any], same: bool = False) -> KernelPair:
        scales, own = self.twin._split(values)
        pairs = [f._read(x1, x2, given, same) for f, given in zip(self._parts, own, strict=True)]
        check_same_positions(self.twin.twins, [pair.nngp for pair in pairs])
        nngp = ntk = 0.0
        for scale, term in zip(scales, self.twin._by_term(pairs), strict=True):
            product = math.prod(pair.nngp for pair in term)
            nngp = nngp + scale * product
            if any(pair.ntk is None for pair in pairs):
                continue
            for i, pair in enumerate(term):
                ntk = ntk + scale * math.prod([pair.ntk, *(other.nngp for j, other in enumerate(term) if j != i)])
        return KernelPair(nngp, None if any(pair.ntk is None for pair in pairs) else ntk)
