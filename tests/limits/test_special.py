import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits.kernels.special import angle, arcsine, gap_behind, safe_sqrt

TINY = np.array([1e-30, 1e-20, 1e-12, 1e-8, 1e-5])
MIDDLE = np.arange(13, 244) / 128  # exact in both types; the branches change at gap = 1/2 and 3/2
SHORT = np.array([0.0, 2.0**-20, 2.0**-10])
EXACT = np.array([0.0, 1.0, 2.0])


@functools.cache
def angles(dtype):
    gaps = [TINY, MIDDLE, 2 - SHORT, EXACT]
    with jax.enable_x64(dtype == np.float64):
        found = jax.jit(angle)(jnp.asarray(np.concatenate(gaps), dtype))
        assert found.dtype == dtype
    return np.split(np.asarray(found, np.float64), np.cumsum([len(part) for part in gaps])[:-1])


# Relative errors of ε/2 from each of the 2 · degree operations of Horner's rule and from a dozen others; the
# coefficients of the interpolant alternate, which costs a factor 2 more.
PRECISION = [(np.float64, (2 * 14 + 12) * 2.2e-16), (np.float32, (2 * 7 + 12) * 1.2e-7)]


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
def test_angle_of_tiny_gaps(dtype, tolerance):
    expected = np.sqrt(2 * TINY) * (1 + TINY / 12 + 3 * TINY**2 / 160)  # the next term is below 1e-16 of it
    np.testing.assert_allclose(angles(dtype)[0], expected, rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
def test_angle_in_the_middle(dtype, tolerance):
    np.testing.assert_allclose(angles(dtype)[1], np.arccos(1 - MIDDLE), rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
def test_angle_of_opposite_vectors(dtype, tolerance):
    np.testing.assert_allclose(np.pi - angles(dtype)[2], np.arccos(1 - SHORT), atol=4 * tolerance)


def test_angle_of_parallel_orthogonal_and_opposite_vectors():
    np.testing.assert_allclose(angles(np.float64)[3], [0, np.pi / 2, np.pi], rtol=1e-15)


@pytest.mark.usefixtures("x64")
def test_gradient_of_the_angle():
    gap = jnp.array([0.2, 0.9, 1.3, 1.8])
    slopes = jax.jit(jax.vmap(jax.grad(angle)))(gap)
    np.testing.assert_allclose(slopes, 1 / np.sqrt(np.asarray(gap * (2 - gap))), rtol=1e-10)


def test_square_root_is_flat_at_zero():
    assert [safe_sqrt(jnp.array(x)).item() for x in (0.0, -1e-20, 4.0)] == [0.0, 0.0, 2.0]
    assert [jax.grad(safe_sqrt)(x).item() for x in (0.0, 4.0)] == [0.0, 0.25]


@pytest.mark.usefixtures("x64")
def test_arcsine_of_small_and_nearly_full_arguments():
    x = np.array([1e-30, -1e-9, 0.3, -0.5, 0.75, -1.0])
    np.testing.assert_allclose(arcsine(jnp.asarray(x), jnp.asarray(1 - np.abs(x))), np.arcsin(x), rtol=PRECISION[0][1])
    left = np.array([1e-30, 1e-8])
    short = np.pi / 2 - np.asarray(arcsine(jnp.asarray(1 - left), jnp.asarray(left)))
    np.testing.assert_allclose(short, np.sqrt(2 * left), rtol=1e-8, atol=4e-16)


def test_an_input_is_like_itself_though_rows_and_columns_are_rounded_differently():
    """Behind u = v and u = −v, with sizes an ulp apart and an ulp left over; another input, or a gap of its own, keeps it."""
    one, ulp = np.float32(1.3), np.float32(2.0**-23)
    other, gaps = (
        np.array([one * (1 + ulp), one * (1 + ulp), 1.31, one], np.float32),
        np.array([0, 2, 0, 1e-6], np.float32),
    )
    left = jnp.asarray(np.full(4, ulp))
    np.testing.assert_array_equal(
        gap_behind(left, jnp.full(4, one), jnp.asarray(other), jnp.asarray(gaps)), [0, 0, ulp, ulp]
    )
