"""One convolution kernel that goes over signals in two ways: numbers by hand, and by networks."""

import flax.linen as nn
import jax
import numpy as np
import pytest

from limits import twin
from zoo import in_parameterization

X = np.random.default_rng(5).normal(size=(2, 6, 3))
# by case: two ways of a kernel of 3 as (stride, (before, after), spacing), and whether positions are averaged
WAYS = {
    "a causal one": (((1, (1, 1), 1), (1, (2, 0), 1)), True),
    "spacings": (((1, (1, 1), 1), (1, (2, 2), 2)), True),
    "strides": (((1, (1, 1), 1), (2, (1, 1), 1)), True),
    "all at once": (((2, (3, 0), 1), (3, (1, 4), 2)), True),
    "position by position": (((1, (2, 0), 1), (1, (3, 1), 2)), False),
    "strides, position by position": (((2, (1, 1), 1), (1, (0, 1), 2)), False),
}


def over(a, kernel, way):
    stride, edges, spacing = way
    return jax.lax.conv_general_dilated(
        a, kernel, (stride,), [edges], rhs_dilation=(spacing,), dimension_numbers=("NWC", "WIO", "NWC")
    )


def seen(way):
    """Inputs [n, positions, offsets, channels] that the kernel sees."""
    stride, (before, after), spacing = way
    padded = np.pad(X, ((0, 0), (before, after), (0, 0)))
    starts = range(0, padded.shape[1] - 2 * spacing, stride)
    return np.stack([padded[:, start : start + 2 * spacing + 1 : spacing] for start in starts], 1)


def network(ways, averaged, phi):
    normal = nn.initializers.normal

    class Twice(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            n = self.width
            a = nn.Dense(n, use_bias=False, kernel_init=normal(0.6))(x)
            kernel = self.param("kernel", normal((3 * n) ** -0.5), (3, n, n))
            first, second = (over(a, kernel, way) for way in ways)
            h = phi(first.mean(1), second.mean(1)) if averaged else phi(first, second).reshape(len(x), -1)
            return nn.Dense(1, use_bias=False, kernel_init=normal(h.shape[-1] ** -0.5))(h)

    return in_parameterization(Twice(64), "ntk")


@pytest.mark.parametrize("name", WAYS)
def test_a_kernel_used_in_two_ways(name):
    ways, averaged = WAYS[name]
    found = twin(network(ways, averaged, lambda a, b: a - b)).kernels(X)
    left, right = (seen(way) for way in ways)
    apart = left.mean(1, keepdims=True) - right.mean(1, keepdims=True) if averaged else left - right
    by_hand = 0.36 / 3 * np.einsum("npoc,mpoc->nm", apart, apart) / apart.shape[1]
    assert found.provenance["nngp"].kind == "exact"
    np.testing.assert_allclose(found.nngp, by_hand, rtol=1e-6)
    np.testing.assert_allclose(found.ntk, 3 * by_hand, rtol=1e-6)  # three layers of weights, each linear


def test_a_product_of_two_ways_of_a_kernel():
    """E a b a′ b′ of four normal numbers, by pairs."""
    ways = WAYS["position by position"][0]
    found = twin(network(ways, False, lambda a, b: a * b)).kernels(X)
    covariance = lambda u, v: 0.36 / 3 * np.einsum("npoc,mpoc->nmp", u, v)  # noqa: E731
    a, b = (seen(way) for way in ways)
    own = np.einsum("npoc,npoc->np", a, b) * 0.36 / 3
    by_hand = own[:, None] * own[None] + covariance(a, a) * covariance(b, b) + covariance(a, b) * covariance(b, a)
    np.testing.assert_allclose(found.nngp, by_hand.mean(-1), rtol=1e-5)
