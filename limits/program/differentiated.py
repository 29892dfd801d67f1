"""Derivatives of Gaussian averages of functions of fields: by closed forms, or by Price's theorem on Hermite series.

    E[f g] = Σ_k f_k(r1) g_k(r2) c^k,   f_k(r) = E f(r z) He_k(z)/√k!,
    (f^(i))_k = E f^(i)(r z) He_k(z)/√k! = √((k+i)!/k!) f_(k+i) / r^i          (for kinks too)

What is known of the values stays: `with_derivatives` says only how they move. `kernels.differentiable` has the theorem.
"""

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels import hermite
from limits.kernels.compiled import written_out
from limits.kernels.differentiable import broadcasting, with_derivatives
from limits.program.functions import Function

SMOOTH = {
    "add", "add_any", "convert_element_type", "copy", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "logistic", "mul",
    "neg", "one_minus_square", "polynomial", "sin", "sinh", "square", "sub", "tanh",
}  # fmt: skip
Entrywise = Callable[[Any, tuple], Any]  # x [n or 1, positions, nodes], deterministic values [n or 1, positions]


class TwoFunctions(NamedTuple):
    """f^(i)(u) g^(j)(v); place(a, 0 or 1) lays an array of the positions of u, or of v, among those of the pair."""

    f: Entrywise
    g: Entrywise
    smooth: tuple[bool, bool]
    place: Callable[[Any, int], Any]
    orders: int
    i: int = 0
    j: int = 0

    @property
    def steep(self) -> bool:
        """Whether the series of what is smooth has as many orders as there are: those of derivatives may need more."""
        return all(self.smooth) and self.orders == hermite.ORDERS[-1]


class OneFunction(NamedTuple):
    """h^(i)(u)."""

    h: Entrywise
    smooth: bool
    i: int = 0


def entrywise(f: Function) -> Entrywise:
    """A function of one variable, of that variable and of its deterministic values."""
    places, random = {id(det): k for k, det in enumerate(f.dets)}, f.random

    def call(x: Any, dets: tuple) -> Any:
        found = f({id(leaf): x for leaf in random}, lambda det: dets[places[id(det)]][..., None])
        return jnp.broadcast_to(found, np.broadcast_shapes(jnp.shape(found), jnp.shape(x)))

    return call


def values_of_dets(f: Function) -> tuple:
    """Its deterministic values."""
    return tuple(jnp.asarray(det.array) for det in f.dets)


def made_of(f: Function) -> set[str]:
    """The primitives in a function."""
    return set(re.findall(r"([a-z_0-9]+)\[", f.name))


def is_smooth(f: Function) -> bool:
    """Whether it is made of functions that have derivatives of every order everywhere."""
    return made_of(f) <= SMOOTH


def _differentiated(f: Entrywise, i: int) -> Entrywise:
    for _ in range(i):
        f = functools.partial(lambda inner, x, p: jax.jvp(lambda x: inner(x, p), (x,), (jnp.ones_like(x),))[1], f)
    return f


def _at_nodes(f: Entrywise, i: int, q: Any, dets: tuple, z: Any) -> Any:
    """f^(i)(r z), [n or 1, positions, nodes]."""
    return _differentiated(f, i)(hermite.off_zero(jnp.sqrt(q))[..., None] * z, dets)


