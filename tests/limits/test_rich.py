"""Training with feature learning: fixtures, closed forms, finite ensembles, and what it refuses."""

import itertools

import jax
import numpy as np
import pytest

from limits import AbsentError, Task, twin
from train import ensemble
from zoo import CNN, MLP, ResNet, ViT

ONE = Task([[1.0]], [1.0])


def residual(activation: str) -> ResNet:
    return ResNet(width=8, depth=4, activation=activation, parameterization="mup")


@pytest.mark.slow
def test_linear_residual_network_exactly():
    """Fixture F1 of the depth theory: Δ = y − f, L = 4, η₀ = .1, γ₀ = 1."""
    run = twin(residual("linear")).rich(ONE, steps=5, learning_rate=0.1, kernels=("phi",))
    np.testing.assert_allclose(run.f_train[:, 0, 0], [0, 0.507812, 0.787651, 0.927029, 0.978755, 0.994250], atol=1e-6)
    expected = [1.953125, 2.111206, 2.463497, 2.689824, 2.781005, 2.809024]
    np.testing.assert_allclose(run.phi[-1][:, 0, 0], expected, atol=1e-6)
    assert run.provenance["f_train"].kind == "exact"
    assert not run.f_train_sem.any()


@pytest.mark.slow
def test_training_the_body_only():
    """Fixture F1b."""
    run = twin(residual("linear")).rich(ONE, steps=5, learning_rate=0.1, trained=("branch",), kernels=("phi",))
    np.testing.assert_allclose(run.f_train[:, 0, 0], [0, 0.117188, 0.221186, 0.314186, 0.397635, 0.472540], atol=1e-6)
    expected = [1.953125, 1.969604, 2.020872, 2.095643, 2.185672, 2.284675]
    np.testing.assert_allclose(run.phi[-1][:, 0, 0], expected, atol=1e-6)


@pytest.mark.slow
def test_nonlinear_residual_network():
    """Fixture F3, known to ± .0007 (f) and ± .0013 (Φ); 4 sweeps of 8192 samples add about .002."""
    run = twin(residual("tanh")).rich(ONE, steps=4, learning_rate=0.25, samples=8192, kernels=("phi",))
    assert run.f_train_sem.max() < 0.003
    np.testing.assert_allclose(run.f_train[:, 0, 0], [0, 0.2688, 0.4333, 0.5521, 0.6435], atol=0.006)
    np.testing.assert_allclose(run.phi[-1][:, 0, 0], [0.4414, 0.4776, 0.5124, 0.5411, 0.5640], atol=0.006)


def test_two_linear_layers_with_whitened_data_in_closed_form():
    """Gradient flow, from gradient descent with 5 step sizes by Richardson extrapolation.

    f = f_y y/|y|,  w = (w₋ + ρ w₊)/(1 + ρ),  w± = Y ± R,  R = sqrt(1 + Y²),  Y = γ₀ |y|,  ρ = (1 − w₋)/(w₊ − 1) e^(2 η₀ R t/P);
    H_y = sqrt(1 + γ₀² f_y²) is conserved.
    """
    y, gamma, t = np.array([0.6, -0.8]), 1.3, 0.5
    task, net = Task(np.sqrt(2) * np.eye(2), y), MLP(8, 1, activation="linear", parameterization="mup", gamma=gamma)
    f, h = [], []
    for steps in (8, 16, 32, 64, 128):
        run = twin(net).rich(task, steps=steps, learning_rate=t / steps, times=[steps], kernels=("phi",))
        f.append(run.f_train[0, :, 0])
        h.append(y @ run.phi[0][0] @ y)
    for power in (1, 2, 3, 4):
        f, h = ([(2**power * b - a) / (2**power - 1) for a, b in itertools.pairwise(e)] for e in (f, h))
    large = gamma * np.linalg.norm(y)
    root = np.sqrt(1 + large**2)
    low, high = large - root, large + root
    rho = (1 - low) / (high - 1) * np.exp(2 * root * t / 2)
    w = (low + rho * high) / (1 + rho)
    f_y = (w - 1 / w) / (2 * gamma)
    np.testing.assert_allclose(f[0], f_y * y, atol=1e-8)
    np.testing.assert_allclose(h[0], np.sqrt(1 + gamma**2 * f_y**2), atol=1e-8)
    assert h[0] ** 2 - gamma**2 * f_y**2 == pytest.approx(1, abs=1e-8)


def identity(x):
    """A linear activation that is not recognised as one: its networks are sampled."""
    return x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (MLP(8, 2, outputs=2, activation="linear", b_std=0.4, w_std=1.2, parameterization="mup"), (4,)),
        (CNN(8, 2, activation="linear", readout="flatten", b_std=0.4, parameterization="mup"), (3, 3, 2)),
        (
            ResNet(8, 3, activation="linear", form="conv", stages=2, readout="average", parameterization="mup"),
            (4, 4, 2),
        ),
    ],
)
def test_exact_and_sampled_linear_networks_agree(net, shape):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, *shape)), rng.normal(size=(3, net.outputs))
    task, how = Task(x[:2], y[:2], x[2:], y[2:]), {"steps": 3, "learning_rate": 0.2, "times": [0, 3]}
    exact = twin(net).rich(task, **how)
    sampled = twin(net.clone(activation=identity)).rich(task, samples=1024, replicas=16, **how)
    assert (exact.provenance["ntk"].kind, sampled.provenance["ntk"].kind) == ("exact", "monte_carlo")
    for name in ("f_train", "f_test", "ntk"):
        right, found, sem = (
            getattr(each, key)[-1] for each, key in ((exact, name), (sampled, name), (sampled, f"{name}_sem"))
        )
        # 4 standard errors of 16 sweeps, and a bias of O(1/1024)
        assert np.all(np.abs(right - found) < 4 * sem + 0.003 * np.abs(right).max()), name


