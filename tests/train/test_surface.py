"""The error surface recovers what it is made of, takes noise for noise, and says what it needs."""

import numpy as np
import pytest

from train.evaluate.surface import error_surface

SIZES = [(n, l) for n in (16, 32, 64, 128) for l in (4, 8, 16)]
LIMIT = np.array([0.3, -0.2, 0.5, 0.1])
W, D = np.array([1.0, -2.0, 0.5, 0.0]), np.array([0.5, 0.25, -1.0, 2.0])


def made(members: int, scatter: float = 1.0, w: np.ndarray = W, d: np.ndarray = D, seed: int = 0) -> dict:
    random = np.random.default_rng(seed)
    return {
        (n, l): LIMIT + w / n + d / l + random.normal(size=(members, 4)) * ((scatter + 3 * scatter / l) / n) ** 0.5
        for n, l in SIZES
    }


def test_what_it_is_made_of_is_found():
    found = error_surface(made(2000), LIMIT)
    for part, value in (
        (found.scatter, 1.0),
        (found.scatter_depth, 3.0),
        (found.width, np.sqrt((W**2).mean())),
        (found.depth, np.sqrt((D**2).mean())),
    ):
        assert part.low < value < part.high
        assert part.high - part.low < 0.2 * value
    assert found.cross.low < (W * D).mean() < found.cross.high
    expected = (1 + 3 / 8) / 32 + ((W / 32 + D / 8) ** 2).mean()
    assert found.predicted(32, 8) == pytest.approx(expected, rel=0.03)
    assert found.depth_exponent.value == pytest.approx(2.0, abs=0.05)  # w/N is 1 % of d/L here
    assert max(found.width_first.value, found.depth_first.value) < 0.01  # nothing is left in the limit


def test_noise_is_not_taken_for_a_bias():
    found = error_surface(made(64, scatter=20.0, w=0 * W, d=0 * D), LIMIT)
    n, l = np.array(SIZES, float).T
    terms = np.stack([1 / n, 1 / l]) / np.sqrt((20 + 60 / l) / n / 64)
    variance = np.linalg.inv(terms @ terms.T)[1, 1]  # of d at a point
    assert found.depth.low == 0.0
    assert found.depth.value**2 < 3 * variance * (2 / 4) ** 0.5  # the mean of 4 squares less their expectation
    error = (20 + 60 / np.array([4, 8, 16])) / 128 / 64 * (2 / 4) ** 0.5
    assert np.all(np.abs(found.ensembled) < 3 * error)


def test_an_offset_that_no_size_explains_is_left():
    found = error_surface({size: f + 0.1 for size, f in made(1000).items()}, LIMIT)
    assert found.width_first.low < 0.1 < found.width_first.high
    assert found.depth_first.low < 0.1 < found.depth_first.high


def test_all_pairs_of_sizes_are_needed():
    samples = made(4)
    del samples[16, 4]
    with pytest.raises(ValueError, match="all their pairs"):
        error_surface(samples, LIMIT)
