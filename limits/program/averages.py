"""Gaussian averages E[F G] of functions of fields, for the pairs of inputs and positions of some `PairMoments`.

In this order: independent factors apart; a Gaussian factor by Stein's identity, E[a F] = Σ_j Cov(a, u_j) E[∂_j F]; functions
of one variable each by a closed form or the Hermite series Σ_k a_k b_k c^k; the rest by quadrature.
"""

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels import hermite
from limits.kernels.special import safe_sqrt
from limits.program import differentiated
from limits.program.functions import Factor, Function, bare, components, function_of, product_of
from limits.program.nodes import Concat, Det, FieldSum, Map, Moved, Node, plain
from limits.program.quadrature import points, root
from limits.program.recognise import Closed, recognised, values_at
from limits.program.values import NoLimitError


def second(m: Any, u: Node, v: Node, pairs: bool) -> Any:
    """⟨u v⟩ where u or v is a `Map`."""
    return average(m, function_of(u), function_of(v), pairs)


def mean(own: Any, u: Node) -> Any:
    """E u [n or 1, positions]."""
    function = function_of(u)
    if len(function.factors) == 2:
        return own.second(function.factors[0].node, function.factors[1].node, False)
    if isinstance(u, Map) and u.name in ("square[]", "integer_pow[y=2]"):
        return own.second(u.arguments[0], u.arguments[0], False)
    return average(own, function, function.without, False)


def tangent(m: Any, u: Node, v: Node, pairs: bool) -> Any:
    """Θ(u, v) = Σ_ij E[∂_i u ∂_j v] Θ(u_i, v_j); of products of independent factors, one after the other."""
    parts, found = components(function_of(u), function_of(v)), None
    for k, (f, g) in enumerate(parts):
        part = _tangent(m, f, g, pairs)
        for a, b in parts[:k] + parts[k + 1 :]:
            rest = None if part is None else average(m, a, b, pairs)
            part = None if rest is None else part * rest
        found = part if found is None else found if part is None else found + part
    return found


def _tangent(m: Any, left: Function, right: Function, pairs: bool) -> Any:
    if not left.tops & right.tops:
        return None
    fields = _as_fields(m, left, right)
    if fields is not None:
        return m.tangent(*fields, pairs)
    found = None
    for a in left.leaves:
        for b in right.leaves:
            inner = m.tangent(a, b, pairs)
            if inner is None:
                continue
            for f in left.derivatives(a):
                for g in right.derivatives(b):
                    weight = average(m, f, g, pairs)
                    if weight is not None:
                        found = weight * inner if found is None else found + weight * inner
    return found


def _whole(f: Function) -> Node | None:
    """The field that a function is, where it is one."""
    return f.factors[0].node if len(f.factors) == 1 and not f.factors[0].slopes else None


def _as_fields(m: Any, f: Function, g: Function) -> tuple[Node, Node] | None:
    """Both as fields, where moments follow from their parts: of sums also where no function of Gaussian fields is one."""
    u, v = _whole(f), _whole(g)
    if u is not None and v is not None and not _is_average(u, v):
        return u, v
    if (f.of_gaussians and g.of_gaussians) or any(factor.slopes for factor in (*f.factors, *g.factors)):
        return None
    if not any(isinstance(_whole(each), FieldSum | Concat | Moved) for each in (f, g)) or not (f.factors and g.factors):
        return None
    left, right = (
        m.own.once(("product", each.key), lambda each=each: product_of([factor.node for factor in each.factors]), each)
        for each in (f, g)
    )
    return left, right


def gap(m: Any, u: Node, pairs: bool) -> Any:
    """1 − c of φ(u) from that of u, for a function of one variable; else None."""
    function = function_of(u)
    if not function.of_gaussians or len(function.random) != 1:
        return None
    return _dual(m, function, function.random[0], function.random[0], pairs)[2]


def average(m: Any, f: Function, g: Function, pairs: bool) -> Any:
    """E[f g]; None where it is zero by structure."""
    parts = components(f, g)
    if len(parts) > 1:
        found: Any = 1.0
        for a, b in parts:
            part = average(m, a, b, pairs)
            if part is None:
                return None
            found = found * part
        return found
    if not parts:
        return jnp.ones((1,) * (m.batch + f.rank + (g.rank if pairs else 0)))
    fields = _as_fields(m, f, g)
    if fields is not None:
        return m.second(*fields, pairs)
    return m.once(("average", f.key, g.key, pairs), lambda: _average(m, f, g, pairs), f, g)


