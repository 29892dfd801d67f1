"""The posterior of any network of the zoo: Langevin dynamics of its weights, with an accept step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits import Task
from train.posterior.layers import KernelChain, followed
from train.posterior.moves import Dynamics
from train.posterior.run import Chains, ChainSettings, run_chains
from zoo import MLP
from zoo.roles import Where, placed


def prior_stds(net: Any, x: np.ndarray) -> Any:
    """The prior's standard deviation of every parameter, a tree like them: that of initialisation, 0 where all start equal
    (norms, biases that start at zero)."""
    where = placed(net, jax.ShapeDtypeStruct((1, *x.shape[1:]), "float32"))
    return jax.tree.map(
        lambda at: 0.0 if at.role == "norm" else float(at.std), where, is_leaf=lambda at: isinstance(at, Where)
    )


def run_langevin(net: Any, task: Task, noise: float, plan: ChainSettings) -> Chains:
    """Chains of the weights, started at the prior (`net.init`).

    u = θ / σ, σ the standard deviation of each parameter at initialisation, follows `Dynamics` with
    Φ(u) = Σ (f − y)² / (2 noise): temperature T = 2 noise on the loss Σ (f − y)², and decay T / σ² of each parameter (all T
    where weights are N(0, 1) times a multiplier; T N / w² for a hidden layer in `standard`).

    Divergence: papers often take the overdamped equation with a small step and no accept step, which is biased, and so slow
    in the biases (σ_b² / (T η) steps) that its warm-up does not end.
    """
    n, x, y = len(task.x_train), jnp.asarray(task.x), jnp.asarray(task.y_train)
    std = prior_stds(net, task.x)
    variables = net.init(plan.key, x[:1])
    if set(variables) != {"params"}:
        raise ValueError(
            f"Langevin dynamics needs a network whose output depends on its parameters only; this {type(net).__name__} keeps "
            f"{', '.join(sorted(set(variables) - {'params'}))} too. Use another normalisation."
        )
    fixed = jax.tree.map(lambda theta, s: jnp.where(s > 0, 0.0, theta), variables["params"], std)

    def outputs(u: Any, x: jax.Array, **options: Any) -> Any:
        return net.apply({"params": jax.tree.map(lambda u, s, at: at + s * u, u, std, fixed)}, x, **options)

    def misfit(u: Any) -> jax.Array:
        return jnp.sum((outputs(u, x[:n]) - y) ** 2) / (2 * noise)

    dynamics = Dynamics(jax.value_and_grad(misfit), plan.leaps)
    layers = KernelChain.of(net, int(np.prod(task.x.shape[1:]))) if isinstance(net, MLP) else None
    c0 = None if layers is None else jnp.asarray(layers.first(task.x))

    def observe(state: Any, key: jax.Array) -> Any:
        numbers = {"misfit": state[2], "labels in f": 0.0}
        if layers is None:
            f, kernels = outputs(state[0], x), ()
        else:
            f, inside = outputs(state[0], x, intermediates=True)
            kernels = (c0, *(layers.next(l + 1, h) for l, h in enumerate(h.T for h in inside["h"])))
            numbers |= followed(kernels, y)
        numbers["labels in f"] = jnp.sum(y * f[:n])
        away = f[:n] - y
        force = (away @ away.T - y.shape[1] * noise * jnp.eye(n)) / (2 * noise**2)
        return {"kernels": kernels, "conjugate": (force,), "mean": f, "second": f @ f.T / y.shape[1]}, numbers

    def begin(key: jax.Array) -> Any:
        weights, momenta = jax.random.split(key)
        params = net.init(weights, x[:1])["params"]
        u = jax.tree.map(lambda theta, s: theta / s if s > 0 else jnp.zeros_like(theta), params, std)
        size = 0.1 * np.sqrt(noise / (noise + n))
        return dynamics.start(u, momenta, size)

    states = jax.vmap(begin)(jax.random.split(jax.random.fold_in(plan.key, 1), plan.chains))
    moves = jax.random.fold_in(plan.key, 2)
    return run_chains(dynamics.step, observe, states, moves, plan, f"Langevin dynamics at width {net.width}")
