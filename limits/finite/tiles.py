"""Tangent kernels of finite networks that do not fit into memory, in tiles on disk."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kept.identity import UnreadableError, numerics
from limits.kernels.blocks import pairwise
from limits.kernels.kept import KeptKernels

ROWS = 128  # of a tile, unless `block` says otherwise


def in_tiles(
    kernel: Callable[..., Any], params: Any, x1: Any, x2: Any, what: tuple[Any, ...], folder: Any, block: int | None
) -> np.ndarray:
    """kernel(params, a, b) of blocks of inputs, [n1, n2], compiled once; in `folder` finished tiles are kept.

    `what`: all that kernels depend on beside parameters and inputs.
    """
    compiled, precise = jax.jit(kernel), bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]

    def tile(a: Any, b: Any) -> list[Any]:
        with jax.enable_x64(precise):  # threads know of no context around the call
            return [compiled(params, a, b)]

    first, second = _as_inputs(x1), None if x2 is None else _as_inputs(x2)
    try:
        kept = None if folder is None else KeptKernels(folder, ("empirical_ntk", what, params, numerics()), ("ntk",))
        tiles = pairwise(tile, first, second, 1, block or ROWS, kept=kept)
    except UnreadableError as error:
        raise UnreadableError(f"empirical_ntk: tiles are kept by what they depend on, and {error}") from error
    return tiles[0]


def _as_inputs(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(jnp.asarray(0.0).dtype) if x.dtype.kind == "f" else x
