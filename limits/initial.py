"""What a limit says of a set of inputs before training."""

import dataclasses
import functools
from typing import Any

import numpy as np

from limits.types import Kernels


@dataclasses.dataclass(frozen=True, eq=False)
class Initial:
    """Kernels of one set of inputs at initialisation, each computed once, when it is first asked for.

    Made by `twin(net).initial(x)`; whoever needs the kernels of the same inputs again is handed this.

    >>> from zoo import MLP
    >>> from limits import twin
    >>> start = twin(MLP(width=8, depth=2)).initial([[1.0, 0.0], [0.6, 0.8]])
    >>> start.kernels is start.kernels, len(start.phi), start.covariance.shape
    (True, 2, (2, 2))
    """

    twin: Any
    x: Any

    @functools.cached_property
    def kernels(self) -> Kernels:
        """NNGP and NTK."""
        return self.twin.kernels(self.x)

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of f(0) over initialisations: the NNGP where d = 0, zero where the output scale grows with N."""
        nngp = self.kernels.nngp
        return nngp if self.twin.parameterization.d == 0 else np.zeros_like(nngp)

    @property
    def ntk(self) -> np.ndarray:
        """The tangent kernel."""
        return self.kernels.ntk

    @property
    def features(self) -> np.ndarray:
        """Φ of what enters the readout, [n, n], of which the NNGP is the readout's (`twin.readout`); a mean over positions."""
        at_zero, at_one = self.readout(0.0), self.readout(1.0)
        nngp = self.kernels.nngp
        nngp = nngp if nngp.ndim == 2 else np.trace(nngp, axis1=2, axis2=3) / nngp.shape[-1]
        return (nngp - at_zero) / (at_one - at_zero)

    def readout(self, features: Any) -> Any:
        """A kernel Φ of what enters the readout, the limit's or a finite network's, carried through it."""
        return self.twin.readout(features, self.x)

    @property
    def phi(self) -> tuple[np.ndarray, ...]:
        """Φ^l of every h^l that the definition returns, [n, n]."""
        return self._layers[0]

    @property
    def g(self) -> tuple[np.ndarray, ...]:
        """G^l likewise."""
        return self._layers[1]

    @functools.cached_property
    def _layers(self) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        phi, g = self.twin.layers(self.x)
        return tuple(phi), tuple(g)
