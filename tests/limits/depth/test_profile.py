"""One step in a deep linear network: the corrected profile, the printed one, and finite networks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task
from limits.depth import linear, one_step_profile, one_step_recursion
from limits.fields.sweeps import Plan
from limits.training import Training
from zoo import ResNet
from zoo.parameterization import parameterization

NET = ResNet(8, 4, activation="linear", parameterization="mup")


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


@pytest.mark.parametrize(
    ("depth", "width", "members"), [(6, 100, 200), pytest.param(50, 1000, 40, marks=pytest.mark.slow)]
)
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