@pytest.mark.slow  # tests/limits/test_rich_options.py has one with batches
def test_small_gamma_is_the_lazy_limit():
    rng = np.random.default_rng(0)
    task = Task(rng.normal(size=(3, 4)), [1.0, -1.0, 0.5], rng.normal(size=(2, 4)), [0.0, 0.0])
    net = MLP(8, 2, activation="erf", w_std=1.5, parameterization="mup", gamma=0.01)
    options = {"steps": 6, "learning_rate": 0.5, "times": [0, 3, 6]}
    rich = twin(net).rich(task, samples=1024, replicas=16, **options)
    lazy = twin(net).lazy(task, centred=True, **options)
    for name in ("f_train", "f_test", "ntk", "loss"):
        away = np.abs(getattr(rich, name) - getattr(lazy, name))
        # γ₀ = .01 moves kernels by 1e-4; 5 standard errors of means over 16 sweeps
        assert np.all(away <= 5 * getattr(rich, f"{name}_sem") + 0.005), name


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "weight_decay": 0.4}])
def test_ensembles_close_in_on_it(options):
    """N |<f_N> − f| stays bounded while features move by tens of per cent; the lazy limit is excluded."""
    rng = np.random.default_rng(1)
    task = Task(rng.normal(size=(4, 5)), [1.0, -1.0, 1.0, -1.0], rng.normal(size=(2, 5)), [0.0, 0.0])
    net = MLP(8, 2, activation="tanh", w_std=1.2, parameterization="mup", gamma=2.0)
    how = {"steps": 10, "learning_rate": 0.5, "times": [10], **options}
    rich = twin(net).rich(task, samples=4096, replicas=8, kernels=("phi",), **how)
    away = []
    for width, members in ((64, 256), (256, 96)):
        finite = ensemble(net.clone(width=width), task, members, centred=True, kernels=("phi",), **how)
        noise = np.hypot(finite.phi_sem[1], rich.phi_sem[1])
        away.append(np.abs(finite.phi[1] - rich.phi[1]))
        error = np.hypot(finite.f_test_sem, rich.f_test_sem)
        assert np.all(np.abs(finite.f_test - rich.f_test) < 5 * error + 2.0 / width)
    assert np.all(away[1] < 5 * noise + 2.0 / 256)
    moved = np.linalg.norm(rich.phi[1][-1] - twin(net).layers(task.x)[0][1]) / np.linalg.norm(rich.phi[1][-1])
    assert moved > 0.2


@pytest.mark.slow
def test_the_same_key_gives_the_same_numbers():
    net, task = MLP(8, 2, parameterization="mup"), Task(np.eye(2), [1.0, -1.0])
    runs = [twin(net).rich(task, 2, 0.1, samples=64, replicas=2, key=key) for key in (5, 5, 6)]
    np.testing.assert_array_equal(runs[0].f_train, runs[1].f_train)
    assert not np.array_equal(runs[0].f_train, runs[2].f_train)
    assert runs[0].f_train.dtype == np.float64
    assert not jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("parameterization", ["ntk", "standard"])
def test_a_network_without_feature_learning_names_the_one_with(parameterization):
    with pytest.raises(AbsentError, match=f'{parameterization} parameterization .* Use parameterization="mup"'):
        twin(MLP(8, 2, parameterization=parameterization)).rich(ONE, 2, 0.1)


def test_a_network_without_deterministic_limit_is_refused():
    net = ViT(8, 1, patch=2, heads=2, logits="1/sqrt(d)", parameterization="mup")
    with pytest.raises(AbsentError, match=r"ViT has no limit, with feature learning or without: .*heads"):
        twin(net).rich(Task(np.ones((2, 4, 4, 1)), [1.0, -1.0]), 2, 0.1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"learning_rate": 1e4}, FloatingPointError, r"NaN at step \d+: the learning rate 10000 is too large"),
        (
            {"samples": 12},
            ValueError,
            r"hidden_2 has met as many independent vectors .* 12, .* Use more samples \(\d+ are",
        ),
        ({"samples": 1}, ValueError, "at least 2, got 1 and 4"),
        ({"trained": ("hiden",)}, ValueError, 'trained: MLP has no role or layer "hiden"'),
        ({"kernels": ("ph",)}, ValueError, "kernels must be a tuple of some of"),
        ({"momentum": 1.0}, ValueError, r"momentum must lie in \[0, 1\), got 1.0"),
    ],
)
def test_mistakes_are_answered_with_their_numbers(options, error, message):
    rng = np.random.default_rng(0)
    task = Task(rng.normal(size=(5, 3)), rng.normal(size=5))
    net = MLP(8, 2, parameterization="mup", activation="tanh")
    settings = {"steps": 8, "learning_rate": 0.3, "samples": 128, "kernels": (), **options}
    with pytest.raises(error, match=message):
        twin(net).rich(task, **settings)