def _is_average(u: Node, v: Node) -> bool:
    """Whether moments are averages of what these are functions of, rather than follow from their parts."""
    return any(isinstance(node, Map) for node in (u, v)) and not any(
        isinstance(node, FieldSum | Concat | Moved) for node in (u, v)
    )


def _average(m: Any, f: Function, g: Function, pairs: bool) -> Any:
    if any(factor.node.still and not factor.slopes for function in (f, g) for factor in function.factors):
        return None
    if len(f.random) == len(g.random) == 1 and not any(_bare_alone(each) for each in (f, g)):
        return _of_two(m, f, g, pairs)
    for which, function in enumerate((f, g)):
        for k, factor in enumerate(function.factors):
            alone = bare(factor.node)
            if alone is not None:
                rest = function.replaced(k)
                if factor.slopes:
                    found = average(m, *((rest, g) if which == 0 else (f, rest)), pairs)
                    return None if found is None else plain(alone[0]) * found
                return _stein(m, alone, which, (rest, g) if which == 0 else (f, rest), pairs)
    if len(f.random) + len(g.random) <= 1:
        (left, right) = (_of_one(m.own, each) for each in (f, g))
        return m.placed(left, 0, f.rank, g.rank, pairs) * m.placed(right, 1, g.rank, f.rank, pairs)
    return _by_quadrature(m, f, g, pairs)


def _bare_alone(f: Function) -> bool:
    return len(f.factors) == 1 and not f.factors[0].slopes and bare(f.factors[0].node) is not None


def _stein(m: Any, alone: tuple[Any, Node], which: int, rest: tuple[Function, Function], pairs: bool) -> Any:
    """s E[a F] = s Σ_j Cov(a, u_j) E[∂_j F]."""
    scale, a = plain(alone[0]), alone[1]
    found = None
    for side, function in enumerate(rest):
        for leaf in function.leaves:
            if side == which:
                covariance = m.own.second(a, leaf, False)
                covariance = (
                    None
                    if covariance is None
                    else m.placed(covariance, which, rest[which].rank, rest[1 - which].rank, pairs)
                )
            else:
                covariance = m.second(*((a, leaf) if which == 0 else (leaf, a)), pairs)
            if covariance is None:
                continue
            for slope in function.derivatives(leaf):
                part = average(m, *((slope, rest[1]) if side == 0 else (rest[0], slope)), pairs)
                if part is not None:
                    part = scale * covariance * part
                    found = part if found is None else found + part
    return found


def _of_one(own: Any, f: Function) -> Any:
    """E f [n or 1, positions], of a function of one variable or none."""
    if not f.random:
        found = f({}, lambda det: jnp.asarray(det.array))
        return jnp.broadcast_to(found, (1,) * (1 + f.rank)) if jnp.ndim(found) == 0 else found
    _measure(own, f)
    z, table = hermite.nodes(2, True)
    found = jnp.matmul(_values(own, f, own.size(f.random[0]), z), table[:, 0])
    return differentiated.of_one(own, found, f) if own.series.differentiable else found


def _measure(own: Any, f: Function) -> None:
    """How long a series of f must be, where that is asked for and one is needed."""
    if own.series.measures and not has_closed_form(f):
        own.series.series(f, own.size(f.random[0]), {id(d): jnp.asarray(d.array) for d in f.dets}, own.place(f))


def _values(own: Any, f: Function, r: Any, z: Any) -> Any:
    """f at r z, [n or 1, positions, nodes], for a function of one variable (or of none)."""
    r = hermite.off_zero(r) if any(factor.slopes for factor in f.factors) else r
    at = {id(leaf): r[..., None] * z for leaf in f.random}
    found = f(at, lambda det: jnp.asarray(det.array)[..., None])
    return jnp.broadcast_to(found, np.broadcast_shapes(jnp.shape(found), (*r.shape, len(z))))


def _of_two(m: Any, f: Function, g: Function, pairs: bool) -> Any:
    """E[f(u) g(v)] of one variable each."""
    closed = _closed_average(f, g) if m.series.differentiable else None
    if closed is not None and closed.smooth:
        return differentiated.of_smooth(m, f, g, closed, pairs)
    found = _value_of_two(m, f, g, pairs)
    if not m.series.differentiable:
        return found
    gap = jnp.zeros(()) if m is m.own and not pairs else _correlation_gap(m, f.random[0], g.random[0], pairs)
    return differentiated.of_two(m, found, f, g, gap, closed, pairs)


