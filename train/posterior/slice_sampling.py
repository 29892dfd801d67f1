"""The exact posterior of finite MLPs: elliptical slice sampling on whitened layers, the weights integrated out."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits import Task
from train.posterior.dynamics import Dynamics
from train.posterior.prior import KernelChain
from train.posterior.run import Record, run_chains
from zoo import MLP

MOST = 200  # evaluations a step; the bracket then is 1e-30 wide


def log_likelihood(c: jax.Array, y: jax.Array, noise: Any) -> jax.Array:
    """log N(y | 0, C + noise) of targets [P, outputs], without its constant."""
    lower = jnp.linalg.cholesky(c + noise * jnp.eye(len(c)))
    white = jax.scipy.linalg.solve_triangular(lower, y, lower=True)
    return -0.5 * jnp.sum(white**2) - y.shape[1] * jnp.sum(jnp.log(jnp.diag(lower)))


def elliptical_slice(
    z: jax.Array, now: jax.Array, key: jax.Array, likelihood: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One step for z ~ N(0, 1) a priori, where `now` is its log-likelihood: (z, log-likelihood, evaluations it took).

    A level below `now` and an ellipse through z are drawn, z cos θ + ν sin θ; the bracket of θ shrinks to 0 until a point
    lies above the level. There is no step size, and every step is accepted.

    Reference: Murray, Adams & MacKay (2010), Elliptical slice sampling.
    """
    direction, level, angle, shrinking = jax.random.split(key, 4)
    nu = jax.random.normal(direction, z.shape)
    floor = now + jnp.log(jax.random.uniform(level, minval=jnp.finfo(z.dtype).tiny))
    theta = jax.random.uniform(angle, maxval=2 * jnp.pi)

    def at(theta: jax.Array) -> jax.Array:
        return z * jnp.cos(theta) + nu * jnp.sin(theta)

    def shrink(carry: Any) -> Any:
        theta, low, high, _, count = carry
        low, high = jnp.where(theta < 0, theta, low), jnp.where(theta < 0, high, theta)
        theta = jax.random.uniform(jax.random.fold_in(shrinking, count), minval=low, maxval=high)
        return theta, low, high, likelihood(at(theta)), count + 1

    first = (theta, theta - 2 * jnp.pi, theta, likelihood(at(theta)), jnp.int32(1))
    theta, _, _, found, count = jax.lax.while_loop(lambda c: ~(c[3] > floor) & (c[4] < MOST), shrink, first)
    inside = found > floor  # not so only where the likelihood itself is not a number
    return jnp.where(inside, at(theta), z), jnp.where(inside, found, now), count


def predictive(c: jax.Array, y: jax.Array, noise: Any) -> tuple[jax.Array, jax.Array]:
    """Mean [points, outputs] and covariance of f ~ N(0, C) given y = f + N(0, noise) at the first points."""
    n = len(y)
    lower = jnp.linalg.cholesky(c[:n, :n] + noise * jnp.eye(n))
    white = jax.scipy.linalg.solve_triangular(lower, c[:n], lower=True)  # [n, points]
    return white.T @ jax.scipy.linalg.solve_triangular(lower, y, lower=True), c - white.T @ white


def run_layers(
    net: MLP,
    task: Task,
    noise: float,
    chains: int,
    steps: int,
    warmup: int,
    thin: int,
    key: Any,
    progress: bool,
    leaps: int | None = None,
) -> Record:
    """Chains of the whitened layers Z^(0) … Z^(L−1), [N, P] each, of the training points.

    Test points carry no information: their part of Z has its prior, and is drawn anew at every observation, so that
    kernels of all points are drawn given those of the training points. The force on a kernel,
    C̃^(l) = ∂ log p(y | C^(l)) / ∂C^(l), is the posterior mean of the derivative at fixed Z^(l), Z^(l+1), …

    leaps=None: elliptical slice sampling. Otherwise `Dynamics` of Z with so many leaps a step.
    """
    n, points, y = len(task.x_train), len(task.x), jnp.asarray(task.y_train)
    chain = KernelChain.of(net, int(np.prod(task.x.shape[1:])))
    c0 = jnp.asarray(chain.first(task.x))
    lead = functools.partial(chain.kernels, c0[:n, :n], lead=n)

    def likelihood(z: jax.Array, shifts: Any = None) -> jax.Array:
        return log_likelihood(lead(z, shifts=shifts)[-1], y, noise)

    def slice_step(state: Any, key: jax.Array, warming: jax.Array) -> Any:
        z, now, count = elliptical_slice(state[0], state[1], key, likelihood)
        return (z, now), {"evaluations": count}

    def observe(state: Any, key: jax.Array) -> Any:
        z = state[0]
        rest = jax.random.normal(key, (*z.shape[:2], points - n))
        kernels = chain.kernels(c0, jnp.concatenate([z, rest], axis=2), lead=n)
        mean, cov = predictive(kernels[-1], y, noise)
        forces = jax.grad(likelihood, argnums=1)(z, [jnp.zeros((n, n))] * len(kernels))
        seen = {
            "kernels": tuple(kernels),
            "conjugate": tuple((force + force.T) / 2 for force in forces),
            "mean": mean,
            "second": cov + mean @ mean.T / y.shape[1],
        }
        return seen, {"log-likelihood": likelihood(z), **followed(kernels, y)}

    start, moves = jax.random.split(key)
    z = jax.random.normal(start, (chains, chain.depth, chain.width, n))
    if leaps is None:
        step, states = slice_step, (z, jax.vmap(likelihood)(z))
    else:
        dynamics = Dynamics(jax.value_and_grad(lambda z: -likelihood(z)), leaps)
        momenta = jax.random.split(jax.random.fold_in(start, 1), chains)
        step, states = dynamics.step, jax.vmap(lambda z, key: dynamics.start(z, key, 1 / leaps))(z, momenta)
    words = f"posterior of width {chain.width}, {chains} chains"
    return run_chains(step, observe, states, jax.random.split(moves, chains), steps, warmup, thin, words, progress)


def followed(kernels: Any, y: jax.Array) -> dict[str, jax.Array]:
    """The numbers by which convergence is judged: size of every kernel, and its part along the labels, at training points."""
    n, seen = len(y), {}
    for l, c in enumerate(kernels):
        seen |= {f"trace of C^({l})": jnp.trace(c[:n, :n]), f"labels in C^({l})": jnp.sum(y * (c[:n, :n] @ y))}
    return seen
