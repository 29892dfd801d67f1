"""Feature learning at infinite depth; one step in a deep linear network against the printed profile and finite networks."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, twin
from limits.depth import linear, one_step_profile, one_step_recursion
from limits.fields.sweeps import Plan
from limits.training import Training
from zoo import Parameterization, ResNet
from zoo.parameterization import parameterization

NET = ResNet(8, 4, activation="linear", parameterization="mup")
ONE = Task([[1.0]], [1.0])


def deep(net):
    return twin(net, depth=math.inf)


def test_one_step_of_a_linear_network_is_the_closed_profile():
    run = deep(NET).rich(ONE, 1, 0.5, trained=("branch",), times=(0, 1))
    tau = np.arange(5) / 4
    np.testing.assert_allclose([layer[0, 0, 0] for layer in run.phi], np.exp(tau), rtol=1e-7)
    np.testing.assert_allclose([layer[0, 0, 0] for layer in run.g], np.exp(1 - tau), rtol=1e-7)
    np.testing.assert_allclose([layer[1, 0, 0] for layer in run.phi], one_step_profile(tau, 0.5), rtol=3e-6)
    assert run.ntk[0, 0, 0] == pytest.approx(math.e, abs=1e-6)


@pytest.mark.slow  # the tangent kernel itself is in test_layer_time
def test_small_steps_at_small_gamma_follow_the_lazy_limit():
    """γ₀ → 0 with centred outputs: features stay, and gradient descent with the kernel 3e Φ⁰ remains."""
    x = np.random.default_rng(0).normal(size=(3, 2))
    task = Task(x[:2], [1.0, -1.0], x[2:], [0.3])
    limit = deep(NET.clone(gamma=1e-4))
    rich, lazy = limit.rich(task, 3, 0.1, kernels=()), limit.lazy(task, 3, 0.1, kernels=())
    np.testing.assert_allclose(rich.f_test, lazy.f_test, atol=1e-5)
    np.testing.assert_allclose(rich.f_train, lazy.f_train, atol=1e-5)


def test_the_stated_error_is_of_the_right_size():
    """Fewer depths: their error, found against more depths, is near the estimate."""
    coarse = deep(NET).rich(ONE, 4, 0.1, depths=(4, 8, 12, 16), kernels=())
    fine = deep(NET).rich(ONE, 4, 0.1, kernels=())
    stated = float(coarse.provenance["f_train"].detail.split("estimated error ")[1].split()[0])
    found = np.abs(coarse.f_train - fine.f_train).max()
    assert stated / 10 < found < 3 * stated
    assert "O(1/L^3) dropped" in coarse.provenance["f_train"].detail


def test_kernels_at_some_of_the_times():
    times, depths = (0, 1, 2), (4, 8, 12)
    some, every = (deep(NET).rich(ONE, 2, 0.1, times=times, depths=depths, kernel_times=at) for at in ((0, 2), None))
    np.testing.assert_array_equal(some.ntk, every.ntk[[0, 2]])


@pytest.mark.slow
def test_sampled_networks_extrapolate_too():
    """The same linear network by sampling: an observable keeps it from the exact way."""
    options = {"samples": 1024, "replicas": 6, "observe": lambda net, variables, x: x.sum(), "kernels": ()}
    run = deep(NET).rich(ONE, 3, 0.1, **options)
    exact = deep(NET).rich(ONE, 3, 0.1, kernels=())
    assert run.provenance["f_train"].kind == "monte_carlo"
    error = run.f_train_sem[1:, 0, 0]
    off = np.abs(run.f_train - exact.f_train)[1:, 0, 0]
    stated = float(run.provenance["f_train"].detail.split("estimated error ")[1].split()[0])
    assert np.all(off < 3 * error + 3 * stated)
    assert np.all(error < 0.05)


@pytest.mark.parametrize(
    ("net", "options", "why"),
    [
        (NET, {"depths": (4, 8)}, "three depths"),
        (NET, {"depths": (5, 10, 20)}, "multiples of 4"),
        (NET, {"record": ("two_time",)}, "no records"),
        (NET.clone(parameterization=Parameterization.mup.replace(alpha=0.75)), {}, "powers of 1/L"),
        (NET.clone(form="conv", stages=2), {}, "one stage"),
    ],
)
def test_what_it_cannot_do_says_so(net, options, why):
    x = np.ones((1, 4, 4, 1)) if net.form == "conv" else [[1.0]]
    with pytest.raises(ValueError, match=why):
        deep(net).rich(Task(x, [1.0]), 1, 0.1, **options)


def test_depths_are_for_infinite_depth():
    with pytest.raises(ValueError, match="depths"):
        twin(NET).rich(ONE, 1, 0.1, depths=(4, 8, 16))


def printed(tau, c):
    """H_1 of the paper's equation 99 at y = 1, as from G = e^(−τ) + 1 + e^(−1)."""
    inner = tau**2 / 2 + tau**3 / 3 + (1 + np.exp(-1)) * (np.exp(tau) * (tau**2 - tau + 1) - 1)
    return np.exp(tau) * (1 + 2 * c**2 * inner)


