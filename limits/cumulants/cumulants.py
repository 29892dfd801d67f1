"""The cumulants of a distribution, of a mixture of distributions with a target each, and of linear maps of them."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from zoo import checks

order_of = checks.count(2, 4)


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

    @checks.arguments(order=order_of)
    def upto(self, order: int) -> "Cumulants":
        """The same with cumulants above `order` (2, 3 or 4) left out."""
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
    "a Mixture (of samples: class_cumulants(x, y))", lambda v: isinstance(v, Mixture) and len(v.cumulants)
)
layers_of = checks.several(
    checks.Check("a pair of Mixtures, as propagate returns", lambda v: len(v) == 2 and all(map(mixture_of.holds, v)))
)


def from_moments(mean: Any, second: Any, third: Any = None, fourth: Any = None) -> Cumulants:
    """Cumulants from the central moments E[x̃x̃], E[x̃x̃x̃], E[x̃x̃x̃x̃] of x̃ = x − mean; of the fourth three pairings are taken off."""
    if fourth is not None:
        pairs = np.multiply.outer(second, second)
        fourth = fourth - pairs - np.swapaxes(pairs, 1, 2) - np.swapaxes(pairs, 1, 3)
    return Cumulants(mean, second, third, fourth)


@checks.arguments(x=checks.array(least=1), order=order_of)
def empirical_cumulants(x: Any, order: int = 2) -> Cumulants:
    """Cumulants of samples x [n, …] up to `order`, NumPy float64: of the empirical distribution, so O(1/n) biased.

    >>> k = empirical_cumulants(np.array([[0.0], [0.0], [3.0]]), order=3)
    >>> k.mean.tolist(), k.covariance.tolist(), k.third.tolist()
    ([1.0], [[2.0]], [[[2.0]]])
    """
    x = np.asarray(x, np.float64)
    x = x.reshape(len(x), -1)
    mean = x.mean(0)
    away = x - mean
    n, d = away.shape
    pairs = (away[:, :, None] * away[:, None, :]).reshape(n, d * d) if order > 2 else away
    second = away.T @ away / n
    third = (pairs.T @ away / n).reshape(d, d, d) if order > 2 else None
    fourth = (pairs.T @ pairs / n).reshape(d, d, d, d) if order > 3 else None
    return from_moments(mean, second, third, fourth)


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


@checks.arguments(
    cumulants=checks.a(Cumulants, "Cumulants"),
    weights=checks.array(None, None),
    bias=checks.array(None),
)
def through_linear(cumulants: Cumulants, weights: Any, bias: Any = None) -> Cumulants:
    """Cumulants of z = W y + b, with W [outputs, inputs]; exact for every distribution.

        μ_z = W μ_y + b,   G^(n)_z = W ⊗ … ⊗ W G^(n)_y

    >>> through_linear(Cumulants(np.ones(2), np.eye(2)), np.array([[1.0, 2.0]]), np.ones(1)).covariance.tolist()
    [[5.0]]
    """
    mean, covariance, third, fourth = cumulants
    w = jnp.asarray(weights)
    mean = w @ mean if bias is None else w @ mean + bias
    third = None if third is None else jnp.einsum("ai,bj,ck,ijk->abc", w, w, w, third, optimize="optimal")
    if fourth is not None:
        fourth = jnp.einsum("ai,bj,ck,dl,ijkl->abcd", w, w, w, w, fourth, optimize="optimal")
    return Cumulants(mean, w @ covariance @ w.T, third, fourth)


def repeated(cumulants: Cumulants, weights: Any) -> tuple[Any, Any]:
    """(G3_iij, G4_iijj) [N, N] of z = W y, without the arrays of N³ and N⁴ entries; None for what is not kept.

    All that a quadratic activation needs of the third and fourth cumulants.
    """
    w, inputs = jnp.asarray(weights), cumulants.mean.shape[-1]
    squares = (w[:, :, None] * w[:, None, :]).reshape(len(w), inputs**2)
    third = None if cumulants.third is None else squares @ cumulants.third.reshape(inputs**2, inputs) @ w.T
    fourth = None if cumulants.fourth is None else squares @ cumulants.fourth.reshape(inputs**2, inputs**2) @ squares.T
    return third, fourth
