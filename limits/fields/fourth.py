"""Hidden weights that are not normal: what the fourth cumulant of their law adds at order 1/width.

Of hidden weights a sweep knows mean and variance. Independent entries of any symmetric law have to first order the density of
normal ones times Π (1 + (κ/24) He₄(W_ij)), κ their excess kurtosis. So the images ε of new directions q, N(0, 1) of a normal
matrix, are moved as that density asks, given all that is known of W⁰: with K = E[W⁰ | known], s its variance, e = qᵀ ε and σ its
variance,

    ε ← ε + (κ/24) q [4 (K³ − 3 s K) + 6 (K² − s) e + 4 K (e² − σ) + e³ − 3 σ e] (1 − Uᵀ U),

entry by entry within the brackets (`matrix.from_fourth`): the gradient of (−L)⁻¹ E[Σ He₄(W_ij) | known, ε] in the fields ε, L of
Ornstein and Uhlenbeck, which takes a normal density to its product with 1 + (κ/24) Σ He₄. The fields Σ_j W_ij φ_j get their
fourth cumulant κ ⟨φ⁴⟩/N and, as directions of both sides are among what is known, their mixed ones with gradients.

It adds c/N to every mean, and nothing at this order to covariances. c = S E[q_κ − q_0] by pairs of sweeps of S samples that share
all draws; the images differ by O(1/S) alone.

Reference: Edgeworth's expansion.
"""

import dataclasses
from typing import Any

import flax.traverse_util
import jax.numpy as jnp

from limits.fields.plain import Wide, wide_parameters
from zoo.plain import PlainNetwork

PAIR = 3  # what `coupled` is in the sweeps of a pair
_SAMPLES = 256  # of a pair: it takes time as their square; what is dropped falls as 1/samples
_SKEWED = (
    "rich: the weights {name} are drawn with skewness {skewness:.3g}, which adds terms of order 1/√width: what width= finds, to "
    "order 1/width, is not the mean of such networks. Draw them symmetrically about 0, or leave width out."
)


def not_normal(net: Any, x: Any) -> dict[str, Wide]:
    """The hidden weights of other laws, by name; those of zoo's own layers are normal."""
    wide = wide_parameters(net, x) if isinstance(net, PlainNetwork) else {}
    found = {".".join(path): each for path, each in wide.items() if not each.law.gaussian}
    for name, each in found.items():
        if abs(each.law.skewness) > 1e-6:
            raise ValueError(_SKEWED.format(name=name, skewness=each.law.skewness))
    return found


def pair_size(net: Any, samples: int) -> int:
    """How many samples a pair has: a multiple of the network's own width, which its heads or groups divide; at most these."""
    return min(-(-_SAMPLES // net.width) * net.width, samples)


def with_fourth(net: Any, x: Any, revealed: dict[str, Any], part: Any) -> dict[str, Any]:
    """The matrices with the excess kurtosis of their entries (part 1), or without (part 0)."""
    matrices: Any = flax.traverse_util.flatten_dict(revealed)
    for wide in not_normal(net, x).values():
        for copy in wide.copies:
            matrices[copy] = dataclasses.replace(
                matrices[copy], kurtosis=wide.law.kurtosis * jnp.asarray(part, matrices[copy].v.dtype)
            )
    return flax.traverse_util.unflatten_dict(matrices)
