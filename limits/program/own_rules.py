"""Derivative rules that a user gives a function (`jax.custom_jvp`, `jax.custom_vjp`): whether they are the function's own."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from limits.kernels.alike import INLINED
from limits.program import in_numpy

RULED = ("custom_jvp_call", "custom_vjp_call")
_NEAR = 2e-3  # of the greatest slope: rules may be written in another way
_KEPT = 512  # verdicts
_known: dict[tuple, tuple[int, ...]] = {}


class OwnRules:
    """What is found of the calls of a program, in their order, at its first size."""

    def __init__(self) -> None:
        self._numbered, self._seen = dict[int, tuple[int, ...]](), dict[tuple, tuple[Any, tuple[int, ...]]]()

    def another(self, number: int, eqn: Any, given: Sequence[Any]) -> tuple[int, ...]:
        """`with_another_rule` of the call with this number."""
        if number not in self._numbered:
            key = id(eqn), tuple(None if value is None else np.asarray(value).tobytes() for value in given)
            if key not in self._seen:
                self._seen[key] = eqn, with_another_rule(eqn, given)
            self._numbered[number] = self._seen[key][1]
        return self._numbered[number]


def with_another_rule(eqn: Any, given: Sequence[Any]) -> tuple[int, ...]:
    """Inputs after which a call's rule is not the derivative of what it computes; `given` are its constants, None elsewhere.

    Both are taken at random normal points, where kinks do not count.

    >>> eqn = jax.make_jaxpr(jax.nn.relu)(jnp.ones(3)).jaxpr.eqns[0]
    >>> with_another_rule(eqn, [None])
    ()
    """
    body, avals = eqn.params[INLINED[eqn.primitive.name]], [v.aval for v in eqn.invars]
    moving = [i for i, value in enumerate(given) if value is None and _real(avals[i])]
    results = [i for i, v in enumerate(eqn.outvars) if _real(v.aval)]
    if not moving or not results or any(jnp.issubdtype(aval.dtype, jax.dtypes.extended) for aval in avals):
        return ()
    random = np.random.default_rng(0)
    drawn = lambda aval: np.asarray(random.normal(size=aval.shape), aval.dtype)  # noqa: E731
    points = [
        drawn(aval) if i in moving else np.asarray(np.zeros(aval.shape) if value is None else value, aval.dtype)
        for i, (aval, value) in enumerate(zip(avals, given, strict=True))
    ]
    pulls = [drawn(eqn.outvars[i].aval) for i in results]
    ways = [
        _pulled(function, moving, results)
        for function in (lambda full: _bound(eqn, full), lambda full: _bare(body.jaxpr, body.consts, full))
    ]
    try:
        programs = [jax.make_jaxpr(way)(points, pulls) for way in ways]
    except (ValueError, TypeError, NotImplementedError):  # of loops that data ends, which are refused for themselves
        return ()
    held = [np.asarray(each).tobytes() for program in programs for each in program.consts]
    fixed = [point.tobytes() for i, point in enumerate(points) if i not in moving]
    key = (*map(str, programs), *held, *fixed, tuple(moving))
    if key not in _known:
        with jax.ensure_compile_time_eval():
            ruled, bare = (
                in_numpy.run(program.jaxpr, program.consts, [*points, *pulls]) or jax.jit(way)(points, pulls)
                for program, way in zip(programs, ways, strict=True)
            )
        if len(_known) >= _KEPT:
            _known.clear()
        near = max(_NEAR, *(32 * float(jnp.finfo(each.dtype).eps) for each in pulls))
        _known[key] = tuple(i for i, a, b in zip(moving, ruled, bare, strict=True) if not _alike(a, b, near))
    return _known[key]


def _pulled(function: Any, moving: list[int], results: list[int]) -> Any:
    """(points, slopes after results) ↦ slopes after the points that move."""

    def back(points: list, pulls: list) -> Any:
        def of_moving(*some: Any) -> list:
            full = list(points)
            for i, each in zip(moving, some, strict=True):
                full[i] = each
            made = function(full)
            return [made[i] for i in results]

        return jax.vjp(of_moving, *(points[i] for i in moving))[1](pulls)

    return back


def _real(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.floating)


def _alike(a: Any, b: Any, near: float) -> bool:
    a, b = np.asarray(a, float), np.asarray(b, float)
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    return not a.size or bool(np.abs(a - b).max() <= near * max(np.abs(a).max(), np.abs(b).max()))


def _bound(eqn: Any, values: Sequence[Any]) -> list[Any]:
    made = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return made if eqn.primitive.multiple_results else [made]


def _bare(jaxpr: Any, consts: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """What a program computes, with no rule but those of jax's primitives."""
    held = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))
    read = lambda v: v.val if isinstance(v, Literal) else held[v]  # noqa: E731
    for eqn in jaxpr.eqns:
        values, name = [read(v) for v in eqn.invars], eqn.primitive.name
        if name in INLINED:
            inner = eqn.params[INLINED[name]]
            made = _bare(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), values)
        else:
            made = _bound(eqn, values)
        held |= zip(eqn.outvars, made, strict=True)
    return [read(v) for v in jaxpr.outvars]
