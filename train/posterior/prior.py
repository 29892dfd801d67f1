"""The prior of a definition as numbers: how the kernel of a layer follows from the layer before."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo import MLP, activation_function, parameterization
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
