"""Sequences of several lengths, and documents of one window: kernels and training are those of each by itself."""

from typing import Any

import numpy as np
import pytest
from test_gpt_kernels import check_against_networks, network

from limits import Task, twin
from limits.program import closed
from train import ensemble

PAD = 0
SHORT, LONG = (2, 4), (3, 1, 2, 4)
LEFT, RIGHT, BETWEEN = (np.array([row, LONG]) for row in ((PAD, PAD, *SHORT), (*SHORT, PAD, PAD), (2, PAD, PAD, 4)))
PLAIN: dict[str, Any] = {"depth": 1, "norm": None, "mlp": "relu", "position_std": 0.6, "b_std": 0.2}
KINDS = [PLAIN, pytest.param({"depth": 3, "positions": "rotary", "scan": False}, marks=pytest.mark.slow)]


def real(k: np.ndarray, x: np.ndarray) -> np.ndarray:
    """[n, n, t, t] → [tokens, tokens] of those that are no padding."""
    counts = x.ravel() != PAD
    n, t = x.shape
    return k.transpose(0, 2, 1, 3).reshape(n * t, n * t)[np.ix_(counts, counts)]


@pytest.mark.parametrize("options", KINDS, ids=["relu", "gelu, normalised"])
@pytest.mark.slow
def test_kernels_are_those_of_the_sequences_by_themselves(options):
    plain, limit = twin(network(**options)).kernels(RIGHT), twin(network(padding=PAD, **options))
    alone = twin(network(**options)).kernels(np.array([SHORT]))
    found, blind = [(x, limit.kernels(x)) for x in (LEFT, BETWEEN, RIGHT)], twin(network(**options)).kernels(LEFT)
    for name in ("nngp", "ntk"):
        expected = real(getattr(plain, name), RIGHT)  # no token sees later ones, so that padding behind them is as none
        np.testing.assert_allclose(expected[:2, :2], real(getattr(alone, name), np.array([SHORT])), rtol=1e-10)
        for x, k in found:
            np.testing.assert_allclose(real(getattr(k, name), x), expected, rtol=1e-10)
        assert np.abs(real(getattr(blind, name), LEFT) / expected - 1).max() > 0.01
    assert found[0][1].provenance["ntk"].kind == plain.provenance["ntk"].kind


def test_kernels_of_a_packed_window_are_those_of_its_documents():
    k = twin(network(separator=PAD, **PLAIN)).kernels(np.array([[PAD, 3, PAD, 1], [PAD, 1, PAD, 3]]))
    np.testing.assert_allclose(k.ntk[0, 0, :2, :2], k.ntk[1, 1, 2:, 2:], rtol=1e-12)
    np.testing.assert_allclose(k.ntk[0, 1, 2:, :2], k.ntk[1, 1, :2, :2], rtol=1e-12)
    alone = twin(network(**PLAIN)).kernels(np.array([[PAD, 3], [PAD, 1]]))
    np.testing.assert_allclose(k.ntk[0, 0, :2, 2:], alone.ntk[0, 1], rtol=1e-12)
    np.testing.assert_allclose(k.nngp[0, 0, 2:, 2:], alone.nngp[1, 1], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"norm": "rms", "mlp": "swiglu", "mlp_ratio": 3, "parameterization": "mup"}], ids=str
)
def test_wide_networks_have_these_kernels(options):
    check_against_networks(network(width=1024, padding=PAD, **options), 12, 4.0, x=LEFT, counts=LEFT != PAD)


@pytest.mark.slow
def test_drawn_kernels_of_padded_sequences_are_those_of_wide_networks():
    net = network(width=256, logits="1/sqrt(d)", heads="grow", head_dim=8, depth=1, padding=PAD)
    check_against_networks(net, 48, 4.0, x=LEFT, counts=LEFT != PAD, samples=512, replicas=8)


def task(x: np.ndarray) -> Task:
    """The next token of each, where there is one."""
    following, counts = np.zeros_like(x), np.zeros(x.shape, bool)
    for row, tokens in enumerate(x):
        (at,) = np.nonzero(tokens != PAD)
        following[row, at[:-1]], counts[row, at[:-1]] = tokens[at[1:]], True
    return Task(x, following, loss="cross_entropy", mask_train=counts, classes=5)


@pytest.mark.slow
def test_training_is_that_of_the_sequences_by_themselves():
    net = network(width=8, padding=PAD, **PLAIN)
    runs = [twin(net).lazy(task(x), 5, 0.5, centred=True, kernels=()).f for x in (LEFT, RIGHT)]
    np.testing.assert_allclose(runs[0], runs[1], atol=1e-9)
    members = [ensemble(net, task(x), 2, 3, 0.5, seed=1, kernels=()).f for x in (LEFT, RIGHT)]
    np.testing.assert_allclose(members[0], members[1], atol=1e-5)
    assert np.abs(members[0][-1] - members[0][0]).max() > 0.05


@pytest.mark.slow
def test_a_folder_keeps_kernels_between_tokens(tmp_path, monkeypatch):
    x, limit = np.array([[1, 2, 0], [0, 2, 1], [3, 3, 4], [4, 1, 1], [2, 2, 2]]), twin(network(padding=PAD, **PLAIN))
    whole = limit.kernels(x)
    kept = limit.kernels(x, folder=tmp_path / "own", block=2)
    assert isinstance(kept.ntk, np.memmap)
    np.testing.assert_array_equal(np.load(tmp_path / "own" / "ntk.npy"), kept.ntk)
    for name in ("nngp", "ntk"):
        np.testing.assert_allclose(getattr(kept, name), getattr(whole, name), rtol=1e-12)
    others = limit.kernels(x[:2], x[2:], folder=tmp_path / "others", block=2)
    np.testing.assert_allclose(others.ntk, whole.ntk[:2, 2:], rtol=1e-12)

    expected, calls, pair = np.array(kept.ntk), [], closed._pair
    ntk = np.load(tmp_path / "own" / "ntk.npy", mmap_mode="r+")
    ntk[0, 2, 1, 0] += 1e-9  # one number of one block is another
    ntk.flush()
    monkeypatch.setattr(closed, "_pair", lambda *given: calls.append(1) or pair(*given))
    np.testing.assert_array_equal(limit.kernels(x, folder=tmp_path / "own", block=2).ntk, expected)
    assert len(calls) == 1
