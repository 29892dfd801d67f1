"""Kernel functions of numbers that say where functions bend: thresholds, limits of clips, of either sign."""

import warnings
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import AbsentError, twin
from zoo import Dense, parameterization

X = np.array([[1.0, 0.3], [0.4, -0.8], [-1.0, -0.3], [2.5, 1.0]])
BENT = {
    "threshold": lambda h, a, b: b * nn.relu(h - a),
    "clip": lambda h, a, b: b * jnp.clip(h, -a, a),
    "written twice": lambda h, a, b: b * jnp.where(h > a, h, a),
    "size": lambda h, a, b: nn.relu(h - b * jnp.sqrt(jnp.float64(a) ** 2)),
}


def network(phi, a=0.7, b=0.7):
    class Bent(nn.Module):
        width: int = 16
        a: float = 0.7
        b: float = 0.7
        parameterization: str = "ntk"

        @nn.compact
        def __call__(self, x):
            p = parameterization(self.parameterization)
            h = phi(Dense(self.width, "input", self.width, p, 1.3, 0.3)(x), self.a, self.b)
            return Dense(1, "readout", self.width, p)(h)

    return Bent(a=a, b=b)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "a"), [*((name, 1.3) for name in BENT), *(("threshold", a) for a in (-0.6, 0.0)), ("written twice", -0.6)]
)
def test_functions_of_thresholds_are_the_kernels_of_networks_that_have_them(name, a):
    kernel = twin(network(BENT[name])).kernel_function()
    found, expected = kernel(jnp.asarray(X), a=a, b=0.9), twin(network(BENT[name], a, 0.9)).kernels(X)
    assert expected.provenance["ntk"].kind == "exact"
    np.testing.assert_allclose(found.nngp, expected.nngp, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_signs_that_are_traced_give_no_number_that_is_wrong():
    kernel = jax.jit(lambda a: twin(network(BENT["threshold"])).kernel_function()(jnp.asarray(X), a=a).ntk)
    np.testing.assert_allclose(kernel(0.4), twin(network(BENT["threshold"], 0.4)).kernels(X).ntk, rtol=1e-10)
    assert np.isnan(kernel(-0.4)).all()


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_numbers_that_cancel_by_chance_are_no_closed_form():
    """relu(h + a − b) is a relu where a = b, and nowhere else."""
    net = network(lambda h, a, b: nn.relu(h + a - b))
    kernel = twin(net).kernel_function()
    with pytest.warns(UserWarning, match=r"with a as arguments it is approximate"):
        found = kernel(jnp.asarray(X), a=1.2)
    expected = twin(network(lambda h, a, b: nn.relu(h + a - b), 1.2)).kernels(X)
    np.testing.assert_allclose(found.nngp, expected.nngp, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("x64")
def test_what_is_exact_of_inputs_alone_says_that_it_is_not_of_numbers():
    net = network(lambda h, a, b: jnp.clip(h, -a, b * 2), b=0.5)
    for kernel, name in ((twin(net).kernel_function(), "a"), ((2 * twin(net)).kernel_function(), "a_1")):
        assert kernel.provenance(X)["ntk"].kind == "exact"
        assert kernel.provenance(X, over=(name,))["ntk"].kind == "approximate"
        with pytest.warns(UserWarning, match=r"exact.*twin\(…\)\.kernels"):
            kernel(jnp.asarray(X), **{name: 0.8})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kernel(jnp.asarray(X))


def test_whole_numbers_that_the_code_makes_are_no_factors():
    kernel = twin(network(lambda h, a, b: h ** int(4 * a))).kernel_function()
    with pytest.raises(AbsentError, match="the code is another one where a is changed"):
        kernel(X, a=1.4)
    assert kernel(X).nngp.shape == (4, 4)


def test_a_definition_of_other_signs_is_read_once():
    kernel: Any = twin(network(BENT["threshold"])).kernel_function()
    first, rest = kernel._of_other_signs({"a": -0.6, "b": 0.9})
    assert rest == {"a": -0.6, "b": 0.9}
    assert kernel._of_other_signs({"a": -0.8, "b": 0.9})[0] is first
    assert kernel._of_other_signs({"a": 0.6, "b": 0.9}) is None


def test_code_that_divides_by_a_number_is_infinite_at_0():
    kernel = twin(network(lambda h, a, b: nn.relu(h) * (1 / a))).kernel_function()
    assert np.isinf(kernel(jnp.asarray(X), a=0.0).nngp).any()
    np.testing.assert_allclose(kernel(jnp.asarray(X), a=1.4).nngp, kernel(jnp.asarray(X)).nngp / 4, rtol=1e-5)