class _Average(NamedTuple):
    """A closed average of (q1, q2, k, 1 − c, numbers in the function that move)."""

    call: Any
    smooth: bool  # whether it does without 1 − c
    numbers: tuple


def _closed_average(f: Function, g: Function) -> _Average | None:
    """E[f g] with derivatives, if it has a closed form."""
    slopes, scale, which = _slopes_of(f, g), 1.0, "moment"
    if slopes is not None:
        (f, g), scale = slopes
        which = "slope"
    known = _recognised(f) if _same(f, g) else None
    if known is None:
        return None

    def average(q1: Any, q2: Any, k: Any, gap: Any, numbers: tuple) -> Any:
        places = {id(det): number.reshape(()) for det, number in zip(f.dets, numbers, strict=True)}
        known: Any = _recognised(f, lambda det: places[id(det)])
        return scale * getattr(known.averages, which)(q1, q2, k, gap)

    return _Average(average, known.averages.smooth, differentiated.values_of_dets(f))


def _same(f: Function, g: Function) -> bool:
    """Whether both are one function, of variables that may differ; numbers in it may move, alike."""
    return f.name == g.name and len(f.dets) == len(g.dets) and all(map(operator.is_, f.dets, g.dets))


def _recognised(f: Function, place: Any = None) -> Closed | None:
    """f as a function that has a closed average; where numbers in it move, by their usual values."""
    usual = {id(det): det.default for det in f.dets}
    if None in usual.values():
        return None
    if not usual:
        return recognised(f.name, _alone(f))
    known = recognised(f"{f.name} at {[*usual.values()]}", _alone(f, lambda det: usual[id(det)]))
    return known and known.of(_alone(f, place or (lambda det: det.array.reshape(()))))


def _value_of_two(m: Any, f: Function, g: Function, pairs: bool) -> Any:
    u, v = f.random[0], g.random[0]
    slopes = _slopes_of(f, g)
    if slopes is not None:
        (a, b), scale = slopes
        return scale * _dual(m, a, u, v, pairs, b)[3]
    if _same(f, g) and (not f.dets or _recognised(f) is not None):
        s1, s2, gap, _ = _dual(m, f, u, v, pairs, g)
        return s1 * s2 * (1 - gap)
    if m is m.own and not pairs and u is v:
        r = m.size(u)
        _measure(m, f)
        _measure(m, g)
        z, table = hermite.nodes(2, True)
        return jnp.matmul(_values(m, f, r, z) * _values(m, g, r, z), table[:, 0])
    return _series(m, f, g, u, v, pairs)


def _correlation_gap(m: Any, u: Node, v: Node, pairs: bool) -> Any:
    return m.gap(u, pairs) if u is v else m.gap_between(u, v, pairs)


def _dual(m: Any, f: Function, u: Node, v: Node, pairs: bool, g: Function | None = None) -> tuple:
    """(s1, s2, 1 − c′, E f′f′) of one function of two variables, by a closed form or the series."""
    g = f if g is None else g
    return m.once(("dual", f.key, g.key, id(u), id(v), pairs), lambda: _dual_of(m, f, g, u, v, pairs), f, g, u, v)


def _dual_of(m: Any, f: Function, g: Function, u: Node, v: Node, pairs: bool) -> tuple:
    closed = _recognised(f)
    if closed is not None:
        return _closed_dual(m, closed, f, g, u, v, pairs)
    gap = _correlation_gap(m, u, v, pairs)
    k = f.rank, g.rank
    df, dg = f.derivatives(u), g.derivatives(v)
    if len(df) != 1 or len(dg) != 1:
        df, dg = [], []
    for each in (f, g, *df, *dg) if m is m.own and not pairs else ():
        _measure(m, each)
    orders = max(m.series.orders(each) for each in (f, g, *df, *dg))
    a1, a2 = (coefficients_of(m, each, leaf, orders) for each, leaf in ((f, u), (g, v)))
    s1, s2 = (safe_sqrt(jnp.sum(a * a, axis=0)) for a in (a1, a2))
    slopes = [coefficients_of(m, each[0], leaf, orders) for each, leaf in ((df, u), (dg, v))] if df else []
    if m is m.own and not pairs and u is v:  # a series at 1 − c = 0 is the sum of squares
        return s1, s2, jnp.zeros_like(s1), jnp.sum(slopes[0] * slopes[1], axis=0) if df else None
    unit = _placed_rows(m, [a / jnp.where(s > 0, s, 1) for a, s in ((a1, s1), (a2, s2))], k, pairs)
    d1, d2 = _placed_rows(m, slopes, k, pairs) if df else unit
    bent, slope = _bent(unit[0], unit[1], d1, d2, gap)
    return m.placed(s1, 0, *k, pairs), m.placed(s2, 1, k[1], k[0], pairs), bent, slope if df else None


