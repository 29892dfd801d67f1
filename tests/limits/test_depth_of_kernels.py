"""Known numbers of deep kernels: edge of chaos, ordered phase. L counts weight layers, depth + 1."""

import numpy as np
import pytest

from limits import twin
from zoo import MLP


def pair(correlation, size=1.0):
    """Two points of the plane with |x|²/D = size and this correlation."""
    return np.sqrt(2 * size) * np.array([[1, 0], [correlation, np.sqrt(1 - correlation**2)]])


@pytest.mark.parametrize(
    ("layers", "expected"), [(3, 0.450493), (30, 0.318775), (100, 0.277892), (300, 0.261038), (10_000, 0.250469)]
)
def test_relu_at_the_edge_of_chaos(layers, expected):
    # K/(L q) → 1/4 off the diagonal, 1 on it. The reference has six digits, its own last one uncertain.
    limit = twin(MLP(8, layers - 1, activation="relu", w_std=np.sqrt(2)))
    ntk = limit.kernels(pair(0.5)).ntk / (2 * layers)
    assert ntk[0, 1] == pytest.approx(expected, abs=2e-6)
    assert np.diag(ntk) == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize(("layers", "expected"), [(5, 0.645), (10, 0.102), (20, 3.0e-3), (30, 9.5e-5), (40, 3.0e-6)])
def test_relu_in_the_ordered_phase(layers, expected):
    # w_std = b_std = 1: K → b²/(1 − w²/2)² = 4. Orthogonal inputs with |x|² = D, so that q¹ = (2, 1): the diagonal sits
    # at its fixed point 2 and K there is 4 − 2^(2 − L); off it the rate is (w/√2)^L. Half of the last digit is allowed.
    ntk = twin(MLP(8, layers - 1, activation="relu", w_std=1.0, b_std=1.0)).kernels(pair(0.0)).ntk
    assert 4 - ntk[0, 0] == pytest.approx(2.0 ** (2 - layers), rel=1e-10, abs=1e-14)
    digit = 10.0 ** (np.floor(np.log10(expected)) - (2 if expected > 0.01 else 1))
    assert 4 - ntk[0, 1] == pytest.approx(expected, abs=0.51 * digit)


def test_ordered_rate_is_the_square_root_of_chi():
    errors = [4 - twin(MLP(8, l - 1, w_std=1.0, b_std=1.0)).kernels(pair(0.0)).ntk[0, 1] for l in (39, 40)]
    assert errors[1] / errors[0] == pytest.approx(np.sqrt(0.5), rel=1e-3)


def test_tanh_at_the_edge_of_chaos():
    # σ_b = .2: χ = 1 at w = 1.30415, q* = .51208, so q stays and K(x, x) = L q. Those digits leave 5e-6 in w and in q,
    # and the map q → q' has slope < 1: after twenty layers still some 1e-5.
    w, b, q, layers = 1.30415, 0.2, 0.51208, 21
    limit = twin(MLP(8, layers - 1, activation="tanh", w_std=w, b_std=b))
    kernels = limit.kernels(pair(0.5, (q - b**2) / w**2))
    assert np.diag(kernels.nngp) == pytest.approx(q, abs=2e-5)
    assert np.diag(kernels.ntk) / layers == pytest.approx(q, abs=1e-4)
    assert q / 3 < kernels.ntk[0, 1] / layers < q  # on its slow way to 1/3 of the diagonal


def test_chaotic_diagonal_grows_as_chi_and_the_rest_does_not():
    # Tanh at (.3, 2), off-diagonal limit 4.2589 (of order L f'(c*)^L = 60 · .860^60 = 7e-3 away at L = 60).
    limit = twin(MLP(8, 59, activation="tanh", w_std=2.0, b_std=0.3))
    ntk = limit.kernels(pair(0.2)).ntk
    assert ntk[0, 0] > 1e6
    assert ntk[0, 1] == pytest.approx(4.25891, abs=2e-2)


@pytest.mark.parametrize("w_std", [1.0, 1.7])
def test_homogeneous_kernels_without_bias_only_rescale_with_w(w_std):
    layers, critical = 12, np.sqrt(2)
    ntk, reference = (twin(MLP(8, layers - 1, w_std=w)).kernels(pair(0.3)).ntk for w in (w_std, critical))
    np.testing.assert_allclose(ntk, reference * (w_std / critical) ** (2 * layers), rtol=1e-12)
