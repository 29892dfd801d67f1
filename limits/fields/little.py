"""How far weights have moved, beside the rounding of their numbers."""

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.fields.matrix import Matrix
from limits.fields.network import REVEALED

_LOST = 0.05  # of what moved, from which on rounding is said
_ROUNDED = (
    "rich: no weights have moved by more than {moved:.1g} of their size, and {dtype} numbers keep {eps:.1g} of theirs: what was "
    "learnt (outputs and kernels less those at the start) is uncertain by up to {part:.0%}. Give dtype=np.float64."
)


def movement(before: Any, after: Any) -> float:
    """The largest part of itself by which a parameter, or what a matrix gives on, has moved.

    What a matrix s W⁰ + Vᵀ M U gives on, s √N long for a vector of length 1, moves by about ‖M‖. Weights that began at zero, as
    readouts do, are all movement; biases that did move the outputs with the others, and are not asked.
    """
    parts = jax.tree.leaves(jax.tree.map(_part, before, after["params"]))
    matrices = jax.tree.leaves(after.get(REVEALED, {}), is_leaf=lambda leaf: isinstance(leaf, Matrix))
    parts += [_size(m.trained) / (_size(m.start) * m.y.shape[-1] ** 0.5) for m in matrices if _size(m.start)]
    return max(parts, default=0.0)


def check_moved(before: Any, after: Any) -> None:
    """Warns where what has moved from parameters `before` (None: not known) is not much more than rounding."""
    if before is None:
        return
    dtype = jax.dtypes.canonicalize_dtype(float)
    moved, eps = movement(before, after), float(jnp.finfo(dtype).eps)
    if 0 < moved < math.inf and eps > _LOST * moved:
        part = min(eps / moved, 1.0)
        warnings.warn(_ROUNDED.format(moved=moved, dtype=np.dtype(dtype), eps=eps, part=part), stacklevel=2)


def _part(before: Any, after: Any) -> float:
    size, moved = _size(before), _size(after - before)
    return moved / size if size else float(moved > 0 and after.ndim > 1)


def _size(a: Any) -> float:
    return float(jnp.linalg.norm(jnp.ravel(a)))
