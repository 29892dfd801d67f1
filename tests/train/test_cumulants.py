import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task
from limits.cumulants import gaussian_mixture, pooled, sample, statistical_loss, third_cumulant_mixture, xor_mixture
from train.cumulants import Trained, signal_cumulants, train_samples, train_statistics
from zoo import MLP

STD = 0.75**0.5
XOR, SKEWED = xor_mixture(), third_cumulant_mixture()


def network(width=10, depth=1, activation="quadratic"):
    return MLP(width, depth, 1, activation, STD, STD, parameterization="standard")


@pytest.mark.slow
def test_the_statistical_model_is_trained_and_its_weights_solve_the_task_on_data(row):
    run = train_statistics(network(), XOR, members=4, steps=2000)
    accuracy = run.accuracy(*sample(XOR, 10_000, seed=1))
    row(
        9,
        f"XOR after 2000 steps of the statistical model: {accuracy.min():.3f} to {accuracy.max():.3f} on samples (.91)",
    )
    assert (accuracy >= 0.91).all()
    assert run.loss.shape == run.moved.shape == (4, 200)
    with jax.enable_x64(True):
        after = float(statistical_loss(run.net, run.member(2), XOR))
    assert after == pytest.approx(run.loss[2, -1], rel=1e-3)
    assert after < run.loss[2, 0] / 2


def test_the_loss_falls_along_its_own_gradient():
    # One step of Adam from zero state moves every parameter by the learning rate, against the sign of its gradient.
    net = network(width=3)
    run = train_statistics(net, XOR, members=1, steps=1, every=1, learning_rate=1e-3)
    count = sum(leaf.size for leaf in jax.tree.leaves(run.variables))
    assert run.moved[0, 0] == pytest.approx(count * 1e-6, rel=1e-3)


@pytest.mark.slow
def test_samples_and_going_on_from_another_run():
    x, y = sample(XOR, 200, seed=2)
    task = Task(x, y)
    whole = train_samples(network(), task, members=2, steps=40, batch=200, seed=0)
    half = train_samples(network(), task, members=2, steps=20, batch=200, seed=0)
    rest = train_samples(network(), task, steps=20, batch=200, seed=0, start=half)
    # Batches of all samples: where training is cut does not matter, the optimiser's state is kept.
    for a, b in zip(jax.tree.leaves(whole.variables), jax.tree.leaves(rest.variables), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(whole.loss[:, 2:], rest.loss, rtol=1e-9)
    again = train_samples(network(), task, steps=20, batch=200, seed=0, start=half.restarted())
    assert np.abs(again.loss[:, -1] - rest.loss[:, -1]).min() > 1e-6


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="multiple of every"):
        train_statistics(network(), XOR, steps=15)
    with pytest.raises(ValueError, match=r"every .*at least 1, got 0"):
        train_samples(network(), Task(np.ones((20, 2)), np.ones(20)), every=0)
    with pytest.raises(ValueError, match=r"members .*at least 1, got 0"):
        train_statistics(network(), XOR, members=0, steps=10)
    with pytest.raises(ValueError, match="cross_entropy"):
        train_samples(network(), Task(np.ones((2, 2)), np.eye(2), loss="cross_entropy"))
    with pytest.raises(ValueError, match="between 1 and 1"):
        signal_cumulants(network(), np.ones((3, 2)), layer=2)


ONE_HOT = gaussian_mixture([0.5, 0.5], [[1, 0, 0], [0, 1, 0]], [[1.0, 0.0], [0.0, 1.0]], np.eye(2))


@pytest.mark.parametrize(("outputs", "data", "targets"), [(1, ONE_HOT, 3), (3, XOR, 1)])
def test_outputs_are_as_many_as_targets(outputs, data, targets):
    net = network(3).clone(outputs=outputs)
    with pytest.raises(ValueError, match=f"{outputs} outputs and the data have {targets} targets"):
        train_statistics(net, data, steps=10)  # by `statistical_loss`
    with pytest.raises(ValueError, match=f"{outputs} outputs and the task {targets} targets"):
        train_samples(net, Task(np.ones((20, 2)), np.ones((20, targets))), steps=10)


def random_run(net):
    shapes = jax.eval_shape(net.init, jax.random.key(0), jnp.ones((1, 2)))
    random = np.random.default_rng(0)
    variables = jax.tree.map(lambda leaf: random.normal(size=(2, *leaf.shape)), shapes)
    return Trained(net, variables, None, np.ones(1, int), np.zeros((2, 1)), np.zeros((2, 1)))


def test_a_run_goes_on_with_its_own_network_only():
    run = random_run(network(3))
    with pytest.raises(ValueError, match=r"hidden_1.*bias.* have the shape \(3,\), those here \(4,\)"):
        train_statistics(network(4), XOR, steps=10, start=run)
    with pytest.raises(ValueError, match=r"hidden_2.* those here \(3,\)"):
        train_statistics(network(3, 2), XOR, steps=10, start=run)


