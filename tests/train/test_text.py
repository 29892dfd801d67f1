"""Bytes of text as tokens: every target counts once, means are over targets, and other models of text are what they say."""

import functools
import gzip
import re
import shutil
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordWriter

from train.data import Batches, evaluation_batches, python_library
from train.data import source as source_of_a_name
from train.data.text import packed
from train.data.tokens import Windows
from train.evaluate.compressors import compressed_bits, ngram_bits, other_models
from train.losses import cross_entropy
from train.mesh import make_mesh
from train.step import Program
from train.trainer import Trainer

source: Any = source_of_a_name  # of one kind or another


@pytest.mark.parametrize(("length", "context", "stride"), [(50, 8, 4), (50, 8, 8), (51, 8, 3), (5, 8, 4), (9, 8, 4)])
def test_every_token_but_the_first_is_a_target_once(length: int, context: int, stride: int):
    stream = np.arange(length)
    data = Windows("count", stream, context, stride, vocabulary=length, once=True)
    inputs, targets = data.read(np.arange(len(data)))
    assert sorted(targets[targets >= 0].tolist()) == list(range(1, length))
    assert (targets[targets >= 0] == inputs[targets >= 0] + 1).all()
    seen = np.where(targets >= 0, np.arange(context)[None] + 1, context)[1:]  # tokens before a target, itself included
    assert seen.size == 0 or seen.min() >= context - stride + 1


def test_windows_to_train_on_are_whole_and_go_to_the_end():
    data = Windows("count", np.arange(20), context=6, stride=4, vocabulary=20)
    inputs, targets = data.read(np.arange(len(data)))
    assert inputs[:, 0].tolist() == [0, 4, 8, 12]
    np.testing.assert_array_equal(targets, inputs + 1)
    with pytest.raises(ValueError, match="6 tokens, too few for a window of 6"):
        Windows("count", np.arange(6), context=6, stride=1)
    with pytest.raises(ValueError, match="stride must be from 1 to 6"):
        Windows("count", np.arange(9), context=6, stride=7)


def test_batches_of_tokens_are_drawn_by_seed_and_step_and_stay_whole_numbers():
    data = source("python", "train", context=16)
    x, y = Batches(data, 8, seed=3).at(5)
    assert x.dtype == y.dtype == np.int32
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    halves = [Batches(data, 8, 3, process, 2).at(5)[0] for process in (0, 1)]
    np.testing.assert_array_equal(np.concatenate(halves), x)
    assert not np.array_equal(Batches(data, 8, seed=4).at(5)[0], x)


