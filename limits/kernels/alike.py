"""One compilation for all programs that differ in numbers only, which are arguments of what is compiled.

A function is traced anew where what it closes over is new. Two programs are alike where they have the same equations between
the same variables, with the same shapes, types and parameters, and whatever decided a branch of Python has decided it alike:
of floating-point numbers only zeros, ±1, those that are not finite, and exponents are told apart. Integers all are.
"""

import collections
import functools
import hashlib
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from limits.kernels.compiled import has_own_numbers, options
from zoo.scans import scan_counts

INLINED = {
    "jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr", "remat": "jaxpr",
    "remat2": "jaxpr", "checkpoint": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr", "custom_lin": "jaxpr",
}  # fmt: skip
_LOOPS = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}
_TOLD_APART = (0.0, 1.0, -1.0)
_KEPT = 256  # programs, and functions
MOST = 100_000  # equations of a program


class TooLongError(ValueError):
    """A program that would be compiled for minutes, or in more memory than there is."""


class Alike:
    """`function(static, *arrays)`, compiled once for all static arguments whose programs are alike. `static` has a hash."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self._known = function, collections.OrderedDict[Any, Any]()
        functools.update_wrapper(self, function)

    def __call__(self, static: Any, *arrays: Any) -> Any:
        """What the function gives."""
        leaves, tree = jax.tree.flatten(arrays)
        kinds = tuple((np.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)
        key = static, tree, kinds, jax.dtypes.canonicalize_dtype("float64")
        known = self._known.get(key)
        if known is None:
            closed, shapes = jax.make_jaxpr(functools.partial(self.function, static), return_shape=True)(*arrays)
            if (length := length_of(closed)) > MOST:
                raise TooLongError(
                    f"it makes a program of {length:,} equations, which would be compiled for minutes (up to {MOST:,} are taken)"
                )
            known = *shared(closed), jax.tree.structure(shapes)
            with _lock:
                _keep(self._known, key, known)
        run, given, out = known
        return jax.tree.unflatten(out, run(given, leaves))


def shared(closed: ClosedJaxpr) -> tuple[Callable[[Any, Sequence[Any]], list[Any]], Any]:
    """(what runs this program and all that are alike, from what is given and inputs; what is given here: its numbers)."""
    program = _Program(closed)
    with _lock:
        found = _programs.get(program.key) or _compiled(program)
        _keep(_programs, program.key, found)
    return found, program.given


_programs, _lock = collections.OrderedDict[Any, Any](), threading.Lock()
_arrays = weakref.WeakValueDictionary[Any, jax.Array]()


def _on_device(array: np.ndarray) -> jax.Array:
    """Put there once, whatever programs use it."""
    digest = array.shape, str(array.dtype), hashlib.blake2b(np.ascontiguousarray(array).data).digest()
    with _lock:
        found = _arrays.get(digest)
        if found is None:
            found = _arrays[digest] = jnp.asarray(array)
        return found


def _keep(table: collections.OrderedDict, key: Any, value: Any) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > _KEPT:
        table.popitem(last=False)


def _compiled(program: "_Program") -> Callable[[Any, Sequence[Any]], list[Any]]:
    @functools.cache
    def jitted(backend: str) -> Any:
        return jax.jit(program.run, compiler_options=options(backend))

    return lambda given, inputs: jitted(jax.default_backend())(given, inputs)


class _Program:
    """A program whose numbers and arrays are apart (`given`); programs of one key are alike."""

    def __init__(self, closed: ClosedJaxpr) -> None:
        self.closed, self._seen, self._kept, self._own = closed, dict[int, int](), dict[int, list[Any]](), False
        self._numbers, self._arrays = list[np.ndarray](), list[jax.Array]()
        self._places = dict[int, tuple[str, int]]()  # of what is no part of the key, by address
        self.key = self._written(closed)
        self.given = np.array([number.item() for number in self._numbers]), self._arrays

    def run(self, given: tuple[Any, Sequence[Any]], inputs: Sequence[Any]) -> list[Any]:
        """Its outputs, with such numbers and arrays as are `given`."""
        numbers = [given[0][i].astype(like.dtype).reshape(like.shape) for i, like in enumerate(self._numbers)]
        tables = {"number": numbers, "array": given[1]}
        return self._through(self.closed, {at: tables[table][i] for at, (table, i) in self._places.items()}, inputs)

    def _number(self, thing: Any, value: Any, exponent: bool = False) -> Any:
        """How a constant is told apart; `thing`, whose address says which it is, is part of the program."""
        if not jnp.issubdtype(value.dtype, np.number) and value.dtype != bool:
            return _Same(value)
        array = np.asarray(value)
        kind, one = (array.shape, str(array.dtype)), array.size == 1
        apart = exponent or self._own or (one and (array.item() in _TOLD_APART or not np.isfinite(array).all()))
        if apart or not jnp.issubdtype(array.dtype, jnp.floating):
            return *kind, array.tobytes()
        if id(thing) not in self._places:
            table: Any = self._numbers if one else self._arrays
            self._places[id(thing)] = "number" if one else "array", len(table)
            table.append(array if one else _on_device(array))
        return *kind, self._places[id(thing)]

    def _written(self, closed: Any) -> Any:
        jaxpr, consts = (closed.jaxpr, closed.consts) if isinstance(closed, ClosedJaxpr) else (closed, ())
        if id(jaxpr) in self._seen:
            return "again", self._seen[id(jaxpr)]
        self._seen[id(jaxpr)] = len(self._seen)
        names = {v: i for i, v in enumerate((*jaxpr.constvars, *jaxpr.invars))}
        parts = [tuple(self._number(v, value) for v, value in zip(jaxpr.constvars, consts, strict=True))]
        parts.append(tuple(str(v.aval) for v in jaxpr.invars))
        for eqn in self._equations(jaxpr):
            exponent = eqn.primitive.name == "pow"
            inputs = tuple(self._literal(v, exponent) if isinstance(v, Literal) else names[v] for v in eqn.invars)
            names |= {v: len(names) + i for i, v in enumerate(eqn.outvars)}
            parts.append((eqn.primitive, inputs, self._params(eqn), tuple(v.aval for v in eqn.outvars)))
        parts.append(tuple(self._literal(v) if isinstance(v, Literal) else names[v] for v in jaxpr.outvars))
        return tuple(parts)

    def _equations(self, jaxpr: Jaxpr) -> list[Any]:
        if id(jaxpr) not in self._kept:
            self._kept[id(jaxpr)] = _needed(jaxpr)
        return self._kept[id(jaxpr)]

    def _literal(self, v: Literal, exponent: bool = False) -> Any:
        return self._number(v, _value(v), exponent)

    def _params(self, eqn: Any) -> tuple:
        name = eqn.primitive.name
        if name in INLINED:
            before, self._own = self._own, self._own or has_own_numbers(eqn)
            inside = self._written(eqn.params[INLINED[name]])
            self._own = before
            return (inside,)
        inner = _LOOPS.get(name, ())
        return tuple(
            (key, tuple(self._written(each) for each in (value if isinstance(value, tuple) else (value,))))
            if key in inner
            else (key, _hashable(value))
            for key, value in sorted(eqn.params.items())
        )

    def _through(self, closed: Any, moving: dict[int, Any], inputs: Sequence[Any]) -> list[Any]:
        jaxpr, consts = (closed.jaxpr, closed.consts) if isinstance(closed, ClosedJaxpr) else (closed, ())
        here = lambda thing, value: moving.get(id(thing), value)  # noqa: E731
        held = {v: here(v, value) for v, value in zip(jaxpr.constvars, consts, strict=True)}
        held |= zip(jaxpr.invars, inputs, strict=True)
        read = lambda v: here(v, _value(v)) if isinstance(v, Literal) else held[v]  # noqa: E731
        for eqn in self._equations(jaxpr):
            held |= zip(eqn.outvars, self._outputs(eqn, [read(v) for v in eqn.invars], moving), strict=True)
        return [read(v) for v in jaxpr.outvars]

    def _outputs(self, eqn: Any, values: list[Any], moving: dict[int, Any]) -> Sequence[Any]:
        name, params = eqn.primitive.name, eqn.params
        of = lambda inner: lambda *given: self._through(inner, moving, given)  # noqa: E731
        if name in INLINED and not has_own_numbers(eqn):
            return of(params[INLINED[name]])(*values)
        if name == "scan":
            return self._scan(params, values, moving)
        if name == "while":
            k, l = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
            goes = lambda state: of(params["cond_jaxpr"])(*values[:k], *state)[0]  # noqa: E731
            return jax.lax.while_loop(goes, lambda s: of(params["body_jaxpr"])(*values[k:l], *s), values[l:])
        if name == "cond":
            return jax.lax.switch(values[0], [of(branch) for branch in params["branches"]], *values[1:])
        made = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))
        return made if eqn.primitive.multiple_results else [made]

    def _scan(self, params: Any, values: list[Any], moving: dict[int, Any]) -> Sequence[Any]:
        k, carried = scan_counts(params)
        l = k + carried

        def step(state: Any, rows: Any) -> tuple:
            made = self._through(params["jaxpr"], moving, [*values[:k], *state, *rows])
            return made[: l - k], made[l - k :]

        options = {name: params[name] for name in ("length", "reverse", "unroll")}
        state, rows = jax.lax.scan(step, values[k:l], values[l:], **options)
        return [*state, *rows]


def length_of(program: Any, known: dict[int, int] | None = None) -> int:
    """How many equations a program has, with those of every call in it.

    >>> length_of(jax.make_jaxpr(lambda x: jnp.sin(x) + jnp.sin(x))(1.0))
    3
    """
    jaxpr, known = getattr(program, "jaxpr", program), {} if known is None else known
    if id(jaxpr) not in known:
        inner = [_inner(eqn) for eqn in _needed(jaxpr)]
        known[id(jaxpr)] = len(inner) + sum(length_of(each, known) for parts in inner for each in parts)
    return known[id(jaxpr)]


def _inner(eqn: Any) -> list[Any]:
    names = (
        _LOOPS.get(eqn.primitive.name) or [INLINED[eqn.primitive.name]]
        if eqn.primitive.name in {*_LOOPS, *INLINED}
        else []
    )
    found = [eqn.params[name] for name in names]
    return [each for part in found for each in (part if isinstance(part, tuple) else (part,))]


def _value(v: Literal) -> np.ndarray:
    return np.asarray(v.val, getattr(v.aval, "dtype", None))


def _needed(jaxpr: Jaxpr) -> list[Any]:
    """The equations that the outputs depend on."""
    wanted, found = {v for v in jaxpr.outvars if not isinstance(v, Literal)}, []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not wanted.isdisjoint(eqn.outvars):
            found.append(eqn)
            wanted |= {v for v in eqn.invars if not isinstance(v, Literal)}
    return found[::-1]


class _Same:
    """Equal to what holds the same object."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing


def _hashable(value: Any) -> Any:
    """A parameter of an equation, equal for equal ones."""
    if isinstance(value, ClosedJaxpr | Jaxpr) or (callable(value) and not isinstance(value, type)):
        return _Same(value)
    if isinstance(value, dict):
        return tuple((key, _hashable(each)) for key, each in sorted(value.items()))
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return tuple(map(_hashable, value))
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return value