def test_labels_of_accuracies_have_the_outputs_form():
    x, t = sample(XOR, 50, seed=1)
    run = random_run(network(3))
    right = (run.outputs(x)[..., 0] * t[:, 0] > 0).mean(1)
    np.testing.assert_array_equal(run.accuracy(x, t), right)
    np.testing.assert_array_equal(run.accuracy(x, t[:, 0]), right)
    with pytest.raises(ValueError, match=f"{(t < 0).sum()} of 50 labels are 0; take labels ±1"):
        run.accuracy(x, t > 0)
    several = random_run(network(3).clone(outputs=3))
    classes = np.array([0, 1] * 25)
    best = (several.outputs(x).argmax(-1) == classes).mean(1)
    np.testing.assert_array_equal(several.accuracy(x, np.eye(3)[classes]), best)
    with pytest.raises(ValueError, match="3 outputs and the labels 1 columns"):
        several.accuracy(x, classes)


def third_cumulant_accuracy(order, depth, members):
    run = train_statistics(network(8, depth), pooled(SKEWED, order), members=members, steps=4000, learning_rate=3e-3)
    return run.accuracy(*sample(SKEWED, 10_000, seed=4))


@pytest.mark.slow
def test_third_cumulants_are_learned_only_where_the_model_has_them(row):
    assert third_cumulant_accuracy(2, 2, 8).mean() <= 0.52
    found = third_cumulant_accuracy(4, 2, 8)
    row(12, f"G1 … G4 model, L = 2: {np.median(found):.3f} (.96 ± .01)")
    assert abs(np.median(found) - 0.96) <= 0.01
    assert third_cumulant_accuracy(4, 1, 8).mean() <= 0.52  # one layer: class means of the output stay equal


@pytest.mark.slow
def test_networks_on_samples_learn_third_cumulants(row):
    """Three quadratic layers reach .95. Two can not by squared errors: no polynomial of degree 4 that has the smallest does."""
    task, test, accuracy = Task(*sample(SKEWED, 10_000, seed=5)), sample(SKEWED, 10_000, seed=4), {}
    for depth in (2, 3):
        run = train_samples(network(10, depth), task, members=8, steps=8000, learning_rate=3e-3)
        accuracy[depth] = np.median(run.accuracy(*test))
    best = polynomial_accuracy(4, *sample(SKEWED, 200_000, seed=7), *test)
    row(
        12,
        f"networks on samples, L = 3: {accuracy[3]:.3f} (.95), L = 2: {accuracy[2]:.3f}, best polynomial of degree 4: {best:.3f}",
    )
    assert accuracy[3] >= 0.95
    # Two standard errors of a difference on 10,000 test samples are at most .008.
    assert abs(accuracy[2] - best) < 0.01


def polynomial_accuracy(degree, x_train, y_train, x, y):
    """Of the polynomial with the smallest squared error; quadratic networks of L layers are some of degree 2^L."""

    def monomials(x):
        return np.stack([x[:, 0] ** i * x[:, 1] ** j for i in range(degree + 1) for j in range(degree + 1 - i)], 1)

    weights = np.linalg.lstsq(monomials(np.asarray(x_train)), np.asarray(y_train))[0]
    return np.mean(np.sign(monomials(np.asarray(x)) @ weights) == np.asarray(y))


@pytest.mark.slow
def test_switching_between_codings(row):
    classes = pooled(XOR)
    by_covariance = train_statistics(network(), classes, members=20, steps=2000)
    by_mean = train_statistics(network(), XOR, members=20, steps=2000)
    task = Task(*sample(XOR, 10_000, seed=6))
    for before in (lambda run: run, lambda run: run.restarted()):  # with and without the optimiser's memory
        first, second = before(by_covariance), before(by_mean)
        moved = [
            train_statistics(network(), XOR, steps=500, start=first).moved,
            train_samples(network(), task, steps=500, start=first).moved,
            train_samples(network(), task, steps=500, start=second).moved,
        ]
        to_mean, to_sample, from_mean = (np.median(each[:, :20].max(1)) for each in moved)
        row(
            11,
            f"|Δθ|² after the switch: cov→mean {to_mean:.2g} > cov→sample {to_sample:.2g} > mean→sample {from_mean:.2g}",
        )
        assert to_mean > to_sample > from_mean


@pytest.mark.slow
def test_higher_cumulants_of_signals_fade_with_width(row):
    widths, found = np.array([16, 32, 64, 128]), []
    for width in widths:
        x = np.random.default_rng(width).normal(size=(20_000, width))
        skew, kurtosis = signal_cumulants(network(int(width), 2, "relu"), x, layer=2, members=2048 // int(width))
        found.append((skew.mean(), kurtosis.mean()))
    skew, kurtosis = (np.polyfit(np.log(widths), np.log(each), 1)[0] for each in zip(*found, strict=True))
    row(15, f"excess kurtosis ~ N^{kurtosis:.2f} (-1.4 to -.8), skew ~ N^{skew:.2f} (at most -.5)")
    assert -1.4 <= kurtosis <= -0.8
    assert skew <= -0.5
