"""Evidence of hyperparameters, what maximises it, and Gaussian processes with a noise for every point."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from limits import AbsentError, Task, fit, predict, twin
from limits.fit import _errors
from zoo import MLP


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def of_prior(net, noise, points=60, outputs=1000, seed=0):
    """A task whose targets are drawn from the prior of the definition, with noise: many outputs, so that all is determined."""
    x = draw(points, 4, seed=seed) * np.random.default_rng(seed + 1).uniform(0.1, 3, size=(points, 1))
    k = twin(net).kernels(x).nngp
    f = predict.draws(np.zeros((points, outputs)), k, count=1, seed=seed)[0]
    return Task(x, f + noise**0.5 * draw(points, outputs, seed=seed + 2))


def test_evidence_and_leave_one_out():
    """Against scipy's density, points left out one by one, and central differences."""
    k, y = draw(6, 9), draw(6, 2, seed=1)
    k, noise = k @ k.T / 9, np.linspace(0.1, 0.6, 6)
    with jax.enable_x64(True):
        evidence = predict.log_marginal_likelihood(k, y, noise)
        law: Any = scipy.stats.multivariate_normal(np.zeros(6), k + np.diag(noise))  # pyright: ignore
        np.testing.assert_allclose(evidence, sum(law.logpdf(column) for column in y.T), rtol=1e-12)
        left_out = predict.leave_one_out(k, y, noise)
        for i in range(6):
            rest = np.arange(6) != i
            p = predict.posterior(k[np.ix_(rest, rest)], y[rest], k[[i]][:, rest], k[[i]][:, [i]], noise[rest])
            np.testing.assert_allclose(left_out.mean[i], p.mean[0], rtol=1e-10)
            np.testing.assert_allclose(left_out.variance[i], p.cov[0, 0] + noise[i], rtol=1e-10)
            one: Any = scipy.stats.norm(p.mean[0], (p.cov[0, 0] + noise[i]) ** 0.5)
            density = one.logpdf(y[i]).sum()
            np.testing.assert_allclose(left_out.log_density[i], density, rtol=1e-10)
        for function in (predict.log_marginal_likelihood, lambda *a: predict.leave_one_out(*a).log_density.sum()):
            slope = jax.jit(jax.grad(function, argnums=2))(jnp.asarray(k), y, noise)
            for i, step in enumerate(1e-6 * np.eye(6)):
                difference = (function(k, y, noise + step) - function(k, y, noise - step)) / 2e-6
                np.testing.assert_allclose(slope[i], difference, atol=1e-7)
        along = draw(6, 6, seed=2), draw(6, 2, seed=3)
        moved = jax.jit(
            lambda t: predict.log_marginal_likelihood(
                jnp.asarray(k) + t * (along[0] + along[0].T), y + t * along[1], noise
            )
        )
        for derivative, order in ((jax.grad(moved), 1), (jax.grad(jax.grad(moved)), 2)):
            before = moved if order == 1 else jax.grad(moved)
            np.testing.assert_allclose(derivative(0.0), (before(1e-5) - before(-1e-5)) / 2e-5, rtol=1e-6)


@pytest.mark.slow
def test_kernels_of_the_host_are_worked_in_float64():
    """Whose float32 says NaN; in a compiled function of the caller's, too. What is of JAX keeps the caller's precision."""
    x, noise = np.linspace(-2, 2, 40)[:, None], 1e-7
    k, y = twin(MLP(width=1, depth=2, activation="erf", w_std=2.0, b_std=0.5)).kernels(x).nngp, np.sin(2 * x)
    with jax.enable_x64(True):
        evidence = np.asarray(predict.log_marginal_likelihood(jnp.asarray(k), y, noise))
        left_out = jax.tree.map(np.asarray, predict.leave_one_out(jnp.asarray(k), y, noise))
    for found in (
        predict.log_marginal_likelihood(k, y, noise),
        predict.log_marginal_likelihood(k, jnp.asarray(y), noise),
    ):
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float64
    np.testing.assert_allclose(predict.log_marginal_likelihood(k, y, noise), evidence, rtol=1e-12)
    for mine, known in zip(predict.leave_one_out(k, y, noise), left_out, strict=True):
        assert isinstance(mine, np.ndarray)
        np.testing.assert_allclose(mine, known, rtol=1e-9)
    constant = jax.jit(lambda t: t * predict.log_marginal_likelihood(k, y, noise))(jnp.float32(1))
    np.testing.assert_allclose(constant, evidence, rtol=1e-6)
    assert predict.log_marginal_likelihood(jnp.asarray(k), y, 0.1).dtype == np.float32
    slope = jax.grad(lambda noise: predict.log_marginal_likelihood(k, y, noise))(0.1)
    assert slope.dtype == np.float32
    ends = [predict.log_marginal_likelihood(k, y, noise) for noise in (0.1 - 1e-5, 0.1 + 1e-5)]
    np.testing.assert_allclose(slope, (ends[1] - ends[0]) / 2e-5, rtol=1e-3)