def _coefficients(f: Entrywise, smooth: bool, i: int, q: Any, dets: tuple, orders: int) -> Any:
    """(f^(i))_k, [orders, n or 1, positions]."""
    r = hermite.off_zero(jnp.sqrt(q))
    z, table = hermite.nodes(orders if smooth else orders + i)
    inner = _differentiated(f, i) if smooth else f
    found = jnp.moveaxis(jnp.matmul(inner(r[..., None] * z, dets), table, precision="highest"), -1, 0)
    if smooth or i == 0:
        return found
    k = np.arange(orders).reshape(-1, *(1,) * q.ndim)
    rising = np.sqrt(np.prod([k + m for m in range(1, i + 1)], axis=0).astype(float))
    sides = _differentiated(f, i)(r[..., None] * np.array([-1.0, 1.0]), dets).mean(-1)
    return jnp.where(q > 0, rising * found[i:] / jnp.where(q > 0, r, 1) ** i, jnp.where(k == 0, sides, 0))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def pair_average(pair: TwoFunctions, q1: Any, q2: Any, k: Any, gap: Any, dets1: tuple, dets2: tuple) -> Any:
    """E[f^(i)(u) g^(j)(v)], of variances q1, q2 at the positions of u and of v."""
    sides = (pair.f, pair.smooth[0], pair.i, q1, dets1), (pair.g, pair.smooth[1], pair.j, q2, dets2)
    placed = lambda rows, side: jax.vmap(lambda row: pair.place(row, side))(rows)  # noqa: E731
    if not pair.steep:
        a, b = (placed(_coefficients(*each, pair.orders), side) for side, each in enumerate(sides))
        return hermite.summed(a, b, jnp.broadcast_to(1 - gap, jnp.shape(k)))
    z, table = hermite.nodes(pair.orders)
    f, g = (_at_nodes(each, i, q, dets, z) for each, _, i, q, dets in sides)
    a, b = (placed(jnp.moveaxis(hermite.expanded(each, table), -1, 0), side) for side, each in enumerate((f, g)))
    f, g = (placed(jnp.moveaxis(each, -1, 0), side) for side, each in enumerate((f * table[:, 0], g)))
    return hermite.series_between_ends(a, b, jnp.broadcast_to(gap, jnp.shape(k)), f, g)


@pair_average.defjvp
@broadcasting
def _(pair: TwoFunctions, primals: tuple, tangents: tuple) -> Any:
    dq1, dq2, dk, _, dets1, dets2 = tangents
    higher = lambda i, j: pair_average(pair._replace(i=pair.i + i, j=pair.j + j), *primals)  # noqa: E731
    if pair.steep:
        moved = _by_size_and_correlation(pair, primals, (dq1, dq2), dk, higher(1, 1))
    else:
        moved = dk * higher(1, 1) + (pair.place(dq1, 0) * higher(2, 0) + pair.place(dq2, 1) * higher(0, 2)) / 2
    for which, (name, d) in enumerate((("f", dets1), ("g", dets2))):
        if (
            pair.steep
        ):  # what is beyond the last order is estimated, not linear in the function: each value's slope by itself
            for j, each in enumerate(d):
                if each.dtype != jax.dtypes.float0:
                    way = pair._replace(**{name: _slope(getattr(pair, name), j)})
                    moved = moved + pair.place(each, which) * pair_average(way, *primals)
        elif any(each.dtype != jax.dtypes.float0 for each in d):
            given = list(primals)
            given[4 + which] = (*given[4 + which], *_numbers(d))
            moved = moved + pair_average(pair._replace(**{name: _moved(getattr(pair, name))}), *given)
    return pair_average(pair, *primals), moved


def _by_size_and_correlation(pair: TwoFunctions, primals: tuple, moving: tuple, dk: Any, slopes: Any) -> Any:
    """How E[f g] moves, by 2q ∂_q at fixed c, which is E[u f′(u) g]: where q is large, f″ has many more orders than u f′."""
    moved, k = 0.0, primals[2]
    for which, dq in enumerate(moving):
        f, i = (pair.f, pair.i) if which == 0 else (pair.g, pair.j)
        q, given = primals[which], list(primals)
        large = q > 1
        given[4 + which] = (*given[4 + which], large)
        way = _sized(_differentiated(f, i))
        changed = pair._replace(f=way, i=0) if which == 0 else pair._replace(g=way, j=0)
        share = jnp.where(large, dq / jnp.where(large, q, 1), dq) / 2
        moved = moved + pair.place(share, which) * pair_average(changed, *given)
        dk = dk - k * pair.place(jnp.where(large, share, 0), which)
    return moved + dk * slopes


def _sized(f: Entrywise) -> Entrywise:
    """x f′(x), or f″(x) where the last deterministic value is not true."""
    slope = _differentiated(f, 1)

    def call(x: Any, p: tuple) -> Any:
        own, large = p[:-1], p[-1]
        return jnp.where(large[..., None], x * slope(x, own), _differentiated(slope, 1)(x, own))

    return call


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def single_average(single: OneFunction, q: Any, dets: tuple) -> Any:
    """E h^(i)(u), of variances q."""
    if single.smooth or single.i == 0:
        h, r = _differentiated(single.h, single.i), hermite.off_zero(jnp.sqrt(q))[..., None]
        return hermite.mean(lambda z: h(r * z, dets))
    return _coefficients(single.h, False, single.i, q, dets, 1)[0]


