import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.linalg
import scipy.stats

from limits import empirical_ntk, linearize, predict
from limits.losses import losses
from limits.types import Task
from zoo import MLP, learning_rate_factors, scale_gradients

random = np.random.default_rng(0)
ROOT = random.normal(size=(7, 7))
KERNEL = ROOT @ ROOT.T / 7  # of 5 training and 2 test points
K, K_STAR = KERNEL[:5, :5], KERNEL[5:, :5]
Y, F0 = random.normal(size=(5, 2)), random.normal(size=(7, 2))
LABELS = np.eye(3)[[0, 1, 2, 0, 1]]


NET = MLP(9, 1, activation="tanh", b_std=0.3, parameterization="mup", gamma=0.5)
X6, Y4 = random.normal(size=(6, 3)), random.normal(size=(4, 1))


THIRDS: Any = optax.MultiSteps(optax.sgd(0.7), 3, accumulator_dtype="float64")
OTHERS = {
    "nesterov": optax.sgd(optax.cosine_decay_schedule(0.7, 30), 0.9, nesterov=True),
    "averages": optax.chain(optax.ema(0.5, debias=False), THIRDS),
}


@functools.partial(jax.jit, static_argnums=1)
def linearised_training(start, rule):
    """Outputs of the linearised network at every step of Optax's descent on the first four points."""
    x, y, linear = jnp.asarray(X6), jnp.asarray(Y4), linearize(NET.apply, start)
    descent = optax.with_extra_args_support(OTHERS[rule]) if rule in OTHERS else optax.sgd(0.7, rule)
    tx = optax.chain(scale_gradients(learning_rate_factors(NET, x)), descent)

    def step(carry, _):
        params, state = carry
        f, pullback = jax.vjp(lambda p: linear(p, x), params)
        updates, state = tx.update(pullback(jnp.concatenate([f[:4] - y, 0 * f[4:]]) / 4)[0]["params"], state)
        return ({"params": optax.apply_updates(params["params"], updates)}, state), f

    return jax.lax.scan(step, (start, tx.init(start["params"])), None, length=31)[1]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rule", [0.0, 0.9, *OTHERS])
def test_mse_dynamics_are_those_of_the_linearised_network(rule):
    shapes = jax.eval_shape(NET.init, jax.random.key(0), jnp.asarray(X6))
    start = jax.tree.map(lambda leaf: jnp.asarray(np.random.default_rng(1).normal(size=leaf.shape)), shapes)
    expected = np.asarray(linearised_training(start, rule))
    rates = {"params": learning_rate_factors(NET, X6)}
    kernel = np.asarray(jax.jit(lambda params: empirical_ntk(NET.apply, params, X6, rates=rates))(start))
    f0, times = expected[0], [0, 1, 2, 17, 30]
    k, k_star = kernel[:4, :4], kernel[4:, :4]
    linear = predict.LinearRule(OTHERS[rule], {("kernel",): (3, 9)}, n=4) if rule in OTHERS else None
    momentum = 0.0 if linear else rule
    train, test = predict.mse_dynamics(k, Y4, times, 0.7, k_star, f0[:4], f0[4:], momentum, rule=linear)
    assert np.abs(expected[30] - f0).max() > 0.1
    np.testing.assert_allclose(train, expected[times, :4], atol=1e-10)
    np.testing.assert_allclose(test, expected[times, 4:], atol=1e-10)


def test_flow_is_the_matrix_exponential():
    times, rate = np.array([0.0, 0.3, 5.0, np.inf]), 0.8
    train, test = predict.mse_dynamics(K, Y, times, rate, K_STAR, F0[:5], F0[5:], flow=True)
    for f, f_test, t in zip(train, test, times, strict=True):
        decay = scipy.linalg.expm(-rate * t * K / 5) if np.isfinite(t) else np.zeros((5, 5))
        np.testing.assert_allclose(f, Y + decay @ (F0[:5] - Y), atol=1e-10)
        moved = np.linalg.solve(K, (np.eye(5) - decay) @ (Y - F0[:5]))
        np.testing.assert_allclose(f_test, F0[5:] + K_STAR @ moved, atol=1e-9)


