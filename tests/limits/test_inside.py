"""Feature learning of networks with few signals inside: a mixture of experts, whose router starts at zero."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

from limits import AbsentError, Task, twin
from limits.fields.after_readout import multiple
from train import ensemble
from zoo import in_parameterization

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(6, 5)), RNG.normal(size=(6, 1)) + 1
TASK = Task(X, Y, X[:2], Y[:2])
HOW: Any = {"steps": 5, "learning_rate": 0.5, "kernel_times": [5]}


class Mixture(nn.Module):
    """Three experts, whose shares a router says."""

    width: int
    start: Any = nn.initializers.zeros

    @nn.compact
    def __call__(self, x):
        h = nn.gelu(nn.Dense(self.width)(x))
        share = nn.softmax(nn.Dense(3, name="router", kernel_init=self.start)(h))
        experts = jnp.stack([nn.Dense(self.width, name=f"expert_{i}")(h) for i in range(3)], axis=-1)
        return nn.Dense(1)(nn.gelu((experts * share[:, None, :]).sum(-1)))


@pytest.mark.slow
@pytest.mark.parametrize("samples", [256, 64])
def test_experts_have_one_limit(samples):
    """64 networks of width 256 against sweeps of as many samples, 6 times, and of 64: within 5 standard errors.

    These have 5 degrees of freedom, by which 5 of them are as rare as 2.9 of a normal law. Features are those before the readout
    of outputs, whatever the router is.
    """
    net, kernels = in_parameterization(Mixture(256), "mup"), ("features",)
    finite = ensemble(net, TASK, members=64, centred=True, kernels=kernels, **HOW)
    found = twin(net).rich(TASK, samples=samples, replicas=6, kernels=kernels, **HOW)
    away, error = found.loss - finite.loss, np.hypot(found.loss_sem, finite.loss_sem)
    assert (np.abs(away[1:]) < 5 * error[1:]).all()
    assert (error < 0.03).all()
    error = np.hypot(found.features_sem, finite.features_sem)
    assert (np.abs(found.features - finite.features) < 6 * error).all()  # the largest of 36
    assert np.median(error / finite.features) < 0.15
    assert finite.loss[-1] < 0.8 * finite.loss[0]


def test_a_router_that_starts_large_has_none():
    limit = twin(in_parameterization(Mixture(16, nn.initializers.lecun_normal()), "mup"))
    with pytest.raises(AbsentError, match=r"router.kernel of Mixture make few signals.*Start them at zero"):
        limit.rich(TASK, samples=32, replicas=2, **HOW)


class Pooled(nn.Module):
    """Tokens weighed by a softmax of one number each, made of all neurons."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width)(x))
        share = nn.softmax(nn.Dense(1, name="share")(h), axis=1)
        return nn.Dense(1)(nn.Dense(self.width)((share * h).sum(1)))


@pytest.mark.slow
def test_readouts_behind_pooling_by_attention():
    """Drawn NNGPs ask what is done to the readout of outputs alone: nothing, so that K is the kernel of what enters it."""
    covariance, phi = multiple(in_parameterization(Pooled(8), "ntk"), (3, 4), "float32")
    np.testing.assert_allclose(covariance, phi, rtol=1e-5)
