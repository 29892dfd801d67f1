"""The mean of φ(z) as a sum of diagrams: Taylor coefficients of φ as vertices, cumulants of z as the lines between them."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from limits.cumulants.relu import as_piecewise_linear
from limits.kernels.hermite import derivative
from zoo import activation_function, checks


@checks.arguments(legs=checks.count(0, 12))
def diagrams(legs: int) -> list[tuple[tuple[int, ...], int]]:
    """The diagrams of a vertex φ^(m)/m! with m = `legs`: which cumulants its legs end in, and in how many ways.

    A leg alone ends in the mean, two in a variance, and so on: the partitions of m, each with the number
    m!/Π_n (n!)^{c_n} c_n! of ways to share out the legs, c_n being how often n occurs.

    >>> diagrams(3)
    [((3,), 1), ((2, 1), 3), ((1, 1, 1), 1)]
    """

    def partitions(rest: int, largest: int) -> Iterator[tuple[int, ...]]:
        if rest == 0:
            yield ()
        for n in range(min(rest, largest), 0, -1):
            for tail in partitions(rest - n, n):
                yield (n, *tail)

    def ways(parts: tuple[int, ...]) -> int:
        same = math.prod(math.factorial(n) ** parts.count(n) * math.factorial(parts.count(n)) for n in set(parts))
        return math.factorial(legs) // same

    return [(parts, ways(parts)) for parts in partitions(legs, legs)]


@checks.arguments(
    activation=checks.activation, cumulants=checks.several(checks.array(least=0)), order=checks.count(0, 12)
)
def taylor_mean(activation: Any, cumulants: Sequence[Any], order: int) -> jax.Array:
    """E φ(z_i) from the Taylor series of φ about 0 up to z^order, z_i with cumulants (κ₁, κ₂, …) [N] each and no others.

        μ' = Σ_m φ^(m)(0)/m! Σ_diagrams ways · Π κ_n = φ(0) + φ'(0) κ₁ + φ''(0)/2 (κ₂ + κ₁²) + …

    Exact for polynomials. With z = λ u the terms left out are of order λ^(order + 1), or of the next power that φ and the
    cumulants have; the series diverges where z reaches beyond φ's radius of convergence.

    >>> import zoo
    >>> taylor_mean(zoo.activations.Quadratic(0.5), (jnp.ones(1), 2 * jnp.ones(1)), order=2).tolist()
    [2.5]

    Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, section 2.3 and Table 2.1.
    Divergence: eq. 2.13 leaves out κ₁² beside κ₂.
    """
    phi, linear = activation_function(activation), as_piecewise_linear(activation)
    if linear is not None and linear.negative != linear.positive:
        raise ValueError("taylor_mean: this activation has a kink at 0 and no Taylor series; use gaussian_moments.")
    kappa = [jnp.asarray(each, float) for each in cumulants]
    total = jnp.zeros_like(kappa[0])
    for m in range(order + 1):
        slope = phi(jnp.zeros_like(kappa[0]))
        moment = jnp.zeros_like(kappa[0])
        for parts, ways in diagrams(m):
            if all(n <= len(kappa) for n in parts):
                moment = moment + ways * math.prod((kappa[n - 1] for n in parts), start=jnp.ones_like(kappa[0]))
        total = total + slope / math.factorial(m) * moment
        phi = derivative(phi)
    return total
