"""Sampled posteriors against closed forms, and against networks drawn from the prior and weighted by their likelihood."""

import warnings
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import AbsentError, Task, twin
from limits.types import Provenance
from train import data
from train.posterior import NotConvergedWarning, sample_posterior
from train.posterior.chains import Health, inefficiency, rhat, standard_error
from train.posterior.layers import KernelChain
from train.posterior.sample import METHODS
from zoo import CNN, MLP, Parameterization
from zoo.layers import Dense, Norm

RNG = np.random.default_rng(3)
X = RNG.normal(size=(5, 2))
Y = np.array([[1.0, 0.3], [-0.8, 0.2], [0.4, -1.0]])
TASK = Task(X[:3], Y, X[3:], np.zeros((2, 2)))
NOISE = 0.4
SMALL = {"depth": 2, "outputs": 2, "activation": "tanh", "w_std": 1.4, "b_std": 0.5}
# (parameterization, γ₀) and what the output is divided by, at width 6
FORMS = {"ntk": (1.2, 1.2), "standard": (1.0, 1.0), "mup": (0.5, 0.5 * 6**0.5)}


def weighted_prior(divisor, width=6, draws=200_000):
    """Posterior averages by importance sampling: mean, covariance, kernels, with standard errors, and Σ (f − y)(f − y)ᵀ."""
    rng, w, b = np.random.default_rng(0), SMALL["w_std"], SMALL["b_std"]
    a, kernels = np.broadcast_to(X.T / 2**0.5, (draws, 2, 5)), [w**2 * X @ X.T / 2 + b**2]
    for _ in range(2):
        h = w * rng.normal(size=(draws, width, a.shape[1])) @ a + b * rng.normal(size=(draws, width, 1))
        a = np.tanh(h) / width**0.5
        kernels.append(w**2 * np.swapaxes(a, 1, 2) @ a + b**2)
    kernels[-1] = kernels[-1] / divisor**2
    f = (w * rng.normal(size=(draws, 2, width)) @ a + b * rng.normal(size=(draws, 2, 1))) / divisor
    f = np.swapaxes(f, 1, 2)
    log_p = -((f[:, :3] - Y) ** 2).sum((1, 2)) / (2 * NOISE)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    assert 1 / np.sum(p**2) > 1e4  # effective draws

    def mean(values):
        return np.tensordot(p, values, 1)

    def average(values):
        centre = mean(values)
        return centre, np.sqrt(np.tensordot(p**2, (values - centre) ** 2, 1))

    f_mean = average(f)
    away = f - f_mean[0]
    error = f[:, :3] - Y
    return {
        "f": f_mean,
        "cov": average(np.einsum("nik,njk->nij", away, away) / 2),
        "kernels": [average(k) for k in kernels[1:]],
        "error": average(np.einsum("nik,njk->nij", error, error)),
    }


def same(value, sem, expected, largest=4.5):
    """All entries within `largest` standard errors of both sides; and these are small, so that this says something."""
    error = np.hypot(sem, expected[1])
    assert np.abs(value - expected[0]).max() > 0
    assert (np.abs(value - expected[0]) < largest * error).all(), np.abs((value - expected[0]) / error).max()
    assert error.max() < 0.05 * np.abs(expected[0]).max()


def agree(posterior, expected):
    f = np.concatenate([posterior.f_train, posterior.f_test])
    same(f, np.concatenate([posterior.f_train_sem, posterior.f_test_sem]), expected["f"])
    mean, sem = expected["cov"]
    same(posterior.f_train_cov, posterior.f_train_cov_sem, (mean[:3, :3], sem[:3, :3]))
    same(posterior.f_test_cov, posterior.f_test_cov_sem, (mean[3:, 3:], sem[3:, 3:]))
    for l, kernel in enumerate(expected["kernels"], start=1):
        same(posterior.kernels[l], posterior.kernels_sem[l], kernel)
    # The training-error identity, Σ_outputs <Δ_a Δ_b> = 2 κ² C̃ + outputs κ δ_ab
    scale = 2 * NOISE**2
    force = posterior.conjugate[-1][:3, :3] * scale + 2 * NOISE * np.eye(3)
    same(force, posterior.conjugate_sem[-1][:3, :3] * scale, expected["error"])