@pytest.mark.parametrize("time", [1e6, 1e9, 1e13, 1e18, 1e30, np.inf])
@pytest.mark.parametrize("kind", ["recurring", "linear", "zeros"])
def test_a_flow_to_the_end_leaves_what_a_singular_kernel_does_not_tell_apart(kind, time):
    """Against the problem without what recurs, and least squares; rounding times t made 1e15 of them, or NaN."""
    rng = np.random.default_rng(0)
    x, y, new = rng.normal(size=(9, 3)), rng.normal(size=(9, 2)), rng.normal(size=(4, 3))
    if kind == "recurring":
        x[[3, 4]], y[[3, 4]] = x[0], rng.normal(size=(2, 2))
        k = lambda a, b: np.exp(-0.5 * ((a[:, None] - b) ** 2).sum(-1))  # noqa: E731
        apart, means = [0, 1, 2, 5, 6, 7, 8], y.copy()
        means[0] = y[[0, 3, 4]].mean(0)
        known = lambda a: k(a, x[apart]) @ np.linalg.solve(k(x[apart], x[apart]), means[apart])  # noqa: E731
    elif kind == "linear":
        k, known = (lambda a, b: a @ b.T), (lambda a: a @ np.linalg.lstsq(x, y)[0])
    else:
        k, known = (lambda a, b: np.zeros((len(a), len(b)))), (lambda a: np.zeros((len(a), 2)))
    f, f_new = predict.mse_dynamics(k(x, x), y, [time], 1.0, k(new, x), flow=True)
    mean, cov = predict.mse_ensemble(np.eye(9), k(x, x), y, [time], 1.0, flow=True)
    for found, inputs in ((f[0], x), (f_new[0], new), (mean[0], x)):
        np.testing.assert_allclose(found, known(inputs), atol=1e-6)
    left = np.eye(9) - k(x, x) @ np.linalg.pinv(k(x, x), rcond=1e-13)
    np.testing.assert_allclose(cov[0], left, atol=1e-6)


def test_descent_converges_to_flow_as_the_step_shrinks():
    flow = predict.mse_dynamics(K, Y, [2.0], 1.0, flow=True)[0]
    errors = [np.abs(predict.mse_dynamics(K, Y, [2 * n], 1.0 / n)[0] - flow).max() for n in (200, 400)]
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.02)  # first order, and the next one 1/n smaller


def test_singular_directions_of_the_kernel_do_not_learn():
    kernel = np.ones((2, 2))
    for flow in (True, False):
        f = predict.mse_dynamics(kernel, np.array([[1.0], [-1.0]]), [1000], 0.5, flow=flow)[0]
        np.testing.assert_allclose(f, 0, atol=1e-12)


@pytest.mark.parametrize("flow", [False, True])
def test_ensemble_is_the_image_of_the_starting_functions(flow):
    # f_t is affine in f₀: its mean is that of f₀ = 0, its covariance M Σ Mᵀ with M taken column by column.
    nngp = KERNEL @ KERNEL + np.eye(7)
    times, y, how = [0, 3, 40], Y[:, :1], {"momentum": 0.0 if flow else 0.5, "flow": flow}
    mean, cov = predict.mse_ensemble(nngp, KERNEL, y, times, 0.5, **how)

    def trained(f0):
        return np.concatenate(predict.mse_dynamics(K, y, times, 0.5, K_STAR, f0[:5, None], f0[5:, None], **how), axis=1)

    none = trained(np.zeros(7))
    np.testing.assert_allclose(mean, none, atol=1e-12)
    columns = np.concatenate([trained(unit) - none for unit in np.eye(7)], axis=2)
    np.testing.assert_allclose(cov, columns @ nngp @ columns.transpose(0, 2, 1), atol=1e-10)
    np.testing.assert_allclose(cov[0], nngp, atol=1e-12)


