"""Tasks with tokens: whole numbers in, targets at positions with masks, class numbers; and what trains on them."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from limits import AbsentError, Task, Trajectory, fit, identity, twin
from limits.inputs import as_fed
from limits.losses import losses, point_loss
from limits.training import Training
from train import ensemble
from train.data import source
from train.members import member_keys
from train.posterior import sample_posterior
from zoo import CNN, GPT, MLP, Dense, learning_rate_factors, parameterization
from zoo.attention import Embed

TOKENS = np.array([[1, 2, 0], [3, 3, 1], [0, 2, 1]])
NEXT = np.array([[2, 0, 1], [3, 1, 2], [2, 1, 0]])
MASK = np.array([[True, True, False], [True, True, True], [False, True, False]])
TASK = Task(TOKENS[:2], NEXT[:2], TOKENS[2:], NEXT[2:], "cross_entropy", mask_train=MASK[:2], mask_test=MASK[2:])
NUMBERS = Task(TOKENS[:2], np.eye(4)[NEXT[:2]], TOKENS[2:], mask_train=MASK[:2], mask_test=MASK[2:])


class Words(nn.Module):
    """A table, a hidden layer and a readout, the same at every position."""

    width: int = 16
    parameterization: Any = "ntk"
    gamma: float = 1.0

    @nn.compact
    def __call__(self, x):
        p, width = parameterization(self.parameterization), self.width
        h = jax.nn.relu(Dense(width, "hidden", width, p)(Embed(4, width, p)(x)))
        return Dense(4, "readout", width, p)(h) / p.output_scale(width, self.gamma)


def test_whole_numbers_stay_such_and_class_numbers_become_labels():
    assert TASK.x.dtype.kind == "i"
    np.testing.assert_array_equal(TASK.x, TOKENS)
    np.testing.assert_array_equal(TASK.y_train, np.eye(4)[NEXT[:2]])
    assert (TASK.outputs, TASK.positions, TASK.n_train) == (4, (3,), 5)
    pixels = Task(np.ones((2, 4, 4, 1), np.uint8), [2, 0], loss="cross_entropy", classes=5)
    assert (pixels.x_train.dtype, pixels.y_train.shape) == (np.uint8, (2, 5))
    one_hot = Task(np.eye(2), [[0, 1], [1, 0]], loss="cross_entropy")
    assert one_hot.y_train.tolist() == [[0, 1], [1, 0]]
    assert Task([[1, 2]], [1]).outputs == 1  # numbers, where the loss is not one of classes


def test_points_are_the_positions_that_count():
    f = np.arange(9.0).reshape(1, 3, 3, 1)
    assert TASK.at_points(f, 1)[0, :, 0].tolist() == [0, 1, 3, 4, 5, 7]
    np.testing.assert_array_equal(TASK.targets, np.eye(4)[[2, 0, 3, 1, 2]])
    assert TASK.test_targets is not None
    np.testing.assert_array_equal(TASK.test_targets, np.eye(4)[[1]])
    assert TASK.sample_of_point.tolist() == [0, 0, 1, 1, 1]
    k = np.arange(81).reshape(3, 3, 3, 3)
    assert TASK.between_points(k)[2, 1] == k[1, 0, 0, 1]


def test_a_task_is_the_same_again_after_a_change_of_name_and_another_with_another_mask():
    again = dataclasses.replace(TASK, name="again")
    np.testing.assert_array_equal(again.y_train, TASK.y_train)
    assert identity(dataclasses.replace(again, name=TASK.name)) == identity(TASK)
    assert identity(dataclasses.replace(TASK, mask_train=None)) != identity(TASK)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mask_train": MASK[:1]}, r"mask_train says which positions count, \[n, t\].*it is \[1, 3\]"),
        ({"mask_train": 2 * MASK[:2]}, "mask_train must hold True and False"),
        ({"mask_train": 0 * MASK[:2]}, "mask_train leaves 2 of 2 samples without a position"),
        ({"x_test": None, "y_test": None}, "mask_test is that of the targets of x_test, which is missing"),
        ({"classes": 3}, "class numbers go from 0 to 3 and must be from 0 to 2; leave what has no class out by a mask"),
        ({"y_train": -NEXT[:2]}, "class numbers go from -3 to 2"),
        ({"y_train": [1, 2]}, r"targets \[n, outputs\]"),
        ({"y_train": np.eye(4)[NEXT[:2]] / 2, "y_test": None}, "one-hot labels or probabilities in y_train"),
        ({"y_train": np.eye(4)[NEXT[:2]], "y_test": None, "classes": 3}, "targets of 3 classes must be"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, message):
    given = {"x_train": TOKENS[:2], "y_train": NEXT[:2], "x_test": TOKENS[2:], "y_test": NEXT[2:]}
    given |= {"loss": "cross_entropy", "mask_test": MASK[2:]}
    with pytest.raises(ValueError, match=f"Task: .*{message}"):
        Task(**(given | fields))


def test_networks_of_other_outputs_are_refused():
    for use in (lambda net: twin(net).lazy(TASK, 1, 0.1), lambda net: ensemble(net, TASK, 2, 1, 0.1)):
        with pytest.raises(
            ValueError, match=r"MLP must return for targets \[2, 3, 4\] .* \[n, t, outputs\]; .* \[1, 4\]"
        ):
            use(MLP(width=8, depth=1, outputs=4))
        with pytest.raises(ValueError, match=r"5 outputs and the task 4 .*classes=5"):
            use(GPT(width=8, depth=1, vocabulary=5, context=3))


def test_a_network_of_numbers_is_given_numbers():
    whole, real = (Task(x, [1.0, -1.0]) for x in ([[1, 2], [0, 3]], [[1.0, 2.0], [0.0, 3.0]]))
    net = MLP(width=8, depth=1)
    np.testing.assert_array_equal(*(twin(net).lazy(task, 3, 0.1).f_train for task in (whole, real)))
    assert as_fed(CNN(width=4, depth=1), Task(np.ones((1, 4, 4, 1), np.uint8), [1.0])).x.dtype == np.float64


def test_losses_are_means_over_the_positions_that_count():
    f = np.random.default_rng(0).normal(size=(2, 3, 4))
    p = np.exp(f) / np.exp(f).sum(-1, keepdims=True)
    log = [-np.log(p[i, a, NEXT[i, a]]) for i in range(2) for a in range(3) if MASK[i, a]]
    square = [0.5 * sum((f[i, a] - np.eye(4)[NEXT[i, a]]) ** 2) for i in range(2) for a in range(3) if MASK[i, a]]
    for task, each in ((TASK, log), (NUMBERS, square)):
        flat = np.concatenate([f, f[:1]])
        assert losses(task, task.at_points(flat)[: task.n_train], task.targets) == pytest.approx(np.mean(each))
        found = point_loss(task.loss)(jnp.asarray(f), jnp.asarray(task.y_train, "float32"), jnp.asarray(MASK[:2]))
        assert float(found) == pytest.approx(np.mean(each), rel=1e-6)


@pytest.mark.parametrize("task", [TASK, NUMBERS], ids=["cross-entropy", "squares"])
@pytest.mark.slow
def test_lazy_is_descent_by_the_kernel_between_positions(task):
    rows, rate = np.array([[0], [1], [0]]), 0.3
    limit = twin(Words())
    run = limit.lazy(task, 3, rate, batches=rows, centred=True, kernels=("ntk", "features"))
    k, f = limit.kernels(TOKENS), np.zeros((4, 3, 3, 4))
    for t, (i,) in enumerate(rows):
        e = np.exp(f[t])
        slope = task.y_train[i] - (f[t] if task.loss == "mse" else e / e.sum(-1, keepdims=True))[i]
        slope = MASK[i, :, None] * slope / MASK[i].sum()
        f[t + 1] = f[t] + rate * np.einsum("nab,bk->nak", k.ntk[:, i], slope)
    np.testing.assert_allclose(np.concatenate([run.f_train, run.f_test], axis=1), task.at_points(f, 1), atol=1e-12)
    np.testing.assert_allclose(run.ntk[0][2, 1], k.ntk[1, 0, 0, 1])
    np.testing.assert_allclose(run.features[0], np.einsum("ijaa->ij", k.nngp) / 3)
    with pytest.raises(ValueError, match="g: outputs at each of 3 positions"):
        run.g  # noqa: B018


@pytest.mark.usefixtures("full_products")
@pytest.mark.slow
def test_members_descend_the_masked_loss(tmp_path):
    net, rows, rate = Words(8), np.array([[0], [1], [0], [1]]), 0.5
    run = ensemble(net, TASK, 2, 4, rate, batches=rows, seed=3, times=[0, 4], kernels=())
    x, labels, mask, found = jnp.asarray(TOKENS), jnp.asarray(NEXT), jnp.asarray(MASK), []
    factors = learning_rate_factors(net, x[:1])

    @jax.jit
    def step(params, i):
        def objective(p):
            f: Any = net.apply({"params": p}, x[i][None])
            each = optax.softmax_cross_entropy_with_integer_labels(f, labels[i][None])
            return jnp.sum(each[0] * mask[i]) / jnp.sum(mask[i])

        return jax.tree.map(lambda p, s, c: p - rate * c * s, params, jax.grad(objective)(params), factors)

    init, apply = jax.jit(net.init), jax.jit(net.apply)
    for key in member_keys(3, 0, 2):
        params = init(key, x[:1])["params"]
        for (i,) in rows:
            params = step(params, i)
        found.append(np.asarray(apply({"params": params}, x))[MASK])
    np.testing.assert_allclose(run.f[-1], np.mean(found, axis=0), atol=1e-5)
    assert (run.f_train.shape, run.f_train_cov.shape, run.f_test.shape) == ((2, 5, 4), (2, 5, 5), (2, 1, 4))
    back = Trajectory.load(run.save(tmp_path / "run"))
    np.testing.assert_array_equal((back - run).f_train, 0)


def test_batches_weigh_points_by_the_positions_that_count():
    training = Training.of(TASK, 2, 0.1, batches=[[0, 1], [0, 0]])
    found = training.weights(2, TASK.sample_of_point)
    np.testing.assert_allclose(found, [[1, 1, 1, 1, 1], [2.5, 2.5, 0, 0, 0]])


@pytest.mark.slow
def test_rich_of_a_readout_alone_is_descent_by_the_features_at_the_start():
    net, rows = Words(8, "mup"), np.array([[0], [1], [0]])
    run = twin(net).rich(TASK, 3, 2.0, samples=512, replicas=4, trained=("readout",), batches=rows, kernels=())
    exact = twin(net).lazy(TASK, 3, 2.0, trained=("readout",), batches=rows, kernels=())
    away, error = run.f - exact.f, np.concatenate([run.f_train_sem, run.f_test_sem], axis=1)
    assert np.abs(exact.f[-1]).max() > 0.3
    assert np.abs(away[1:]).max() < 0.1  # O(1/√2048), of features of relu
    assert np.abs(away[1:].mean()) < 4 * error[1:].max()


def test_a_posterior_at_positions_is_the_regression_of_the_points():
    found = twin(Words()).posterior(NUMBERS, noise=0.1)
    k, n = NUMBERS.between_points(twin(Words()).kernels(TOKENS).nngp), NUMBERS.n_train
    expected = k[:, :n] @ np.linalg.solve(k[:n, :n] + 0.1 * np.eye(n), NUMBERS.targets)
    np.testing.assert_allclose(np.concatenate([found.f_train, found.f_test]), expected, atol=1e-10)
    for use, who in (
        (lambda: fit(Words(), NUMBERS), "fit"),
        (lambda: sample_posterior(MLP(4, 1), NUMBERS, 0.1), "sample"),
    ):
        with pytest.raises(AbsentError, match=rf"{who}.*targets are \[2, 3, 4\], one for each of 3 positions"):
            use()


def test_data_sources_have_no_masks_to_forget():
    with pytest.raises(ValueError, match="targets at positions of which some do not count"):
        source(TASK, "train")
    assert source(dataclasses.replace(TASK, mask_train=None, mask_test=None), "train")[1]["input"].tolist() == [3, 3, 1]
