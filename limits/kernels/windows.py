"""Convolution and pooling of covariances between positions."""

import jax
import jax.numpy as jnp

from limits.kernels.positions import Positions, spatial_axes, variances
from zoo.geometry import out_size, pads


def convolve(state: Positions, size: int, stride: int, padding: str) -> Positions:
    """The linear part of a convolution: K_aa' ← mean over offsets o of K_(a+o)(a'+o), zero outside the image.

    Both positions move by the same offset, so that the mean is taken along one axis (and its twin) after the other.
    """
    return state.linear(lambda a, pairs: _slide(a, pairs, size, stride, padding))


def _slide(a: jax.Array, pairs: bool, size: int, stride: int, padding: str) -> jax.Array:
    d = spatial_axes(a, pairs)
    for i in range(d):
        axes = (2 + i, 2 + d + i) if pairs else (2 + i,)
        n = a.shape[axes[0]]
        edges = pads(n, size, stride, padding)
        if any(edges):
            widths = [edges if axis in axes else (0, 0) for axis in range(a.ndim)]
            a = jnp.pad(a, widths, mode="wrap" if padding == "CIRCULAR" else "constant")
        span = (out_size(n, size, stride, padding) - 1) * stride + 1
        a = sum((_cut(a, axes, o, o + span, stride) for o in range(1, size)), _cut(a, axes, 0, span, stride)) / size
    # What follows is costly for every entry: fused into it, the sums would be done again and again.
    return jax.lax.optimization_barrier(a)


def _cut(a: jax.Array, axes: tuple[int, ...], start: int, stop: int, stride: int) -> jax.Array:
    for axis in axes:
        a = jax.lax.slice_in_dim(a, start, stop, stride, axis)
    return a


def pool(state: Positions, size: int, total: bool) -> Positions:
    """Averages (`total`: sums) over windows that do not overlap; needs all pairs of positions."""
    if not (state.cross and state.within):
        raise ValueError("pool needs the covariances of all pairs of positions: make the state with cross and within.")

    def mean(a: jax.Array, pairs: bool) -> jax.Array:
        del pairs
        for axis in range(2, a.ndim):
            count = a.shape[axis] // size
            a = jax.lax.slice_in_dim(a, 0, count * size, axis=axis)
            a = a.reshape(*a.shape[:axis], count, size, *a.shape[axis + 1 :]).mean(axis + 1)
            a = a * size if total else a
        return a

    return state.linear(mean)


def over_positions(a: jax.Array, cross: bool, flatten: bool) -> jax.Array:
    """[n1, n2, …] to [n1, n2]: the mean over equal positions (`flatten`), or over all pairs."""
    if flatten and cross:
        a = variances(a, True)
    return a.mean(tuple(range(2, a.ndim)))
