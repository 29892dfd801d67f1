"""Maps of positions, taken below what is not linear: functions of fields must be functions of Gaussian ones.

L(Σ c_i u_i + c) = Σ L(c_i u_i) + L c        L(γ ⊙ u) = γ ⊙ L u     γ the same for all positions
L φ(u, …) = m φ(L u, …)                      where L selects positions, or fills with zeros: m = L 1
"""

import dataclasses
import math
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program.nodes import Det, FieldSum, Map, Moved, Node
from limits.program.values import NoLimitError, one

_opened = weakref.WeakKeyDictionary[Node, Node]()  # so that one field stays one variable


def opened(node: Any) -> Any:
    """The same field as a function of Gaussian fields."""
    if not isinstance(node, FieldSum | Moved) or node.gaussian:
        return node
    if node not in _opened:
        _opened[node] = _of_sum(node) if isinstance(node, FieldSum) else _of_map(node, opened(node.source))
    return _opened[node]


def _of_sum(node: FieldSum) -> Node:
    terms = tuple((c, opened(u)) for c, u in node.terms)
    if all(new is old for (_, new), (_, old) in zip(terms, node.terms, strict=True)):
        return node
    return FieldSum(node.shape, node.power, terms, node.constant)


def _of_map(node: Moved, source: Node) -> Node:
    """L of a field that is not Gaussian."""
    if isinstance(source, FieldSum):
        terms = tuple(_term(node, source, c, u) for c, u in source.terms)
        constant = None if source.constant is None else _moved(node, source.constant, source.shape)
        if (
            isinstance(constant, Det) and node.selects and not (kept := _kept(node, source)).all()
        ):  # not where L has zeros
            constant = dataclasses.replace(constant, array=constant.array * kept, default=None)
        return FieldSum(node.shape, node.power, terms, constant)
    if isinstance(source, Map) and node.selects:
        arguments = tuple(_moved(node, u, source.shape) for u in source.arguments)
        inside = Map(node.shape, source.power, source.function, source.name, arguments)
        kept = _kept(node, source)
        return inside if kept.all() else FieldSum(node.shape, node.power, ((Det(kept), inside),))
    if isinstance(source, Map) and source.name == "mul":
        for gain, rest in (source.arguments, source.arguments[::-1]):
            if math.prod(gain.shape) == 1:
                arguments = (_of_rank(gain, len(node.shape)), _moved(node, rest, source.shape))
                return Map(node.shape, node.power, source.function, source.name, arguments)
    raise NoLimitError(
        "a function of a sum over positions of signals that are not Gaussian: its average is over all these positions at once"
    )


def _of_rank(gain: Node, rank: int) -> Node:
    """The same for all positions, of which there are now so many axes."""
    before = len(gain.shape)

    def act(a: Any, i: int, _: Any) -> Any:
        return a.reshape(*a.shape[:i], *(1,) * rank, *a.shape[i + before :])

    return opened(Moved((1,) * rank, gain.power, gain, act, True))


def _kept(node: Moved, source: Node) -> np.ndarray:
    """L of ones."""
    with jax.ensure_compile_time_eval():
        return np.asarray(node.act(jnp.ones((1, *source.shape)), 1, lambda a: a))


def _term(node: Moved, source: FieldSum, c: Det, u: Node) -> tuple[Det, Node]:
    """L(c u)."""
    if c.number is not None:
        return one(len(node.shape), c.number), _moved(node, u, source.shape)
    if u.gaussian:
        return one(len(node.shape)), _moved(node, FieldSum(source.shape, source.power, ((c, u),)), source.shape)
    if node.selects:
        return _moved(node, c, source.shape), _moved(node, u, source.shape)
    raise NoLimitError(
        "a function of a sum over positions, with numbers that differ between them, of signals that are not Gaussian"
    )


def _moved(node: Moved, held: Any, full: tuple[int, ...]) -> Any:
    """L of something whose axes of size 1 stand for all positions."""

    def act(a: Any, i: int, side: Any) -> Any:
        return node.act(jnp.broadcast_to(a, (*a.shape[:i], *full, *a.shape[i + len(full) :])), i, side)

    if isinstance(held, Det) and held.usual is not None and node.selects:  # zeros of L are taken care of
        return dataclasses.replace(held, array=held.array.reshape((1,) * (1 + len(node.shape))))
    if isinstance(held, Det):
        return Det(act(jnp.asarray(held.array), 1, lambda a: a), held.power, held.noise, held.zero)
    return opened(Moved(node.shape, held.power, held, act, node.selects))
