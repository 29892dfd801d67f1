"""Kernels against neural-tangents (tests/golden), an independent implementation."""

import numpy as np
import pytest
from oracle import CASES, FC, relative

from limits import twin
from zoo import MLP

# Both sides compute in float64. What remains is rounding, amplified where a kernel decays or grows over ten layers.
TOLERANCE = 1e-6


@pytest.mark.parametrize(("key", "activation", "depth", "w_std", "b_std"), CASES["kernel_cases"]())
def test_kernels_of_a_fully_connected_network(key, activation, depth, w_std, b_std):
    limit = twin(MLP(8, depth, activation=activation, w_std=w_std, b_std=b_std))
    for tag, other in (("xx", None), ("xz", CASES["X2"])):
        kernels = limit.kernels(CASES["X1"], other)
        assert kernels.nngp.dtype == kernels.ntk.dtype == np.float64
        assert relative(kernels.nngp, FC[f"{key}/{tag}/nngp"]) < TOLERANCE
        assert relative(kernels.ntk, FC[f"{key}/{tag}/ntk"]) < TOLERANCE


def test_every_kernel_in_the_file_is_compared():
    keys = {
        f"{case[0]}/{tag}/{which}"
        for case in CASES["kernel_cases"]()
        for tag in ("xx", "xz")
        for which in ("nngp", "ntk")
    }
    predictions = ("one/", "three/", "cross_entropy/")
    assert keys == {key for key in FC.files if not key.startswith(predictions)}