# Every method and every form; what is not run by default is slow.
CASES = {("slice", "mup"): 3000}


def case(method, form):
    return pytest.param(method, form, marks=() if (method, form) in CASES else pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "form"), [case(m, f) for m in ("slice", "hamiltonian", "langevin") for f in FORMS])
def test_chains_have_the_posterior_of_networks_with_weights(method, form):
    gamma, divisor = FORMS[form]
    net = MLP(6, parameterization=form, gamma=gamma, **SMALL)
    found = sample_posterior(net, TASK, NOISE, method, steps=CASES.get((method, form), 6000), warmup=500)
    agree(found, weighted_prior(divisor))
    if method != "slice":
        assert 0.85 < found.diagnostics["acceptance"] < 0.96
    if method == "langevin":
        assert [isinstance(force, Provenance) for force in found.conjugate] == [True, True, False]


class OneLayer(nn.Module):
    """f = w W x / √D + b β: Gaussian."""

    width: int = 1
    outputs: int = 1
    w_std: Any = 1.3
    b_std: Any = 0.6
    form: str = "ntk"

    @nn.compact
    def __call__(self, x):
        p = getattr(Parameterization, self.form)
        return Dense(1, "input", 1, p, self.w_std, self.b_std)(x)


class Normalised(OneLayer):
    """With batch statistics, which are no parameters."""

    @nn.compact
    def __call__(self, x):
        return Norm("batch", 1, Parameterization.ntk)(Dense(1, "input", 1, Parameterization.ntk)(x))


@pytest.mark.parametrize("form", [pytest.param("ntk", marks=pytest.mark.slow), "standard"])
def test_langevin_dynamics_of_one_linear_layer_has_the_closed_form(form, row):
    k = 1.3**2 * X @ X.T / 2 + 0.6**2
    noise, y = 0.05, Y[:, :1]
    gain = k[:, :3] @ np.linalg.inv(k[:3, :3] + noise * np.eye(3))
    mean, cov = gain @ y, k - gain @ k[:3]
    found = sample_posterior(
        OneLayer(form=form), Task(X[:3], y, X[3:], np.zeros(2)), noise, "langevin", steps=8000, warmup=1000
    )
    f = np.concatenate([found.f_train, found.f_test])
    row(28, f"Langevin, one linear layer, {form}: mean off by {np.abs(f - mean).max() / np.abs(mean).max():.1%} (5 %)")
    assert np.abs(f - mean).max() < 0.05 * np.abs(mean).max()
    for part, here in ((found.f_train_cov, slice(0, 3)), (found.f_test_cov, slice(3, 5))):
        assert np.abs(part - cov[here, here]).max() < 0.05 * cov[here, here].max()
    with pytest.raises(AbsentError, match="of an MLP"):
        _ = found.kernels