def test_a_kernel_that_is_singular_to_rounding_has_no_evidence():
    x = np.linspace(0, 1, 4)[[0, 1, 2, 2]]
    k = np.exp(-((x[:, None] - x) ** 2))
    assert np.isnan(predict.log_marginal_likelihood(k, np.arange(4.0), 1e-16))
    assert np.isfinite(predict.log_marginal_likelihood(k, np.arange(4.0), 1e-6))


@pytest.mark.parametrize("function", [predict.leave_one_out, predict.log_marginal_likelihood])
@pytest.mark.parametrize("of", [np, jnp])
def test_noise_that_is_no_variance(function, of):
    k, y = of.eye(3), of.ones((3, 1))
    with pytest.raises(ValueError, match=rf"{function.__name__}: noise must be .*noise\[1\] is -0.1 \(1 of 3 .*give"):
        function(k, y, of.asarray([0.1, -0.1, 0.1]))
    for noise in (-0.1, np.array([0.1, np.nan, 0.1])):
        with pytest.raises(ValueError, match=f"{function.__name__}: noise must be"):
            function(k, y, noise)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["erf", "relu"])
def test_numbers_of_the_prior_are_found(activation):
    """From two starts, within 2 % and 3.5 standard errors, which are below 1.5 %: three numbers, chance 0.1 % that it fails."""
    truth = {"w_std": 1.5, "b_std": 0.4, "noise": 0.01}
    task = of_prior(MLP(1, 1, 1000, activation, 1.5, 0.4), truth["noise"])
    starts = [(0.8, 1.0, 0.3), (2.5, 0.2, 0.001)]
    found = [fit(MLP(1, 1, 1000, activation, w, b), task, noise=n) for w, b, n in starts]
    for name, value in truth.items():
        one, other = (each.values[name] for each in found)
        assert abs(one / other - 1) < 1e-4
        error = found[0].errors[name]
        assert error < 0.015 * value or name == "noise"
        assert abs(one - value) < 3.5 * error
        assert abs(one / value - 1) < 0.02 or name == "noise"
    best = found[0]
    assert (best.net.w_std, best.noise) == (best.values["w_std"], best.values["noise"])
    np.testing.assert_allclose(best.objective, twin(best.net).posterior(task, best.noise).log_evidence, rtol=1e-9)
    assert best.trace["objective"][-1] == best.objective > best.trace["objective"][0]


@pytest.mark.slow
def test_fits_that_are_refused():
    x = draw(12, 3)
    task = Task(x, draw(12, 1, seed=1))
    net = MLP(1, 1, activation="relu", w_std=1.3)
    with pytest.raises(ValueError, match="do not determine"):  # both only scale
        fit(net.clone(gamma=1.5), task, over=("w_std", "gamma"), noise=0.1)
    with pytest.raises(ValueError, match="b_std is 0"):
        fit(net, task)
    with pytest.raises(ValueError, match="wstd"):
        fit(net, task, over=("wstd",))
    with pytest.raises(ValueError, match="1 steps"):
        fit(net, task, over=("w_std", "noise"), steps=1)
    with pytest.raises(AbsentError, match="mup"):
        fit(net.clone(parameterization="mup"), task, over=("w_std",))


@pytest.mark.parametrize("objective", ["evidence", "leave_one_out"])
@pytest.mark.slow
def test_targets_without_noise_have_no_fit(objective):
    x, net = draw(12, 3), MLP(1, 1, activation="erf", b_std=0.4)
    twice = Task(np.tile(x, (2, 1)), np.tile(draw(12, 1, seed=1), (2, 1)))
    for task in (twice, Task(x, np.ones((12, 1)))):
        with pytest.raises(
            ValueError, match=r"rises without bound as the noise goes to 0.*targets are the same where inputs are"
        ):
            fit(net, task, objective=objective)
    with pytest.raises(ValueError, match="all targets are 0"):
        fit(net, Task(x, np.zeros((12, 1))), objective=objective)


