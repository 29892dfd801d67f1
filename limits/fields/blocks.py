"""A matrix s W⁰ + Vᵀ M U as one leaf of an optimiser's tree: the block diag(s, M), or s in a row above a dense D."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from limits.fields.matrix import Matrix


def moved_to(m: Matrix, start: Any, trained: Any) -> Matrix:
    """The matrix after a step, without a gradient."""
    return dataclasses.replace(m, start=start, trained=trained, gradient=jnp.zeros_like(m.gradient))


def block(m: Matrix) -> Any:
    """What it is for an optimiser."""
    return _framed(m, m.start, m.trained)


def gradient_block(m: Matrix) -> Any:
    """Its gradient in the same form."""
    return _framed(m, jnp.zeros_like(m.start), m.gradient)


def _framed(m: Matrix, corner: Any, inner: Any) -> Any:
    """The corner before the inner array: diag(s, M), or s in a row above D."""
    frame = [(0, 0)] * (inner.ndim - 2) + [(1, 0), (0, 0) if m.dense else (1, 0)]
    return jnp.pad(inner, frame).at[..., 0, 0].set(corner)


def from_block(m: Matrix, block: Any) -> Matrix:
    """The matrix that the optimiser made of it."""
    return moved_to(m, block[..., 0, 0], block[..., 1:, :] if m.dense else block[..., 1:, 1:])


def fitted(tree: Any, old: Any, new: Any) -> Any:
    """Leaves of the shapes in `old` as those in `new`: with zeros after what there is, or without what is zero."""

    def fit(a: Any, old: Any, new: Any) -> Any:
        if old.shape == new.shape:
            return a
        a = a[tuple(slice(n) for n in new.shape)]
        return jnp.pad(a, [(0, n - m) for m, n in zip(a.shape, new.shape, strict=True)])

    return jax.tree.map(fit, tree, old, new)