def test_posterior_is_the_conditional_gaussian():
    noise, joint = 0.3, KERNEL + 0.3 * np.diag([1, 1, 1, 1, 1, 0, 0])
    found = predict.posterior(K, Y, K_STAR, KERNEL[5:, 5:], noise)
    precision = np.linalg.inv(joint)[5:, 5:]  # conditioning by the precision matrix
    np.testing.assert_allclose(found.cov, np.linalg.inv(precision), rtol=1e-10)
    np.testing.assert_allclose(found.mean, -found.cov @ np.linalg.inv(joint)[5:, :5] @ Y, rtol=1e-10)
    prior: Any = scipy.stats.multivariate_normal
    evidence = sum(prior(np.zeros(5), joint[:5, :5]).logpdf(column) for column in Y.T)
    assert found.log_marginal_likelihood == pytest.approx(evidence, rel=1e-12)
    np.testing.assert_allclose(predict.kernel_regression(K, Y, K_STAR, noise), found.mean, rtol=1e-12)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 1, 2, 3, 4, 0], [3, 5, 4, 0, 1, 2]])
def test_a_singular_kernel_asks_for_noise(order):
    """One input twice, with different targets: in some orders of the points a factor exists, and is rounding."""
    twice = [0, 1, 2, 3, 4, 0]
    k, cross, y = K[np.ix_(twice, twice)][np.ix_(order, order)], K_STAR[:, twice][:, order], np.arange(6.0)[order, None]
    ways = {
        "kernel_regression": lambda k, y, cross, noise: predict.kernel_regression(k, y, cross, noise),
        "predict.posterior": lambda k, y, cross, noise: predict.posterior(k, y, cross, KERNEL[5:, 5:], noise).mean,
        "influence": predict.influence,
        "leave_one_out": lambda k, y, cross, noise: predict.leave_one_out(k, y, noise).mean,
    }
    for name, way in ways.items():
        with pytest.raises(
            ValueError, match=rf"^{name}: the training points' kernel plus noise is singular \(eigen.*Raise"
        ):
            way(k, y, cross, 0.0)
        assert np.isfinite(way(k, y, cross, 1e-6)).all()
        assert np.isfinite(way(k, y, cross, np.where(np.array(order) == 5, 0.1, 0.0))).all()  # one of the two is exact


def test_points_of_unlike_size_are_no_singular_kernel():
    size = 10.0 ** np.array([0, -9, 0, -6, 3])
    scaled = K * size[:, None] * size
    for k, y in ((scaled, size[:, None] * Y), (K, Y)):
        cross = K_STAR * (size if k is scaled else 1)
        np.testing.assert_allclose(predict.kernel_regression(k, y, cross), K_STAR @ np.linalg.solve(K, Y), rtol=1e-6)
        influence = predict.influence(k, y, cross, 0.0)
        np.testing.assert_allclose(influence, predict.influence(K, Y, K_STAR, 0.0), rtol=1e-6)
    with pytest.raises(ValueError, match=r"is singular \(eigenvalues -1"):
        predict.kernel_regression(np.ones((2, 2)) - 1e-9 * np.eye(2), np.ones((2, 1)), np.ones((1, 2)))


@pytest.mark.usefixtures("x64")
def test_points_left_out_of_a_singular_kernel():
    """An error where numbers are known, NaN where a function is being compiled; its slopes are those of regular kernels."""
    k, y, compiled = jnp.ones((2, 2)), jnp.ones(2), jax.jit(predict.leave_one_out)
    for wrong in (k, np.ones((2, 2)), k - 2 * jnp.eye(2), k.astype(jnp.float32)):
        with pytest.raises(ValueError, match=r"leave_one_out: .*plus noise is singular"):
            predict.leave_one_out(wrong, y, 0.0)
        assert np.isnan(compiled(wrong, y, 0.0).variance).all()
    slope = jax.grad(lambda y: predict.leave_one_out(k, y, 1.0).mean.sum())(y)
    np.testing.assert_allclose(slope, [0.5, 0.5], rtol=1e-12)  # each mean is half of the other target


