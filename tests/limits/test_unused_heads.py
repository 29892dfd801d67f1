"""Heads whose outputs go nowhere, as that of the variance where an encoder gives its mean."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from zoo import explain, in_parameterization

X = np.random.default_rng(0).normal(size=(2, 3, 4))
ROOTED = nn.initializers.variance_scaling(1.0, "fan_in", "normal")


class Attends(nn.Module):
    """Attention of logits q·k/√d, whose kernels are drawn, with a head beside the readout."""

    width: int
    head: bool = True

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(self.width, kernel_init=ROOTED, name="in")(x)
        h = nn.MultiHeadDotProductAttention(2, kernel_init=ROOTED, name="attention")(h)
        found = nn.Dense(1, kernel_init=ROOTED, name="mean")(nn.relu(h).mean(1))
        if self.head:
            nn.Dense(2, kernel_init=ROOTED, name="variance")(jnp.tanh(h))
        return found


@pytest.mark.slow
def test_kernels_are_those_without_it():
    """They were refused for two parameters of role readout. Drawn with other seeds: 5 standard errors of 7 degrees of freedom."""
    mine, theirs = (
        twin(in_parameterization(Attends(16, head), "ntk")).kernels(X, samples=128) for head in (True, False)
    )
    for name in ("nngp", "ntk"):
        a, b, *errors = (getattr(k, each) for each in (name, f"{name}_sem") for k in (mine, theirs))
        assert (np.abs(a - b) <= 5 * np.hypot(*errors)).all(), name


class Beside(nn.Module):
    """A head beside the readout."""

    width: int
    head: bool = True

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width, name="in")(x.mean(1)))
        if self.head:
            nn.Dense(2, name="variance")(h)
        return nn.Dense(1, name="mean")(h)


@pytest.mark.parametrize("head", [True, False])
def test_explain_says_that_outputs_do_not_depend_on_it(head):
    """It was a readout like the other, without a word."""
    found = explain(in_parameterization(Beside(16, head), "mup"), "adam", x=X, show=False)
    said = [warning for warning in found.warnings if "on which the outputs do not depend" in warning]
    assert [warning.partition(":")[0] for warning in said] == ["variance.kernel"] * head


class Both(nn.Module):
    """Two heads beside each other: outputs of several layers."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width)(x.mean(1)))
        return jnp.concatenate([nn.Dense(2, name="mean")(h), nn.Dense(2, name="variance")(h)], -1)


def test_heads_that_outputs_depend_on_are_several_outputs():
    """The reason was that a concatenation merges positions with neurons."""
    with pytest.raises(
        ValueError, match=r"mean.kernel and variance.kernel all .* of few neurons each, .* a network of each"
    ):
        twin(in_parameterization(Both(16), "ntk")).kernels(X)


class Token(nn.Module):
    """A token of its own before the others, given to every input by `jnp.tile`, as in Flax's example."""

    width: int
    tiled: bool = True

    @nn.compact
    def __call__(self, x):
        token = self.param("token", nn.initializers.normal(1.0), (1, 1, self.width))
        given = jnp.tile(token, (len(x), 1, 1)) if self.tiled else jnp.broadcast_to(token, (len(x), 1, self.width))
        h = jnp.concatenate([given, nn.Dense(self.width, name="in")(x)], 1)
        h = h + nn.relu(nn.Dense(self.width, name="mixed")(h.mean(1, keepdims=True)))
        return nn.Dense(1, name="readout")(h[:, 0])


def test_a_token_that_is_tiled_is_one_that_is_broadcast():
    """They were drawn, with the reason that parameters are concatenated with each other."""
    mine, theirs = (twin(in_parameterization(Token(16, tiled), "ntk")).kernels(X) for tiled in (True, False))
    assert mine.provenance["ntk"].kind != "monte_carlo"
    np.testing.assert_allclose(mine.nngp, theirs.nngp, rtol=1e-12)
    np.testing.assert_allclose(mine.ntk, theirs.ntk, rtol=1e-12)


class Numbered(nn.Module):
    """Sinusoids of positions over the number of every neuron."""

    width: int
    counted: bool

    @nn.compact
    def __call__(self, x):
        number = jnp.arange(self.width) if self.counted else np.arange(self.width)
        waves = jnp.sin(jnp.arange(3)[:, None] * 100.0 ** (-number / self.width)[None])
        return nn.Dense(1)(nn.relu(nn.Dense(self.width)(x) + waves[None]).mean(1))


@pytest.mark.parametrize("counted", [True, False])
def test_sinusoids_are_said_with_what_to_take(counted):
    found = twin(in_parameterization(Numbered(16, counted), "ntk")).kernels(X)
    assert "a table of a fixed number of features" in found.provenance["ntk"].detail
