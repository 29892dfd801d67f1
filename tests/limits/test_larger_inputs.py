import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from zoo import MLP

X = np.sin(1.7 * np.arange(12)[:, None] * np.arange(1, 4) + 0.4)
NEAR = X + 0.02 / 30 * np.cos(np.arange(36.0)).reshape(12, 3)
COS = twin(MLP(8, 1, activation=jnp.cos, w_std=1.3, b_std=0.3))


def warned(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return [each for each in seen if "kernel function" in str(each.message)]


def test_inputs_for_which_series_are_too_short_are_said_once():
    kernel, exact = COS.kernel_function(), COS.kernels(30 * X, 30 * NEAR)
    assert not warned(lambda: kernel(X, NEAR))
    said = warned(lambda: kernel(30 * X, 30 * NEAR))
    found = kernel(30 * X, 30 * NEAR)
    assert np.max(np.abs(np.asarray(found.ntk, float) / exact.ntk - 1)) > 0.05  # so there is something to say
    (one,) = said
    assert "of size 2, and for these, of size " in str(one.message)
    assert "kernel_function(like=x)" in str(one.message)
    assert not warned(lambda: kernel(40 * X))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda k: jax.jit(lambda w: k(30 * X, w_std=w).ntk)(1.2), marks=pytest.mark.slow),
        pytest.param(lambda k: k.diagonal(30 * X), marks=pytest.mark.slow),
        lambda k: k(X, 30 * X.astype(np.float32)),
        pytest.param(lambda k: k((30 * X).round().astype(int)), marks=pytest.mark.slow),
        pytest.param(
            lambda k: k.on_mesh(np.r_[X[:1], 30 * X[1:]], jax.make_mesh((1,), ("rows",))), marks=pytest.mark.slow
        ),
    ],
    ids=["closed over", "diagonal", "second", "integers", "mesh"],
)
def test_they_are_said_wherever_they_are_known(call):
    assert len(warned(lambda: call(COS.kernel_function()))) == 1


@pytest.mark.slow
def test_nothing_is_said_of_closed_forms_of_inputs_that_are_traced_or_like():
    closed = twin(MLP(8, 2, activation=("relu", "erf"))).kernel_function()
    assert not warned(lambda: closed(30 * X))
    assert not warned(lambda: COS.kernel_function(30 * X)(30 * X))
    assert not warned(lambda: jax.jit(COS.kernel_function())(30 * X))
    assert not warned(lambda: COS.kernel_function()(np.nan * X))


@pytest.mark.parametrize(
    "phi",
    [
        "tanh",
        pytest.param(jax.nn.swish, marks=pytest.mark.slow),
        pytest.param(lambda x: jax.nn.relu(x + 0.5), marks=pytest.mark.slow),
    ],
    ids=["tanh", "swish", "shifted"],
)
def test_nothing_is_said_of_usual_inputs(phi):
    limit = twin(MLP(8, 1, activation=phi))
    assert not warned(lambda: limit.kernel_function().diagonal(2.5 * np.r_[X, NEAR]))