@pytest.mark.parametrize("noise", [np.full(3, 0.1) + 3j, np.array(["0.1"] * 3)])
def test_noises_that_are_not_real_are_refused(noise):
    with pytest.raises(ValueError, match=f"noise must be a variance.*of {noise.dtype} of shape"):
        predict.posterior(np.eye(3), np.ones((3, 1)), np.eye(3)[:1], np.eye(1), noise)


def test_kernels_of_whole_numbers_have_noise():
    k, y = jnp.array([[3, 1], [1, 2]]), np.array([0.5, -0.25])
    for found in (predict.log_marginal_likelihood, lambda *given: predict.leave_one_out(*given).mean):
        np.testing.assert_allclose(found(k, y, 0.5), found(k.astype(float), y, 0.5), rtol=1e-6)


def test_no_training_points_leave_the_prior():
    none, cov = np.zeros((0, 2)), KERNEL[5:, 5:]
    found = predict.posterior(np.zeros((0, 0)), none, np.zeros((2, 0)), cov, 0.1)
    np.testing.assert_array_equal(found.mean, np.zeros((2, 2)))
    np.testing.assert_array_equal(found.cov, cov)
    assert found.log_marginal_likelihood == 0
    assert not predict.kernel_regression(np.zeros((0, 0)), none, np.zeros((2, 0))).any()


def test_draws_of_half_a_covariance():
    with pytest.raises(ValueError, match=r"draws: cov is not symmetric: .* by up to 0\.9, "):
        predict.draws(np.zeros((2, 1)), np.array([[1.0, 0.9], [0.0, 1.0]]), 2)
    rounded = np.array([[1.0, 0.9], [0.9 + 1e-7, 1.0]])
    assert predict.draws(np.zeros((2, 1)), rounded, 2).shape == (2, 2, 1)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_cross_entropy_descent_is_the_loop_written_out(momentum):
    f, w, v, task = F0[:, [0, 1, 0]], np.zeros((5, 3)), np.zeros((5, 3)), Task(np.eye(5), LABELS, loss="cross_entropy")
    train, test = predict.cross_entropy_dynamics(K, LABELS, [0, 1, 7], 0.9, K_STAR, f[:5], f[5:], momentum)
    rows = []
    for _ in range(8):
        now = f[:5] + K @ w
        rows.append((now, f[5:] + K_STAR @ w))
        exponentials = np.exp(now)
        v = momentum * v + (LABELS - exponentials / exponentials.sum(1, keepdims=True)) / 5
        w = w + 0.9 * v
    for t, mine, mine_test in zip((0, 1, 7), train, test, strict=True):
        np.testing.assert_allclose(mine, rows[t][0], rtol=1e-12)
        np.testing.assert_allclose(mine_test, rows[t][1], rtol=1e-12)
    slope = jax.grad(lambda f: optax.softmax_cross_entropy(f, LABELS).mean())(jnp.asarray(train[0]))
    np.testing.assert_allclose(train[1] - train[0], -0.9 * K @ np.asarray(slope, float), atol=1e-6)  # float32
    loss = losses(task, train, LABELS)
    assert loss[0] > loss[1] > loss[2]


