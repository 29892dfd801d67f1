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


@pytest.mark.slow
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


NARROW = MLP(8, 1, activation=jax.nn.softplus, w_std=0.5, b_std=0.1)
CIRCLE = 2**0.5 * np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, 2 * np.pi, 40, endpoint=False)])


@pytest.mark.parametrize("like", [None, 0.1 * CIRCLE], ids=["usual", "like"])
def test_numbers_that_make_signals_larger_than_the_definition_does_are_said(like):
    kernel, exact = twin(NARROW).kernel_function(like), twin(NARROW.clone(w_std=10.0)).kernels(CIRCLE)
    assert not warned(lambda: kernel(CIRCLE[:2] / 20, w_std=0.4))
    (one,) = warned(lambda: kernel(CIRCLE, w_std=10.0))
    assert np.abs(np.asarray(kernel(CIRCLE, w_std=10.0).ntk, float) / exact.ntk - 1).max() > 0.02  # worth a word
    assert "the numbers of the definition, and for these, of size 1 with w_std = 10., have an error" in str(one.message)
    assert not warned(lambda: kernel(CIRCLE, w_std=20.0))


def test_inputs_that_are_larger_than_those_they_are_like_are_said():
    (one,) = warned(lambda: COS.kernel_function(X)(30 * X))
    assert "made for `like`, of size " in str(one.message)


def test_small_numbers_or_what_definitions_do_not_take_are_no_reason_to_warn():
    kernel = twin(NARROW).kernel_function()
    assert not warned(lambda: (kernel(X, w_std=0.05), kernel(X, w_std=-0.5)))
