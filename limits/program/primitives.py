"""Primitives of jax by name."""

import functools
from typing import Any

import jax

RANDOM = (
    "bernoulli",
    "random_bits",
    "random_seed",
    "random_wrap",
    "random_unwrap",
    "threefry2x32",
    "random_fold_in",
    "random_gamma",
)

ENTRY_BY_ENTRY = frozenset(
    """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp convert_element_type copy
    copy_p cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac imag integer_pow is_finite le
    lgamma log log1p log2 logistic lt max min mul ne neg nextafter not one_minus_square optimization_barrier or polygamma
    polynomial pow real reduce_precision regularized_incomplete_beta rem round rsqrt select_n sharding_constraint sign sin
    sinh sqrt square stop_gradient sub tan tanh xor
    """.split()  # noqa: SIM905
)


@functools.cache
def primitives() -> dict[str, Any]:
    """As `jax.lax` has them.

    >>> primitives()["tanh"].bind(jax.numpy.zeros(2)).tolist()
    [0.0, 0.0]
    """
    found = (getattr(jax.lax, name) for name in dir(jax.lax) if name.endswith("_p"))
    return {primitive.name: primitive for primitive in found}
