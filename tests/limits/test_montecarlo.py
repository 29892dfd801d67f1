"""Kernels by Monte-Carlo through the forward code, and the practical residual network that needs them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import empirical_ntk, twin
from limits.finite.sampled_kernels import _of_batch, sampled_kernels
from zoo import MLP, HeResNet, ResNet

X = np.random.default_rng(0).normal(size=(3, 4, 4, 1))
PRE = HeResNet(
    8, (2,), windows=(3,), norm=None, order="pre", stem="small", parameterization="ntk", b_std=0.3, w_std=1.4
)


@pytest.mark.slow
def test_the_practical_network_of_one_stage_is_the_theorys():
    # The same equations by another way: two blocks of one convolution, each scaled by 2^(−1/2).
    theory = ResNet(8, 2, form="conv", residual="fixed", beta=2**-0.5, readout="average", b_std=0.3, w_std=1.4)
    theory = theory.clone(bias_init="zeros")
    found, expected = twin(PRE).kernels(X), twin(theory).kernels(X)
    np.testing.assert_allclose(found.nngp, expected.nngp, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-12)


def test_sampled_kernels_are_the_closed_ones_within_their_errors():
    net = MLP(width=64, depth=1, b_std=0.5)
    closed, sampled = twin(net).kernels(X), sampled_kernels(net, X, twin(net).readout, members=64, seed=0)
    for name in ("nngp", "ntk"):
        error = getattr(sampled, f"{name}_sem")
        away = np.abs(getattr(sampled, name) - getattr(closed, name)) / error
        assert away.max() < 3.5  # six numbers a kernel: beyond 3.5 standard errors once in 350 such tests
        assert error.max() < 0.1 * getattr(closed, name).max()
    assert sampled.provenance["ntk"].kind == "monte_carlo"


@pytest.mark.slow
def test_the_jacobian_of_a_batch_gives_the_tangent_kernel():
    net, x = MLP(width=8, depth=1, outputs=2), jnp.asarray(X, jnp.float32)
    params = net.init(jax.random.key(0), x)
    rates = jax.tree.map(lambda leaf: 3.0, params)
    expected = empirical_ntk(net.apply, params, x, rates=rates)
    np.testing.assert_allclose(_of_batch(net.apply, params, x, rates=rates), expected, rtol=1e-4)


@pytest.mark.slow
def test_batch_norm_has_sampled_kernels_that_depend_on_the_batch():
    net = HeResNet(4, (1,), norm="batch", stem="small", parameterization="ntk", windows=(1,))
    both, alone = (twin(net).kernels(x, members=8) for x in (X, X[:2]))
    assert both.provenance["nngp"].kind == "monte_carlo"
    assert both.ntk.shape == both.ntk_sem.shape == (3, 3)
    assert np.all(both.ntk_sem > 0)
    assert not np.allclose(both.nngp[:2, :2], alone.nngp, rtol=1e-3)  # the same seeds, another batch
    with pytest.raises(ValueError, match="they take members and seed, not block"):
        twin(net).kernels(X, block=2)
