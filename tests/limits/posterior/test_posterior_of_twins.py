"""`twin(net).posterior(task, noise, width)`: what it returns, and where it stops."""

import dataclasses

import flax.linen as nn
import numpy as np
import pytest

from limits import Task, twin
from limits.posterior import DivergenceError, Draws, Sweeps, infer, solve
from limits.predict import posterior as regression
from limits.types import AbsentError
from zoo import CNN, MLP, ResNet, ViT, in_parameterization

NOISE = 0.05


@pytest.fixture(scope="module")
def task():
    x = np.random.default_rng(0).normal(size=(9, 5))
    return Task(x[:6], np.sign(x[:6, 0]), x[6:], np.sign(x[6:, 0]))


class OwnGates(nn.Module):
    """Gates by a softmax, which has no closed form: one a neuron, or so few."""

    width: int
    few: int = 0

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width)(x))
        gates = nn.softmax(nn.Dense(self.few or self.width, use_bias=False)(x if self.few else h))
        return nn.Dense(1)(h * (gates.sum(-1, keepdims=True) + gates[:, :1] if self.few else gates))


def network(**options):
    return MLP(**({"width": 8, "depth": 2, "activation": "erf", "w_std": 1.1, "b_std": 0.2} | options))


def check_regression(found, c, task):
    n = len(task.x_train)
    expected = regression(c[:n, :n], task.y_train, c[:, :n], c, NOISE)
    np.testing.assert_allclose(np.concatenate([found.f_train, found.f_test]), expected.mean, atol=1e-10)
    np.testing.assert_allclose(found.f_test_cov, expected.cov[n:, n:], atol=1e-10)
    return expected


def test_infinite_width_is_the_gaussian_process(task):
    net = network(gamma=1.5)
    found = twin(net).posterior(task, noise=NOISE)
    expected = check_regression(found, twin(net).kernels(task.x).nngp, task)
    assert found.log_evidence == pytest.approx(expected.log_marginal_likelihood)
    np.testing.assert_allclose(found.kernels[2], twin(net).kernels(task.x).nngp, rtol=1e-10)
    shallow = twin(network(depth=1)).kernels(task.x).nngp
    np.testing.assert_allclose(found.kernels[1], shallow, rtol=1e-10)
    np.testing.assert_allclose(found.kernels[0], 1.1**2 * task.x @ task.x.T / 5 + 0.2**2)
    assert [f.any() for f in found.conjugate] == [True] * 3
    assert not any(f[6:].any() or f[:, 6:].any() for f in found.conjugate)
    assert found.width is None
    assert found.provenance["f_test"].kind == "exact"


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (CNN(4, 2, activation="erf"), (4, 4, 1)),
        pytest.param(ResNet(4, 3, activation="erf"), (16,), marks=pytest.mark.slow),
        pytest.param(ViT(4, 1, patch=2), (4, 4, 1), marks=pytest.mark.slow),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_architectures_at_infinite_width_only(net, shape, task):
    x = np.random.default_rng(1).normal(size=(5, *shape))
    small = Task(x[:3], [1.0, -1.0, 1.0], x[3:], [1.0, 1.0])
    found = twin(net).posterior(small, noise=NOISE)
    expected = check_regression(found, found.kernels[-1], small)
    assert found.log_evidence == pytest.approx(expected.log_marginal_likelihood)
    assert "alone" in found.provenance["kernels"].detail
    with pytest.raises(AbsentError, match="for MLP only"):
        twin(net).posterior(small, noise=NOISE, width=100)


@pytest.mark.slow
def test_twins_that_know_no_layers(task):
    """With kernels that are read, and with those that are drawn where none can be."""
    from limits import sampled_twin

    expected = twin(network()).posterior(task, NOISE).f_test
    read = sampled_twin.SampledTwin(network()).posterior(task, NOISE)
    np.testing.assert_allclose(read.f_test, expected, rtol=1e-8)
    assert read.provenance["f_test"].kind == "exact"
    drawn = twin(in_parameterization(OwnGates(8), "ntk")).posterior(task, NOISE)
    assert drawn.provenance["f_test"].kind == "approximate"
    assert "monte_carlo" in drawn.provenance["f_test"].detail


def test_gates_that_are_few_and_drawn_make_a_mixture(task):
    with pytest.raises(
        AbsentError, match=r"posterior: .* no Gaussian process, but a mixture: of Dense_1.* each network draws"
    ):
        twin(in_parameterization(OwnGates(8, few=2), "ntk")).posterior(task, NOISE)


