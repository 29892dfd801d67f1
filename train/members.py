"""The compiled programs of an ensemble: initialise, advance and observe all members at once.

Everything that does not change a shape is an argument: seeds, learning rate, γ₀ and the exponents of the
parameterization. So a sweep over them compiles once for each (width, depth, number of points).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from limits import Task, empirical_ntk
from zoo import learning_rate_factors, parameterization, scale_gradients


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Dials:
    """What is traced."""

    parameterization: Any
    gamma: Any
    learning_rate: Any

    @classmethod
    def of(cls, net: Any, learning_rate: float) -> "Dials":
        """The dials of this definition."""
        named = parameterization(net.parameterization).replace()
        # As arrays of the default float type, so that their values do not enter the compiled program.
        numbers = jax.tree.map(lambda number: jnp.asarray(number, float), (named, net.gamma, learning_rate))
        return cls(*numbers)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Data:
    """Inputs [n, …] (train points, then test points) and training targets."""

    x: Any
    y: Any

    @classmethod
    def of(cls, task: Task) -> "Data":
        """The task's arrays in the default float type."""
        return cls(jnp.asarray(task.x, float), jnp.asarray(task.y_train, float))


def point_loss(kind: str) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The loss of outputs [n, k] and targets, mean over samples."""
    if kind == "mse":
        return lambda f, y: 0.5 * jnp.mean(jnp.sum((f - y) ** 2, axis=-1))
    return lambda f, y: jnp.mean(optax.losses.softmax_cross_entropy(f, y))


@dataclasses.dataclass(frozen=True)
class Programs:
    """The jitted functions of one shape; the first axis of keys, params and states is members."""

    init: Callable
    advance: Callable
    outputs: Callable
    kernels: Callable


def programs(
    net: nn.Module, task: Task, momentum: float, centred: bool, kernels: tuple[str, ...], observe: Any
) -> Programs:
    """The programs for this definition's shape (its parameterization and γ₀ are dials)."""
    shape = net.clone(parameterization="ntk", gamma=1.0)
    return _programs(shape, task.loss, len(task.x_train), momentum, centred, kernels, observe)


@functools.lru_cache(maxsize=64)
def _programs(
    net: Any, loss: str, n_train: int, momentum: float, centred: bool, kernels: tuple[str, ...], user: Any
) -> Programs:
    def dialled(dials: Dials) -> Any:
        return net.clone(parameterization=dials.parameterization, gamma=dials.gamma)

    def optimiser(dials: Dials, x: Any) -> optax.GradientTransformation:
        factors = scale_gradients(learning_rate_factors(dialled(dials), x))
        return optax.chain(factors, optax.sgd(dials.learning_rate, momentum=momentum or None))

    def init(key: Any, dials: Dials, data: Data) -> Any:
        params = dialled(dials).init(key, data.x[:1])["params"]
        return params, optimiser(dials, data.x[:1]).init(params)

    def advance(params: Any, state: Any, start: Any, dials: Dials, data: Data, steps: Any) -> Any:
        tx, x = optimiser(dials, data.x[:1]), data.x[:n_train]
        # The starting outputs do not change: one forward pass, not one a step.
        offset = dialled(dials).apply({"params": start}, x) if centred else 0.0

        def objective(p: Any) -> Any:
            return point_loss(loss)(dialled(dials).apply({"params": p}, x) - offset, data.y)

        def step(_: Any, carry: Any) -> Any:
            p, s = carry
            updates, s = tx.update(jax.grad(objective)(p), s, p)
            return optax.apply_updates(p, updates), s

        return jax.lax.fori_loop(0, steps, step, (params, state))

    def outputs(params: Any, dials: Dials, data: Data) -> Any:
        return dialled(dials).apply({"params": params}, data.x)

    def measure(params: Any, dials: Dials, data: Data) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        if "features" in kernels:
            _, inside = dialled(dials).apply({"params": params}, data.x, intermediates=True)
            seen["features"] = inside["features"] @ inside["features"].T / inside["features"].shape[-1]
        if "phi" in kernels:
            seen["phi"] = feature_kernels(dialled(dials), params, data.x)
        if "g" in kernels:
            seen["g"] = gradient_kernels(dialled(dials), params, data.x)
        if "ntk" in kernels:
            rates = learning_rate_factors(dialled(dials), data.x[:1])
            seen["ntk"] = empirical_ntk(
                lambda p, x: dialled(dials).apply({"params": p}, x), params, data.x, rates=rates
            )
        if user is not None:
            seen["observed"] = user(dialled(dials), {"params": params}, data.x)
        return seen

    return Programs(
        _jit(jax.vmap(init, (0, None, None))),
        _jit(jax.vmap(advance, (0, 0, 0, None, None, None))),
        _jit(jax.vmap(outputs, (0, None, None))),
        _jit(jax.vmap(measure, (0, None, None))),
    )


def _jit(function: Callable) -> Callable:
    """jax.jit; on a CPU with LLVM's quick passes: compilation takes half the time, and the matrix products no longer."""
    options = {"xla_backend_optimization_level": 1} if jax.default_backend() == "cpu" else None
    return jax.jit(function, compiler_options=options)


def feature_kernels(net: Any, params: Any, x: Any) -> tuple:
    """Φ^l = <φ φ'> over the neurons of each layer, and over its positions."""
    _, inside = net.apply({"params": params}, x, intermediates=True)
    flat = [a.reshape(len(a), -1) for a in inside["phi"]]
    return tuple(a @ a.T / a.shape[-1] for a in flat)


def gradient_kernels(net: Any, params: Any, x: Any) -> tuple:
    """G^l = <g g'> over neurons, with g = √N γ ∂f/∂h in the mean-field normalisation, averaged over outputs and positions.

    So G^l is O(1), and the tangent kernel of a dense network is Σ_l G^l (w² Φ^(l−1) + b²).
    """
    f, inside = net.apply({"params": params}, x, intermediates=True)
    n, k = f.shape
    shifts = {f"h{l}": jnp.zeros_like(h) for l, h in enumerate(inside["h"], start=1)}
    _, pullback = jax.vjp(lambda s: net.apply({"params": params, "perturbations": s}, x), shifts)
    basis = jnp.broadcast_to(jnp.eye(k, dtype=f.dtype)[:, None, :], (k, n, k))
    slopes = jax.vmap(pullback)(basis)[0]
    p = parameterization(net.parameterization)
    scale = jnp.asarray(p.output_scale(net.width, net.gamma) ** 2 / k * net.width ** (1 - 2 * p.a - p.b), f.dtype)
    flat = [slopes[name].reshape(k, n, -1, slopes[name].shape[-1]) for name in shifts]
    return tuple(scale / g.shape[2] * jnp.einsum("knpm,kjpm->nj", g, g) for g in flat)


def member_sharding() -> NamedSharding:
    """Members spread over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("members",), axis_types=(AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec("members"))


def member_keys(seed: int, first: int, count: int) -> Any:
    """One key a member, the same whatever the chunk it is computed in."""
    root = jax.random.key(seed)
    keys = jax.vmap(lambda m: jax.random.fold_in(root, m))(np.arange(first, first + count))
    return jax.device_put(keys, member_sharding())
