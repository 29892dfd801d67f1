"""Kernels of convolutional, residual and attention networks against neural-tangents (tests/golden)."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import zoo
from limits import twin

_GOLDEN = Path(__file__).resolve().parents[1] / "golden"
ARCHITECTURES = runpy.run_path(str(_GOLDEN / "architectures.py"))
CASES = ARCHITECTURES["cases"]()
GOLDEN = np.load(_GOLDEN / "architectures.npz", allow_pickle=False)


# Each case compiles a network of its own, 1 to 4 s: every sixteenth runs by default, all of them with -m slow.
MARKED = [pytest.param(*case, marks=[] if i % 16 == 0 else [pytest.mark.slow]) for i, case in enumerate(CASES)]


@pytest.mark.parametrize(("key", "definition", "arguments"), MARKED, ids=[case[0] for case in CASES])
def test_kernels_of_an_architecture(key, definition, arguments):
    x1, x2 = ARCHITECTURES["inputs"](definition)
    limit = twin(getattr(zoo, definition)(width=8, parameterization="ntk", **arguments))
    for tag, other in (("xx", None), ("xz", x2)):
        kernels = limit.kernels(x1, other)
        for which in ("nngp", "ntk"):
            found, expected = getattr(kernels, which), GOLDEN[f"{key}/{tag}/{which}"]
            assert found.dtype == np.float64
            # Rounding alone differs: the absolute term is for covariances that happen to be near zero.
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max(), err_msg=which)


def test_every_kernel_in_the_file_is_compared():
    keys = {f"{case[0]}/{tag}/{which}" for case in CASES for tag in ("xx", "xz") for which in ("nngp", "ntk")}
    assert keys == set(GOLDEN.files)
    assert len({case[0] for case in CASES}) == len(CASES)