def test_finite_width(task):
    net = network()
    wide, narrow, huge = (twin(net).posterior(task, NOISE, n, samples=4000) for n in (None, 60, 1e6))
    assert (narrow.width, narrow.layers) == (60, 2)
    np.testing.assert_allclose(huge.f_test, wide.f_test, atol=1e-4)
    np.testing.assert_allclose(huge.conjugate[0], wide.conjugate[0], rtol=1e-3, atol=1e-4)
    check_regression(narrow, narrow.kernels[-1], task)
    for l in (1, 2):
        shift, error = narrow.kernels[l] - wide.kernels[l], narrow.kernels_sem[l]
        assert np.linalg.norm(shift) > 20 * np.linalg.norm(error) > 0
    assert not narrow.kernels_sem[0].any()
    assert narrow.diagnostics["residual"] < 1e-7
    assert narrow.diagnostics["indefinite"] == ()
    assert len(narrow.diagnostics["smallest_eigenvalues"]) == 3
    assert "(P/N)²" in narrow.provenance["kernels"].detail
    with pytest.raises(AbsentError, match=r"limits\.posterior\.log_evidence"):
        _ = narrow.log_evidence


def test_test_points_do_not_act(task):
    moved = dataclasses.replace(task, x_test=-task.x_test, y_test=task.y_test)
    one, two = (twin(network()).posterior(t, NOISE, 60, samples=2000, errors=False) for t in (task, moved))
    np.testing.assert_allclose(one.f_train, two.f_train, atol=1e-12)
    # a test point that is a training point gets its prediction
    same = dataclasses.replace(task, x_test=task.x_train, y_test=task.y_train)
    found = twin(network()).posterior(same, NOISE, 60, samples=2000, errors=False)
    np.testing.assert_allclose(found.f_test, found.f_train, atol=1e-5)


@pytest.mark.slow
def test_standard_errors_are_those_of_other_draws(task):
    several = [
        twin(network(depth=1)).posterior(task, NOISE, 60, samples=1000, seed=s, tolerance=1e-4) for s in range(8)
    ]
    spread = np.std([p.kernels[1] for p in several], axis=0, ddof=1)
    stated = np.sqrt(np.mean([p.kernels_sem[1] ** 2 for p in several], axis=0))
    assert 0.6 < np.median(stated / spread) < 1.6
    linear = twin(network(activation="linear")).posterior(task, NOISE, 60)
    assert not linear.kernels_sem[2].any()


