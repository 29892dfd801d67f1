"""A file of arrays as samples and as a task: labels or numbers, splits, and what is no such file."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from etils import epath

from train.analysis.runs import TrainedRun
from train.data import Batches, file_arrays, file_task, make_task, source
from train.study.regression import Regression
from train.study.regression_samples import samples

X = np.random.default_rng(0).normal(size=(6, 3))


def kept(folder, **arrays):
    np.savez(folder / "own.npz", **arrays)
    return str(folder / "own.npz")


def test_labels_are_counted_over_all_splits_and_numbers_stay_numbers(tmp_path):
    path = kept(tmp_path, x_train=X, y_train=[0, 1, 0, 1, 1, -1], x_test=X[:2], y_test=np.array([[2], [0]]))
    train, test = source("arrays", "train", path=path), source("arrays", "test", path=path)
    assert train.classes == test.classes == 3
    np.testing.assert_array_equal(train.read(np.arange(6))[1][[0, 5]], [[1, 0, 0], [0, 0, 0]])  # −1: nobody's
    np.testing.assert_array_equal(test.read(np.arange(2))[1], [[0, 0, 1], [1, 0, 0]])
    assert file_arrays("train", path, classes=4).outputs == 4
    numbers = file_arrays("train", path, classes=0)
    assert numbers.classes is None
    np.testing.assert_array_equal(numbers.read(np.arange(6))[1][:, 0], [0, 1, 0, 1, 1, -1])


@pytest.mark.parametrize(
    ("y", "outputs"),
    [
        ([1, -1, 1, 1, -1, 1], 1),
        ([1.0, -1, 1, 1, -1, 1], 1),
        ([0.0] * 6, 1),
        (np.linspace(0, 1, 6), 1),
        (np.arange(12).reshape(6, 2), 2),
    ],
)
def test_other_targets_are_numbers(tmp_path, y, outputs):
    data = file_arrays("train", kept(tmp_path, x_train=X, y_train=y))
    assert (data.classes, data.outputs, data.normalise) == (None, outputs, "none")
    np.testing.assert_array_equal(data.read(np.arange(6))[1], np.reshape(y, (6, outputs)).astype(np.float32))


def test_bytes_are_images(tmp_path):
    grey = np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2)
    data = file_arrays("train", kept(tmp_path, x_train=grey, y_train=np.arange(6)))
    assert (data.shape, data.normalise, data.classes) == ((2, 2, 1), "image", 6)
    assert file_arrays("train", kept(tmp_path, x_train=grey[:, 0], y_train=np.arange(6))).normalise == "none"


@pytest.mark.filterwarnings("ignore:.*has inputs from 0 to 255")
def test_rows_of_bytes_are_taken_as_they_are(tmp_path):
    rows = np.array([[0, 1], [1, 0], [255, 3]], np.uint8)
    path = kept(tmp_path, x_train=rows, y_train=[0, 1, 1])
    task = make_task("arrays", path=path, n_train=3, n_test=0)
    np.testing.assert_array_equal(np.sort(task.x_train, 0), np.sort(rows, 0))  # they were divided by 255
    x, _ = Batches(source("arrays", path=path), 3, 0).at(0)
    np.testing.assert_array_equal(np.sort(x, 0), np.sort(rows, 0))


def test_labels_may_be_kept_in_any_way(tmp_path):
    signs = np.uint64, np.int64  # NumPy makes float64 of both together
    path = kept(
        tmp_path, x_train=X, y_train=np.arange(6, dtype=signs[0]), x_test=X, y_test=np.arange(6, dtype=signs[1])
    )
    assert file_arrays("test", path).classes == 6
    floats = kept(tmp_path, x_train=X, y_train=np.array([0.0, 1, 2, 0, 1, 2]))
    np.testing.assert_array_equal(file_arrays("train", floats, 3).read(np.arange(2))[1], np.eye(3)[:2])
    halves = kept(tmp_path, x_train=X, y_train=np.arange(6) / 2)
    with pytest.raises(ValueError, match="3 of 6 labels are none of 3 classes"):  # they were cut to 0, 0, 1, 1, 2, 2
        file_arrays("train", halves, 3)


def test_unlabelled_samples_are_no_points(tmp_path):
    path = kept(tmp_path, x_train=X, y_train=[0, -1, 1, -1, 2, 0], x_test=X, y_test=[-1, 1, -1, -1, 0, 2])
    task = file_task(path, 4, 3)
    assert sorted(task.x_train[:, 0]) == pytest.approx(sorted(X[[0, 2, 4, 5], 0]))
    assert (task.y_train.max(1) > 0.5).all()
    assert (task.y_test.max(1) > 0.5).all()
    with pytest.raises(ValueError, match='4 samples with such a label in "train", and n_train = 5'):
        file_task(path, 5)
    found = samples({"name": "arrays", "path": path}, Regression())
    np.testing.assert_allclose(found.x_test, X[[1, 4, 5]], rtol=1e-6)
    assert (found.y.max(1) > 0.5).all()
    assert len(found.x) == 4
    few = samples({"name": "arrays", "path": path}, Regression(n_train=3, n_test=2))  # so many that have a label
    np.testing.assert_allclose(few.x, X[[0, 2, 4]], rtol=1e-6)
    np.testing.assert_allclose(few.x_test, X[[1, 4]], rtol=1e-6)
    nobodys = kept(tmp_path, x_train=X, y_train=[-1] * 6, x_test=X, y_test=[0, 1, 2] * 2)
    with pytest.raises(ValueError, match='no sample of the split "train"'):
        samples({"name": "arrays", "path": nobodys}, Regression())


def test_some_of_the_labels_against_others_as_digits_have_them(tmp_path):
    path = kept(tmp_path, x_train=X, y_train=[0, 1, 2, 0, 1, 2], x_test=X, y_test=[2, 2, 2, 1, 1, 0])
    task = file_task(path, 4, 5, classes=(2, 1))  # as a config for digits has it, read with --config.task.name=arrays
    order, rows = np.argsort(task.x_train[:, 0]), np.array([1, 2, 4, 5])
    rows = rows[np.argsort(X[rows, 0])]
    np.testing.assert_allclose(task.x_train[order], X[rows], rtol=1e-6)
    np.testing.assert_array_equal(task.y_train[order, 0], np.where(rows % 3 == 2, 1, -1))
    assert task.y_test.sum() == 1
    two = file_task(path, 4, 0, classes=(2, 1), loss="cross_entropy").y_train
    np.testing.assert_array_equal(two[:, 0], task.y_train[:, 0] > 0)
    assert file_task(path, 4, 0, classes=(10,)).outputs == 10
    with pytest.raises(ValueError, match=r"classes = \(1, 3\), and .* has 3 classes"):
        file_task(path, 2, 0, classes=(1, 3))
    with pytest.raises(ValueError, match="has targets that are numbers"):
        file_task(kept(tmp_path, x_train=X, y_train=X[:, 0]), 2, 0, classes=(0, 1))


def test_rows_of_probabilities_are_targets_of_cross_entropy(tmp_path):
    path = kept(tmp_path, x_train=X, y_train=np.eye(3)[[0, 1, 2, 0, 1, 2]])
    np.testing.assert_array_equal(file_task(path, 6, 0, loss="cross_entropy").y_train.sum(1), np.ones(6))
    with pytest.raises(ValueError, match="cross-entropy needs labels"):
        file_task(kept(tmp_path, x_train=X, y_train=X), 6, 0, loss="cross_entropy")


def test_a_task_has_points_of_both_splits_drawn_by_the_seed(tmp_path):
    path = kept(tmp_path, x_train=X, y_train=[0, 1, 2, 0, 1, 2], x_test=X + 9, y_test=[2, 1, 0, 2, 1, 0])
    task, other = (make_task("arrays", path=path, n_train=5, n_test=2, seed=seed) for seed in (0, 1))
    rows = [int(np.flatnonzero((x == X.astype(np.float32)).all(1))[0]) for x in task.x_train]
    assert len(set(rows)) == 5
    np.testing.assert_allclose(task.y_train, np.eye(3)[np.array(rows) % 3] - 1 / 3, atol=1e-7)
    assert (task.x_test > 4).all()
    assert not np.array_equal(task.x_train, other.x_train)
    by_class = file_task(path, 5, 2, loss="cross_entropy")
    np.testing.assert_array_equal(by_class.y_train, task.y_train.round(6) > 0)
    with pytest.raises(ValueError, match='has 6 samples in "train", and n_train = 7'):
        file_task(path, 7)
    with pytest.raises(ValueError, match="cross-entropy needs labels"):
        file_task(path, 5, 0, loss="cross_entropy", classes=0)


def test_numbers_keep_their_digits(tmp_path):
    path = kept(tmp_path, x_train=X, y_train=X[:, 0])
    assert set(file_task(path, 6, 0).y_train[:, 0]) == set(X[:, 0])


def test_labels_that_are_floats_must_be_whole(tmp_path):
    path = kept(tmp_path, x_train=X, y_train=[0.0, 1, 0.5, 1.7, 0, 1])
    with pytest.raises(ValueError, match="2 of 6 labels are none of 2 classes"):
        file_arrays("train", path, classes=2)


def test_regression_with_kernels_takes_it(tmp_path):
    path = kept(tmp_path, x_train=X, y_train=X[:, 0], x_test=X[:2], y_test=X[:2, 0])
    found = samples({"name": "arrays", "path": path}, Regression(dtype="float64"))
    np.testing.assert_allclose(found.y[:, 0], X[:, 0], rtol=1e-6)
    assert (found.classes, found.name) == (False, path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": X, "y_train": np.arange(1, 7)}, "whole numbers from 1 to 6. Labels begin at 0: take y - .1."),
        ({"x_train": X, "y_train": [0, 1, 2, 3, 4, -3]}, "whole numbers from -3 to 4"),
        ({"x_train": X, "y_train": [0, 1, -1, 1, 0, 1]}, "targets are -1, 0 and 1. With classes=2"),
        ({"x_train": X, "y_train": range(6), "x_test": X, "y_test": X[:, 0]}, "some splits are whole numbers"),
        ({"x_train": X, "y_train": [0.0, 1, 2, 0, 1, 2]}, "floats from 0 to 2, all of them whole. Labels. Then say classes=3"),
        ({"x_train": X, "y_train": [1.0, 2, 3, 1, 2, 3]}, "floats from 1 to 3, all of them whole"),
        ({"x_train": X}, "x_train alone"),
        ({"images": X}, "has images, and no x_train"),
        ({"x_train": np.where(X.max() == X, np.nan, X), "y_train": np.arange(6)}, "1 of 18 numbers of x_train are not finite"),
        ({"x_train": np.array(["a", "b"]), "y_train": [0, 1]}, "x_train is an array of <U1"),
        ({"x_train": np.array([1, "b"], object), "y_train": [0, 1]}, "cannot be read as arrays of numbers"),
        ({"x_train": X, "y_train": [0, 1]}, "inputs of shape"),
        ({"x_train": X[:0], "y_train": np.arange(0)}, r"x_train of shape \(0, 3\) holds nothing"),
        ({"x_train": X, "y_train": np.arange(6), "x_test": X[:, :2], "y_test": np.arange(6)}, "must have one shape; got x_train"),
        ({"x_train": X * 1e300, "y_train": np.arange(6)}, r"as large as .*e\+300, beyond float32"),
        ({"x_test": X, "y_test": np.arange(6)}, 'no split "train": x_test, y_test'),
    ],
)  # fmt: skip
def test_what_is_no_such_file_is_said(tmp_path, arrays, message):
    with pytest.raises(ValueError, match=message):
        file_arrays("train", kept(tmp_path, **arrays))


def test_other_files_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.npz"):
        file_arrays("train", str(tmp_path / "none.npz"))
    with pytest.raises(FileNotFoundError, match=f'no file "none.npz" of arrays in {Path.cwd()}: give it'):
        file_arrays("train", "none.npz")  # as it is named in a run's config, which is read from another folder
    np.save(tmp_path / "one.npy", X)
    (tmp_path / "text.npz").write_text("a,b\n1,2\n")
    for name in ("one.npy", "text.npz"):
        with pytest.raises(ValueError, match="cannot be read as arrays of numbers in an") as said:
            file_arrays("train", str(tmp_path / name))
        assert not any(word in str(said.value) for word in ("pickle", "attribute"))  # what NumPy and Python say of them


def test_an_analysis_finds_a_file_that_was_named_from_where_the_run_began(tmp_path, monkeypatch):
    """From any folder; and a file of that name here that holds something else is not taken for it."""
    began, here = tmp_path / "began", tmp_path / "here"
    place = began / "runs" / "own" / "checkpoints"
    for each in (place, here):
        each.mkdir(parents=True)
    path = kept(began, x_train=X, y_train=[0, 1, 2, 0, 1, 2], x_test=X, y_test=[0, 1, 2] * 2)
    name = Path(path).name
    content = {split: file_arrays(split, path).content for split in ("train", "test")}
    config = {"data": {"name": "arrays", "path": name, "train": "train", "test": "test"}}
    run = TrainedRun(epath.Path(place), {"config": config, "content": content}, (3,))
    monkeypatch.chdir(here)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = run.task(4, 4)
        kept(here, x_train=X + 1, y_train=[0, 1, 2, 0, 1, 2], x_test=X, y_test=[0, 1, 2] * 2)
        assert np.array_equal(run.task(4, 4).x_train, first.x_train)
        (here / name).write_text("no arrays")
        assert np.array_equal(run.task(4, 4).x_train, first.x_train)
    Path(path).unlink()
    (here / name).unlink()
    with pytest.raises(
        FileNotFoundError, match=rf"own was trained with data.path={name}, relative to .*: start launch.analyze in"
    ):
        run.task(4, 4)


def test_an_analysis_says_where_a_checkpoint_does_not_tell_which_of_two_files_it_had(tmp_path, monkeypatch):
    """Of a checkpoint without the content of its data the file here was taken, without a word."""
    began, here = tmp_path / "began", tmp_path / "here"
    place = began / "runs" / "own" / "checkpoints"
    for each in (place, here):
        each.mkdir(parents=True)
    name = Path(kept(began, x_train=X, y_train=[0, 1, 2, 0, 1, 2])).name
    run = TrainedRun(epath.Path(place), {"config": {"data": {"name": "arrays", "path": name, "train": "train"}}}, (3,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for start in (began, here):  # one file alone
            monkeypatch.chdir(start)
            np.testing.assert_allclose(run.task(4, 0).x_train, X[:4], rtol=1e-6)
        kept(here, x_train=X, y_train=[0, 1, 2, 0, 1, 2])  # the same in both
        run.task(4, 0)
    kept(here, x_train=X + 1, y_train=[0, 1, 2, 0, 1, 2])
    with pytest.warns(UserWarning, match=f"is there in {here} and in {began}, and the checkpoint does not say which"):
        np.testing.assert_allclose(run.task(4, 0).x_train, X[:4] + 1, rtol=1e-6)


def test_an_analysis_says_that_the_file_of_its_run_has_changed(tmp_path):
    def file(y):
        return kept(tmp_path, x_train=X, y_train=y, x_test=X, y_test=[0, 1, 2] * 2)

    path = file([0, 1, 2, 0, 1, 2])
    content = {"train": file_arrays("train", path).content, "test": file_arrays("test", path).content}
    config = {"data": {"name": "arrays", "path": path, "train": "train", "test": "test"}}
    run = TrainedRun(epath.Path(tmp_path), {"config": config, "content": content}, (3,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.task(4, 4).x_train.shape == (4, 3)
    file([0, 1, 2, 0, 1, 1])
    with pytest.warns(UserWarning, match=r"data\.train are others than those it was trained with") as said:
        run.task(4, 4)
    assert len(said) == 1  # of the test set nothing


def test_inputs_that_are_far_from_size_one_are_said(tmp_path):
    """Images of 16 bits came as 0 … 65535: kernels of 2e9, losses of thousands, without a word."""
    grey = np.linspace(0, 65535, 24).astype(np.uint16).reshape(6, 2, 2)
    path = kept(tmp_path, x_train=grey, y_train=[0, 1] * 3, x_test=grey, y_test=[0, 1] * 3)
    words = r"inputs from 0 to 65535 \(uint16; root mean square 3.*normalise=\"image\" brings every sample"
    with pytest.warns(UserWarning, match=words):
        Batches(source("arrays", path=path), 2)
    with pytest.warns(UserWarning, match=words) as said:
        file_task(path, 4, 0)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Batches(source("arrays", path=path), 2, normalise="image").at(0)[0].max() < 3
        assert np.abs(file_task(path, 4, 0, normalise="image").x_train).max() < 3
        for x in (grey / 65535, X, (grey // 257).astype(np.uint8)):  # bytes are normalised
            Batches(source("arrays", path=kept(tmp_path, x_train=x, y_train=[0, 1] * 3)), 2)


def test_tokens_of_a_file_are_told_what_keeps_them_whole(tmp_path):
    """They were told to be normalised as images are."""
    tokens = np.arange(48).reshape(6, 8) * 5
    path = kept(tmp_path, x_train=tokens, y_train=[0, 1] * 3, x_test=tokens, y_test=[0, 1] * 3)
    with pytest.warns(
        UserWarning, match=r'Of tokens normalise="tokens" keeps the whole numbers; of other inputs normalise="image"'
    ):
        file_task(path, 4, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert file_task(path, 4, 0, normalise="tokens").x_train.dtype == np.int32
    with pytest.warns(UserWarning, match=r'too large\. normalise="image"'):
        file_task(kept(tmp_path, x_train=tokens - 1.0, y_train=[0, 1] * 3, x_test=tokens, y_test=[0, 1] * 3), 4, 0)
