"""What an activation does to cumulants of its inputs: of Gaussians, with their first corrections, and as a Taylor series."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from limits.cumulants.quadrature import ORDERS, derivative_means, quadrature_moments
from limits.cumulants.relu import as_piecewise_linear, piecewise_linear_moments
from limits.kernels.bivariate import normal_density
from limits.kernels.hermite import derivative
from zoo import activation_function, checks
from zoo.activations import Quadratic


@checks.arguments(
    activation=checks.activation,
    mean=checks.array(least=1),
    covariance=checks.array(least=2),
    orders=checks.count(1, 512),
)
def gaussian_moments(activation: Any, mean: Any, covariance: Any, orders: int = ORDERS) -> tuple[Any, Any]:
    """(mean [N], covariance [N, N]) of φ(z), z ~ N(mean, covariance): closed forms for piecewise linear and quadratic φ,
    Hermite series of `orders` terms for any other (`quadrature_moments`: what it drops, and when it says so). Pure and
    differentiable.

    >>> m, c = gaussian_moments("quadratic", jnp.ones(1), jnp.eye(1))
    >>> m.tolist(), c.tolist()
    ([2.0], [[4.5]])
    """
    n = jnp.shape(mean)[-1]
    if jnp.shape(covariance)[-2:] != (n, n):
        raise ValueError(
            f"gaussian_moments: covariance must be [{n}, {n}] as mean is [{n}]; it is {jnp.shape(covariance)}."
        )
    phi = activation_function(activation)
    if isinstance(phi, Quadratic):
        return quadratic_moments(phi.eps, mean, covariance)
    linear = as_piecewise_linear(phi)
    if linear is not None:
        return piecewise_linear_moments(linear, mean, covariance)
    return quadrature_moments(phi, mean, covariance, orders)


@checks.arguments(
    eps=checks.number(),
    mean=checks.array(None),
    covariance=checks.array(None, None),
    third=checks.array(None, None),
    fourth=checks.array(None, None),
)
def quadratic_moments(eps: float, mean: Any, covariance: Any, third: Any = None, fourth: Any = None) -> tuple[Any, Any]:
    """(mean [N], covariance [N, N]) of φ(z) = z + ε z²; third = G3_iij and fourth = G4_iijj, both [N, N], or None for zero.

        μ'_i = μ_i + ε μ_i² + ε Σ_ii
        Σ'_ij = Σ_ij [1 + 2ε (μ_i + μ_j) + 4ε² μ_i μ_j] + 2ε² Σ_ij²
                + ε (1 + 2ε μ_i) G3_ijj + ε (1 + 2ε μ_j) G3_iij + ε² G4_iijj

    Exact for every distribution: higher cumulants do not enter.

    >>> m, c = quadratic_moments(0.5, jnp.zeros(1), jnp.eye(1))
    >>> m.tolist(), c.tolist()
    ([0.5], [[1.5]])

    Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, eqs. 2.21 and A.26. Divergence:
    there "α" stands for ε, G3_(j,i,j) for G3_(j,i,i), and 2.21 leaves out μ_j.
    """
    slope = 1 + 2 * eps * mean
    out = covariance * slope[:, None] * slope[None, :] + 2 * eps**2 * covariance**2
    if third is not None:
        lean = eps * third * slope[None, :]
        out = out + lean + lean.T
    if fourth is not None:
        out = out + eps**2 * fourth
    return mean + eps * mean**2 + eps * jnp.diagonal(covariance), out


@checks.arguments(
    activation=checks.activation,
    mean=checks.array(least=1),
    variance=checks.array(least=1),
    third=checks.array(least=1),
    fourth=checks.array(least=1),
)
def mean_correction(activation: Any, mean: Any, variance: Any, third: Any = None, fourth: Any = None) -> Any:
    """The change of E φ(z_i) by third cumulants G3_iii [N] and fourth cumulants G4_iiii [N] of z_i.

        δμ' = G3/6 <φ'''> + G4/24 <φ''''>,      <·> over N(μ, s²)

    the mean over the Gram–Charlier density [1 + G3/(6 s³) He₃(u) + G4/(24 s⁴) He₄(u)] N(μ, s²), u = (z − μ)/s. Products of
    cumulants (the Edgeworth term G3² <φ⁽⁶⁾>/72) are dropped; 0 for a neuron that does not vary. For relu, with a = μ/s:

        δμ' = −G3 μ/(6 s³ √(2π)) e^(−a²/2) + G4 (a² − 1)/(24 s³ √(2π)) e^(−a²/2)

    >>> correction = mean_correction("relu", jnp.ones(1), jnp.ones(1), third=jnp.ones(1))
    >>> bool(abs(correction[0] + jnp.exp(-0.5) / (6 * (2 * jnp.pi) ** 0.5)) < 1e-6)
    True

    Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, A.15 to A.19. Divergence: A.19 as
    printed is not of the dimension of a mean and has the other sign.
    """
    phi = activation_function(activation)
    mean, variance = jnp.asarray(mean, float), jnp.asarray(variance, float)
    if isinstance(phi, Quadratic):
        return jnp.zeros_like(mean)
    linear = as_piecewise_linear(phi)
    if linear is not None:
        still = variance <= 0
        s, bend = jnp.sqrt(jnp.where(still, 1, variance)), linear.positive - linear.negative
        a, bend = mean / s, jnp.where(still, 0, bend)
        means = [-bend * a * normal_density(a) / s**2, bend * (a**2 - 1) * normal_density(a) / s**3]
    else:
        means = derivative_means(phi, mean, variance, (3, 4))
    cumulants = zip((third, fourth), means, (3, 4), strict=True)
    parts = [cumulant * average / math.factorial(n) for cumulant, average, n in cumulants if cumulant is not None]
    return sum(parts, start=jnp.zeros_like(mean))


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