def recursion_with(g, depth, c):
    """H_1^L with another gradient kernel g(τ), at y = 1."""
    total, last = 0.0, 1.0
    for l in range(1, depth):
        field = total / depth + (1 + 1 / depth) ** (l - 1)
        last += last / depth + (c / depth) ** 2 * g(l / depth) * field * (2 * total + field)
        total += field
    return last


def test_numbers_of_the_notes():
    assert one_step_profile(1.0, 0.5) - np.e == pytest.approx(3.079, abs=5e-4)
    assert printed(1.0, 0.5) - np.e == pytest.approx(4.327, abs=5e-4)
    assert one_step_recursion(50, 0.5)[-1] - (1 + 1 / 50) ** 49 == pytest.approx(2.595, abs=5e-4)
    assert one_step_recursion(20, 0.5)[-1] - (1 + 1 / 20) ** 19 == pytest.approx(2.017, abs=5e-4)


def test_the_profile_is_the_limit_of_the_recursion():
    depths = (200, 400, 800)
    tau, options = 0.5, {"learning_rate": 0.3, "gamma": 1.4, "y": -0.8, "h0": 1.7}
    each = [one_step_recursion(depth, **options)[depth // 2] for depth in depths]
    away = np.abs(np.array(each) - one_step_profile(tau, **options))
    np.testing.assert_allclose(away[1:] / away[:-1], 0.5, atol=0.01)
    assert abs(2 * each[2] - each[1] - one_step_profile(tau, **options)) < 1e-4


def test_the_recursion_is_the_engine():
    task = Task([[np.sqrt(1.7)]], [-0.8])
    training = Training.of(task, 1, 0.3, trained=("branch",))
    plan = Plan(NET.clone(gamma=1.4), task, training, np.arange(2), ("phi",))
    found = [layer[0, 1, 0, 0] for layer in linear.run(plan, 12)["phi"]]
    np.testing.assert_allclose(found, one_step_recursion(12, 0.3, 1.4, -0.8, 1.7), rtol=1e-10)


def finite(depth, width, members, rate):
    """<h^L h^L> of finite networks after one step from f(0) taken as 0, with the branches trained: [members]."""
    net, x = NET.clone(width=width, depth=depth), jnp.ones((1, 1))
    factor = float(parameterization("mup").learning_rate_factor("branch", width, 1.0, depth))

    def output(params):
        f: Any = net.apply({"params": params}, x)
        return f[0, 0]

    def one(key):
        params = net.init(key, x)["params"]
        slope = jax.grad(output)(params)
        moved = {
            name: jax.tree.map(lambda w, g: w + rate * factor * g, params[name], slope[name])
            if name.startswith("block")
            else params[name]
            for name in params
        }
        inside: Any = net.apply({"params": moved}, x, intermediates=True)[1]
        return jnp.mean(inside["h"][-1] ** 2)

    return np.asarray(jax.lax.map(jax.jit(one), jax.random.split(jax.random.key(0), members)), np.float64)


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "width", "members"), [(6, 100, 200), (50, 1000, 40)])
def test_finite_networks_decide(depth, width, members):
    """Within 3 standard errors of the recursion with G = (1 + 1/L)^(L − l), more than 5 away from that of the printed one."""
    values, expected = finite(depth, width, members, 0.5), one_step_recursion(depth, 0.5)[-1]
    error = values.std(ddof=1) / members**0.5
    assert abs(values.mean() - expected) < 3 * error
    wrong = recursion_with(lambda tau: np.exp(-tau) + 1 + np.exp(-1), depth, 0.5)
    assert abs(values.mean() - wrong) > 5 * error


def test_the_printed_profile_is_the_limit_of_the_printed_kernel():
    """So that the comparison above is one with what is printed."""
    g = lambda tau: np.exp(-tau) + 1 + np.exp(-1)  # noqa: E731
    away = [recursion_with(g, depth, 0.5) - printed(1.0, 0.5) for depth in (400, 800)]
    assert abs(2 * away[1] - away[0]) < 1e-3


def test_layer_time_ends_at_one():
    with pytest.raises(ValueError, match="from 0 to 1"):
        one_step_profile(1.2, 0.1)