def _closed_dual(m: Any, closed: Closed, f: Function, g: Function, u: Node, v: Node, pairs: bool) -> tuple:
    barrier = jax.lax.optimization_barrier  # or all that reads it works it out again, and is compiled so
    if m is m.own and not pairs and u is v:
        r = m.size(u)
        s, _, _, slope = closed.dual(r, r, jnp.zeros_like(r))
        s = barrier(s)
        return s, s, jnp.zeros_like(s), barrier(slope)
    k, own = (f.rank, g.rank), m.own
    pair = [(own.size(leaf), _dual(own, each, leaf, leaf, False)[0]) for each, leaf in ((f, u), (g, v))]
    (r1, s1), (r2, s2) = ([m.placed(a, i, k[i], k[1 - i], pairs) for a in arrays] for i, arrays in enumerate(pair))
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
    """Σ_k a_k b_k c^k; of different functions, what is beyond the last order is dropped."""
    c = 1 - _correlation_gap(m, u, v, pairs)
    orders = max(m.series.orders(f), m.series.orders(g))
    a, b = (coefficients_of(m, each, leaf, orders)[:-1] for each, leaf in ((f, u), (g, v)))
    a, b = _placed_rows(m, (a, b), (f.rank, g.rank), pairs)
    return _summed_series(a, b, c)


# Compiled each for itself, as loops are where a long program is run step by step.
_bent = jax.jit(hermite.series)


@jax.jit
def _summed_series(a: Any, b: Any, c: Any) -> Any:
    """Σ_k a_k b_k c^k."""
    add = lambda found, row: (found * c + row[0] * row[1], None)  # noqa: E731
    start = jnp.zeros(np.broadcast_shapes(c.shape, a.shape[1:], b.shape[1:]))
    return jax.lax.scan(add, start, (a[::-1], b[::-1]), unroll=8)[0]


def _placed_rows(m: Any, rows: Sequence[Any], ranks: tuple[int, int], pairs: bool) -> list[Any]:
    """Arrays [orders, n or 1, positions] of either side, as `placed` has each row."""
    return [
        jax.vmap(lambda row, i=i: m.placed(row, i, ranks[i], ranks[1 - i], pairs))(jnp.asarray(a))
        for i, a in enumerate(rows)
    ]


def coefficients_of(m: Any, f: Function, u: Node, orders: int) -> Any:
    """Hermite coefficients of f(r z), [orders + 1, n or 1, positions]; the last holds what the others miss of E f²."""
    own = m.own

    def compute() -> Any:
        z, table = hermite.nodes(orders)
        values = _values(own, f, own.size(u), z)
        a = jnp.matmul(values, table, precision="highest")
        rest = safe_sqrt(jnp.matmul(values * values, table[:, 0]) - jnp.sum(a * a, axis=-1))
        return jnp.moveaxis(jnp.concatenate([a, rest[..., None]], axis=-1), -1, 0)

    return own.once(("coefficients", f.key, id(u), orders), compute, f, u)


def _alone(f: Function, place: Any = None) -> Any:
    """As a function of its one variable; without `place` it must be without deterministic values."""
    (leaf,) = f.random
    return lambda x: f({id(leaf): x}, place or _no_values) * jnp.ones_like(x)


def has_closed_form(f: Function) -> bool:
    """Whether no series of it is needed: it has a closed average, or is a slope of what has one."""
    if len(f.random) != 1:
        return False
    slopes = _slopes_of(f, f)
    return _recognised(f) is not None or (slopes is not None and has_closed_form(slopes[0][0]))


def _no_values(det: Det) -> Any:
    raise NoLimitError("a deterministic value was not expected here")


