import dataclasses
from typing import Any

import numpy as np
import pytest

from limits import Task, twin
from train import ensemble
from zoo import MLP

X, Y = np.arange(6.0).reshape(3, 2), np.array([1.0, -1.0, 1.0])
HOT = np.eye(2)[[0, 1, 0]]


def test_shapes_and_types():
    task = Task(X.astype(np.float32).tolist(), Y, X[:2], Y[:2], name="mine")
    assert (task.x_train.shape, task.y_train.shape, task.x_test.shape, task.y_test.shape) == (
        (3, 2),
        (3, 1),
        (2, 2),
        (2, 1),
    )
    assert {part.dtype for part in (task.x_train, task.y_train, task.x_test, task.y_test)} == {np.dtype(np.float64)}
    assert (task.outputs, task.name, task.loss) == (1, "mine", "mse")
    assert np.array_equal(task.x, np.concatenate([X, X[:2]]))


def test_test_points_may_be_left_out():
    task = Task(X.reshape(3, 2, 1, 1), HOT)
    assert (task.x_test.shape, task.y_test.shape, task.x.shape) == ((0, 2, 1, 1), (0, 2), (3, 2, 1, 1))


def test_probabilities_are_labels_too():
    assert Task(X, [[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]], loss="cross_entropy").outputs == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"x_train": [[1, np.nan]] * 3},
            r"Task: x_train holds 3 values that are NaN or infinite \(of 6\); remove them",
        ),
        ({"y_train": ["a", "b", "a"]}, "Task: y_train must be an array of numbers .*'a'"),
        ({"x_train": (X, X)}, "Task: x_train is a tuple of 2; inputs must be one array"),
        ({"x_train": (X, X[:, :1])}, "Task: x_train is a tuple of 2; inputs must be one array"),
        ({"x_train": [[1, 1j]] * 3}, "Task: x_train holds complex numbers"),
        ({"y_train": [1, np.inf, 0]}, r"Task: y_train holds 1 values that are NaN or infinite \(of 3\)"),
        ({"x_test": [[np.nan, 0]], "y_test": [0]}, "Task: x_test holds 1 values"),
        ({"y_train": Y[:2]}, "Task: x_train has 3 samples and y_train has 2"),
        ({"x_test": X, "y_test": Y[:1]}, "Task: x_test has 3 samples and y_test has 1"),
        ({"y_test": Y}, "Task: y_test are the targets of x_test, which is missing"),
        ({"x_train": X[:0], "y_train": Y[:0]}, "Task: there are no training samples"),
        ({"x_test": X[:, :1], "y_test": Y}, r"samples of one shape .*; x_train has samples \(2,\) and x_test \(1,\)"),
        ({"x_test": X, "y_test": HOT}, r"targets \[n, outputs\]; .* y_train is \(3, 1\) and y_test \(3, 2\)"),
        ({"y_train": HOT[:, :, None]}, r"targets \[n, outputs\]; .* y_train is \(3, 2, 1\)"),
        ({"loss": "cross_entropy"}, "cross-entropy needs one-hot labels or probabilities in y_train"),
        ({"y_train": 2 * HOT, "loss": "cross_entropy"}, r"in y_train \(rows sum to 1\)"),
        ({"y_train": [[2.0, -1.0]] * 3, "loss": "cross_entropy"}, "or probabilities in y_train"),
        ({"y_train": HOT, "x_test": X, "y_test": 0 * HOT, "loss": "cross_entropy"}, "or probabilities in y_test"),
    ],
)
def test_bad_tasks_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Task(**({"x_train": X, "y_train": Y} | fields))


def test_unknown_loss():
    wrong: Any = "mae"
    with pytest.raises(ValueError, match=r'Task: loss .*"mse", "cross_entropy".*mae'):
        Task(X, Y, loss=wrong)


def test_predictions_need_no_targets_of_test_points():
    x_test = X[:2] + 1.0
    blind, known = Task(X, Y, x_test), Task(X, Y, x_test, [0.0, 1.0])
    assert (blind.y_test, blind.scored, known.scored, Task(X, Y).scored) == (None, False, True, False)
    assert not dataclasses.replace(blind, name="again").scored
    net = MLP(width=4, depth=1)
    for way in (
        lambda task: twin(net).posterior(task, noise=0.1),
        lambda task: twin(net).lazy(task, 2, 0.1, kernels=()),
        lambda task: ensemble(net, task, members=2, steps=2, learning_rate=0.1, kernels=()),
    ):
        np.testing.assert_array_equal(way(blind).f_test, way(known).f_test)
    assert twin(net).lazy(blind, 2, 0.1, kernels=()).test_loss is None
    assert way(blind).test_loss is None