@single_average.defjvp
@broadcasting
def _(single: OneFunction, primals: tuple, tangents: tuple) -> Any:
    (q, dets), (dq, moving) = primals, tangents
    moved = dq * single_average(single._replace(i=single.i + 2), q, dets) / 2
    if moving:
        moved = moved + single_average(single._replace(h=_moved(single.h)), q, (*dets, *_numbers(moving)))
    return single_average(single, q, dets), moved


def _slope(f: Entrywise, j: int) -> Entrywise:
    """∂f/∂(the deterministic value j)."""
    at = lambda x, p: lambda value: f(x, (*p[:j], value, *p[j + 1 :]))  # noqa: E731
    return lambda x, p: jax.jvp(at(x, p), (p[j],), (jnp.ones_like(p[j]),))[1]


def _moved(f: Any) -> Any:
    """Σ ∂f/∂(deterministic value) × how that moves, which comes behind the values."""

    def call(x: Any, both: tuple) -> Any:
        values, moving = both[: len(both) // 2], both[len(both) // 2 :]
        floats = [jnp.issubdtype(v.dtype, jnp.floating) for v in values]
        moving = tuple(
            d if f else np.zeros(v.shape, jax.dtypes.float0) for v, d, f in zip(values, moving, floats, strict=True)
        )
        return jax.jvp(lambda p: f(x, p), (values,), (moving,))[1]

    return call


def _numbers(tangents: tuple) -> tuple:
    """As arrays of numbers, which integers' are not."""
    return tuple(jnp.zeros(d.shape) if d.dtype == jax.dtypes.float0 else d for d in tangents)


def of_smooth(m: Any, f: Function, g: Function, closed: Any, pairs: bool) -> Any:
    """E[f(u) g(v)] by a closed form that has derivatives as it stands."""
    u, v = f.random[0], g.random[0]

    def variables() -> tuple:
        q1, q2, k, _ = _covariances(m, f, g, None, pairs)
        return q1, q2, written_out(k)

    q1, q2, k = m.once(("variables", id(u), id(v), f.rank, g.rank, pairs), variables, u, v)
    return written_out(closed.call(q1, q2, k, None, closed.numbers))


def _covariances(m: Any, f: Function, g: Function, gap: Any, pairs: bool) -> tuple[Any, Any, Any, Any]:
    """(q1, q2, k, 1 − c) of the variables of f and g, laid out for the pair."""
    u, v = f.random[0], g.random[0]
    q1, q2 = _variance(m.own, u), _variance(m.own, v)
    q1, q2 = m.placed(q1, 0, g.rank, pairs), m.placed(q2, 1, f.rank, pairs)
    k = q1 if m is m.own and not pairs and u is v else m.second(u, v, pairs)
    full = np.broadcast_shapes(q1.shape, q2.shape, *(() if gap is None else (jnp.shape(gap),)))
    k = jnp.zeros(full) if k is None else jnp.broadcast_to(k, full)
    return q1, q2, k, None if gap is None else jnp.broadcast_to(jax.lax.stop_gradient(jnp.asarray(gap)), full)


def of_two(m: Any, value: Any, f: Function, g: Function, gap: Any, closed: Any, pairs: bool) -> Any:
    """E[f(u) g(v)], which is `value`, with derivatives; closed: its average of (q1, q2, k, 1 − c, numbers), if there is one."""
    u, v = f.random[0], g.random[0]
    q1, q2 = _variance(m.own, u), _variance(m.own, v)
    whole = m is m.own and not pairs and u is v
    place = lambda a, side: m.placed(a, side, (g.rank, f.rank)[side], pairs)  # noqa: E731
    if whole and closed is None:
        a, b, count = entrywise(f), entrywise(g), len(f.dets)
        single = OneFunction(lambda x, p: a(x, p[:count]) * b(x, p[count:]), is_smooth(f) and is_smooth(g))
        dets = (*values_of_dets(f), *values_of_dets(g))
        return with_derivatives(value, lambda q, *p: single_average(single, q, p), q1, *dets)
    *placed, k, gap = _covariances(m, f, g, gap, pairs)
    if closed is not None:
        return written_out(with_derivatives(value, closed.call, *placed, k, gap, closed.numbers))
    orders = max(m.series.orders_of_slopes(f), m.series.orders_of_slopes(g))
    pair = TwoFunctions(entrywise(f), entrywise(g), (is_smooth(f), is_smooth(g)), place, orders)
    return with_derivatives(
        value, functools.partial(pair_average, pair), q1, q2, k, gap, values_of_dets(f), values_of_dets(g)
    )


def of_one(own: Any, value: Any, f: Function) -> Any:
    """E f(u), which is `value`, with derivatives."""
    single = OneFunction(entrywise(f), is_smooth(f))
    q = _variance(own, f.random[0])
    return with_derivatives(value, lambda q, *p: single_average(single, q, p), q, *values_of_dets(f))


def _variance(own: Any, u: Any) -> Any:
    found = own.second(u, u, False)
    return jnp.zeros((1,) * (1 + len(u.shape))) if found is None else found


def _places(n: int) -> list[tuple[int, int]]:
    """Of the entries of a symmetric matrix, each once."""
    return [(a, b) for a in range(n) for b in range(a + 1)]


def _matrix(places: list[tuple[int, int]], entries: tuple) -> list[list[Any]]:
    found, n = dict(zip(places, entries, strict=True)), places[-1][0] + 1
    return [[found[max(a, b), min(a, b)] for b in range(n)] for a in range(n)]


def of_several(value: Any, f: Callable[[list, tuple], Any], covariance: list[list[Any]], dets: tuple, rule: Any) -> Any:
    """E f(u_1, …, u_n), which is `value`, with derivatives; rule(f, covariance, dets) is the quadrature of any function."""
    places = _places(len(covariance))

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
    def average(h: Any, entries: tuple, dets: tuple) -> Any:
        return rule(h, _matrix(places, entries), dets)

    @average.defjvp
    @broadcasting
    def _(h: Any, primals: tuple, tangents: tuple) -> Any:
        (entries, dets), (moving, moving_dets) = primals, tangents
        total: Any = 0.0
        for (a, b), d in zip(places, moving, strict=True):
            total = total + (0.5 if a == b else 1.0) * d * average(_along(_along(h, a), b), entries, dets)
        if moving_dets:
            total = total + average(_moved(h), entries, (*dets, *_numbers(moving_dets)))
        return average(h, entries, dets), total

    entries = tuple(covariance[a][b] for a, b in places)
    return with_derivatives(value, lambda entries, dets: average(f, entries, dets), entries, dets)


def of_jumps(value: Any, covariance: list[list[Any]], dets: tuple, rule: Any) -> Any:
    """E f(u_1, …, u_n), which is `value`, of an f that jumps: its density is differentiated, ∂E f/∂C_ab = E[f ∂_C log p].

    rule(covariance, dets) → (f at the points [point, …], w = C⁻¹u there, their weights); with w_a w_b less its mean for the
    score. What deterministic values move is by the slopes of f.
    """
    places = _places(len(covariance))

    def at_points(entries: tuple, dets: tuple) -> tuple[Any, list[Any], Any]:
        f, w, weights = rule(_matrix(places, entries), dets)
        kind = jnp.result_type(*entries)
        return f.astype(kind), [each.astype(kind) for each in w], weights.astype(kind)

    @jax.custom_jvp
    def average(entries: tuple, dets: tuple) -> Any:
        f, _, weights = at_points(entries, dets)
        return (weights * f).sum(0)

    @average.defjvp
    @broadcasting
    def _(primals: tuple, tangents: tuple) -> Any:
        (entries, dets), (moving, moving_dets) = primals, tangents
        f, w, weights = at_points(entries, dets)
        mean = (weights * f).sum(0)
        total: Any = 0.0
        for (a, b), d in zip(places, moving, strict=True):
            total = total + (0.5 if a == b else 1.0) * d * (weights * (f - mean) * w[a] * w[b]).sum(0)
        if moving_dets:
            still = lambda dets: (weights * at_points(entries, dets)[0]).sum(0)  # noqa: E731
            total = total + jax.jvp(still, (dets,), (_numbers(moving_dets),))[1]
        return mean, total

    entries = tuple(covariance[a][b] for a, b in places)
    return with_derivatives(value, average, entries, dets)


def _along(h: Any, a: int) -> Any:
    """∂h/∂x_a."""

    def call(x: list, p: tuple) -> Any:
        one = lambda each: h([*x[:a], each, *x[a + 1 :]], p)  # noqa: E731
        return jax.jvp(one, (x[a],), (jnp.ones_like(x[a]),))[1]

    return call
