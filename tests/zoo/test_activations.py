import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from zoo import PiecewiseLinear, Quadratic, activation_function
from zoo.activations import ACTIVATIONS

X = np.array([-30.0, -2.5, -1.0, -1e-3, 0.0, 1e-3, 0.7, 2.5, 30.0])
REFERENCE = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "scaled_relu": lambda x: np.sqrt(2) * np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "abs": np.abs,
    "erf": scipy.special.erf,
    "tanh": np.tanh,
    "gelu": lambda x: x * scipy.special.ndtr(x),
    "sin": np.sin,
    "quadratic": lambda x: x + x * x / 2,
}


def test_every_named_activation_has_a_reference():
    assert set(REFERENCE) == set(ACTIVATIONS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_of_named_activations(name):
    with jax.enable_x64(True):
        found = activation_function(name)(jnp.asarray(X))
        assert found.dtype == jnp.float64
    np.testing.assert_allclose(found, REFERENCE[name](X), rtol=1e-13, atol=1e-15)


def test_activations_with_parameters_are_compared_by_value():
    assert PiecewiseLinear(0.0, 1.0) == activation_function("relu")
    assert hash(Quadratic(0.5)) == hash(activation_function("quadratic"))
    assert Quadratic(0.25) != activation_function("quadratic")


@pytest.mark.parametrize("slopes", [(0.0, 1.0), (0.3, 2.0), (-1.0, 1.0), (2.0, 2.0)])
def test_slopes_of_piecewise_linear_functions(slopes):
    phi = PiecewiseLinear(*slopes)
    assert [float(jax.grad(phi)(x)) for x in (-1.5, 1.5)] == pytest.approx(slopes, rel=1e-7)
