"""E[f(u) g(v)] of functions of one variable each: by a closed form, or by the Hermite series Σ_k a_k b_k c^k.

Of one function of both variables 1 − c′ and E[f′ f′] are known with it, so that moments behind it keep their digits.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels import hermite
from limits.kernels.kinks import Kinked
from limits.kernels.special import safe_sqrt
from limits.program import differentiated
from limits.program.closed_averages import (
    check_square,
    closed_average,
    has_closed_form,
    recognised_function,
    same_function,
    slopes_of,
)
from limits.program.functions import Function
from limits.program.nodes import Node
from limits.program.recognise import Closed


def measure(own: Any, f: Function) -> None:
    """How long a series of f must be, where that is asked for and one is needed."""
    if not own.series.measures or has_closed_form(f):
        return

    def look() -> None:
        own.series.series(f, own.size(f.random[0]), {id(d): jnp.asarray(d.array) for d in f.dets}, own.place(f))

    own.once(("measured", f.key), look, f)


def values_of(f: Function, r: Any, z: Any) -> Any:
    """f at r z, [n or 1, positions, nodes], for a function of one variable (or of none)."""
    r = hermite.off_zero(r) if any(factor.slopes for factor in f.factors) else r
    at = {id(leaf): r[..., None] * z for leaf in f.random}
    found = f(at, lambda det: jnp.asarray(det.array)[..., None])
    return jnp.broadcast_to(found, np.broadcast_shapes(jnp.shape(found), (*r.shape, len(z))))


def of_two(m: Any, f: Function, g: Function, pairs: bool) -> Any:
    """E[f(u) g(v)] of one variable each."""
    closed = closed_average(f, g) if m.series.differentiable else None
    if closed is not None and closed.smooth and m.own.size(f.random[0]).dtype == np.float64:
        # Of float32 the rounding of q1 q2 − k² of inputs of size 100 is above what is left of it.
        return differentiated.of_smooth(m, f, g, closed, pairs)
    found = _value_of_two(m, f, g, pairs)
    if not m.series.differentiable:
        return found
    gap = jnp.zeros(()) if m is m.own and not pairs else _correlation_gap(m, f.random[0], g.random[0], pairs)
    return differentiated.of_two(m, found, f, g, gap, closed, pairs)


def _value_of_two(m: Any, f: Function, g: Function, pairs: bool) -> Any:
    if f.random and same_function(f, g):
        check_square(m, f)
    u, v = f.random[0], g.random[0]
    slopes = slopes_of(f, g)
    if slopes is not None:
        (a, b), scale = slopes
        return scale * dual_of(m, a, u, v, pairs, b)[3]
    if same_function(f, g) and (not f.dets or recognised_function(f) is not None):
        s1, s2, gap, _ = dual_of(m, f, u, v, pairs, g)
        return s1 * s2 * (1 - gap)
    for each in (
        (f, g) if m is m.own else ()
    ):  # of pairs of positions too: slopes behind the last sum are in no variance
        measure(m, each)
    if m is m.own and not pairs and u is v:
        r = m.size(u)
        return hermite.mean(lambda z: values_of(f, r, z) * values_of(g, r, z))
    return _series(m, f, g, u, v, pairs)


def _correlation_gap(m: Any, u: Node, v: Node, pairs: bool) -> Any:
    return m.gap(u, pairs) if u is v else m.gap_between(u, v, pairs)


def dual_of(m: Any, f: Function, u: Node, v: Node, pairs: bool, g: Function | None = None) -> tuple:
    """(s1, s2, 1 − c′, E f′f′) of one function of two variables, by a closed form or the series."""
    g = f if g is None else g
    return m.once(("dual", f.key, g.key, id(u), id(v), pairs), lambda: _new_dual(m, f, g, u, v, pairs), f, g, u, v)


def _new_dual(m: Any, f: Function, g: Function, u: Node, v: Node, pairs: bool) -> tuple:
    closed = recognised_function(f)
    if closed is not None:
        if isinstance(closed.psi, Kinked) and m is m.own and not pairs and m.series.measures:
            m.series.rounding(f.name, closed.psi, jnp.abs(closed.b) * m.size(u), m.place(f))
        return _closed_dual(m, closed, f, g, u, v, pairs)
    gap = _correlation_gap(m, u, v, pairs)
    k = f.rank, g.rank
    df, dg = f.derivatives(u), g.derivatives(v)
    if len(df) != 1 or len(dg) != 1:
        df, dg = [], []
    for each in (f, g, *df, *dg) if m is m.own else ():
        measure(m, each)
    orders = max(m.series.orders(each) for each in (f, g, *df, *dg))
    a1, a2 = (coefficients_of(m, each, leaf, orders) for each, leaf in ((f, u), (g, v)))
    s1, s2 = (safe_sqrt(jnp.sum(a * a, axis=0)) for a in (a1, a2))
    slopes = [coefficients_of(m, each[0], leaf, orders) for each, leaf in ((df, u), (dg, v))] if df else []
    if m is m.own and not pairs and u is v:  # a series at 1 − c = 0 is the sum of squares
        return s1, s2, jnp.zeros_like(s1), jnp.sum(slopes[0] * slopes[1], axis=0) if df else None
    unit = _placed_rows(m, [a / jnp.where(s > 0, s, 1) for a, s in ((a1, s1), (a2, s2))], k, pairs)
    d1, d2 = _placed_rows(m, slopes, k, pairs) if df else unit
    bent, slope = _bent(unit[0], unit[1], d1, d2, gap)
    return m.placed(s1, 0, k[1], pairs), m.placed(s2, 1, k[0], pairs), bent, slope if df else None


def _closed_dual(m: Any, closed: Closed, f: Function, g: Function, u: Node, v: Node, pairs: bool) -> tuple:
    barrier = m.kept  # or all that reads it works it out again, and is compiled so
    if m is m.own and not pairs and u is v:
        r = m.size(u)
        s, _, _, slope = closed.dual(r, r, jnp.zeros_like(r))
        s = barrier(s)
        return s, s, jnp.zeros_like(s), barrier(slope)
    k, own = (f.rank, g.rank), m.own
    pair = [(own.size(leaf), dual_of(own, each, leaf, leaf, False)[0]) for each, leaf in ((f, u), (g, v))]
    (r1, s1), (r2, s2) = ([m.placed(a, i, k[1 - i], pairs) for a in arrays] for i, arrays in enumerate(pair))
    bent, slope = _flat(closed.dual, m.batch, k, pairs)(r1, r2, s1, s2, _correlation_gap(m, u, v, pairs))
    return s1, s2, barrier(bent), barrier(slope)


def _flat(dual: Any, batch: int, ranks: tuple[int, int], pairs: bool) -> Any:
    """The same of arrays of fewer axes: loops over all positions at once are faster than over one axis after the other."""

    def plain(r1: Any, r2: Any, s1: Any, s2: Any, gap: Any) -> tuple:
        return dual(r1, r2, gap, (s1, s2))[2:]

    def flattened(*arrays: Any) -> tuple:
        cuts = (batch, batch + ranks[0], *((batch + sum(ranks),) if pairs else ()))
        full = np.broadcast_shapes(*(a.shape for a in arrays))

        def flat(a: Any) -> Any:
            shape = list(a.shape[:batch])
            for start, stop in itertools.pairwise(cuts):
                part = a.shape[start:stop]
                if math.prod(part) != 1:
                    a = jnp.broadcast_to(a, (*a.shape[:start], *full[start:stop], *a.shape[stop:]))
                shape.append(math.prod(a.shape[start:stop]))
            return a.reshape(shape)

        r1, r2, s1, s2 = map(flat, arrays[:-1])
        bent, slope = plain(r1, r2, s1, s2, flat(jnp.broadcast_to(arrays[-1], full)))
        return bent.reshape(full), slope.reshape(full)

    return plain if max(ranks) < 2 else flattened


def _series(m: Any, f: Function, g: Function, u: Node, v: Node, pairs: bool) -> Any:
    """Σ_k a_k b_k c^k of different functions."""
    orders = max(m.series.orders(f), m.series.orders(g))
    a, b = (coefficients_of(m, each, leaf, orders) for each, leaf in ((f, u), (g, v)))
    a, b = _placed_rows(m, (a, b), (f.rank, g.rank), pairs)
    return _whole_series(a, b, _correlation_gap(m, u, v, pairs))


# Compiled each for itself, as loops are where a long program is run step by step.
_bent, _whole_series = jax.jit(hermite.series), jax.jit(hermite.whole_series)


def _placed_rows(m: Any, rows: Sequence[Any], ranks: tuple[int, int], pairs: bool) -> list[Any]:
    """Arrays [orders, n or 1, positions] of either side, as `placed` has each row."""
    return [
        jax.vmap(lambda row, i=i: m.placed(row, i, ranks[1 - i], pairs))(jnp.asarray(a)) for i, a in enumerate(rows)
    ]


def coefficients_of(m: Any, f: Function, u: Node, orders: int) -> Any:
    """Hermite coefficients of f(r z), [orders + 1, n or 1, positions]; the last holds what the others miss of E f²."""
    own = m.own

    def compute() -> Any:
        z, table = hermite.nodes(orders)
        return jnp.moveaxis(hermite.expanded(values_of(f, own.size(u), z), table), -1, 0)

    return own.once(("coefficients", f.key, id(u), orders), compute, f, u)