@pytest.mark.slow
def test_a_fit_that_ends_far_from_where_it_began_has_series_that_are_long_enough():
    """Hermite series of inputs like these and of w_std = 0.5 are too short at 10: no step went uphill any more."""
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    x = 2**0.5 * np.stack([np.cos(angles), np.sin(angles)], 1)

    def net(w):
        return MLP(8, 1, activation=jax.nn.softplus, w_std=w, b_std=0.1)

    k = twin(net(20.0)).kernels(x).nngp
    noise = 1e-4 * k.diagonal().mean()
    task = Task(x, np.linalg.cholesky(k + noise * np.eye(40)) @ draw(40, 1, seed=1))
    found = fit(net(0.5), task, over=("w_std",), noise=noise)

    def evidence(w):
        return float(predict.log_marginal_likelihood(twin(net(w)).kernels(x).nngp, task.y_train, noise))

    best = found.values["w_std"]
    assert abs(found.objective - evidence(best)) < 1e-4
    assert evidence(best) > max(evidence(0.9 * best), evidence(1.1 * best))
    assert (np.diff(found.trace["objective"]) > -0.1).all()


@pytest.mark.slow
def test_the_picture_has_its_maximum_where_the_fit_is():
    x = np.linspace(-2, 2, 20)[:, None]
    task = Task(x, np.sin(2 * x) + 0.1 * draw(20, 1))
    found = fit(MLP(1, 1, activation="erf", w_std=1.5, b_std=1.0), task, over=("w_std", "noise"), noise=0.03)
    figure = found.plot(task)
    assert [axis.get_title() for axis in figure.axes[:2]] == [
        "functions drawn from the prior", f"posterior, noise {found.noise:.2g}"
    ]  # fmt: skip
    edges = [np.asarray(path.vertices) for path in figure.axes[2].collections[0].get_paths()]
    inner = next(each for each in edges if len(each))  # less than 1 below
    low, high = inner.min(0), inner.max(0)
    middle = np.sqrt(low * high)
    for name, place in zip(("w_std", "noise"), middle, strict=True):
        error = found.errors[name] / found.values[name]
        assert abs(np.log(place / found.values[name])) < 0.5 * error
    for name, a, b in zip(
        ("w_std", "noise"), low, high, strict=True
    ):  # one below is √2 standard errors away, by the information that is expected
        assert 0.4 < np.log(b / a) / (2 * 2**0.5 * found.errors[name] / found.values[name]) < 2.5
    with pytest.raises(ValueError, match="nothing to draw"):
        fit(MLP(1, 1, activation="erf"), Task(draw(12, 3), draw(12)), over=("w_std",)).plot(Task(draw(12, 3), draw(12)))


@pytest.mark.slow
def test_a_fit_with_a_noise_for_every_point():
    """Of equal ones it is that of the one noise; of others, the factor that they are wrong by is found."""
    net, truth = MLP(1, 1, 300, activation="erf", w_std=1.5, b_std=0.4), np.geomspace(0.003, 0.3, 30)
    x = np.linspace(-3, 3, 30)[:, None]
    f = predict.draws(np.zeros((30, 1)), twin(net).kernels(x).nngp, count=300, seed=3)[:, :, 0].T
    task = Task(x, f + truth[:, None] ** 0.5 * draw(30, 300, seed=4))
    one, same = (fit(net, task, noise=noise) for noise in (0.1, np.full(30, 0.1)))
    np.testing.assert_allclose(same.noise, np.full(30, one.noise), rtol=1e-6)
    np.testing.assert_allclose(
        [same.values["w_std"], same.errors["w_std"]], [one.values["w_std"], one.errors["w_std"]], rtol=1e-5
    )
    found = fit(net, task, noise=3 * truth)
    assert abs(found.noise[0] / truth[0] - 1) < 4 * found.errors["noise"][0] / found.noise[0] < 0.1
    assert found.objective > one.objective + 100
    np.testing.assert_allclose(found.objective, twin(found.net).posterior(task, found.noise).log_evidence, rtol=1e-9)
    assert "noise of 30 points × 0.32" in repr(found)
    with pytest.raises(ValueError, match="each of the 30 points"):
        fit(net, task, noise=truth[:3])


@pytest.mark.slow
def test_a_noise_for_every_point():
    """A point whose noise is huge is as good as left out."""
    net, x, y = MLP(1, 2, 2, "erf", b_std=0.2), draw(5, 3), draw(5, 2, seed=1)
    noise = np.array([0.1, 0.2, 0.3, 0.1, 1e12])
    whole = twin(net).posterior(Task(x, y, x[:2]), noise)  # without test targets
    rest = predict.posterior(*_parts(net, x[:4], y[:4], x[:2]), noise[:4])
    np.testing.assert_allclose(whole.f_test, rest.mean, rtol=1e-9)
    np.testing.assert_allclose(whole.f_test_cov, rest.cov, atol=1e-9)
    with pytest.raises(ValueError, match="noise"):
        twin(net).posterior(Task(x, y), noise[:3])
    with pytest.raises(AbsentError, match="width"):
        twin(net).posterior(Task(x, y), noise, width=100)