@pytest.mark.parametrize("activation", ["relu", pytest.param("erf", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_an_input_of_zeros_without_biases_says_nothing(activation, task):
    """f = 0 there in every network, so that other predictions are those without it."""
    net, zero = network(activation=activation, b_std=0.0), np.zeros((1, 5))
    x, y = np.concatenate([task.x_train, zero]), np.append(task.y_train, 1.0)
    more = Task(x, y, np.concatenate([task.x_test, zero]), np.append(task.y_test, 0.0))
    alone, found = (twin(net).posterior(t, NOISE) for t in (task, more))
    np.testing.assert_allclose(found.f_train[:6], alone.f_train, atol=1e-12)
    np.testing.assert_allclose(found.f_test[:3], alone.f_test, atol=1e-12)
    assert (found.f_train[6], found.f_test[3]) == (0, 0)
    narrow = twin(net).posterior(more, NOISE, 100, samples=2000, errors=False)
    assert (narrow.f_train[6], narrow.f_test[3]) == (0, 0)
    assert all(np.isfinite(force).all() for force in (*found.conjugate, *narrow.conjugate))
    draws = Draws(activation, np.random.default_rng(0).normal(size=(2000, 7)))
    without, with_it = (
        solve(twin(net).dense_stack(t.x_train), t.y_train, NOISE, 100, draws, sweeps=Sweeps(tolerance=1e-9)).kernels[2]
        for t in (task, more)
    )
    np.testing.assert_allclose(with_it[:6, :6], without, atol=1e-6)


@pytest.mark.slow
def test_layers_may_differ_in_their_variances(task):
    """Kernels by layer end in those that are read off the code, and of linear networks the product of all w alone counts."""
    net = MLP(width=8, depth=2, activation="erf", w_std=(1.5, 0.8, 1.2), b_std=(0.1, 0.3, 0.2))
    wide = twin(net).posterior(task, NOISE)
    whole = twin(net).kernels(task.x).nngp
    np.testing.assert_allclose(wide.kernels[2], whole, rtol=1e-10)
    linear = [MLP(width=8, depth=2, activation="linear", w_std=w) for w in ((2.0, 1.0, 0.5), 1.0)]
    one, other = (twin(each).posterior(task, NOISE, width=50).f_test for each in linear)
    np.testing.assert_allclose(one, other, rtol=1e-9)
    with pytest.raises(AbsentError, match="layers of one activation"):
        twin(MLP(width=8, depth=2, activation=("erf", "tanh"))).posterior(task, NOISE, width=50)
    same = (
        twin(MLP(width=8, depth=2, activation=each)).posterior(task, NOISE, width=50)
        for each in ("erf", ("erf", "erf"))
    )
    np.testing.assert_array_equal(*(each.f_test for each in same))


def test_outputs_add_their_forces(task):
    y = np.concatenate([task.y_train, task.y_train, 0 * task.y_train], axis=1)
    double = dataclasses.replace(task, y_train=y, y_test=np.zeros((3, 3)))
    found = twin(network(activation="linear")).posterior(double, NOISE, 200)
    assert found.f_test.shape == (3, 3)
    inverse = np.linalg.inv(found.kernels[2][:6, :6] + NOISE * np.eye(6))
    np.testing.assert_allclose(
        2 * found.conjugate[2][:6, :6], inverse @ (y @ y.T) @ inverse - 3 * inverse, rtol=1e-4, atol=1e-4
    )


def test_mup_has_a_posterior_at_finite_width_only(task):
    mup, ntk = network(parameterization="mup"), network(gamma=100**0.5)
    with pytest.raises(AbsentError, match="no data can move it"):
        twin(mup).posterior(task, NOISE)
    one, two = (twin(net).posterior(task, NOISE, 100, samples=2000, errors=False) for net in (mup, ntk))
    np.testing.assert_allclose(one.f_test, two.f_test, atol=1e-10)
    standard = twin(network(parameterization="standard")).posterior(task, NOISE, 100, samples=2000, errors=False)
    same = twin(network()).posterior(task, NOISE, 100, samples=2000, errors=False)
    np.testing.assert_allclose(standard.f_test, same.f_test, atol=1e-10)


def test_what_is_refused(task):
    labels = Task(task.x_train, np.eye(2)[[0, 1, 0, 1, 0, 1]], loss="cross_entropy")
    with pytest.raises(AbsentError, match="not Gaussian"):
        twin(network()).posterior(labels, NOISE)
    for noise in (-1.0, np.inf):
        with pytest.raises(ValueError, match=r"noise .*≥ 0"):
            twin(network()).posterior(task, noise)
    with pytest.raises(ValueError, match=r"width .*number of neurons.* got 0"):
        twin(network()).posterior(task, NOISE, 0)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"samples": 7}, "samples .* at least 8, got 7"),
        ({"seed": -1}, "seed .* from 0 .*got -1"),
        ({"damping": 1.0}, "damping .*< 1, got 1.0"),
        ({"damping": -0.5}, "damping .*≥ 0 and < 1"),
        ({"damping": np.nan}, "damping .*≥ 0 and < 1"),
        ({"tolerance": 0.0}, "tolerance .*from 1e-14 to 0.01, got 0.0"),
        ({"tolerance": 10.0}, "tolerance .*residual"),
        ({"iterations": 0}, "iterations .*at least 1, got 0"),
        ({"order": "second"}, 'order must be .*"leading".*got .second'),
    ],
)
def test_options_are_checked_at_any_width(option, message, task):
    for width in (None, 100):
        with pytest.raises(ValueError, match=message):
            twin(network()).posterior(task, NOISE, width, **option)


@pytest.mark.parametrize("widths", [[10, 20], [100], [200, 200], [np.inf], [0]])
def test_widths_to_anneal_from_must_fall(widths, task):
    with pytest.raises(ValueError, match=r"widths .*falling.* above the 100"):
        twin(network()).posterior(task, NOISE, 100, widths=widths, samples=1000)


