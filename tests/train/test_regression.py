"""Regression on whole data sets: against the same worked out at once, with flips, landmarks, and several processes."""

import dataclasses
import io
import warnings

import array_record_digits
import numpy as np
import pytest
from rich.console import Console
from sklearn.datasets import load_digits

from limits import UnfinishedError, predict, twin
from train.data.sources import SOURCES, Arrays
from train.study import regression, regression_report
from train.study.regression import Regression, Samples
from zoo import CNN, MLP

SCREEN = Console(file=io.StringIO(), width=100)
FAMILIES = {"dense": lambda width, depth: MLP(width, depth, 10)}
SETTINGS = Regression(n_train=60, n_test=30, dtype="float64", ridges=(1e-3, 1e-2), block=20)


def jobs(folder, settings=SETTINGS, families=FAMILIES, data=None, share=(0, 1)):
    data = regression.samples({"name": "digits"}, settings) if data is None else data
    return regression.jobs(families, 8, (2,), data, settings, folder, share)


def test_it_is_kernel_regression(tmp_path):
    (job,) = jobs(tmp_path)
    (planned,) = regression.plan([job], SCREEN)
    assert planned > 0
    (nngp, ntk), waiting = regression.regress([job], [planned], SCREEN)
    assert not waiting
    data, k = job.data, twin(MLP(8, 2, 10)).kernels(np.concatenate([job.data.x, job.data.x_test]))
    for each, whole in ((nngp, k.nngp), (ntk, k.ntk)):
        train, test = whole[:60, :60], whole[60:, :60]
        f = predict.kernel_regression(train, data.y, test, each.path.ridge)
        assert each.test_error == predict.error_rate(f, data.y_test)
        assert min(abs(each.path.ridge / each.scale / ridge - 1) for ridge in SETTINGS.ridges) < 1e-9
        assert each.scale == pytest.approx(np.trace(train) / 60)
    document = regression_report.report([nngp, ntk], data, SETTINGS, {}).json()
    assert '"n_train": 60' in document


@pytest.mark.slow
def test_mirror_images_count_as_one(tmp_path):
    """As training on both does: predictions of the kernel with the mean over flips are those of twice the samples."""
    settings = dataclasses.replace(SETTINGS, n_train=12, n_test=8, block=6, flip=True, ridges=(1e-2,))
    families = {"windows": lambda width, depth: CNN(width, depth, 10, readout="average")}
    (job,) = jobs(tmp_path, settings, families)
    (nngp, _) = job.outcomes()
    x, y = np.concatenate([job.data.x, regression.mirrored(job.data.x)]), np.tile(job.data.y, (2, 1))
    net = CNN(8, 2, 10, readout="average")
    train, test = twin(net).kernels(x).nngp, twin(net).kernels(job.data.x_test, x).nngp
    f = predict.kernel_regression(train, y, test, 2 * nngp.path.ridge)
    assert nngp.test_error == predict.error_rate(f, job.data.y_test)
    mean = np.load(tmp_path / "kernels" / job.name / "test_nngp_mean.npy")
    np.testing.assert_allclose(mean @ nngp.path.weights, f, rtol=1e-6, atol=1e-9)
    one_sided = {"strides": lambda width, depth: CNN(width, depth, 10, strides=2)}
    with pytest.raises(ValueError, match="mirrored"):
        jobs(tmp_path / "other", settings, one_sided)[0].outcomes()


def test_landmarks_come_near_the_whole(tmp_path):
    whole = jobs(tmp_path)[0].outcomes()
    settings = dataclasses.replace(SETTINGS, landmarks=60)  # all of them
    for each, other in zip(jobs(tmp_path, settings)[0].outcomes(), whole, strict=True):
        np.testing.assert_allclose(each.path.loss, other.path.loss, rtol=1e-6)
        assert (each.path.ridge, each.test_error) == (pytest.approx(other.path.ridge), other.test_error)
        assert each.left is not None
        assert each.left < 1e-6
    assert jobs(tmp_path, settings)[0].disk == 0


@pytest.mark.slow
def test_features_of_random_networks_come_near_the_whole(tmp_path):
    """Their losses do, within a few times what is said of the kernel; mirror images count as in whole kernels."""
    settings = dataclasses.replace(SETTINGS, networks=64, n_train=30, n_test=10)
    (whole,) = jobs(tmp_path, dataclasses.replace(settings, networks=0))
    (job,) = jobs(tmp_path, settings, {"dense": lambda width, depth: MLP(128, depth, 10)})
    for each, other in zip(job.outcomes(), whole.outcomes(), strict=True):
        assert each.off is not None
        # A relu's kernel scales by 1 ± √(5/128) a layer and network: 3 standard errors of two layers, 64 networks.
        assert 0 < each.off < 3 * (2 * 5 / 128 / 64) ** 0.5
        np.testing.assert_allclose(each.path.loss, other.path.loss, rtol=5 * each.off)
    assert job.disk == job.entries == 0
    with pytest.raises(ValueError, match="two approximations"):
        dataclasses.replace(settings, landmarks=3)


def test_shares_divide_the_tiles(tmp_path):
    first, second = (jobs(tmp_path, share=(i, 2))[0] for i in (0, 1))
    with pytest.raises(UnfinishedError, match=r": share 0 of 2, counted from 0, is finished; \d+ of \d+ blocks"):
        first.outcomes()
    found = second.outcomes()
    alone = jobs(tmp_path / "alone")[0].outcomes()
    for each, other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(each.path.loss, other.path.loss)


