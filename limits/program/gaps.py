"""1 − c of pairs of fields, without cancellation where sums do not force it."""

from typing import Any

import jax.numpy as jnp

from limits.kernels.special import held, safe_sqrt, snapped
from limits.program import averages
from limits.program.nodes import Carried, Concat, Det, Entry, FieldSum, Image, Key, Map, Node
from limits.program.shared_weights import dot
from limits.program.zeros import total


def gap_of(m: Any, u: Node, pairs: bool) -> Any:
    """1 − ⟨u u′⟩ / √(⟨u u⟩ ⟨u′ u′⟩), from what the field is made of."""
    if (m is m.own and not pairs) or (type(u) is Entry and not (pairs and any(u.own))):
        return jnp.zeros((1,) * (m.batch + len(u.shape) * (1 + pairs)))
    if isinstance(u, Carried):
        return u.known(Key(m.batch, "gap", pairs))
    if isinstance(u, Image) and u.window is None and u.contracted == 0 and isinstance(u.source, Node):
        return m.gap(u.source, pairs)
    if isinstance(u, Image) and u.window is None and isinstance(u.source, Det):
        return _of_inputs(m, u, pairs)
    if isinstance(u, FieldSum | Concat) and (found := _of_sum(m, u, pairs)) is not None:
        return found
    if isinstance(u, Map) and (found := averages.gap(m, u, pairs)) is not None:
        return found
    return m.gap_between(u, u, pairs)


def _of_inputs(m: Any, u: Any, pairs: bool) -> Any:
    norms = dot(m.own, u.source, u.source, u.contracted, False)
    norms = m.still(norms)
    unit = m.still(jnp.asarray(u.source.array)) / jnp.where(norms > 0, safe_sqrt(norms), 1).reshape(
        *norms.shape, *(1,) * u.contracted
    )
    unit = Det(unit)
    return snapped(1 - dot(m, unit, unit, u.contracted, pairs))


def _of_sum(m: Any, u: Any, pairs: bool) -> Any:
    """Σ_i [½ (a_i − a_i′)² + a_i a_i′ (1 − c)_i] with a_i = c_i r_i / R, of independent terms; None for others.

    Where several have a mean, which then are not orthogonal, ½ [(M − M′)² − Σ_i (m_i − m_i′)²] more, m_i = c_i E u_i / R and
    M = Σ_i m_i.
    """
    parts = (
        list(u.terms)
        if isinstance(u, FieldSum)
        else [(Det(jnp.asarray(s).reshape((1,) * (1 + len(u.shape))) ** 0.5), p) for s, p in u.parts]
    )
    if isinstance(u, FieldSum):
        parts = [part for part in parts if not part[1].still]
        seen = [top for _, part in parts for top in part.tops]
        if u.constant is not None or len(seen) != len(set(seen)):
            return None
    size, found = m.own.size(u), None
    if isinstance(u, FieldSum):
        found = _of_means(m, u, parts, size, pairs)
    for c, part in parts:
        a = m.still(jnp.asarray(c.array)) * m.own.size(part) / jnp.where(size > 0, size, 1)
        left, right = (m.placed(a, i, len(u.shape), pairs) for i in (0, 1))
        found = total(found, (left - right) ** 2 / 2 + left * right * m.gap(part, pairs))
    return found if found is None else held(found)


def _of_means(m: Any, u: FieldSum, parts: list, size: Any, pairs: bool) -> Any:
    means = [(c, m.own.mean(part)) for c, part in parts]
    scaled = [
        m.still(jnp.asarray(c.array) * mean) / jnp.where(size > 0, size, 1) for c, mean in means if mean is not None
    ]
    if len(scaled) < 2:
        return None
    apart = lambda a: (m.placed(a, 0, len(u.shape), pairs) - m.placed(a, 1, len(u.shape), pairs)) ** 2  # noqa: E731
    return (apart(sum(scaled)) - sum(map(apart, scaled))) / 2
