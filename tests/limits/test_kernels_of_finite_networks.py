import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import empirical_ntk, twin
from zoo import MLP, learning_rate_factors

X = np.sin(1.7 * np.arange(3)[:, None] * np.arange(1, 6) + 0.4)
MEMBERS, WIDTHS = 800, (64, 128)
PAIRS = np.triu_indices(3)


@functools.cache
def kernels_of_members(width):
    """[members, kernel, pairs]: the feature kernel through the readout, and the tangent kernel, of tanh networks."""
    net = MLP(width, 2, activation="tanh", w_std=1.4, b_std=0.3, parameterization="mup", gamma=2.0)
    x, limit = jnp.asarray(X, float), twin(net)
    rates = {"params": learning_rate_factors(net, x)}

    def one(key):
        params = net.init(key, x)
        inside: Any = net.apply(params, x, intermediates=True)
        last = inside[1]["phi"][-1]
        return jnp.stack([limit.readout(last @ last.T / width), empirical_ntk(net.apply, params, x, rates=rates)])

    keys = jax.random.split(jax.random.key(5), MEMBERS)
    members = jax.jit(jax.vmap(one), compiler_options={"xla_backend_optimization_level": 1})(keys)
    return np.asarray(members, np.float64)[:, :, *PAIRS]


def extrapolated():
    """Mean and standard error at 1/width = 0 on the line through the two widths."""
    small, large = (kernels_of_members(width) for width in WIDTHS)
    mean = 2 * large.mean(0) - small.mean(0)
    return mean, np.sqrt((4 * large.var(0, ddof=1) + small.var(0, ddof=1)) / MEMBERS)


@pytest.mark.parametrize(("which", "name"), enumerate(["nngp", "ntk"]))
def test_means_over_networks_are_the_twins_kernels(which, name):
    # The mean over networks is off by O(1/N), 1 % at width 64; the extrapolated one by O(1/N²), some 0.02 %. A network's
    # diagonal varies by 7 to 13 % at width 128, so the standard error is √5 to √6 / √800 of that: 0.6 to 1.2 %. Four of
    # them: one of the twelve entries fails by chance once in 1,300 seeds; the seed is fixed.
    mean, sem = (part[which] for part in extrapolated())
    expected = getattr(twin(MLP(8, 2, activation="tanh", w_std=1.4, b_std=0.3)).kernels(X), name)[PAIRS]
    assert sem.max() < 0.02 * expected.max()
    assert np.all(np.abs(mean - expected) < 4 * sem)


def test_fluctuations_over_networks_fall_as_one_over_width():
    small, large = (kernels_of_members(width).var(0) for width in WIDTHS)
    # Relative standard error of a variance over 800 members: √(2/800) = 5 % if Gaussian, of the ratio 7 %.
    assert np.all(np.abs(np.log(small / large / 2)) < 4 * 0.07)
