"""What is said of the error of layer-time kernels, and the tables that stand in for many solutions."""

import numpy as np
import pytest

from limits.depth.layer_time import Table, in_layer_time, solver_error
from limits.types import Provenance


def solve(a, b, tolerance):
    """A kernel that is off by as much as it is allowed to."""
    gram = a @ b.T / a.shape[1]
    return [np.cos(gram) + tolerance, 2 * np.sin(gram) + 2]


X = np.random.default_rng(0).normal(size=(160, 5))


def test_the_error_is_measured():
    largest = solve(X[:8], X[:8], 0)[0].max()
    assert solver_error(solve, X[:8], 1e-4, 8) == pytest.approx(0.99e-4 / largest, rel=1e-2)


def test_many_pairs_of_a_series_are_interpolated():
    pair, how = in_layer_time(solve, X, None, 400, 1e-9, Provenance("exact", "quadrature"), series=True)
    assert isinstance(pair, Table)
    assert "tabulated" in how.detail
    for found, expected in zip(pair(X, X), solve(X, X, 1e-9), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_closed_forms_are_not():
    pair, how = in_layer_time(solve, X, None, 400, 1e-9, Provenance("exact", "closed form"), series=False)
    np.testing.assert_array_equal(pair(X, X)[0], solve(X, X, 1e-9)[0])
    assert how.kind == "approximate"


def test_inputs_of_one_size_need_no_polynomial_in_it():
    unit = X / np.linalg.norm(X, axis=1, keepdims=True) * np.sqrt(5)
    table = Table.of(lambda a, b: solve(a, b, 0), unit, None)
    assert table.error < 1e-9
