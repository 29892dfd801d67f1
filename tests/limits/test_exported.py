"""Traced programs on disk: read where nothing that they depend on has changed, and traced where it has."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from limits import Task
from limits.kept import exported as kept
from train import ensemble, members
from zoo import MLP, ResNet

X = np.random.default_rng(0).normal(size=(7, 3)).astype("float32")
TASK = Task(X[:4], np.sign(X[:4, :1]), X[4:], np.sign(X[4:, :1]))
PROGRAMS = (members._start, members._outputs, members._training, members._kernels)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "folder", lambda: tmp_path)
    yield tmp_path
    forget()


def forget():
    for each in PROGRAMS:
        each.cache_clear()


class Counted:
    """x ↦ factor x, which knows how often it was traced; a new process has a new one."""

    def __init__(self):
        self.traced = 0

    def program(self, *what, factor=2.0, **more):
        def function(tree):
            self.traced += 1
            return {"all": [factor * each for each in tree["x"]], "shape": (jnp.zeros(3),)}

        return kept.exported(function, *what, factor, **more)


def test_a_program_is_traced_again_where_something_changed(place, monkeypatch):
    x = {"x": (jnp.arange(3.0), 1)}
    count = Counted()
    first = count.program("a")(x)
    assert count.traced == 1
    again = count.program("a")(x)
    assert count.traced == 1
    assert jax.tree.structure(again) == jax.tree.structure(first)
    assert again["all"][0].tolist() == [0.0, 2.0, 4.0]
    assert again["all"][1].item() == 2.0
    changes = {
        "what": lambda: count.program("b")(x),
        "number": lambda: count.program("a", factor=3.0)(x),
        "names": lambda: count.program("a", names=lambda tree: "other")(x),
        "shape": lambda: count.program("a")({"x": (jnp.arange(4.0), 1)}),
        "type": lambda: count.program("a")({"x": (jnp.arange(3), 1)}),
        "tree": lambda: count.program("a")({"x": [jnp.arange(3.0), 1]}),
    }
    for traced, (name, change) in enumerate(changes.items(), start=2):
        change()
        assert count.traced == traced, name
    with jax.default_matmul_precision("float32"):
        count.program("a")(x)
    monkeypatch.setattr(kept, "sources", lambda: "of another version")
    count.program("a")(x)
    assert count.traced == len(changes) + 3


def test_damaged_programs_are_traced_again(place):
    count, x = Counted(), {"x": (jnp.arange(3.0),)}
    whole = count.program()(x)
    (file,) = place.iterdir()
    data, rng = file.read_bytes(), np.random.default_rng(0)
    for trial in range(20):
        broken = bytearray(data)
        broken[rng.integers(len(data))] ^= 1 << rng.integers(8)
        file.write_bytes(broken if trial else data[:100])
        assert count.program()(x)["all"][0].tolist() == whole["all"][0].tolist()
        assert count.traced == trial + 2
        assert kept._read(file, file.stem) is not None


def test_of_too_many_the_latest_stay(place, monkeypatch):
    monkeypatch.setattr(kept, "MOST", 2)
    count, x = Counted(), {"x": (1.0,)}
    for name in "abac":
        count.program(name)(x)
        for file in place.iterdir():
            os.utime(file, (file.stat().st_mtime - 10,) * 2)
    assert (count.traced, len(list(place.iterdir()))) == (3, 2)
    count.program("a")(x)
    assert count.traced == 3
    count.program("b")(x)
    assert count.traced == 4


def test_what_cannot_be_written_runs_as_it_is(place):
    def calls_back(x):
        return jax.pure_callback(lambda a: np.asarray(a) + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    assert kept.exported(calls_back)(jnp.zeros(2)).tolist() == [1.0, 1.0]
    with open(__file__) as unreadable:
        assert kept.exported(lambda x: x + 1, unreadable)(1).item() == 2
    with pytest.raises(ZeroDivisionError):
        kept.exported(lambda x: x / (1 // 0))(1.0)
    assert not list(place.iterdir())


@pytest.mark.slow
def test_of_ones_own_code_nothing_is_kept(place):
    """It may depend on what is not read of it: names imported inside of functions, rules of derivatives."""
    forget()
    own = MLP(8, 1, activation=lambda x: jnp.tanh(x))
    ensemble(own, TASK, 2, 1, 0.1, times=[1], kernels=())
    assert not list(place.iterdir())
    ensemble(MLP(8, 1), TASK, 2, 1, 0.1, times=[1], kernels=(), observe=lambda net, variables, x: x.sum())
    assert len(list(place.iterdir())) == 3  # of the second network, without what is observed


@pytest.mark.parametrize(
    ("net", "more"),
    [
        (
            MLP(8, 1, activation="tanh"),
            {"optimizer": optax.adam(1e-2), "kernels": ("phi",)},
        ),
        pytest.param(ResNet(8, 2, activation="relu"), {"learning_rate": 0.1, "centred": True}, marks=pytest.mark.slow),
    ],
)
def test_ensembles_are_the_same_from_disk(place, monkeypatch, net, more):
    forget()
    first = ensemble(net, TASK, 3, 4, times=[0, 4], **more)
    files = {file: file.stat().st_mtime_ns for file in place.iterdir()}
    assert files
    forget()
    with monkeypatch.context() as patch:
        patch.setattr(kept.export, "export", None)  # nothing is traced for keeping
        again = ensemble(net, TASK, 3, 4, times=[0, 4], **more)
    forget()
    monkeypatch.setattr(kept, "folder", lambda: None)
    plain = ensemble(net, TASK, 3, 4, times=[0, 4], **more)
    assert set(place.iterdir()) == set(files)
    for name in ("f_train", "f_test", "loss"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
        np.testing.assert_allclose(getattr(plain, name), getattr(first, name), rtol=1e-5, atol=1e-6)
