"""What third and fourth cumulants of z change in the mean of φ(z), to first order: Gram–Charlier."""

import math
from typing import Any

import jax.numpy as jnp

from limits.cumulants.bivariate import density
from limits.cumulants.quadrature import derivative_means
from limits.cumulants.relu import as_piecewise_linear
from zoo import activation_function, checks
from zoo.activations import Quadratic


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
        means = [-bend * a * density(a) / s**2, bend * (a**2 - 1) * density(a) / s**3]
    else:
        means = derivative_means(phi, mean, variance, (3, 4))
    parts = [(third, 3), (fourth, 4)]
    return sum(
        (
            cumulant * average / math.factorial(n)
            for (cumulant, n), average in zip(parts, means, strict=True)
            if cumulant is not None
        ),
        start=jnp.zeros_like(mean),
    )
