"""Modules of one's own: their tangent kernels, whichever way they use their parameters."""

from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_modules import MODULES, VECTORS, Offset, by_definition

from limits import empirical_ntk, twin
from limits.fields.matrix import multiply
from limits.fields.measure import measure
from limits.fields.network import REVEALED
from limits.fields.sweep import Sweep
from limits.rule import Rule
from zoo import learning_rate_factors

DEFAULT = ("offset through a shared matrix", "broadcast", "scan")
NAMES = [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in MODULES]


def quickly(function):
    """Compiled without LLVM's slower passes: programs that run once."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def kernel_of(matrix: Any) -> Any:
    """The weights, revealed along all directions of their inputs: s v W⁰ + Vᵀ M U."""
    inputs = matrix.v.shape[-1]
    room = matrix.resized(2 * inputs + matrix.v.shape[-2])
    whole = multiply(jnp.eye(inputs), room, jnp.array([0, 9], "uint32"), 1e-9)[1]
    return matrix.start * whole.v.T @ whole.y + matrix.v.T @ matrix.trained @ matrix.u


def drawn(variables: Any, revealed: Any) -> Any:
    """The parameters of the network that a sweep is."""
    params: Any = flax.traverse_util.flatten_dict(variables["params"])
    matrices: Any = flax.traverse_util.flatten_dict(revealed)
    for path, matrix in matrices.items():
        params[*path[:-1], "kernel"] = (kernel_of if matrix.v.ndim == 2 else jax.vmap(kernel_of))(matrix)
    return flax.traverse_util.unflatten_dict(params)


@pytest.mark.parametrize("name", NAMES)
def test_a_measured_kernel_is_that_of_the_network_with_the_matrices_that_were_revealed(name):
    cls, x = MODULES[name]
    net = cls(width=10)
    with jax.enable_x64(True):
        sweep, x = Sweep(net, Rule("mse"), x.shape, len(x), "float64", steps=0), jnp.asarray(x)
        state = quickly(sweep._start)(jax.random.key(3), x)
        variables = sweep._with_room(state, ("ntk",)).variables

        @quickly
        def both(variables: Any) -> Any:
            found, after = measure(net, sweep.factors, ("ntk",), variables, x, len(x), jax.random.key(5))
            params, rates = drawn(variables, after), learning_rate_factors(net, x[:1])
            apply = lambda params, x: net.apply({"params": params}, x)  # noqa: E731
            theirs = apply(params, x), empirical_ntk(apply, params, x, rates=rates)
            return (found["f"], found["ntk"], found["ntk"]), (*theirs, by_definition(apply, params, x, rates))

        for mine, theirs in zip(*both(variables), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-8 * np.abs(theirs).max(), rtol=0)


def test_the_kernel_of_a_pair_does_not_change_when_inputs_are_added():
    """All that was revealed for three inputs is kept: the network of two of them is the very same one."""
    net = Offset(width=10)
    with jax.enable_x64(True):
        sweep, x = Sweep(net, Rule("mse"), VECTORS.shape, 3, "float64", steps=0), jnp.asarray(VECTORS)
        state = quickly(sweep._start)(jax.random.key(3), x)
        variables = sweep._with_room(sweep._with_room(state, ("ntk",)), ("ntk",)).variables

        def look(variables: Any, x: Any) -> Any:
            return quickly(lambda held, x: measure(net, sweep.factors, ("ntk",), held, x, 1, jax.random.key(5)))(
                variables, x
            )

        found, after = look(variables, x)
        alone, _ = look(variables | {REVEALED: after}, x[:2])
        np.testing.assert_allclose(alone["ntk"], found["ntk"][:2, :2], rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_kernels_are_the_means_of_wide_networks(name):
    cls, x = MODULES[name]
    limit, seeds = twin(cls(width=8)).kernels(x, samples=2048, replicas=6), 6
    net = cls(width=2048)
    rates = learning_rate_factors(net, x[:1])

    @jax.jit
    def finite(key: Any) -> Any:
        params = net.init(key, jnp.asarray(x, "float32"))["params"]
        return empirical_ntk(lambda p, x: net.apply({"params": p}, x), params, jnp.asarray(x, "float32"), rates=rates)

    each = np.stack([finite(jax.random.key(seed)) for seed in range(100, 100 + seeds)]).astype(float)
    error = np.hypot(limit.ntk_sem, each.std(0, ddof=1) / seeds**0.5)
    # Six numbers of each of ten modules, Student's t with 5 to 10 degrees of freedom: beyond 8 once in 40 runs of all ten
    # if it were always 5. Both are off by O(1/2048).
    assert np.all(np.abs(limit.ntk - each.mean(0)) < 8 * error)
    assert error.max() < 0.03 * limit.ntk.max()
    print(name, "z", np.abs((limit.ntk - each.mean(0)) / error).max(), "error", error.max() / limit.ntk.max())