@pytest.mark.slow
def test_forces_on_kernels_are_derivatives_of_the_evidence():
    """log p(y | C^(0)) by an average over prior draws, the same for every C^(0), differentiated by finite differences."""
    net = MLP(6, 2, activation="tanh", w_std=1.4, b_std=0.5)
    task, y = Task(X[:3], Y[:, 0]), Y[:, 0]
    found = sample_posterior(net, task, NOISE, steps=4000, warmup=500)
    c0, z = found.kernels[0], np.random.default_rng(0).normal(size=(2, 50_000, 6, 3))

    def likelihoods(c0):
        c = np.broadcast_to(c0, (z.shape[1], 3, 3))
        for layer in z:
            a = np.tanh(layer @ np.swapaxes(np.linalg.cholesky(c), 1, 2))
            c = 1.4**2 / 6 * np.swapaxes(a, 1, 2) @ a + 0.25
        c = c + NOISE * np.eye(3)
        solved = np.linalg.solve(c, np.broadcast_to(y[:, None], (len(c), 3, 1)))[..., 0]
        return np.exp(-0.5 * solved @ y - 0.5 * np.linalg.slogdet(c)[1])

    step, base = 1e-4, likelihoods(c0)
    for a in range(3):
        for b in range(a, 3):
            change = np.zeros((3, 3))
            change[a, b] += step / 2
            change[b, a] += step / 2  # symmetric, with a diagonal entry moved by `step` and a pair by step / 2 each
            slope = (likelihoods(c0 + change) - likelihoods(c0 - change)) / (2 * step)
            expected = slope.mean() / base.mean()
            error = (slope - expected * base).std() / base.mean() / len(base) ** 0.5
            error = np.hypot(error, found.conjugate_sem[0][a, b])
            assert abs(found.conjugate[0][a, b] - expected) < 4 * error
            assert error < 0.1 * np.abs(found.conjugate[0]).max()


@pytest.mark.slow
def test_kernels_that_are_singular_do_no_harm():
    """More points than inputs, a linear network without bias: all kernels have rank 2."""
    net = MLP(4, 1, activation="linear")
    found = sample_posterior(net, Task(X, X[:, 0]), 0.3, steps=1500)
    assert np.linalg.matrix_rank(found.kernels[1], tol=1e-6) == 2
    assert all(np.isfinite(each).all() for each in found.conjugate)


def with_dead_layers(width, w_std, x, y, noise, draws=100_000):
    """Posterior averages of C^(1), C^(2) [points, points] and f of relu networks without bias, over networks from the prior."""
    rng, a, kernels = np.random.default_rng(0), np.broadcast_to(x.T, (draws, 1, len(x))), []
    for _ in range(2):
        h = w_std / a.shape[1] ** 0.5 * rng.normal(size=(draws, width, a.shape[1])) @ a
        a = np.maximum(h, 0)
        kernels.append(w_std**2 / width * np.swapaxes(a, 1, 2) @ a)
    variance = kernels[1][:, 0, 0] + noise
    p = np.exp(-0.5 * y**2 / variance) / variance**0.5
    p /= p.sum()
    found = [*kernels, kernels[1][:, 0] * (y / variance)[:, None]]
    means = [np.tensordot(p, each, 1) for each in found]
    return [(m, np.sqrt(np.tensordot(p**2, (each - m) ** 2, 1))) for m, each in zip(means, found, strict=True)]


@pytest.mark.parametrize(
    ("method", "width", "steps"),
    [
        pytest.param("hamiltonian", 2, 2000, marks=pytest.mark.slow),
        pytest.param("slice", 2, 12_000, marks=pytest.mark.slow),
        pytest.param("slice", 4, 12_000, marks=pytest.mark.slow),
        pytest.param("hamiltonian", 4, 12_000, marks=pytest.mark.slow),
    ],
)
def test_networks_with_dead_layers_have_their_share(method, width, steps):
    """At width 2 nearly half of all networks are 0 at the training point, and then at most of those not at its mirror image."""
    x, noise = np.array([[1.0], [-1.0]]), 0.5
    net = MLP(width, 2, activation="relu", w_std=2**0.5)
    found = sample_posterior(net, Task(x[:1], [1.0], x[1:], [0.0]), noise, method, steps=steps)
    f = np.concatenate([found.f_train, found.f_test])[:, 0]
    error = np.concatenate([found.f_train_sem, found.f_test_sem])[:, 0]
    *kernels, expected = with_dead_layers(width, 2**0.5, x, 1.0, noise)
    assert np.abs((f - expected[0]) / np.hypot(error, expected[1])).max() < 4
    assert found.f_train_sem[0, 0] < 0.05 * found.f_train[0, 0]
    for l, (kernel, sem) in enumerate(kernels, start=1):
        away = found.kernels[l] - kernel
        assert (np.abs(away) <= 4 * np.hypot(found.kernels_sem[l], sem)).all()
        assert found.kernels_sem[l].max() < 0.15 * kernel.max()  # dead or not makes a difference of a half
    assert all(np.isfinite(force).all() for force in found.conjugate)


