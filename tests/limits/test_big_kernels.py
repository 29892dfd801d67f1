"""Kernels that are filled by several processes, and regression with kernels that do not fit into memory."""

import multiprocessing
import tracemalloc
from typing import Any

import numpy as np
import pytest
import sklearn.datasets

from limits import Share, UnfinishedError, predict, twin
from limits.kernels import pairwise
from limits.predict import conjugate_gradients
from zoo import MLP

NET = MLP(1, 2, activation="relu", w_std=1.4, b_std=0.1)


def digits(n, dtype=np.float64):
    """Digits, more than there are by noise: inputs and ten targets."""
    found: Any = sklearn.datasets.load_digits()
    rng, again = np.random.default_rng(0), np.arange(n) % len(found.data)
    return (found.data[again] / 16 + 0.2 * rng.normal(size=(n, 64))).astype(dtype), np.eye(10)[
        found.target[again]
    ] - 0.1


@pytest.mark.parametrize("n", [300, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_conjugate_gradients_are_the_direct_solution(n, dtype):
    """To 1e-6, and within the bound that is stated, for one noise and for one a point."""
    x, y = digits(n)
    kernel = twin(NET).kernels(x).nngp.astype(dtype)
    for noise in (0.05, np.linspace(0.02, 0.2, n)):
        found = predict.solve(kernel, y, noise, rank=100, tolerance=1e-8 if dtype == np.float64 else 1e-7)
        direct = np.linalg.solve(kernel.astype(np.float64) + np.diag(np.broadcast_to(noise, n)), y)
        off = np.linalg.norm(found.x - direct, axis=0)
        assert np.abs(found.x - direct).max() < 1e-6 * np.abs(direct).max()
        assert (off <= found.bound + 1e-12 * np.linalg.norm(direct, axis=0)).all()
        np.testing.assert_allclose(found.bound, found.residual / np.min(noise))
        assert found.rank == 100


def test_memory_does_not_grow_with_the_kernel(tmp_path, monkeypatch):
    """A kernel of 18 MB on disk, read in blocks of 0.5 MB: what is held is those, L and the vectors."""
    x, y = digits(1500)
    twin(NET).kernels(x, folder=tmp_path)
    monkeypatch.setattr(conjugate_gradients, "_BLOCK_BYTES", 2**19)
    kernel = np.load(tmp_path / "nngp.npy", mmap_mode="r")
    tracemalloc.start()
    predict.solve(kernel, y, 0.05, rank=50)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * 2**20 < kernel.nbytes / 2


def test_an_interrupted_solution_goes_on(tmp_path, monkeypatch):
    x, y = digits(400)
    kernel = twin(NET).kernels(x).nngp
    whole = predict.solve(kernel, y, 0.001, rank=20)
    assert whole.steps > 50
    monkeypatch.setattr(conjugate_gradients, "_KEPT_EVERY", 0.0)
    with pytest.raises(ValueError, match="after 50 steps"):
        predict.solve(kernel, y, 0.001, rank=20, steps=50, folder=tmp_path)
    on = predict.solve(kernel, y, 0.001, rank=20, folder=tmp_path)
    assert on.steps == whole.steps
    np.testing.assert_array_equal(on.x, whole.x)
    again = predict.solve(kernel, y, 0.001, rank=20, folder=tmp_path)  # finished: no step more
    assert again.steps == on.steps
    other = predict.solve(kernel, -y, 0.001, rank=20, folder=tmp_path)  # of other targets
    np.testing.assert_allclose(other.x, -on.x, rtol=1e-6, atol=1e-6 * np.abs(on.x).max())


def test_targets_whose_squares_are_no_numbers():
    # Their norms were 0 and infinite: x = 0 "up to 0", and x up to infinity.
    x = np.linspace(-2, 2, 7)
    kernel, y = np.exp(-0.5 * np.subtract.outer(x, x) ** 2), np.stack([np.sin(x), np.cos(x)], axis=1)
    expected = np.linalg.solve(kernel + 0.1 * np.eye(7), y)
    found = predict.solve(kernel, y * [1e-200, 1e200], 0.1)
    np.testing.assert_allclose(found.x / [1e-200, 1e200], expected, atol=1e-6)
    assert np.all((found.bound > 0) & (found.bound <= 1e-6 * np.array([1e-200, 1e200])))


def test_solutions_that_are_refused():
    kernel, y = np.eye(3), np.ones((3, 1))
    with pytest.raises(ValueError, match="noise must be above 0"):
        predict.solve(kernel, y, 0.0)
    with pytest.raises(ValueError, match="kernel must be"):
        predict.solve(kernel, y[:2], 0.1)
    x, y = digits(100)
    rounded = twin(NET).kernels(x).nngp.astype(np.float32)
    with pytest.raises(ValueError, match="not fallen"):
        predict.solve(rounded, y, 1e-7, tolerance=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_no_kernel_is_said(dtype):
    x, y = digits(60)
    kernel = twin(NET).kernels(x).nngp
    for rank in (0, 10):
        with pytest.raises(ValueError, match=r"not symmetric: .*kernel\[\d+, \d+\] is .* is 0\)"):
            predict.solve(np.triu(kernel).astype(dtype), y, 0.1, rank=rank)
        mixed = kernel - 1.2 * np.roll(np.eye(60), 30, axis=0) * kernel.max()  # symmetric, its diagonal is the kernel's
        for indefinite in (mixed, kernel - 2 * kernel.max() * np.eye(60)):
            with pytest.raises(ValueError, match=r"indefinite: v.* = -[\d.]+ for .*check how"):
                predict.solve(indefinite.astype(dtype), y, 0.1, rank=rank)
    with pytest.raises(ValueError, match="in rows 0 to 59"):
        predict.solve(np.where(np.eye(60) > 0, np.nan, kernel).astype(dtype), y, 0.1)


def test_pivoted_cholesky():
    """Exact at full rank; the error of a lower one is positive, and its trace is what is left."""
    root = np.random.default_rng(0).normal(size=(12, 12))
    kernel = root @ root.T
    low = predict.pivoted_cholesky(kernel, 12)
    np.testing.assert_allclose(low @ low.T, kernel, atol=1e-10)
    rest = kernel - (low := predict.pivoted_cholesky(kernel, 5)) @ low.T
    assert np.linalg.eigvalsh(rest)[0] > -1e-10
    assert low.shape == (12, 5)


def fill(folder, index, of):
    """What a process does."""
    try:
        return twin(NET).kernels(digits(300)[0], folder=Share(folder, index, of), block=40).nngp.sum()
    except UnfinishedError as error:
        return str(error)


@pytest.mark.slow
def test_shares_fill_a_folder_together(tmp_path):
    """Two processes at once, and then a third one: the bits of one alone; who comes last has the kernels."""
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    with multiprocessing.get_context("spawn").Pool(2) as pool:  # all in such processes: this one has other devices
        first = pool.starmap(fill, [(shared, i, 3) for i in (0, 1)], chunksize=1)
        assert all("of 36 blocks" in each for each in first)
        last, one = pool.starmap(fill, [(shared, 2, 3), (alone, 0, 1)], chunksize=1)
    assert last == one
    for name in ("nngp", "ntk"):
        assert (shared / f"{name}.npy").read_bytes() == (alone / f"{name}.npy").read_bytes()
    assert fill(shared, 0, 3) == twin(NET).kernels(digits(300)[0], folder=shared, block=40).nngp.sum() == one
    with pytest.raises(ValueError, match="index"):
        Share(tmp_path, 3, 3)


@pytest.mark.parametrize("positions", [(), (2,)])
def test_a_kernel_of_inputs_with_themselves_is_symmetric(positions):
    """What a rule of points makes of (a, b) and (b, a) is not the same: above the diagonal stands what counts."""
    x = np.arange(5.0)[:, None]

    def function(a, b):
        k = a @ b.T + 1e-3 * a
        return [k[:, :, None, None] * np.array([[1.0, 2.0], [3.0, 4.0]]) if positions else k]

    (whole,) = pairwise(function, x, block=3, count=1, positions=positions)
    (apart,) = pairwise(function, x, x, block=3, count=1, positions=positions)
    below = np.tri(5, k=-1, dtype=bool)
    np.testing.assert_array_equal(whole[~below], apart[~below])
    np.testing.assert_array_equal(
        whole[below], np.moveaxis(apart.swapaxes(-1, -2) if positions else apart, 0, 1)[below]
    )
