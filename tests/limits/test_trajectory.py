import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest
from damage import FLIPS, silently_different
from flax.core import freeze

from limits import AbsentError, Provenance, Trajectory

EXACT, ABSENT = Provenance("exact", "closed form"), Provenance("absent", "it grows with the width")


def example(shift=0.0, **changes):
    numbers = np.random.default_rng(0).normal(size=(3, 4, 4)) + shift
    values = {
        "times": np.array([0, 2, 5]),
        "loss": numbers[:, 0, 0],
        "f_train": numbers[:, :2, :1],
        "phi": (numbers, 2 * numbers),
        "ntk": ABSENT,
        "errors": {"loss": np.full(3, 0.3), "phi": (np.full((3, 4, 4), 0.1), np.full((3, 4, 4), 0.2))},
        "observed": {"norm": numbers[:, 1]},
        "provenance": {"loss": EXACT, "ntk": ABSENT},
        "source": "example",
    }
    return Trajectory(**(values | changes))


def same(left, right):
    if isinstance(left, (tuple, dict)):
        keys = left if isinstance(left, dict) else range(len(left))
        return len(left) == len(right) and all(same(left[key], right[key]) for key in keys)
    return np.array_equal(left, right)


def test_what_is_saved_is_what_is_loaded(tmp_path):
    run = example()
    path = run.save(tmp_path / "run")
    assert path == tmp_path / "run.npz"
    again = Trajectory.load(path)
    for name in ("times", "loss", "f_train", "phi", "errors", "observed", "provenance", "source"):
        assert same(getattr(again, name), getattr(run, name)), name
    assert isinstance(again.phi, tuple)
    assert again.times.dtype == run.times.dtype
    assert not again.has("g")
    assert not again.has("ntk")
    with pytest.raises(AbsentError, match="ntk: it grows with the width"):
        _ = again.ntk


def test_more_than_ten_layers_keep_their_order(tmp_path):
    layers = tuple(np.full((3, 1, 1), float(l)) for l in range(12))
    again = Trajectory.load(example(phi=layers, errors={}).save(tmp_path / "deep"))
    assert [layer[0, 0, 0] for layer in again.phi] == list(range(12))


def test_a_point_in_the_name_is_part_of_the_name(tmp_path):
    paths = {example(shift=gamma).save(tmp_path / f"gamma_{gamma}") for gamma in (0.25, 0.5)}
    assert {path.name for path in paths} == {"gamma_0.25.npz", "gamma_0.5.npz"}


def test_difference_and_its_errors():
    left, right = example(shift=1.0), example(errors={"loss": np.full(3, 0.4)})
    difference = left - right
    np.testing.assert_allclose(difference.loss, 1.0, rtol=1e-12)
    np.testing.assert_allclose(difference.loss_sem, 0.5, rtol=1e-12)
    np.testing.assert_allclose(difference.phi[1], 2.0, rtol=1e-12)
    np.testing.assert_allclose(difference.phi_sem[1], 0.2, rtol=1e-12)  # only one side has an error
    assert not np.any(difference.f_train_sem)
    assert difference.source == "example − example"
    assert not difference.has("ntk")
    assert not (left - example(loss=None)).has("loss")


def test_a_difference_keeps_what_both_observed_and_says_where_its_sides_come_from():
    tree, sem = {"a": np.ones(3), "b": [np.zeros((3, 2))]}, {"norm": np.full((3, 4), 0.3), "loss": np.full(3, 0.1)}
    mine = {"norm": np.ones((3, 4)), "tree": tree, "fields": np.ones((3, 8)), "own": np.ones(3)}
    theirs = {"norm": np.zeros((3, 4)), "tree": tree, "fields": np.ones((3, 8)), "whatever": {"b": None}}
    mine["whatever"] = freeze({"b": None})
    drawn = {"loss": Provenance("monte_carlo", "4 sweeps")}
    left = example(errors=sem, source="rich", provenance=drawn, observed=mine)
    right = example(source="lazy", observed=theirs)
    difference = left - right
    assert set(difference.observed) == {"norm", "tree"}
    np.testing.assert_allclose(difference.observed["norm"], 1.0)
    np.testing.assert_allclose(difference.norm_sem, 0.3)
    assert not difference.observed["tree"]["a"].any()
    assert difference.provenance == {
        "loss": Provenance("monte_carlo", "rich: monte_carlo, 4 sweeps − lazy: exact, closed form")
    }


def test_other_times_cannot_be_subtracted():
    with pytest.raises(ValueError, match=r"recorded at other times: \[0 2 5\] and \[0 2 6\]"):
        _ = example() - example(times=np.array([0, 2, 6]))


def test_errors_are_zero_where_none_are_known():
    run = example()
    assert run.loss_sem.tolist() == [0.3] * 3
    assert same(run.f_train_sem, np.zeros((3, 2, 1)))
    assert same(run.norm_sem, np.zeros((3, 4)))
    with pytest.raises(AbsentError, match="grows with the width"):
        _ = run.ntk_sem


def test_a_quantity_that_was_not_recorded_has_no_error():
    assert example().g is None
    assert example().g_sem is None


@pytest.mark.parametrize("name", ["los", "los_sem", "times_sem", "foo"])
def test_unknown_quantities_are_answered_with_the_known(name):
    with pytest.raises(
        AttributeError, match=rf"Trajectory has no quantity {name}; it has loss, .* and NAME_sem of each"
    ):
        getattr(example(), name)
    assert not hasattr(example(), name)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))], ids=["copy", "pickle"])
def test_copies(copied):
    run = copied(example())
    assert same(run.phi, example().phi)
    assert run.provenance == example().provenance


def test_text():
    assert repr(example()) == "Trajectory(example: 3 times up to step 5; loss, f_train, phi)"


def test_it_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        example().loss = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_no_damage_to_a_saved_trajectory_goes_unnoticed(tmp_path):
    run = Trajectory(
        times=np.arange(3), loss=np.ones(3), phi=(np.eye(2), np.ones(3)), errors={"loss": np.zeros(3)},
        observed={"mine": np.arange(4.0)}, provenance={"loss": Provenance("exact", "by hand")}, source="lazy",
    )  # fmt: skip
    file = run.save(tmp_path / "run")

    def read():
        found = Trajectory.load(file)
        return repr(dataclasses.asdict(found)) == repr(dataclasses.asdict(run))

    assert read() is True
    tried, _, wrong = silently_different(file, read)
    assert tried > FLIPS
    assert not wrong


def test_files_of_versions_without_checksums_are_read(tmp_path):
    notes = json.dumps({"source": "rich", "provenance": {"loss": ["exact", ""]}})
    arrays = {"times": np.arange(2), "value/loss/": np.ones(2), "value/phi/0": np.eye(2), "notes": np.array(notes)}
    np.savez_compressed(tmp_path / "old.npz", **arrays)
    old = Trajectory.load(tmp_path / "old")
    assert old.source == "rich"
    np.testing.assert_array_equal(old.phi[0], np.eye(2))
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    with pytest.raises(ValueError, match=r"other.npz has nothing that save wrote"):
        Trajectory.load(tmp_path / "other")