def test_a_kernel_of_zeros_has_a_factor_of_zeros_and_finite_derivatives():
    chain = KernelChain.of(MLP(3, 2, activation="relu", w_std=2**0.5), inputs=1)
    with jax.enable_x64(True):
        z = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 5)))
        z = (
            jnp.abs(z).at[0, :, 0].set(-1.0)
        )  # dead at the training point 1, alive at the test points, which are parallel
        c0 = jnp.asarray(chain.first(np.array([[1.0], [-1.0], [-2.0], [-0.7], [-1.9]])))

        def total(z, shifts):
            kernels = chain.kernels(c0, z, lead=1, shifts=shifts)
            return kernels[-1].sum(), kernels

        both = jax.jit(jax.grad(total, (0, 1), has_aux=True))
        slopes, kernels = jax.tree.map(np.asarray, both(z, [jnp.zeros((5, 5))] * 3))
    for kernel in kernels[1:]:
        assert np.abs(kernel[0]).max() < 1e-40
        assert kernel[2, 2] == pytest.approx(4 * kernel[1, 1], rel=1e-3)
        assert kernel[1, 1] > 0.1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


@pytest.mark.slow
def test_other_architectures_have_predictions_only():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        net = CNN(4, 1, activation="relu")
        task = Task(RNG.normal(size=(2, 4, 4, 1)), [1.0, -1.0])
        found = sample_posterior(net, task, 0.5, "langevin", chains=2, steps=200, thin=2, leaps=5)
    assert found.f_train.shape == (2, 1)
    assert not found.has("kernels")


def test_biases_that_start_at_zero_stay_there():
    chain = KernelChain.of(MLP(4, 1, b_std=0.5, bias_init="zeros"), inputs=2)
    assert chain.biases == (0.0, 0.0)


@pytest.mark.slow
def test_chains_that_have_not_converged_are_called_so():
    net = MLP(64, 2, 2, activation="erf", w_std=0.9, b_std=0.2)
    with pytest.warns(NotConvergedWarning, match="NOT converged"):
        found = sample_posterior(net, TASK, 1e-4, steps=150, warmup=10)
    assert not found.diagnostics["converged"]
    assert max(found.diagnostics["rhat"].values()) > 1.05


