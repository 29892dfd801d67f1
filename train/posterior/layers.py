"""The exact posterior of finite MLPs, the weights integrated out: chains of whitened layers.

Given whitened Z^(l), the kernel of a layer follows from the one before; that is the prior as numbers.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits import Task
from train.posterior.moves import Dynamics, elliptical_slice
from train.posterior.run import Chains, ChainSettings, run_chains
from zoo import MLP, activation_function, parameterization
from zoo.definition import check_alike
from zoo.roles import placed

JITTER = 1e-11  # of the mean variance, in factors of kernels that may be singular: far below any noise


@dataclasses.dataclass(frozen=True)
class KernelChain:
    """An MLP with its weights integrated out: given whitened Z^(l) ~ N(0, 1) [N, points],

        C^(0) = v₀ X Xᵀ + b₀,   h^(l) = Z^(l) chol(C^(l))ᵀ,   C^(l+1) = v_(l+1) φ(h^(l))ᵀ φ(h^(l)) + b_(l+1),

    has exactly the law of the network's kernels, and its output is N(0, C^(L)). v and b are variances at initialisation
    times multipliers squared, whatever the parameterization, and those of the readout are over γ². A bias that starts at
    zero has the variance zero.

    >>> chain = KernelChain.of(MLP(width=4, depth=1, activation="linear", w_std=2.0, gamma=2.0), inputs=4)
    >>> chain.weights, chain.biases
    ((1.0, 0.25), (0.0, 0.0))
    """

    phi: Any
    width: int
    weights: tuple[float, ...]
    biases: tuple[float, ...]

    @classmethod
    def of(cls, net: MLP, inputs: int) -> "KernelChain":
        """Of a definition with so many input features."""
        check_alike("Sampling of whitened layers", net)
        where = placed(net, jax.ShapeDtypeStruct((1, inputs), "float32"))
        layers = [where[f"hidden_{l}"] for l in range(1, net.depth + 1)] + [where["readout"]]
        scale = float(parameterization(net.parameterization).output_scale(net.width, net.gamma)) ** 2
        over = [1.0] * net.depth + [scale]

        def variances(name: str) -> tuple[float, ...]:
            found = [layer.get(name) for layer in layers]
            return tuple(
                0.0 if part is None else float(part.std * part.multiplier) ** 2 / by
                for part, by in zip(found, over, strict=True)
            )

        return cls(activation_function(net.activation), net.width, variances("kernel"), variances("bias"))

    @property
    def depth(self) -> int:
        """L: how many activations there are."""
        return len(self.weights) - 1

    def first(self, x: np.ndarray) -> np.ndarray:
        """C^(0) of inputs [n, …]."""
        x = x.reshape(len(x), -1)
        return self.weights[0] * x @ x.T + self.biases[0]

    def factor(self, c: jax.Array, lead: int) -> jax.Array:
        """The Cholesky factor of a kernel; its first `lead` points have the same whatever points follow.

        A kernel of zeros (a layer of relus may be dead at all training points) has the factor 1e-44: zero to rounding, and
        with derivatives that stay finite.
        """
        variance = jnp.diagonal(c)
        size = jnp.maximum(variance[:lead].mean(), jnp.finfo(c.dtype).tiny ** 0.25)
        sizes = jnp.where(jnp.arange(len(c)) < lead, size, jnp.maximum(size, variance.max()))
        return jnp.linalg.cholesky(c + JITTER * jnp.diag(sizes))

    def next(self, l: int, h: jax.Array) -> jax.Array:
        """C^(l), l ≥ 1, of pre-activations h^(l-1) [N, points]."""
        a = self.phi(h)
        return self.weights[l] * a.T @ a + self.biases[l]

    def kernels(self, c0: jax.Array, z: jax.Array, lead: int, shifts: Any = None) -> list[jax.Array]:
        """C^(0) … C^(L) of whitened z [L, N, points]; `shifts` are added to each, for derivatives."""
        moved = [0.0] * (self.depth + 1) if shifts is None else shifts
        found = [c0 + moved[0]]
        for l in range(self.depth):
            found.append(self.next(l + 1, z[l] @ self.factor(found[-1], lead).T) + moved[l + 1])
        return found


def log_likelihood(c: jax.Array, y: jax.Array, noise: Any) -> jax.Array:
    """log N(y | 0, C + noise) of targets [P, outputs], without its constant."""
    lower = jnp.linalg.cholesky(c + noise * jnp.eye(len(c)))
    white = jax.scipy.linalg.solve_triangular(lower, y, lower=True)
    return -0.5 * jnp.sum(white**2) - y.shape[1] * jnp.sum(jnp.log(jnp.diag(lower)))


def predictive(c: jax.Array, y: jax.Array, noise: Any) -> tuple[jax.Array, jax.Array]:
    """Mean [points, outputs] and covariance of f ~ N(0, C) given y = f + N(0, noise) at the first points."""
    n = len(y)
    lower = jnp.linalg.cholesky(c[:n, :n] + noise * jnp.eye(n))
    white = jax.scipy.linalg.solve_triangular(lower, c[:n], lower=True)  # [n, points]
    return white.T @ jax.scipy.linalg.solve_triangular(lower, y, lower=True), c - white.T @ white


def run_layers(net: MLP, task: Task, noise: float, plan: ChainSettings) -> Chains:
    """Chains of the whitened layers Z^(0) … Z^(L−1), [N, P] each, of the training points.

    Test points carry no information: their part of Z has its prior, and is drawn anew at every observation, so that
    kernels of all points are drawn given those of the training points. The force on a kernel,
    C̃^(l) = ∂ log p(y | C^(l)) / ∂C^(l), is the posterior mean of the derivative at fixed Z^(l), Z^(l+1), …

    Without leaps: elliptical slice sampling. Otherwise `Dynamics` of Z.
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

    start, moves = jax.random.split(plan.key)
    z = jax.random.normal(start, (plan.chains, chain.depth, chain.width, n))
    if not plan.leaps:
        step, states = slice_step, (z, jax.vmap(likelihood)(z))
    else:
        dynamics = Dynamics(jax.value_and_grad(lambda z: -likelihood(z)), plan.leaps)
        momenta = jax.random.split(jax.random.fold_in(start, 1), plan.chains)
        step, states = dynamics.step, jax.vmap(lambda z, key: dynamics.start(z, key, 1 / dynamics.leaps))(z, momenta)
    return run_chains(step, observe, states, moves, plan, f"posterior of width {chain.width}")


def followed(kernels: Any, y: jax.Array) -> dict[str, jax.Array]:
    """The numbers by which convergence is judged: size of every kernel, and its part along the labels, at training points."""
    n, seen = len(y), {}
    for l, c in enumerate(kernels):
        seen |= {f"trace of C^({l})": jnp.trace(c[:n, :n]), f"labels in C^({l})": jnp.sum(y * (c[:n, :n] @ y))}
    return seen
