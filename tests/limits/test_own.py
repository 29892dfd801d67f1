"""Modules of one's own: their tangent kernels, whichever way they use their parameters."""

from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_modules import MODULES, VECTORS, Offset, Own, by_definition

from limits import AbsentError, Task, empirical_ntk, twin
from limits.fields.matrix import multiply
from limits.fields.measure import measure
from limits.fields.network import REVEALED
from limits.fields.sweep import CausalSweep
from limits.finite.output_power import check_output_power
from limits.training import Training
from train import ensemble
from zoo import Dense, Norm, learning_rate_factors, parameterization


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


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_a_measured_kernel_is_that_of_the_network_with_the_matrices_that_were_revealed(name):
    cls, x = MODULES[name]
    net = cls(width=10)
    with jax.enable_x64(True):
        sweep, x = CausalSweep(net, Training("mse"), x.shape, len(x), "float64", steps=0), jnp.asarray(x)
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


@pytest.mark.slow
def test_the_kernel_of_a_pair_does_not_change_when_inputs_are_added():
    """All that was revealed for three inputs is kept: the network of two of them is the very same one."""
    net = Offset(width=10)
    with jax.enable_x64(True):
        sweep, x = CausalSweep(net, Training("mse"), VECTORS.shape, 3, "float64", steps=0), jnp.asarray(VECTORS)
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


class Gated(nn.Module):
    """A gate and a value; what may stand behind and before the readout."""

    width: int
    parameterization: str = "mup"
    heads: int = 1
    before: Any = None  # powers of the width that divide the features, and the outputs (None: as zoo says)
    after: Any = None
    tail: str = ""

    @nn.compact
    def __call__(self, x):
        p, n = parameterization(self.parameterization), self.width
        h = Dense(n, "input", n, p)(x)
        gate, value = (Dense(n, "hidden", n, p)(jnp.tanh(h)) for _ in range(2))
        a = (nn.sigmoid(gate) * value).reshape(len(x), self.heads, n // self.heads).reshape(len(x), n)
        f = Dense(1, "readout", n, p)(a / n ** (self.before or 0))
        if self.tail:
            f = jnp.tanh(f) if self.tail == "tanh" else f * jnp.tanh(gate[:, :1])
        return f / (p.output_scale(n, 1.0) if self.after is None else n**self.after)


FORGOTTEN = (
    r"Gated: its outputs go as N\^0 times .* must go as N\^-0.5 in the mup .* f / p.output_scale\(self.width, gamma\)"
)


@pytest.mark.parametrize(
    "call",
    [
        lambda net: twin(net).kernels(VECTORS, samples=64, replicas=2),
        pytest.param(lambda net: twin(net).rich(Task(VECTORS, [1.0, 0.0, 1.0]), 1, 0.1), marks=pytest.mark.slow),
        pytest.param(lambda net: ensemble(net, Task(VECTORS, [1.0, 0.0, 1.0]), 2, 1, 0.1), marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_outputs_that_are_not_scaled_are_refused_and_the_remedy_named(call):
    with pytest.raises(ValueError, match=FORGOTTEN):
        call(Gated(8, after=0))


def _gated(options: dict[str, Any]) -> Any:
    return Gated(**{"width": 64, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"after": 1}, r"go as N\^-1 times .* must go as N\^-0.5 in the mup", marks=pytest.mark.slow),
        pytest.param(
            {"after": 0.5, "parameterization": "ntk"},
            r"go as N\^-0.5 times .* N\^0 in the ntk .* divide by no power",
            marks=pytest.mark.slow,
        ),
        pytest.param({"after": 0, "tail": "gate"}, FORGOTTEN, marks=pytest.mark.slow),
        pytest.param({"after": 0, "tail": "tanh"}, FORGOTTEN, marks=pytest.mark.slow),
        ({"after": 0, "heads": 3, "width": 48}, r"go as N\^0 times .*\(from widths 24 and 384\)"),
    ],
)
def test_other_powers_of_the_width_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        check_output_power(_gated(options), (4,))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tail": "tanh"},
        {"heads": 3, "width": 48},
        {"parameterization": "ntk", "after": 0},
        pytest.param({"after": 0, "before": 0.5}, marks=pytest.mark.slow),  # the factor stands before the readout
        pytest.param({"tail": "gate"}, marks=pytest.mark.slow),
    ],
)
def test_right_powers_of_the_width_are_taken(options):
    check_output_power(_gated(options), (4,))