def with_keys(*keys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return [sample_posterior(MLP(4, 1, 2), TASK, 0.5, steps=60, warmup=10, thin=2, key=key).f_test for key in keys]


@pytest.mark.slow
def test_the_same_key_gives_the_same_chains():
    np.testing.assert_array_equal(*with_keys(1, np.int64(1)))


@pytest.mark.slow
def test_another_key_gives_other_chains():
    assert not np.array_equal(*with_keys(1, 2))


def autoregressive(rng, slope, chains, n):
    x = np.empty((chains, n))
    x[:, 0] = rng.normal(size=chains) / (1 - slope**2) ** 0.5
    for t in range(1, n):
        x[:, t] = slope * x[:, t - 1] + rng.normal(size=chains)
    return x


@pytest.mark.parametrize("slope", [0.0, 0.5, 0.9])
def test_standard_errors_count_the_autocorrelation(slope):
    rng = np.random.default_rng(0)
    runs = [autoregressive(rng, slope, 4, 600) for _ in range(200)]
    claimed = np.sqrt(np.mean([standard_error(x) ** 2 for x in runs]))
    actual = np.std([x.mean() for x in runs])  # relative error 1 / √400 = 5 %
    assert abs(claimed / actual - 1) < 0.2
    assert np.mean([inefficiency(x) for x in runs]) == pytest.approx((1 + slope) / (1 - slope), rel=0.15)
    stretches = [standard_error(x.reshape(4, 30, 20).mean(2)) for x in runs]
    assert abs(np.sqrt(np.mean(np.square(stretches))) / actual - 1) < 0.2


def test_rhat_sees_a_chain_elsewhere_one_that_drifts_and_one_of_another_spread():
    rng = np.random.default_rng(0)
    good = rng.normal(size=(4, 400))
    assert rhat(good) < 1.02
    assert rhat(good + np.array([[0.0], [0.0], [0.0], [1.5]])) > 1.1
    assert rhat(good + np.linspace(0, 2, 400)) > 1.1
    assert rhat(good * np.array([[1.0], [1.0], [1.0], [4.0]])) > 1.05
    assert "NOT" in Health.of({"x": good + np.linspace(0, 2, 400)}).sentence


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "nuts"}, "method"),
        ({"noise": 0.0}, "noise must be a finite number > 0, got 0.0"),
        ({"noise": np.inf}, "> 0, got inf"),
        ({"chains": 1}, "chains must be an integer of at least 2 .* got 1"),
        ({"steps": 50}, "at least 16"),
        ({"thin": 0}, "thin must be an integer of at least 1, got 0"),
        ({"warmup": -1}, "warmup must be an integer of at least 0, got -1"),
        ({"warmup": 4000}, "3000 steps with a warm-up of 4000"),
        ({"leaps": 7}, "slice sampling has no leaps, got 7"),
        ({"leaps": 0, "method": "hamiltonian"}, "leaps must be an integer of at least 1, got 0"),
        *(({"net": MLP(4, 1), "method": m}, "1 outputs and the task 2 targets") for m in METHODS),
        ({"net": MLP(4, 1, 3), "task": Task(X[:3], Y[:, 0])}, "3 outputs and the task 1 targets"),
        ({"net": CNN(4, 1)}, "langevin"),
        ({"task": Task(X[:1], [[1.0, 0.0]], loss="cross_entropy")}, "cross_entropy"),
        ({"net": Normalised(), "task": Task(X, X[:, 0]), "method": "langevin"}, "batch_stats"),
    ],
)
def test_what_cannot_be_done_is_said(change, message):
    arguments = {"net": MLP(4, 1, 2), "task": TASK, "noise": 0.1} | change
    with pytest.raises(ValueError, match=message):
        sample_posterior(**arguments)


@pytest.mark.parametrize("change", [{"noise": "a"}, {"chains": 2.5}, {"steps": 1e3}, {"thin": True}, {"leaps": 1.5}])
def test_what_is_no_number_is_said(change):
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=f"{name} .*got {value!r}"):
        sample_posterior(MLP(4, 1, 2), TASK, **{"noise": 0.1, "method": "hamiltonian"} | change)


@pytest.mark.slow
def test_langevin_dynamics_of_weights_and_chains_without_weights_agree_on_learned_kernels():
    """Width 60, 12 points, small noise: kernels far from the NNGP's, by two samplers that share nothing but the target."""
    task = data.xor_clusters(12, dim=20)
    net = MLP(60, 2, activation="erf", w_std=1.2**0.5, b_std=0.05**0.5)
    layers = sample_posterior(net, task, 0.01, "hamiltonian", steps=1500, warmup=300)
    weights = sample_posterior(net, task, 0.01, "langevin", steps=3000, warmup=1000)
    for found in (layers, weights):
        assert found.diagnostics["converged"], found.diagnostics["sentence"]
    for l in (1, 2):
        nngp = twin(net).posterior(task, 0.01).kernels[l]
        away, error = layers.kernels[l] - weights.kernels[l], np.hypot(layers.kernels_sem[l], weights.kernels_sem[l])
        print(l, np.linalg.norm(away), np.linalg.norm(error), np.linalg.norm(layers.kernels[l] - nngp))
        assert np.abs(away / error).max() < 5
        assert np.linalg.norm(error) < 0.3 * np.linalg.norm(layers.kernels[l] - nngp)
