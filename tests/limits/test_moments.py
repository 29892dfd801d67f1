import numpy as np
import pytest

from limits.runs import Moments

VALUES = np.random.default_rng(0).normal(size=(11, 3, 2)) + 1e4  # a large mean: sums of squares would lose the variance


@pytest.mark.parametrize("cuts", [[], [1], [5, 10], range(1, 11)])
def test_chunks_of_any_size_give_the_moments_of_all(cuts):
    moments = Moments()
    for chunk in np.split(VALUES, cuts):
        moments.add(chunk)
    assert moments.count == 11
    np.testing.assert_allclose(moments.mean, VALUES.mean(0), rtol=1e-14)
    np.testing.assert_allclose(moments.variance, VALUES.var(0, ddof=1), rtol=1e-9)
    np.testing.assert_allclose(moments.sem, VALUES.std(0, ddof=1) / np.sqrt(11), rtol=1e-9)


def test_single_precision_is_summed_in_double():
    moments = Moments()
    for _ in range(100):
        moments.add(np.full((1000, 1), 0.1, np.float32))
    assert moments.mean[0] == pytest.approx(float(np.float32(0.1)), rel=1e-14)


def test_one_member_has_no_known_spread():
    moments = Moments()
    moments.add(VALUES[:1])
    assert np.isnan(moments.variance).all()
    assert np.isnan(moments.sem).all()
    assert np.array_equal(moments.mean, VALUES[0])