def _parts(net, x, y, x_test):
    k = twin(net).kernels
    return k(x).nngp, y, k(x_test, x).nngp, k(x_test).nngp


def test_drawn_functions_have_the_covariance():
    """Of 20,000 draws: a variance is off by 1 %, four times that is allowed in each of six entries."""
    root = draw(3, 3)
    cov = root @ root.T
    found = predict.draws(np.ones((3, 1)), cov, 20_000, seed=3)[..., 0]
    scale = np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
    assert np.abs((np.cov(found.T) - cov) / scale).max() < 0.04
    assert np.abs(found.mean(0) - 1).max() < 4 * (np.diag(cov).max() / 20_000) ** 0.5


def test_gpjax_takes_the_kernel():
    gpjax = pytest.importorskip("gpjax")
    from limits.with_gpjax import gpjax_kernel

    x = np.linspace(-2, 2, 20)[:, None]
    y, net = np.sin(2 * x), MLP(1, 2, activation="erf", w_std=2.0, b_std=0.5)
    with jax.enable_x64(True):
        kernel = gpjax_kernel(twin(net), over=("w_std", "b_std"))
        data = gpjax.Dataset(jnp.asarray(x), jnp.asarray(y))
        prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Zero(), kernel=kernel)
        model = prior * gpjax.likelihoods.Gaussian(obs_stddev=jnp.array(0.1))
        evidence = gpjax.objectives.conjugate_mll(model, data)
        np.testing.assert_allclose(evidence, twin(net).posterior(Task(x, y), noise=0.01).log_evidence, rtol=1e-4)
        slope = jax.grad(lambda each: kernel_at(kernel, each).gram(jnp.asarray(x)).as_matrix().sum())(1.7)
        assert np.isfinite(slope)
        assert abs(slope) > 1


def kernel_at(kernel, w_std):
    """The kernel with another value of w_std."""
    import copy

    other = copy.copy(kernel)
    object.__setattr__(other, "values", {**kernel.values, "w_std": w_std})
    return other


@pytest.mark.slow
def test_a_fit_says_what_it_has_maximised():
    x = draw(8, 2)
    found = fit(
        MLP(1, 1, activation="erf"), Task(x, draw(8, 1, seed=1)), ("noise",), noise=0.1, objective="leave_one_out"
    )
    assert "leave-one-out log density" in repr(found)
    assert "evidence" not in repr(found)


@pytest.mark.slow
def test_errors_of_leave_one_out_are_those_of_its_maximum():
    """Against the covariance of slopes and the mean curvature over 4,000 draws of the targets, which are good to 3 %."""
    x, outputs = draw(20, 2), 2
    net, noise = MLP(1, 1, activation="erf", w_std=1.6, b_std=0.4), 0.05
    function = twin(net).kernel_function(like=x)
    start = np.log([1.6, noise])
    with jax.enable_x64(True):

        def total(u, y):
            k = function(jnp.asarray(x), w_std=jnp.exp(u[0])).nngp
            return predict.leave_one_out(k, y, jnp.exp(u[1])).log_density.sum()

        factor = np.linalg.cholesky(twin(net).kernels(x).nngp + noise * np.eye(20))
        ys = jnp.asarray(factor @ draw(4000, 20, outputs, seed=5))
        slopes = np.asarray(jax.jit(jax.vmap(jax.grad(total), (None, 0)))(start, ys))
        curvature = np.asarray(jax.jit(jax.vmap(jax.hessian(total), (None, 0)))(start, ys)).mean(0)
        inverse = np.linalg.inv(curvature)
        expected = np.diag(inverse @ np.cov(slopes.T) @ inverse) ** 0.5

        def matrix(u):
            return function(jnp.asarray(x), w_std=jnp.exp(u["w_std"])).nngp, jnp.exp(u["noise"])

        u = {"noise": jnp.asarray(start[1]), "w_std": jnp.asarray(start[0])}
        found, fisher = (_errors(matrix, u, outputs, objective) for objective in ("leave_one_out", "evidence"))
    assert np.abs(slopes.mean(0)).max() < 4.5 * slopes.std(0).max() / 4000**0.5
    np.testing.assert_allclose([found["w_std"], found["noise"]], expected, rtol=0.09)  # three times 3 %
    assert found["w_std"] > 1.3 * fisher["w_std"]
