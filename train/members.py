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
from limits.losses import point_loss
from limits.observables import feature_kernels, gradient_kernels, output_basis
from limits.rule import Rule
from zoo import parameterization


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


@dataclasses.dataclass(frozen=True)
class Programs:
    """The jitted functions of one shape; the first axis of keys, params and states is members."""

    init: Callable
    advance: Callable
    outputs: Callable
    kernels: Callable


def programs(net: nn.Module, task: Task, rule: Rule, kernels: tuple[str, ...], observe: Any) -> Programs:
    """The programs for this definition's shape (its parameterization and γ₀ are dials)."""
    shape = net.clone(parameterization="ntk", gamma=1.0)
    return _programs(shape, len(task.x_train), rule, kernels, observe)


@functools.lru_cache(maxsize=64)
def _programs(net: Any, n_train: int, rule: Rule, kernels: tuple[str, ...], user: Any) -> Programs:
    def dialled(dials: Dials) -> Any:
        return net.clone(parameterization=dials.parameterization, gamma=dials.gamma)

    def optimiser(dials: Dials, x: Any) -> optax.GradientTransformation:
        return rule.optimiser(dialled(dials), x, dials.learning_rate)

    def init(key: Any, dials: Dials, data: Data) -> Any:
        params = dialled(dials).init(key, data.x[:1])["params"]
        return params, optimiser(dials, data.x[:1]).init(params)

    def advance(params: Any, state: Any, start: Any, dials: Dials, data: Data, steps: Any) -> Any:
        tx, x = optimiser(dials, data.x[:1]), data.x[:n_train]
        # The starting outputs do not change: one forward pass, not one a step.
        offset = dialled(dials).apply({"params": start}, x) if rule.centred else 0.0

        def objective(p: Any) -> Any:
            return point_loss(rule.loss)(dialled(dials).apply({"params": p}, x) - offset, data.y)

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
            _, inside = dialled(dials).apply({"params": params}, data.x, intermediates=True)
            seen["phi"] = feature_kernels(inside["phi"])
        if "g" in kernels:
            seen["g"] = gradient_kernels(dialled(dials), slopes(dialled(dials), params, data.x))
        if "ntk" in kernels:
            rates = rule.factors(dialled(dials), data.x[:1])
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


def slopes(net: Any, params: Any, x: Any) -> list[Any]:
    """∂f_k/∂h^l [outputs, n, …] of every h^l that the definition returns."""
    f, inside = net.apply({"params": params}, x, intermediates=True)
    shifts = {f"h{l}": jnp.zeros_like(h) for l, h in enumerate(inside["h"], start=1)}
    passed: Any = jax.vjp(lambda s: net.apply({"params": params, "perturbations": s}, x), shifts)
    found = jax.vmap(passed[1])(output_basis(f))[0]
    return [found[name] for name in shifts]


def member_sharding() -> NamedSharding:
    """Members spread over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("members",), axis_types=(AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec("members"))


def member_keys(seed: int, first: int, count: int) -> Any:
    """One key a member, the same whatever the chunk it is computed in."""
    root = jax.random.key(seed)
    keys = jax.vmap(lambda m: jax.random.fold_in(root, m))(np.arange(first, first + count))
    return jax.device_put(keys, member_sharding())
