"""Outputs that are no centred Gaussian process at the start, and gradients that stay random: refused, with the reason."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

from limits import AbsentError, Task, twin
from train import ensemble
from zoo import in_parameterization

GAUSS = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
X = np.random.default_rng(0).normal(size=(6, 3))
TASK = Task(X[:4], np.sin(X[:4, :1]), X[4:], np.sin(X[4:, :1]))


class Outputs(nn.Module):
    """f = what `kind` says of readouts."""

    width: int
    kind: str

    @nn.compact
    def __call__(self, x):
        def readout(h):
            return nn.Dense(1, kernel_init=GAUSS, use_bias=False)(h)

        h = nn.relu(nn.Dense(self.width, kernel_init=GAUSS)(x))
        if self.kind == "residual scalars":
            s = self.param("s", nn.initializers.constant(0.3), ())
            h = h + s * nn.Dense(self.width, kernel_init=GAUSS)(nn.relu(h))
        made = {
            "linear skip": lambda: readout(h) + 0.5 * readout(x),
            "bias": lambda: readout(h) + self.param("b", nn.initializers.zeros, (1,))[None],
            "zero": lambda: readout(h) - 0.0,
            "mean": lambda: readout(h) + x[:, :1] ** 2,
            "bias of 1": lambda: nn.Dense(1, kernel_init=GAUSS, bias_init=nn.initializers.ones)(h),
            "softplus": lambda: nn.softplus(readout(h)),
            "product": lambda: readout(h) * readout(h),
            "scalar": lambda: 4 * self.param("s", nn.initializers.constant(0.3), ()) * readout(h),
            "residual scalars": lambda: readout(h),
        }
        return made[self.kind]()


def limit(kind) -> Any:
    """The twin of a module with such outputs."""
    return twin(in_parameterization(Outputs(64, kind), "ntk"))


@pytest.mark.parametrize("kind", ["linear skip", "bias", "zero"])
def test_sums_of_readouts_are_trained(kind):
    run = limit(kind).lazy(TASK, 5, 0.1, kernels=())
    assert run.loss[-1] < run.loss[0]
    assert limit(kind).posterior(TASK, noise=0.1).f_test.shape == (2, 1)


@pytest.mark.parametrize("kind", ["mean", "bias of 1"])
def test_a_mean_is_taken_out_or_refused(kind):
    for run in (lambda: limit(kind).lazy(TASK, 5, 0.1), lambda: limit(kind).posterior(TASK, noise=0.1)):
        with pytest.raises(AbsentError, match="mean at the start that is not zero"):
            run()
    assert limit(kind).lazy(TASK, 5, 0.1, centred=True, kernels=()).loss[0] > 0


@pytest.mark.parametrize("kind", ["softplus", "product", pytest.param("scalar", marks=pytest.mark.slow)])
def test_functions_of_readouts_are_refused(kind):
    for centred in (False, True):
        with pytest.raises(AbsentError, match="no sum of readouts"):
            limit(kind).lazy(TASK, 5, 0.1, centred=centred)
    with pytest.raises(AbsentError, match="no sum of readouts"):
        limit(kind).posterior(TASK, noise=0.1)
    with pytest.raises(AbsentError, match="no sum of readouts"):
        (limit("linear skip") + limit(kind)).lazy(TASK, 5, 0.1)
    assert jnp.isfinite(limit(kind).kernels(X[:2]).nngp).all()


@pytest.mark.slow
def test_single_numbers_before_the_readout_are_refused_unless_they_stay():
    """Their share of the tangent kernel is the square of a random number: of no smaller spread at four times the width."""
    with pytest.raises(AbsentError, match=r"lazy: s of .* do not grow with the width"):
        limit("residual scalars").lazy(TASK, 5, 0.1)
    net: Any = in_parameterization(Outputs(64, "residual scalars"), "ntk")
    spread = []
    for width in (64, 256):
        runs = ensemble(net.clone(width=width), TASK, 64, 0, 0.1, kernels=("ntk",), trained=("s",))
        spread.append(runs.ntk_sem[0].max() / np.abs(runs.ntk[0]).max())
    assert 0.6 < spread[1] / spread[0] < 1.6
    others = ("input", "hidden", "readout")
    assert limit("residual scalars").lazy(TASK, 5, 0.1, trained=others, kernels=()).loss[0] > 0


class Narrow(nn.Module):
    """Three signals at every width: of the inputs, or before the readout."""

    width: int
    first: bool

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(3, use_bias=False)(x) if self.first else x
        h = jnp.tanh(nn.Dense(self.width, use_bias=False)(x))
        return nn.Dense(1, use_bias=False)(h if self.first else nn.Dense(3, use_bias=False)(h))


@pytest.mark.parametrize("first", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_signals_that_stay_few_stay_random(first):
    """Their squares do not become their mean, and what was called exact was another network's kernel."""
    limit = twin(in_parameterization(Narrow(16, first), "ntk"))
    x = np.random.default_rng(0).normal(size=(2, 3))
    for provenance in limit.kernels(x).provenance.values():
        assert provenance.kind == "monte_carlo"
        assert "multiplies signals of which there are equally many at every width" in provenance.detail
    with pytest.raises(AbsentError, match="lazy: the outputs of Narrow are no Gaussian process, but a mixture"):
        limit.lazy(Task(x, np.ones(2)), 3, 0.1)
    with pytest.raises(AbsentError, match="posterior: the outputs of Narrow are no Gaussian process"):
        limit.posterior(Task(x, np.ones(2)), noise=0.1)


@pytest.mark.parametrize("first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_networks_that_stay_random_have_a_spread_at_infinite_width(first):
    limit, task = twin(in_parameterization(Narrow(16, first), "mup")), Task(np.eye(3)[:2], [1.0, -1.0])
    options: Any = {"samples": 16, "replicas": 2, "kernels": ()}
    for order in (1, 2):
        run = limit.rich(task, 1, 0.1, order=order, **options)
        assert run.f_train.shape == (2, 2, 1)
        with pytest.raises(
            AbsentError, match=r"f_train_cov: the outputs of Narrow differ .* equally many at every width"
        ):
            _ = run.f_train_cov
    with pytest.raises(AbsentError, match="does not fall as 1/width: leave width out"):
        limit.rich(task, 1, 0.1, width=16, **options)