def test_targets_that_are_no_classes_have_a_squared_error_alone(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    parts = {name: random.normal(size=(n, 6)) for name, n in (("train", 20), ("test", 7), ("none", 0))}
    monkeypatch.setitem(SOURCES, "mine", lambda split: Arrays("mine", parts[split], 2 * parts[split][:, :1]))
    families = {"dense": lambda width, depth: MLP(width, depth)}
    data = regression.samples({"name": "mine"}, SETTINGS)
    found = jobs(tmp_path, families=families, data=data)[0].outcomes()
    for each in found:
        k = twin(MLP(8, 2)).kernels(np.concatenate([data.x, data.x_test]))
        whole = getattr(k, each.kernel)
        f = predict.kernel_regression(whole[:20, :20], data.y, whole[20:, :20], each.path.ridge)
        assert (each.test_error, each.numbers()["error"]) == (None, None)
        assert each.test_loss == pytest.approx(((f - data.y_test) ** 2).sum(1).mean())
    made = regression_report.report(found, data, SETTINGS, {})
    assert "wrong" not in made.json()
    assert "test loss" in (text := str(made))
    assert "%" not in text
    with pytest.raises(ValueError, match='the split "none" of mine has no samples'):
        regression.samples({"name": "mine", "test": "none"}, SETTINGS)


@pytest.mark.parametrize(("y", "classes"), [
    ([[1.0], [-1.0], [1.0]], True),
    ([[0.9, -0.1], [-0.1, 0.9], [0.9, -0.1]], True),
    ([[0.9, 0.9], [-0.1, 0.9], [0.9, -0.1]], False),
    ([[0.0], [0.0], [0.0]], False),
    ([[1.0], [-1.0], [0.5]], False),
    ([[1.0], [-1.0]], False),
])  # fmt: skip
def test_which_targets_are_classes(y, classes):
    x, y = np.ones((len(y), 2)), np.array(y)
    assert Samples("few", x[:-1], y[:-1], np.tile(x[-1:], (2, 1)), np.tile(y[-1:], (2, 1))).classes is classes


@pytest.mark.slow
def test_disks_that_are_too_small_are_named(tmp_path):
    many = np.broadcast_to(np.ones(1), (10**7, 1))
    data = Samples("many", many, many, many[:10], many[:10])
    with pytest.raises(OSError, match="GiB"):
        regression.plan(jobs(tmp_path, dataclasses.replace(SETTINGS, block=8), data=data), SCREEN)


def test_data_of_tfds_are_read_from_its_files(tmp_path):
    array_record_digits.build(tmp_path / "data")
    name = {"name": "array_record_digits", "data_dir": str(tmp_path / "data")}
    read = regression.samples({**name, "train": "train[:60]", "test": "test[:30]"}, SETTINGS)
    images, labels = load_digits(return_X_y=True)
    for x, y, rows in ((read.x, read.y, range(60)), (read.x_test, read.y_test, range(1500, 1530))):
        centred = images[rows] - images[rows].mean()
        assert x.shape[1:] == (8, 8, 1)
        assert np.corrcoef(x.reshape(len(x), -1).ravel(), centred.ravel())[0, 1] > 0.98
        np.testing.assert_array_equal(y.argmax(1), labels[rows])
        np.testing.assert_allclose(y.sum(1), 0, atol=1e-6)
    nngp, _ = jobs(tmp_path / "kernels", data=read)[0].outcomes()
    assert nngp.test_error is not None
    assert nngp.test_error < 0.4  # 60 digits


def test_networks_whose_kernels_would_have_one_folder_are_refused(tmp_path):
    make = FAMILIES["dense"]
    with pytest.raises(ValueError, match='Files of "m 1" and "m_1" would both be named m_1'):
        jobs(tmp_path, families={"m 1": make, "m_1": make})
    for label in ("relu/erf", "", "x" * 300):
        with pytest.raises(ValueError, match=f'No file can be named by the label "{label}"'):
            jobs(tmp_path, families={label: make})


def test_samples_that_are_sorted_by_class_are_said(monkeypatch):
    labels = np.repeat(np.arange(10), 30)
    orders = {"sorted": np.arange(300), "shuffled": np.random.default_rng(0).permutation(300)}
    for name, order in orders.items():
        data = Arrays(name, np.ones((300, 2)), labels[order], 10)
        monkeypatch.setitem(SOURCES, name, lambda split, data=data: data)
    with pytest.warns(UserWarning, match='"train" of sorted: the first 100 .* lack 6 of 10 classes .4, 5, 6, 7, 8, …'):
        regression.samples({"name": "sorted"}, Regression(n_train=100, n_test=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n_train in (10, 30, 100, 0):
            regression.samples({"name": "shuffled"}, Regression(n_train=n_train, n_test=20))
        regression.samples({"name": "sorted"}, Regression(n_train=0, n_test=0))
        many = np.random.default_rng(0).permutation(np.repeat(np.arange(2500), 4))  # more ways than a float can count
        monkeypatch.setitem(SOURCES, "many", lambda split: Arrays("many", np.ones((10_000, 1)), many, 2500))
        regression.samples({"name": "many"}, Regression(n_train=2000, n_test=0))