class Bigrams(nn.Module):
    """logits of the next token by the last one alone."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return self.param("table", nn.initializers.normal(1.0), (9, 9))[x]


def test_the_test_loss_is_the_mean_over_all_targets():
    stream = np.random.default_rng(0).integers(9, size=83)
    data = Windows("random", stream, context=8, stride=4, vocabulary=9, once=True)
    program = Program(Bigrams(), optax.sgd(0.1), cross_entropy)
    trainer = Trainer(program, make_mesh(data=1, devices=jax.devices()[:1]), jax.ShapeDtypeStruct((3, 8), "int32"))
    state = trainer.initial()
    found = trainer.evaluate(state, evaluation_batches(data, 3))
    table = np.asarray(state.trained["params"]["table"])
    logp = jax.nn.log_softmax(table)[stream[:-1], stream[1:]]
    np.testing.assert_allclose(found["loss"], -np.mean(logp), rtol=1e-6)
    np.testing.assert_allclose(found["accuracy"], (table.argmax(1)[stream[:-1]] == stream[1:]).mean(), rtol=1e-6)


def test_cross_entropy_of_labels_is_that_of_their_rows_where_they_count():
    random = np.random.default_rng(1)
    f, y = jnp.asarray(random.normal(size=(3, 4, 5))), jnp.asarray(random.integers(5, size=(3, 4)))
    counts = jnp.asarray(random.random((3, 4)) < 0.6)
    for options in ({}, {"smoothing": 0.2}, {"smoothing": 0.1, "z_loss": 0.3}):
        loss = jax.jit(functools.partial(cross_entropy, **options))
        rows = loss(f[counts], jax.nn.one_hot(y[counts], 5))
        labels = jnp.where(counts, y, -1)
        np.testing.assert_allclose(loss(f, labels), rows, rtol=1e-6)
        gradient = jax.jit(jax.grad(loss))(f, labels)
        assert float(jnp.abs(gradient[~counts]).max()) == 0 < float(jnp.abs(gradient[counts]).min())
    with pytest.raises(ValueError, match=r"must be \(3, 4\)"):
        cross_entropy(f, y[:, :2])


def test_files_are_packed_in_the_order_of_their_names_and_cut_once(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    for name, text in (("b.txt", b"bbb"), ("deep/a.txt", b"aaaaaa"), ("a.txt", b"aa"), ("c.md", b"no")):
        (tmp_path / name).write_bytes(text)
    options: dict[str, Any] = {"path": str(tmp_path), "context": 4, "pattern": "**/*.txt", "held_out": 0.4}
    train, test = (source("text", split, **options) for split in ("train", "test"))
    whole = packed([b"aa", b"bbb", b"aaaaaa"])
    assert whole.tobytes() == b"\0aa\0bbb\0aaaaaa\0"
    np.testing.assert_array_equal(np.concatenate([train.stream, test.stream[1:]]), whole)
    assert len(test.stream) - 1 == round(0.4 * len(whole))
    assert (train.once, test.once) == (False, True)
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        source("text", path=str(tmp_path / "nothing"), context=4)
    with pytest.raises(ValueError, match='no split "tests"'):
        source("text", "tests", path=str(tmp_path), context=4)


def test_text_of_several_names_is_read_once(tmp_path: Path):
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.txt").write_text(name * 400)
    (tmp_path / "d.txt").symlink_to(tmp_path / "a.txt")
    (tmp_path / "0.txt").hardlink_to(tmp_path / "b.txt")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere.txt")
    whole = packed([b"b" * 400, b"a" * 400, b"c" * 400])
    train, test = (source("text", split, path=str(tmp_path), context=16, held_out=0.25) for split in ("train", "test"))
    np.testing.assert_array_equal(np.concatenate([train.stream, test.stream[1:]]), whole)


def test_another_version_of_the_library_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    here = Path(sysconfig.get_path("stdlib"))
    for word in python_library.MODULES["test"].split():
        file = f"{word.partition(':')[0]}.py"
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(here / file, tmp_path / file)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    whole = source("python", "test", context=32)
    changed = tmp_path / "unittest/_log.py"
    changed.write_bytes(changed.read_bytes().replace(b"\n", b"\r\n"))  # as some systems write lines
    np.testing.assert_array_equal(source("python", "test", context=32).stream, whole.stream)
    changed.write_bytes(changed.read_bytes() + b"#")
    (tmp_path / "asyncio/protocols.py").unlink()
    with pytest.raises(
        ValueError, match=r"2 in .* are missing or another version \(asyncio/protocols.py, unittest/_log.py\)"
    ):
        source("python", "test", context=32)
    assert len(source("python", "test", context=32, any_version=True).stream) < len(whole.stream)


def test_texts_of_tfds(tmp_path: Path):
    root: Any = tmp_path / "two_texts" / "1.0.0"
    root.mkdir(parents=True)
    features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
    template = tfds.core.ShardedFileTemplate(
        root, dataset_name="two_texts", split="train", filetype_suffix="array_record"
    )
    writer = ArrayRecordWriter(str(template.sharded_filepath(shard_index=0, num_shards=1)), "group_size:1")
    records = [features.serialize_example(features.encode_example({"text": text})) for text in ("first", "ünd")]
    for record in records:
        writer.write(record)
    writer.close()
    split = tfds.core.SplitInfo("train", [2], sum(map(len, records)), template)
    tfds.folder_dataset.write_metadata(
        data_dir=root, features=features, split_infos=[split], version="1.0.0", check_data=False
    )
    data: Any = source("two_texts", "train", context=4, data_dir=str(tmp_path))
    assert data.stream.tobytes() == b"\0first\0" + "ünd".encode() + b"\0"
    assert len(source("two_texts", "train[:1]", context=4, data_dir=str(tmp_path))) == 3
    with pytest.raises(ValueError, match='features text, and no "words"'):
        source("two_texts", "train", context=4, data_dir=str(tmp_path), feature="words")


def witten_bell(train: bytes, context: bytes, byte: int) -> float:
    """The same model, one probability at a time from its definition."""
    below = witten_bell(train, context[1:], byte) if context else 1 / 256
    after = Counter(train[i + len(context)] for i in range(len(train) - len(context)) if train[i:].startswith(context))
    return (after[byte] + len(after) * below) / (after.total() + len(after)) if after else below


def test_ngrams_are_their_definition():
    train, text = b"the cat sat on the mat, the rat ate", b"\0that cat ate the hat"
    for order in (0, 1, 3):
        direct = [witten_bell(train, text[max(i - order, 0) : i], text[i]) for i in range(1, len(text))]
        np.testing.assert_allclose(ngram_bits(text, train, order), -np.mean(np.log2(direct)), rtol=1e-12)
    assert sum(witten_bell(train, b"th", byte) for byte in range(256)) == pytest.approx(1)


def test_compressors_are_measured_on_the_targets_alone():
    train, test = (source("python", split, context=8).stream.tobytes() for split in ("train", "test"))
    train, test = train[-100_000:], test[:50_000]
    found = other_models(test, train)
    assert found["gzip"] == 8 * len(gzip.compress(test[1:], 9)) / (len(test) - 1)
    assert 1.7 < found["xz after the training text"] < found["xz"] < found["gzip"] < 2.6
    assert compressed_bits(train[-9000:], "xz", train) < 0.1  # it has seen them


def test_files_that_are_no_text_are_said(tmp_path):
    for name, content in (("a.txt", b"some text, of some length"), ("b.bin", b"\0\1\2" * 9), ("c.txt", b"")):
        (tmp_path / name).write_bytes(content)
    with pytest.warns(UserWarning, match=r"1 of 3 files of text are binary \(with zero bytes\): b\.bin"):
        source("text", path=str(tmp_path), context=4)
    source("text", path=str(tmp_path), context=4, pattern="a*")


@pytest.mark.parametrize("pattern", ["*.md", "/etc/*"])
def test_a_folder_without_files_of_the_pattern_is_said(tmp_path, pattern):
    (tmp_path / "a.txt").write_text("some text")
    with pytest.raises(ValueError, match=rf"no file of the folder .* matches pattern={re.escape(repr(pattern))}"):
        source("text", path=str(tmp_path), context=4, pattern=pattern)
