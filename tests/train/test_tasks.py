import numpy as np
import pytest

from train import data


@pytest.mark.parametrize("name", sorted(data.TASKS))
def test_same_seed_same_task_and_no_overlap_of_train_and_test(name, tmp_path):
    own = np.random.default_rng(0).normal(size=(2, 20, 3))
    np.savez(tmp_path / "own.npz", x_train=own[0], y_train=own[0, :, 0], x_test=own[1], y_test=own[1, :, 0])
    files = {"text": {"path": __file__, "context": 16, "stride": 1}, "arrays": {"path": str(tmp_path / "own.npz")}}
    options = files.get(name, {})
    one, two, other = (data.make_task(name, n_train=12, n_test=8, seed=s, **options) for s in (0, 0, 1))
    np.testing.assert_array_equal(one.x, two.x)
    assert not np.array_equal(one.x, other.x)
    rows = one.x.reshape(len(one.x), -1)
    assert len(np.unique(rows, axis=0)) == 20


def test_digits_are_on_the_sphere_and_labelled_by_class():
    task = data.digits(40, 20, classes=(3, 8))
    np.testing.assert_allclose((task.x**2).sum((1, 2, 3)), 64)
    assert set(task.y_train.ravel()) == {-1.0, 1.0}
    # The two classes can be told apart: a nearest-class-mean rule does far better than chance.
    means = [task.x_train[task.y_train[:, 0] == s].mean(0) for s in (1.0, -1.0)]
    closer = np.argmin([((task.x_test - m) ** 2).sum((1, 2, 3)) for m in means], axis=0)
    assert np.mean(np.where(closer == 0, 1.0, -1.0) == task.y_test[:, 0]) > 0.8


def test_one_hot_targets():
    mse = data.digits(30, 10, classes=range(10), targets="one_hot")
    np.testing.assert_allclose(mse.y_train.sum(1), 0, atol=1e-12)
    entropy = data.digits(30, 10, classes=range(10), targets="one_hot", loss="cross_entropy")
    np.testing.assert_array_equal(entropy.y_train.sum(1), 1)


def test_xor_needs_both_coordinates():
    task = data.xor_mixture(2000, 0)
    # |correlation| of independent signs over 2000 samples: standard error 1/sqrt(2000) = .022
    assert np.all(np.abs((task.x_train * task.y_train).mean(0)) < 4 * 0.55 * 0.022)
    assert np.mean(np.sign(task.x_train[:, 0] * task.x_train[:, 1]) == task.y_train[:, 0]) > 0.95


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data.make_task("digit"), 'Did you mean "digits"'),
        (lambda: data.digits(2000, 0), r"n_train \+ n_test = 2000, .*360 samples: ask for fewer"),
        (lambda: data.digits(0, 5), "n_train must be .* at least 1, got 0"),
        (lambda: data.digits(classes=(1, 1)), r"classes must be .* each once.* got \(1, 1\)"),
        (lambda: data.digits(targets="sign"), 'targets must be .*"signs", "one_hot"'),
        (lambda: data.digits(loss="cross_entropy"), 'targets="one_hot"'),
    ],
)
def test_mistakes_are_answered_with_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
