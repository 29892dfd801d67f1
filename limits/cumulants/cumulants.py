"""The cumulants of a distribution, and of a mixture of distributions with a target each."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from zoo import checks


class Cumulants(NamedTuple):
    """Mean [N], covariance [N, N], and where they are kept the third [N, N, N] and fourth [N, N, N, N] cumulants.

    A pytree: classes or components are a leading axis of every array. None is a cumulant that is taken to be zero.

    >>> Cumulants(np.zeros(2), np.eye(2)).order
    2
    """

    mean: Any
    covariance: Any
    third: Any = None
    fourth: Any = None

    @property
    def order(self) -> int:
        """The highest cumulant that is kept."""
        return 2 if self.third is None and self.fourth is None else 3 if self.fourth is None else 4

    def upto(self, order: int) -> "Cumulants":
        """The same with cumulants above `order` (2, 3 or 4) left out."""
        if order not in (2, 3, 4):
            raise ValueError(f"Cumulants: order must be 2, 3 or 4, got {order}.")
        return Cumulants(
            self.mean, self.covariance, self.third if order > 2 else None, self.fourth if order > 3 else None
        )


class Mixture(NamedTuple):
    """Data as components: probability [K], target [K, outputs], and the cumulants of each with a leading axis K.

    What a network is told about the data. A component may be a class, or a part of one: two components with one target.
    """

    probability: Any
    target: Any
    cumulants: Cumulants

    def upto(self, order: int) -> "Mixture":
        """The same with cumulants above `order` left out."""
        return self._replace(cumulants=self.cumulants.upto(order))


mixture_of = checks.Check(
    "a Mixture, such as class_cumulants makes", lambda v: isinstance(v, Mixture) and len(v.cumulants)
)
layers_of = checks.several(
    checks.Check("a pair of Mixtures, as propagate returns", lambda v: len(v) == 2 and all(map(mixture_of.holds, v)))
)


def from_moments(mean: Any, second: Any, third: Any = None, fourth: Any = None) -> Cumulants:
    """Cumulants from the central moments E[x̃x̃], E[x̃x̃x̃], E[x̃x̃x̃x̃] of x̃ = x − mean; of the fourth three pairings are taken off."""
    if fourth is not None:
        pairs = jnp.einsum("...ij,...kl->...ijkl", second, second)
        fourth = fourth - pairs - jnp.swapaxes(pairs, -3, -2) - jnp.swapaxes(pairs, -3, -1)
    return Cumulants(mean, second, third, fourth)


@checks.arguments(x=checks.array(least=1), order=checks.whole)
def empirical_cumulants(x: Any, order: int = 2) -> Cumulants:
    """Cumulants of samples x [n, …] up to `order`, NumPy float64: of the empirical distribution, so O(1/n) biased.

    >>> k = empirical_cumulants(np.array([[0.0], [0.0], [3.0]]), order=3)
    >>> k.mean.tolist(), k.covariance.tolist(), k.third.tolist()
    ([1.0], [[2.0]], [[[2.0]]])
    """
    Cumulants(0.0, 0.0).upto(order)
    x = np.asarray(x, np.float64)
    x = x.reshape(len(x), -1)
    mean = x.mean(0)
    away = x - mean
    n, d = away.shape
    pairs = (away[:, :, None] * away[:, None, :]).reshape(n, d * d) if order > 2 else away
    second = away.T @ away / n
    third = (pairs.T @ away / n).reshape(d, d, d) if order > 2 else None
    fourth = (pairs.T @ pairs / n).reshape(d, d, d, d) if order > 3 else None
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, from_moments(mean, second, third, fourth))


@checks.arguments(z=checks.array(None, None))
def higher_cumulants(z: Any) -> tuple[np.ndarray, np.ndarray]:
    """(skewness, excess kurtosis) of every column of samples z [n, N]: the third and fourth cumulants in units of the variance.

    >>> skew, kurtosis = higher_cumulants(np.array([[-1.0], [1.0]]))
    >>> skew.item(), kurtosis.item()
    (0.0, -2.0)
    """
    z = np.asarray(z, np.float64)
    still = np.ptp(z, axis=0) == 0
    if still.any():
        raise ValueError(
            f"higher_cumulants: {still.sum()} of {z.shape[1]} columns do not vary over the {len(z)} samples (first: column "
            f"{np.flatnonzero(still)[0]}); cumulants in units of their variance do not exist."
        )
    away = (z - z.mean(0)) / z.std(0)
    return (away**3).mean(0), (away**4).mean(0) - 3
