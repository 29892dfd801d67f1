"""Drawn kernels of modules that do something to the output of their readout."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import AbsentError, twin
from zoo import in_parameterization, parameterization
from zoo.layers import Dense

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
FEW: Any = {"samples": 512, "replicas": 6}


class Half(nn.Module):
    """Of zoo's layers."""

    width: int
    parameterization: str = "ntk"

    @nn.compact
    def __call__(self, x):
        p = parameterization(self.parameterization)
        h = nn.relu(Dense(self.width, "input", self.width, p)(x))
        return 0.5 * Dense(1, "readout", self.width, p)(h) / p.output_scale(self.width, gamma=1.0)


class After(nn.Module):
    """Plain; sorted neurons are drawn."""

    width: int
    end: str

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(self.width)(x)
        h = nn.relu(nn.Dense(self.width)(jnp.sort(h, -1) if self.end == "thrice, sorted" else h))
        f = nn.Dense(1)(h)
        match self.end:
            case "by inputs":
                return f * jnp.cos(x[:, :1])
            case "a function":
                return jnp.tanh(f)
            case "a term":
                return f + x[:, :1]
        return 3 * f


@pytest.mark.parametrize("form", ["ntk", "mup"])
def test_a_multiple_is_drawn_as_it_is_read(form):
    limit = twin(Half(32, form))
    read, drawn = limit.kernels(X), limit.kernels(X, **FEW)
    assert (np.abs(drawn.nngp - read.nngp) < 6 * drawn.nngp_sem).all()  # with 5 degrees of freedom: .2 % a number
    assert (np.abs(drawn.ntk - read.ntk) < 6 * drawn.ntk_sem).all()
    assert (drawn.nngp_sem < 0.1 * read.nngp.max()).all()


@pytest.mark.slow
def test_so_it_is_where_nothing_is_read():
    """Against 200 networks of width 512: 10 % of a variance."""
    found = twin(in_parameterization(After(64, "thrice, sorted"), "ntk")).kernels(X)
    one = jax.jit(lambda key: After(512, "thrice, sorted").init_with_output(key, X)[0][:, 0])
    f = np.stack([one(key) for key in jax.random.split(jax.random.key(0), 200)])
    np.testing.assert_allclose(np.diag(found.nngp), (f**2).mean(0), rtol=0.4)
    assert found.provenance["nngp"].kind == "monte_carlo"


@pytest.mark.parametrize(
    ("end", "why"),
    [("a function", "no linear function"), ("a term", "are not 0")],
)
@pytest.mark.slow
def test_what_is_no_multiple_is_not_drawn(end, why):
    found = twin(in_parameterization(After(16, end), "ntk")).kernels(X, samples=64, replicas=2)
    with pytest.raises(AbsentError, match=rf"After are not those of its readout, or a multiple.*{why}"):
        found.nngp  # noqa: B018
    assert np.isfinite(found.ntk).all()


class Largest(nn.Module):
    """The largest of a neuron's signals, which is drawn, and a readout that starts at zero, as of vision transformers."""

    width: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1, kernel_init=nn.initializers.zeros)(nn.Dense(self.width)(x[..., None]).max(1))


@pytest.mark.slow
def test_outputs_of_a_readout_of_zeros_are_drawn_as_zeros():
    """NNGP 0 (it was not a number); NTK 1 + E[h h′] with h = w max(x) for w > 0 and w min(x) else, w of variance 1."""
    found = twin(in_parameterization(Largest(32), "ntk")).kernels(X, samples=256, replicas=4)
    assert (found.nngp == 0).all()
    largest, smallest = X.max(1), X.min(1)
    expected = 1 + (np.multiply.outer(largest, largest) + np.multiply.outer(smallest, smallest)) / 2
    np.testing.assert_allclose(found.ntk, expected, rtol=0.15)  # standard error 1/√1024 of E[h h′], times 1.2: 3 %


class MeanOfTokens(nn.Module):
    """A mean over tokens behind the readout or before it: the same function."""

    width: int
    last: bool

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width)(x[..., None]))
        return nn.Dense(1)(h).mean(1) if self.last else nn.Dense(1)(h.mean(1))


@pytest.mark.parametrize("form", ["ntk", "mup"])
@pytest.mark.slow
def test_means_behind_the_readout_are_drawn_as_before_it(form):
    """(The NNGP was absent, as multiplied by what differs from input to input.)"""
    behind, before = (in_parameterization(MeanOfTokens(32, last), form) for last in (True, False))
    read, drawn = twin(before).kernels(X), twin(behind).kernels(X, **FEW)
    assert (np.abs(drawn.nngp - read.nngp) < 6 * drawn.nngp_sem).all()  # with 5 degrees of freedom: .2 % a number
    assert (drawn.nngp_sem < 0.1 * read.nngp.max()).all()


@pytest.mark.slow
def test_readouts_times_what_differs_between_inputs_are_drawn():
    """cos(x) Σ(x, x′) cos(x′), with Σ that of 3 f of the same networks over 9."""
    found, thrice = (
        twin(in_parameterization(After(16, end), "ntk")).kernels(X, **FEW) for end in ("by inputs", "thrice")
    )
    turned = np.cos(X[:, 0])
    error = np.hypot(found.nngp_sem, thrice.nngp_sem / 9)
    assert (np.abs(found.nngp - np.outer(turned, turned) * thrice.nngp / 9) < 6 * error + 1e-6).all()


class Twice(nn.Module):
    """A readout used twice, or once of the same sum of positions."""

    width: int
    times: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width, use_bias=False)(x[..., None]))
        readout = nn.Dense(1, use_bias=False)
        return readout(h.mean(1) + h[:, 0]) if self.times == 1 else readout(h).mean(1) + readout(h[:, 0])


@pytest.mark.slow
def test_a_readout_that_is_used_twice_is_that_of_the_sum():
    """Where it is used once the kernel is read. It was infinite, and NaN."""
    found = twin(in_parameterization(Twice(64, 2), "ntk")).kernels(X, **FEW)
    read = twin(in_parameterization(Twice(64, 1), "ntk")).kernels(X)
    exact = read.nngp
    assert (found.provenance["nngp"].kind, read.provenance["nngp"].kind) == ("monte_carlo", "approximate")  # float32
    assert (np.abs(found.nngp - exact) < 6 * found.nngp_sem).all()  # with 5 degrees of freedom: .2 % a number
    assert (found.nngp_sem < 0.1 * exact.max()).all()


@pytest.mark.parametrize("form", ["ntk", "mup"])
def test_a_random_bias_of_the_readout_is_a_part_of_it(form):
    """And of its covariance: .5², drawn in every network, whatever the module multiplies its outputs by."""

    class Biased(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            h = nn.tanh(nn.Dense(self.width)(x))
            return 2 * nn.Dense(1, bias_init=nn.initializers.normal(0.5))(h)

    limit = twin(in_parameterization(Biased(32), form))
    read, drawn = limit.kernels(X), limit.kernels(X, **FEW)
    assert (np.abs(drawn.nngp - read.nngp) < 6 * drawn.nngp_sem).all()  # with 5 degrees of freedom: .2 % a number
    assert (drawn.nngp_sem < 0.05 * 4 * 0.5**2).all()  # of what the bias adds
