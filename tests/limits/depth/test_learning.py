"""Feature learning at infinite depth."""

import math

import numpy as np
import pytest

from limits import Task, twin
from limits.depth import one_step_profile
from zoo import Parameterization, ResNet

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
    options = {"times": (0, 1, 2), "depths": (4, 8, 12)}
    some, every = (deep(NET).rich(ONE, 2, 0.1, **options, kernel_times=at) for at in ((0, 2), None))
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
