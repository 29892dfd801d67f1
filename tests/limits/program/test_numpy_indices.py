"""Modules that take positions by indices in a NumPy array."""

import flax.linen as nn
import numpy as np

from limits import twin
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(2, 4, 3))
ORDER = np.array([0, 1, 3, 0])


class Taken(nn.Module):
    """Mean over some of the tokens, by one array of indices or by slices."""

    width: int
    sliced: bool = False

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width, kernel_init=nn.initializers.normal(0.5))(x))
        total = 2 * h[:, 0] + h[:, 1] + h[:, 3] if self.sliced else h[:, ORDER].sum(1)
        return nn.Dense(1)(total)


def test_indices_in_an_array_are_read_as_slices():
    """JAX keeps such an array in the type in which it met it first: kernels were drawn, for its TypeError."""
    taken, sliced = (twin(in_parameterization(Taken(16, each), "ntk")).kernels(X) for each in (False, True))
    assert taken.provenance["ntk"].kind != "monte_carlo"
    np.testing.assert_allclose(taken.ntk, sliced.ntk, rtol=1e-6)
    np.testing.assert_allclose(taken.nngp, sliced.nngp, rtol=1e-6)