def test_cross_entropy_flow_is_descent_at_small_steps():
    many = np.stack([F0[:, [0, 1, 0]], F0[:, [1, 0, 1]]])  # two starting points at once
    arguments = K_STAR, many[:, :5], many[:, 5:]
    flow = predict.cross_entropy_dynamics(K, LABELS, [0, 1.5, 4.0], 2.0, *arguments, flow=True)
    for side in (0, 1):
        rough, fine = (
            predict.cross_entropy_dynamics(K, LABELS, [0, 3 * n, 8 * n], 1.0 / n, *arguments)[side] for n in (200, 400)
        )
        # Descent is off by c/n + O(1/n²), so that 2 fine − rough is off by O(1/n²).
        off, extrapolated = np.abs(flow[side] - fine).max(), np.abs(flow[side] - (2 * fine - rough)).max()
        assert extrapolated < off / 50
        assert off < 1e-3


def test_starting_points_flow_apart():
    """Many of them, more than one group: no one depends on the company."""
    start = np.random.default_rng(0).normal(size=(2, 40, 7, 3))
    arguments = K, LABELS, [0, 0.5, 3.0], 2.0, K_STAR
    train, test = predict.cross_entropy_dynamics(*arguments, start[..., :5, :], start[..., 5:, :], flow=True)
    assert train.shape == (3, 2, 40, 5, 3)
    for i in ((0, 0), (1, 17), (1, 39)):
        alone = predict.cross_entropy_dynamics(*arguments, start[i][:5], start[i][5:], flow=True)
        np.testing.assert_allclose(train[:, *i], alone[0], atol=1e-7)
        np.testing.assert_allclose(test[:, *i], alone[1], atol=1e-7)


def test_no_equation_grows_with_the_starting_points(monkeypatch):
    sizes, known = [], scipy.integrate.solve_ivp
    monkeypatch.setattr(
        scipy.integrate, "solve_ivp", lambda f, t, w, **how: sizes.append(len(w)) or known(f, t, w, **how)
    )
    start = np.zeros((300, 5, 3))
    predict.cross_entropy_dynamics(K, LABELS, [1], 1.0, K_STAR, start, start[:, :2], flow=True)
    assert max(sizes) <= 256
    assert sum(sizes) == start.size


@pytest.mark.parametrize(("times", "rate"), [([0], 0.7), ([0, 0], 0.7), ([0, 3], 0.0)])
def test_a_flow_that_goes_nowhere_stays_where_it_is(times, rate):
    f = F0[:, [0, 1, 0]]
    train, test = predict.cross_entropy_dynamics(K, LABELS, times, rate, K_STAR, f[:5], f[5:], flow=True)
    assert all((each == f[:5]).all() for each in train)
    assert all((each == f[5:]).all() for each in test)


@pytest.mark.parametrize("times", [[np.inf], [-1.0, 2.0]])
def test_times_that_no_flow_of_cross_entropy_has(times):
    with pytest.raises(ValueError, match="times"):
        predict.cross_entropy_dynamics(K, LABELS, times, 0.1, K_STAR, LABELS, LABELS[:2], flow=True)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_rate_beyond_the_stable_one_warns_and_one_below_does_not(momentum):
    edge = 2 * (1 + momentum) * 5 / np.linalg.eigvalsh(K)[-1]
    stable = predict.mse_dynamics(K, Y, [400], 0.99 * edge, momentum=momentum)[0]
    with pytest.warns(UserWarning, match="beyond the largest stable one, .*: the dynamics diverge"):
        unstable = predict.mse_dynamics(K, Y, [400], 1.01 * edge, momentum=momentum)[0]
    assert np.abs(unstable).max() > 100 * np.abs(stable).max()


def test_messages():
    with pytest.raises(ValueError, match="Gradient flow has no momentum"):
        predict.mse_dynamics(K, Y, [1], 0.1, momentum=0.9, flow=True)
    with pytest.raises(ValueError, match="Gradient flow has no momentum"):
        predict.cross_entropy_dynamics(K, LABELS, [1], 0.1, K_STAR, LABELS, LABELS[:2], momentum=0.9, flow=True)
    for times in ([0.5], [2, 1], [-1]):
        with pytest.raises(ValueError, match=r"recorded at whole, ascending numbers of steps; got \["):
            predict.mse_dynamics(K, Y, times, 0.1)
