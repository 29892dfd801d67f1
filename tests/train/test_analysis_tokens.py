"""What `analyse` finds of sequences: the loss by position, and attention, each by another way."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train import losses
from train.analysis import analyse, plots, token_plots, weight_spectra
from train.analysis.network import probabilities
from zoo import GPT
from zoo.gpt import unstack_blocks

NET = GPT(width=8, depth=2, vocabulary=5, context=6, heads=2)
X = np.random.default_rng(0).integers(5, size=(5, 6))
Y = np.where(np.arange(6) < 1, -1, np.roll(X, -1, axis=1))  # the first target of each does not count


@pytest.fixture(scope="module")
def checkpoints() -> list[tuple[int, Any]]:
    start = NET.init(jax.random.key(0), jnp.asarray(X))
    loud = jax.tree_util.tree_map_with_path(
        lambda path, a: 3 * a if "query" in str(path) or "key" in str(path) else a, start
    )
    return [(0, start), (3, loud)]


@pytest.fixture(scope="module")
def found(checkpoints: list[tuple[int, Any]]) -> dict[str, Any]:
    how: dict[str, Any] = {"loss": "cross_entropy", "parts": ("positions", "attention")}
    return analyse(NET, checkpoints, X[:3], Y[:3], test_inputs=X[3:], test_targets=Y[3:], **how)


@pytest.mark.slow
def test_targets_that_do_not_count_are_left_out(found, checkpoints):
    f: Any = NET.apply(checkpoints[1][1], jnp.asarray(X))
    assert found["outputs"]["loss"][1] == pytest.approx(
        float(losses.cross_entropy(f[:3], jnp.asarray(Y[:3]))), rel=1e-5
    )
    for side, rows in (("train", slice(0, 3)), ("test", slice(3, 5))):
        by_position = found["positions"][side]
        assert by_position.shape == (2, 6)
        assert np.isnan(by_position[:, 0]).all()
        expected = [losses.cross_entropy(f[rows, t : t + 1], jnp.asarray(Y[rows, t : t + 1])) for t in range(1, 6)]
        np.testing.assert_allclose(by_position[1, 1:], expected, rtol=1e-5, atol=1e-6)  # outputs are in float32


def test_attention_is_that_of_queries_and_keys_by_hand(found, checkpoints):
    params = checkpoints[1][1]["params"]
    h = params["embedding"]["embedding"][X] + params["positions"]["embedding"][None, :6]
    block = jax.tree.map(lambda a: a[0], params["blocks"])
    h = (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-6)
    h = h * jnp.asarray(block["norm_1"].get("scale", jnp.ones(8)))[None, None]
    q, k = (
        (h @ block["attention"][part]["kernel"]).reshape(5, 6, 2, 4) / 8**0.5  # kernels of the NTK form are N(0, 1)
        for part in ("query", "key")
    )
    logits = jnp.einsum("nahd,nbhd->nhab", q, k) / 4
    p = np.asarray(jax.nn.softmax(jnp.where(np.tril(np.ones((6, 6), bool)), logits, -jnp.inf)), np.float64)
    seen = found["attention"]
    np.testing.assert_allclose(seen["maps"][1, 0], p.mean(0), rtol=1e-4, atol=1e-6)  # of float32 logits up to some tens
    distance = np.einsum("nhab,ab->nha", p, np.abs(np.subtract.outer(np.arange(6), np.arange(6)))).mean((0, 2))
    np.testing.assert_allclose(seen["distance"][1, 0], distance, rtol=1e-5)
    surprise = -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=-1)[..., 1:] / np.log(np.arange(2, 7))
    np.testing.assert_allclose(seen["entropy"][1, 0], surprise.mean((0, 2)), rtol=1e-5)
    assert np.all(seen["entropy"][1] < seen["entropy"][0])


def test_entropy_is_of_the_tokens_of_a_document(checkpoints):
    """Without queries all that a token sees counts alike, which is an entropy of 1 however little that is."""
    net, (_, start) = NET.clone(separator=0), checkpoints[0]
    level = jax.tree_util.tree_map_with_path(lambda path, a: 0 * a if "query" in str(path) else a, start)
    x = np.array([[1, 2, 0, 3, 4, 1], [0, 2, 3, 0, 0, 1]])
    found = analyse(net, [(0, level)], x, x, parts=("attention",))["attention"]
    np.testing.assert_allclose(found["entropy"], 1, rtol=1e-6)
    by_hand = [np.mean([0, 0.5, 0, 0.5, 1, 1.5]), np.mean([0, 0.5, 1, 0, 0, 0.5])]
    np.testing.assert_allclose(found["distance"][0], np.mean(by_hand), rtol=1e-6)


def test_scanned_and_unrolled_blocks_say_the_same(found, checkpoints):
    unrolled = NET.clone(scan=False)
    params = dict(checkpoints[1][1]["params"])
    blocks = params.pop("blocks")
    params |= {f"block_{l + 1}": jax.tree.map(lambda a, l=l: a[l], blocks) for l in range(2)}
    other = analyse(unrolled, [(3, {"params": params})], X, np.maximum(Y, 0), parts=("attention",))
    np.testing.assert_allclose(other["attention"]["maps"][0], found["attention"]["maps"][1], rtol=1e-5, atol=1e-7)


def test_every_layer_of_a_stack_has_its_own_spectrum(checkpoints):
    """Of scanned blocks as of unrolled ones, of which one has an outlier; gains and biases [depth, width] are no matrices."""
    (_, start), (_, loud) = checkpoints
    u = np.ones(8) / 8**0.5
    params = jax.tree.map(np.array, loud["params"])
    params["blocks"]["attention"]["key"]["kernel"][1] += 100 * np.outer(u, u)
    scanned = [(0, start), (3, {"params": params})]
    unrolled = [(step, {"params": unstack_blocks(each["params"])}) for step, each in scanned]
    how: dict[str, Any] = {"loss": "cross_entropy", "parts": ("spectra",)}
    found = {
        net.scan: analyse(net, each, X, Y, **how) for net, each in ((NET, scanned), (NET.clone(scan=False), unrolled))
    }
    one, other = (found[scan]["spectra"]["weights"] for scan in (True, False))
    assert len(one) == len(other) == 2 * 6 + 3  # attention and MLP of two blocks; tokens, positions, readout
    for name, table in other.items():
        block, _, rest = name.partition(".")
        same = one[f"blocks.{rest}[{int(block[-1]) - 1}]" if block.startswith("block_") else name]
        jax.tree.map(np.testing.assert_array_equal, same, table)
    for l in (0, 1):
        values = np.linalg.svd(params["blocks"]["attention"]["key"]["kernel"][l], compute_uv=False)
        np.testing.assert_allclose(one[f"blocks.attention.key.kernel[{l}]"]["singular_values"][1], values, rtol=1e-6)
        assert (one[f"blocks.attention.key.kernel[{l}]"]["stable_rank"][1] < 1.1) == l  # the largest is nearly all
    axes = plots.weights({"a": found[True]}).axes
    assert [axis.get_title() for axis in axes][:2] == [
        "blocks.attention.key.kernel[0]",
        "blocks.attention.out.kernel[0]",
    ]
    assert list(weight_spectra({"params": params}, NET)) == list(
        one
    )  # of a definition an input follows from its parameters


def test_pictures_show_every_position(found):
    figure = token_plots.positions({"a": found, "b": found})
    assert [len(axis.lines) for axis in figure.axes] == [4, 4]
    np.testing.assert_array_equal(figure.axes[0].lines[1].get_ydata(), found["positions"]["train"][-1])
    maps = token_plots.attention({"a": found})
    assert [axis.get_title() for axis in maps.axes] == [f"block {l}, head {h}" for l in (1, 2) for h in (1, 2)]
    assert len(token_plots.spread({"a": found}).axes[0].lines) == 2


@pytest.mark.parametrize(("kind", "labels"), [("uint8", [0, 44]), ("int8", [-1, 1])])
def test_classes_are_counted_beyond_the_type_of_their_numbers(kind, labels):
    """Of 300 classes, where 0 and 256 are one number of 8 bits."""
    found = probabilities(jnp.asarray(labels, kind), (2, 300))
    np.testing.assert_array_equal(found, np.arange(300) == np.array(labels)[:, None])


def test_test_targets_must_be_as_many(checkpoints):
    with pytest.raises(ValueError, match="2 test_inputs and 1 test_targets"):
        analyse(NET, checkpoints, X[:3], Y[:3], test_inputs=X[3:], test_targets=Y[4:])


def test_embeddings_that_read_out_leave_one_kernel_out():
    net = GPT(width=8, depth=1, vocabulary=5, context=6, heads=2, tied=True)
    start, parts = net.init(jax.random.key(0), jnp.asarray(X)), ("kernels", "alignment", "spectra")
    found = analyse(net, [(0, start)], X, Y, loss="cross_entropy", parts=parts)
    assert found["absent"]["nngp"].startswith('GPT has 0 layers of role "readout"')
    for part in parts:
        assert "phi" in found[part]
        assert "nngp" not in found[part]