@pytest.mark.parametrize("b_std", [0.0, 0.2])
@pytest.mark.filterwarnings("error")
def test_samples_that_coincide_need_noise(b_std, task):
    twice = Task(np.concatenate([task.x_train, task.x_train[:1]]), np.append(task.y_train, 1.0))
    for width in (None, 500):
        with pytest.raises(ValueError, match="two inputs coincide"):
            twin(network(b_std=b_std)).posterior(twice, 0.0, width, samples=1000)
    assert np.isfinite(twin(network(b_std=b_std)).posterior(twice, NOISE).f_train).all()


def test_errors_that_are_not_known_are_not_zero(task, monkeypatch):
    silent = twin(network(depth=1)).posterior(task, NOISE, 100, samples=1000, errors=False)
    assert "without standard errors" in silent.provenance["f_train"].detail
    solved = infer._Finite.solved

    def fails_with_a_quarter(self, z, *rest):
        if len(z) < 1000:
            raise DivergenceError("none")
        return solved(self, z, *rest)

    monkeypatch.setattr(infer._Finite, "solved", fails_with_a_quarter)
    failed = twin(network(depth=1)).posterior(task, NOISE, 100, samples=1000)
    assert "raise `samples`" in failed.provenance["f_train"].detail
    for found in (silent, failed):
        assert np.isnan(found.kernels_sem[1]).all()
        assert np.isnan(found.f_test_sem).all()
        assert np.isnan(found.conjugate_sem[0]).all()
        assert not found.kernels_sem[0].any()  # C^(0) is exact
    monkeypatch.undo()
    linear = twin(network(activation="linear")).posterior(task, NOISE, 100, errors=False)
    assert not linear.f_test_sem.any()


def test_test_points_that_are_training_points_are_no_breakdown():
    x = np.random.default_rng(5).normal(size=(4, 5))
    same = Task(x, np.sign(x[:, 0]), x, np.sign(x[:, 0]))
    found = twin(network(w_std=1.2)).posterior(same, 0.01, 50, samples=2000, errors=False)
    # zero but for the solver's residual, which is above the rounding
    assert found.diagnostics["smallest_eigenvalues"][1] < -1e-10 * np.linalg.norm(found.kernels[1], 2)
    assert found.diagnostics["indefinite"] == ()


def test_indefinite_kernels_are_reported():
    # Eigenvalues go on by themselves: c = c₀ − (K/N) c₀²/(c + κ) for K targets of zero, which 1 → −.1 and .4 → .25 solve.
    x = np.linalg.cholesky(2 * np.array([[0.7, 0.3], [0.3, 0.7]]))
    found = twin(MLP(1, 1, activation="linear")).posterior(Task(x, np.zeros((2, 209))), noise=2.0, width=100)
    assert found.diagnostics["indefinite"] == (1,)
    np.testing.assert_allclose(np.linalg.eigvalsh(found.kernels[1]), [-0.1, 0.25147], atol=1e-5)
    assert "indefinite" in found.provenance["f_train"].detail


@pytest.mark.parametrize("activation", ["relu", pytest.param("tanh", marks=pytest.mark.slow)])
def test_other_activations(activation, task):
    found = twin(network(activation=activation)).posterior(task, NOISE, 200, samples=2000, errors=False)
    assert found.diagnostics["residual"] < 1e-7


def test_a_noise_that_tells_coinciding_inputs_apart():
    """Two measurements at one input, one of them exact: K + diag(noise) has an inverse, and K plus the least noise has none."""
    x, y = np.array([[0.3, 1.0], [-1.0, 0.4], [0.3, 1.0]]), np.array([1.0, 0.0, 1.2])
    limit = twin(MLP(width=1, depth=1, activation="erf", w_std=1.5, b_std=0.3))
    found = limit.posterior(Task(x, y), noise=np.array([0.0, 0.1, 0.1]))
    alone = limit.posterior(Task(x[:2], y[:2]), noise=np.array([0.0, 0.1]))  # the exact one says all about that input
    np.testing.assert_allclose(found.f_train[:2], alone.f_train, atol=1e-12)
    far = limit.posterior(Task(x, y), noise=np.array([0.0, 0.1, 1e12]))  # a point that counts for nothing
    np.testing.assert_allclose(far.f_train[:2], alone.f_train, atol=1e-9)
    with pytest.raises(
        ValueError, match=r"posterior: the training points' kernel plus noise is singular .*from 0 to 0.1"
    ):
        limit.posterior(Task(x, y), noise=np.array([0.0, 0.1, 0.0]))
