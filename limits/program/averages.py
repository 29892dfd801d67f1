"""Gaussian averages E[F G] of functions of fields, for the pairs of inputs and positions of some `PairMoments`.

In this order: independent factors apart; a Gaussian factor by Stein's identity, E[a F] = Σ_j Cov(a, u_j) E[∂_j F], of an F
without jumps; functions of one variable each (`two_variables`) by a closed form or the Hermite series Σ_k a_k b_k c^k; the rest
by quadrature.
"""

from typing import Any

import jax.numpy as jnp

from limits.kernels import hermite
from limits.program import differentiated
from limits.program.continuity import are_continuous
from limits.program.functions import Function, bare, components, function_of, product_of
from limits.program.nodes import Concat, FieldSum, Map, Moved, Node, plain
from limits.program.quadrature import by_quadrature
from limits.program.shared_weights import meet
from limits.program.two_variables import dual_of, measure, of_two, values_of
from limits.program.zeros import total


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
        found = total(found, part)
    return found


def _tangent(m: Any, left: Function, right: Function, pairs: bool) -> Any:
    if not meet(left.tops, right.tops):
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
                    found = total(found, None if weight is None else weight * inner)
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
    return dual_of(m, function, function.random[0], function.random[0], pairs)[2]


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
    of_one_each = len(f.random) == len(g.random) == 1
    if of_one_each and not any(_bare_alone(each) for each in (f, g)):
        return of_two(m, f, g, pairs)
    for which, function in enumerate((f, g)):
        for k, factor in enumerate(function.factors):
            alone = bare(factor.node)
            if alone is not None:
                rest = function.replaced(k)
                if factor.slopes:
                    found = average(m, *((rest, g) if which == 0 else (f, rest)), pairs)
                    return None if found is None else plain(alone[0]) * found
                both = (rest, g) if which == 0 else (f, rest)
                if are_continuous(m, *both):
                    return _stein(m, alone, which, both, pairs)
    if of_one_each:
        return of_two(m, f, g, pairs)
    if len(f.random) + len(g.random) <= 1:
        (left, right) = (_of_one(m.own, each) for each in (f, g))
        return m.placed(left, 0, g.rank, pairs) * m.placed(right, 1, f.rank, pairs)
    return by_quadrature(m, f, g, pairs)


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
                covariance = None if covariance is None else m.placed(covariance, which, rest[1 - which].rank, pairs)
            else:
                covariance = m.second(*((a, leaf) if which == 0 else (leaf, a)), pairs)
            if covariance is None:
                continue
            for slope in function.derivatives(leaf):
                part = average(m, *((slope, rest[1]) if side == 0 else (rest[0], slope)), pairs)
                found = total(found, None if part is None else scale * covariance * part)
    return found


def _of_one(own: Any, f: Function) -> Any:
    """E f [n or 1, positions], of a function of one variable or none."""
    if not f.random:
        found = f({}, lambda det: jnp.asarray(det.array))
        return jnp.broadcast_to(found, (1,) * (1 + f.rank)) if jnp.ndim(found) == 0 else found
    measure(own, f)
    found = hermite.mean(lambda z: values_of(f, own.size(f.random[0]), z))
    return differentiated.of_one(own, found, f) if own.series.differentiable else found