class Shifted(Own):
    """A module that holds an array."""

    by: Any = None

    def hidden(self, x):
        return self.dense("input")(x + jnp.asarray(self.by)[None])


@pytest.mark.slow
def test_definitions_may_hold_arrays_and_are_told_apart_by_their_content():
    task = Task(VECTORS, VECTORS[:, :2])
    one, same, other = (Shifted(8, by=np.full(4, by)) for by in (0.0, 0.0, 3.0))
    found = [twin(net).rich(task, 1, 0.1, samples=8, replicas=2, kernels=()).f_train for net in (one, same, other)]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.allclose(found[0], found[2])


class BatchNormed(Own):
    """Batch normalisation, and no argument `intermediates`."""

    @nn.compact
    def __call__(self, x, train=False):
        h = jnp.tanh(Norm("batch", self.width, self.p)(self.dense("input")(x), train))
        return Dense(1, "readout", self.width, self.p)(jnp.tanh(h)) / self.p.output_scale(self.width, 1.0)


class Untold(BatchNormed):
    """It cannot be told when it trains."""

    @nn.compact
    def __call__(self, x):
        h = Norm("batch", self.width, self.p)(self.dense("input")(x), True)
        return Dense(1, "readout", self.width, self.p)(h) / self.p.output_scale(self.width, 1.0)


@pytest.mark.slow
def test_batch_normalisation_needs_no_argument_intermediates():
    found = twin(BatchNormed(8)).kernels(VECTORS, samples=4096, replicas=4)
    h = VECTORS @ np.random.default_rng(1).normal(size=(4, 400_000)) / 2
    h = (h - h.mean(0)) / np.sqrt(h.var(0) + 1e-6)
    # A neuron's share lies within tanh(1)² = 0.58, so that the mean of 16384 has an error of at most 0.0046: 4 of them.
    np.testing.assert_allclose(found.nngp, (a := np.tanh(np.tanh(h))) @ a.T / 400_000, atol=0.018)
    with pytest.raises(AbsentError, match="batch normalisation makes every output depend on all inputs"):
        _ = found.ntk
    task = Task(VECTORS[:2], [1.0, -1.0], VECTORS[2:], [0.0])
    run = twin(BatchNormed(8)).rich(task, steps=2, learning_rate=0.1, samples=64, replicas=2)
    assert run.loss[-1] < 0.9 * run.loss[0]
    with pytest.raises(ValueError, match=r"Untold normalises over .* no argument `train`"):
        twin(Untold(8)).kernels(VECTORS, samples=16)


class Mixed(Own):
    """The mean over the batch, taken by hand."""

    def hidden(self, x):
        return self.dense("input")(x - 0.5 * x.mean(0, keepdims=True))


def test_outputs_that_depend_on_the_other_inputs_have_no_kernel_of_pairs():
    with pytest.raises(ValueError, match="Mixed: the outputs of one input depend on the other inputs of the call"):
        twin(Mixed(8)).kernels(VECTORS, samples=64, replicas=2)


@pytest.mark.slow
def test_a_module_is_compiled_once_for_a_shape(compilations):
    limit = twin(Gated(8))
    first = limit.kernels(VECTORS, samples=32, replicas=2)
    assert compilations()
    second = twin(Gated(8)).kernels(VECTORS + 1, samples=32, replicas=3, seed=1)
    assert compilations() == []
    assert not np.allclose(first.ntk, second.ntk)
    assert second.provenance["ntk"].detail.endswith("standard errors have 2 degrees of freedom")