def _slopes_of(f: Function, g: Function) -> tuple[tuple[Function, Function], float] | None:
    """((φ, φ), κ) where f and g are multiples of the derivative of one φ, κ the product."""
    moving = [det.default is None for each in (f, g) for det in each.dets]
    if any(moving) or not any(factor.slopes for factor in f.factors):
        return None
    found = []
    for function in (f, g):
        if sum(len(factor.slopes) for factor in function.factors) != 1 or len(function.random) != 1:
            return None
        base = Function(tuple(Factor(factor.node) for factor in function.factors), function.rank)
        scale = _ratio(function, base)
        if scale is None:
            return None
        found.append((base, scale))
    (a, s), (b, t) = found
    one_slope = len(a.derivatives(a.random[0])) == len(b.derivatives(b.random[0])) == 1
    return ((a, b), s * t) if _same(a, b) and one_slope else None


_ratios: dict[str, float | None] = {}


def _ratio(function: Function, base: Function) -> float | None:
    """κ with function = κ φ′."""
    if function.dets:  # of one factor, a slope is that of its base
        return 1.0 if len(function.factors) == 1 else None
    slopes = base.derivatives(base.random[0])
    if len(slopes) == 1 and slopes[0].name == function.name:
        return 1.0
    if function.name not in _ratios:
        x = np.array([-3.1, -1.3, -0.4, 0.3, 0.9, 2.2])
        mine, *parts = values_at(x, *map(_alone, (function, *slopes)))
        theirs = np.sum(parts, axis=0)
        at = np.argmax(np.abs(theirs))
        scale = mine[at] / theirs[at] if theirs[at] else 0.0
        same = np.allclose(mine, scale * theirs, rtol=1e-12, atol=1e-13)
        _ratios[function.name] = float(scale) if same and scale else None
    return _ratios[function.name]


def _by_quadrature(m: Any, f: Function, g: Function, pairs: bool) -> Any:
    """E[f g] over all their variables at once."""
    whole = m is m.own and not pairs
    variables = [(0, leaf) for leaf in f.random]
    variables += [(1, leaf) for leaf in g.random if not (whole and any(leaf is each for each in f.random))]

    def place(array: Any, which: int) -> Any:
        array, ranks = jnp.asarray(array), (f.rank, g.rank)
        return array if array.ndim == 0 else m.placed(array, which, ranks[which], ranks[1 - which], pairs)

    covariance = [[_covariance(m, a, b, place, pairs) for b in variables] for a in variables]
    placed = [(id(det), which) for which, function in ((0, f), (1, g)) for det in function.dets]
    dets = tuple(place(det.array, which) for which, function in ((0, f), (1, g)) for det in function.dets)

    def product(x: list[Any], dets: tuple) -> Any:
        found: Any = 1.0
        for which, function in ((0, f), (1, g)):
            values = {}
            for leaf in function.random:
                at = next(i for i, (s, each) in enumerate(variables) if each is leaf and (s == which or whole))
                values[id(leaf)] = x[at]
            found = found * function(values, lambda det, which=which: dets[placed.index((id(det), which))])
        return found

    def by_rule(function: Any, covariance: Any, dets: tuple, coarse: bool = False) -> Any:
        z, weights = (jnp.asarray(part) for part in points(len(variables), coarse))
        rows = root(covariance)
        drawn = [sum((c * z[:, j].reshape(-1, *(1,) * c.ndim) for j, c in enumerate(row)), 0.0) for row in rows]
        weights = weights.reshape(-1, *(1,) * (m.batch + f.rank + (g.rank if pairs else 0)))
        return (weights * function(drawn, dets)).sum(0)

    found = by_rule(product, covariance, dets)
    if m.series.measures:
        key = (f.name, g.name, len(variables), len(points(len(variables))[0]))
        coarse, size = (by_rule(h, covariance, dets, True) for h in (product, lambda *x: jnp.abs(product(*x))))
        m.series.quadrature(key, found, coarse, size, math.prod(found.shape[m.batch :]), m.own.place(f))
    # Of a function with kinks the rule itself is differentiated: its second derivatives are no functions.
    if m.series.differentiable and differentiated.is_smooth(f) and differentiated.is_smooth(g):
        return differentiated.of_several(found, product, covariance, dets, by_rule)
    return found


def _covariance(m: Any, a: tuple[int, Node], b: tuple[int, Node], place: Any, pairs: bool) -> Any:
    if a[0] == b[0]:
        found = m.own.second(a[1], b[1], False)
        return jnp.zeros(()) if found is None else place(found, a[0])
    left, right = (a, b) if a[0] == 0 else (b, a)
    found = m.second(left[1], right[1], pairs)
    return jnp.zeros(()) if found is None else found
