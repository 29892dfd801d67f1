"""What arguments may be, said where a function takes them: a wrong one ends in a sentence that names it."""

import dataclasses
import functools
import inspect
import numbers
import operator
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from zoo.messages import did_you_mean

T = TypeVar("T")
LARGEST = 2**31 - 1  # of what is counted: steps, members, points
_HUGE = 1e150  # squares of smaller numbers are finite
WIDEST = 2**62  # of sizes that are never held in memory


@dataclasses.dataclass(frozen=True)
class Check:
    """`wanted` in words, and whether a value `fits`; traced values pass. most: what is said of numbers that are larger alone.

    >>> count(1)("f: steps", 10**10)
    Traceback (most recent call last):
    ...
    ValueError: f: steps must be an integer of at least 1, got 10000000000; at most 2147483647.
    """

    wanted: str
    fits: Callable[[Any], Any]
    most: float = np.inf

    def __call__(self, what: str, value: Any) -> None:
        """Raises a sentence that begins with `what` unless the value fits."""
        if not isinstance(value, Tracer) and not self.holds(value):
            each = value if isinstance(value, list | tuple) else [value]
            large = any(map(Check("", lambda v: self.most < v < np.inf).holds, each))
            got = shown(value) + (f"; at most {self.most}" if large and "at most" not in self.wanted else "")
            raise ValueError(f"{what} must be {self.wanted}{';' if ',' in self.wanted else ','} got {got}.")

    def holds(self, value: Any) -> bool:
        """Whether the value fits; what cannot even be asked does not."""
        try:
            return bool(self.fits(value))
        except Exception:
            return False

    def __or__(self, other: "Check") -> "Check":
        either = f"{self.wanted}, or {other.wanted}"
        return Check(either, lambda value: self.holds(value) or other.holds(value), min(self.most, other.most))

    def __and__(self, other: "Check") -> "Check":
        return Check(
            f"{self.wanted}, {other.wanted}", lambda value: self.holds(value) and other.holds(value), self.most
        )


def shown(value: Any) -> str:
    """The value in a message: short; arrays by their shape, functions and modules by their name.

    >>> shown(np.zeros((2, 3))), shown("x" * 200)[-8:]
    ('an array of shape (2, 3)', "xxxxxx…'")
    """
    if isinstance(value, Mapping | list | tuple | str | numbers.Number | None):
        text = repr(value)
    elif getattr(value, "shape", ()) != ():
        bad = int(np.sum(~np.isfinite(value))) if isinstance(value, np.ndarray) and value.dtype.kind in "fc" else 0
        holes = f" with {bad} of {value.size} numbers NaN or infinite" if bad else ""
        kind = f" of {value.dtype}" if getattr(getattr(value, "dtype", None), "kind", "f") in "cUS" else ""
        return f"an array{kind} of shape {tuple(value.shape)}{holes}"
    else:
        text = getattr(value, "__name__", "") or repr(value)
        text = f"a {type(value).__name__}" if len(text) > 80 or "\n" in text else text
    return text if len(text) <= 100 else f"{text[:90]}…{text[-1]}"


def parts(value: Any) -> str:
    """What holds several arrays, in words: its type, and its keys or how many there are.

    >>> parts((1, 2)), parts({"logits": 1, "h": 2})
    ('a tuple of 2', 'a dict of "logits", "h"')
    """
    of = _listed(tuple(value)) if isinstance(value, Mapping) else str(len(jax.tree.leaves(value)))
    return f"a {type(value).__name__} of {of}"


def one_array(what: str, value: Any) -> None:
    """Raises where inputs [n, …] are several, in a dict, or a tuple, which would be one with an axis before the samples."""
    if isinstance(value, dict) or (
        isinstance(value, tuple) and len(value) > 1 and all(np.ndim(each) > 1 for each in value)
    ):
        raise ValueError(
            f"{what} is {parts(value)}; inputs must be one array [n, …] of numbers, which a network of several takes apart."
        )


def input_like(what: str, value: Any) -> Any:
    """An input, or its shape, with `shape` and `dtype`; raises where it is several."""
    one_array(what, value)
    return value if hasattr(value, "shape") else np.asarray(value)


def is_array(value: Any) -> bool:
    """Whether this is one array, and no tree of them."""
    return jax.tree.structure(value) == jax.tree.structure(0)


def _real(value: Any) -> float:
    whole = isinstance(value, int) and abs(value) >= 2**63  # more than an array can hold
    if isinstance(value, bool | str | bytes) or np.ndim(value) or whole:
        raise TypeError
    return float(value)


def count(least: int = 1, most: int = LARGEST) -> Check:
    """A whole number, from `least` on."""
    text = f"an integer of at least {least}" + ("" if most in (LARGEST, WIDEST) else f" and at most {most}")
    return Check(text, lambda v: not isinstance(v, bool) and least <= operator.index(v) <= most, most)


def number(least: float = -np.inf, below: float = np.inf, positive: bool = False) -> Check:
    """One finite number, at least `least` and smaller than `below`; `positive`: above 0."""
    low = " > 0" if positive else "" if least == -np.inf else f" ≥ {least:g}"
    high = "" if below == np.inf else f" and < {below:g}"
    return Check(
        f"a finite number{low}{high}",
        lambda v: least <= _real(v) < below and abs(_real(v)) < _HUGE and (not positive or v > 0),
        _HUGE if below == np.inf else np.inf,
    )


def choice(*options: Any) -> Check:
    """One of these."""
    return Check(
        f"one of {_listed(options)}", lambda v: any(v is o or (isinstance(v, str | int) and v == o) for o in options)
    )


def choices(*options: str) -> Check:
    """Some of these names, in a tuple or list."""
    return Check(
        f"a tuple of some of {_listed(options)}", lambda v: isinstance(v, tuple | list) and set(v) <= {*options}
    )


def _is_real(v: Any) -> bool:
    """Whether it is an array of real numbers: a complex one, or one of words, would become one of them where it is used."""
    return np.asarray(v).dtype.kind not in "cUS" and np.asarray(v, float).dtype.kind == "f"


def _listed(options: tuple) -> str:
    return ", ".join(f'"{o}"' if isinstance(o, str) else str(o) for o in options)


flag = Check("True or False", lambda v: v is None or (np.ndim(v) == 0 and v in (0, 1)))
function = Check("a function", callable)
word = Check("a word", lambda v: isinstance(v, str) and v)
nothing = Check("None", lambda v: v is None)
roles = Check("Roles, as zoo.infer_roles returns, or zoo.Rescaled", lambda v: hasattr(getattr(v, "roles", v), "places"))
table = Check("a dictionary", lambda v: hasattr(v, "items"))
seed = Check("an integer from 0 to 2**63 − 1", lambda v: not isinstance(v, bool) and 0 <= operator.index(v) < 2**63)
key = Check("an integer", lambda v: -(2**63) <= operator.index(v) < 2**63) | Check(
    "a key of jax.random", lambda v: jnp.issubdtype(v.dtype, jax.dtypes.prng_key) or v.shape == (2,)
)
matrix = Check("an array of numbers", lambda v: _is_real(v))  # its shape is looked at elsewhere
whole = Check("an integer", lambda v: not isinstance(v, bool) and abs(operator.index(v)) < 2**63)
real = Check("a number", lambda v: _real(v) is not None)
share = Check("a number from 0 to 1", lambda v: 0 <= _real(v) <= 1)
activation = Check("the name of an activation or a function", lambda v: isinstance(v, str) or callable(v))
module = Check(
    "a Flax Linen module, such as zoo.MLP(width=64, depth=2) (of NNX, or a pair of functions: zoo.in_parameterization)",
    lambda v: isinstance(v, nn.Module),
)
inputs = Check(
    "inputs [n, …]: arrays, or their shapes as jax.ShapeDtypeStruct",
    lambda v: jax.tree.leaves(v) and all(len(leaf.shape) and leaf.dtype.kind != "O" for leaf in jax.tree.leaves(v)),
)
tree = Check(
    "a tree of parameters", lambda v: jax.tree.leaves(v) and all(hasattr(leaf, "shape") for leaf in jax.tree.leaves(v))
)
names = Check("a tuple of names", lambda v: isinstance(v, tuple | list) and all(isinstance(each, str) for each in v))
kernels = Check(
    "kernels [..., n, n] of numbers",
    lambda v: _is_real(v) and np.ndim(v) > 1 and np.shape(v)[-1] == np.shape(v)[-2] > 0,
)
pair = Check(
    "a pair (inputs, targets) of arrays of one length",
    lambda v: len(v) == 2 and all(map(tree.holds, v)) and len({len(leaf) for leaf in jax.tree.leaves(v)}) == 1,
)
steps = Check(
    "a pair (inputs, targets) of arrays [steps, batch, …]",
    lambda v: pair.holds(v) and all(leaf.ndim > 1 for leaf in jax.tree.leaves(tuple(v))),
)
rates = Check(
    "a tree of finite numbers",
    lambda v: all(isinstance(r, Tracer) or np.isfinite(float(r)) for r in jax.tree.leaves(v)),
)
pattern = Check("a regular expression, as text", lambda v: isinstance(v, str) and re.compile(v))
dtype = Check("float32 or float64", lambda v: v is not None and np.dtype(v) in (np.float32, np.float64))
path = Check("the name of a folder", lambda v: bool(os.fspath(v)))
transformation = Check("an optax.GradientTransformation", lambda v: callable(v.init) and callable(v.update))


def several(each: Check, least: int = 1, distinct: bool = False) -> Check:
    """A sequence of what fits `each`."""

    def fits(values: Any) -> bool:
        words = isinstance(values, str | bytes | Mapping)
        listed = [] if words else list(values)
        once = not distinct or len({*map(float, listed)}) == len(listed)
        return not words and len(listed) >= least and once and all(map(each.holds, listed))

    size = {0: "", 1: ", one or more of them"}.get(least, f", {least} or more of them")
    text = f"a sequence{size}{', each once' if distinct else ''}, of which each is {each.wanted}"
    return Check(text, fits, each.most)


def array(*shape: int | None, least: int = 0, whole: bool = False) -> Check:
    """Finite real numbers of this shape (None: any length ≥ 1), or without one of at least so many axes."""
    axes = (
        f"[{', '.join(a if s is None else str(s) for a, s in zip('nmkl', shape, strict=False))}]"
        if shape
        else f"with at least {least} axes"
    )

    def fits(values: Any) -> bool:
        found = np.asarray(values)
        kind = np.issubdtype(found.dtype, np.integer) if whole else np.isrealobj(found) and np.isfinite(found).all()
        if shape:
            alike = found.ndim == len(shape) and all(s in (None, n) for s, n in zip(shape, found.shape, strict=True))
        else:
            alike = found.ndim >= least
        return bool(kind and found.size and alike)

    return Check(f"an array {axes} of {'whole' if whole else 'finite'} numbers", fits)


def a(kind: type | tuple[type, ...], wanted: str) -> Check:
    """An object of this type, `wanted` in words."""
    return Check(wanted, lambda v: isinstance(v, kind))


def arguments(**wanted: Check) -> Callable[[T], T]:
    """Decorator: these arguments are checked before the function runs (defaults pass), and misspelt or missing ones said.

    >>> @arguments(steps=count(0))
    ... def train(steps, rate=0.1): ...
    >>> train(3, rtae=0.2)
    Traceback (most recent call last):
    ...
    TypeError: train has no argument "rtae". Did you mean "rate"? Known: rate, steps.
    """

    def wrap(function: Any, name: str = "") -> Any:
        if inspect.isclass(function):
            function.__init__ = wrap(function.__init__, function.__name__)
            return function
        known = not name  # of what a class holds, None may be a part
        signature = inspect.signature(function)
        name = name or function.__name__
        rest = next((p.name for p in signature.parameters.values() if p.kind == p.VAR_KEYWORD), "")

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                given = {**signature.bind(*args, **kwargs).arguments}
            except TypeError as error:
                raise misfit(name, signature, args, kwargs) or error from None
            given |= given.pop(rest, {})
            for each, value in given.items():
                default = signature.parameters[each].default if each in signature.parameters else None
                if known and each not in wanted and value is None and default is inspect.Parameter.empty:
                    raise ValueError(f"{name}: {each} is None, and must be given.")
                if each in wanted and value is not default:
                    wanted[each](f"{name}: {each}", value)
            if not jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
                return function(*args, **kwargs)
            with jax.disable_jit(False):  # networks are read as programs, of which nothing would be left
                return function(*args, **kwargs)

        return checked

    return wrap


def options(**wanted: Check) -> Callable[[T], T]:
    """Decorator that only notes what keyword options may be, for whoever chooses the function by its name."""

    def note(function: Any) -> Any:
        function.checks = wanted
        return function

    return note


def misfit(name: str, signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]) -> TypeError | None:
    """Why a call does not fit the signature: an unknown argument, one that is missing, or one too many."""
    known = [each for each in signature.parameters if each not in ("self", "parent", "name")]
    unknown = [key for key in kwargs if key not in signature.parameters]
    if unknown:
        return TypeError(f'{name} has no argument "{unknown[0]}". {did_you_mean(unknown[0], known)}')
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return TypeError(f"{name} takes {', '.join(known)}; more arguments were given, or one of them twice.")
    needed = [each for each, p in signature.parameters.items() if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
    needed += [each for each, p in signature.parameters.items() if p.default is p.empty and p.kind == p.KEYWORD_ONLY]
    missing = [each for each in needed if each not in given]
    return TypeError(f"{name} needs {', '.join(missing)}; its arguments are {', '.join(known)}.") if missing else None


def dimensions(owner: str, **given: tuple[Any, str]) -> list[Any]:
    """The arrays, finite and with these axes, each letter one length throughout ("*" before: any axes first; None stays).

    >>> k, y = dimensions("f", k=(np.eye(2), "n n"), y=([1.0, 2.0], "n k"))
    Traceback (most recent call last):
    ...
    ValueError: f: y must be an array [n, k] with n = 2 of finite numbers; its shape is (2,).
    """
    sizes: dict[str, int] = {}
    arrays = []
    for name, (value, axes) in given.items():
        letters = axes.replace("*", "").split()
        if value is not None and not Check("", lambda v: np.isfinite(np.asarray(v)).all() and np.isrealobj(v)).holds(
            value
        ):
            raise ValueError(f"{owner}: {name} must be {_axes(letters, sizes)}; got {shown(value)}.")
        arrays.append(None if value is None else np.asarray(value))
        shape = () if value is None else arrays[-1].shape
        pairs = list(zip(letters, shape[-len(letters) :], strict=False))
        own = {**dict(pairs), **sizes}
        fitting = value is None or len(shape) == len(letters) or (len(shape) > len(letters) and "*" in axes)
        if not fitting or any(own[letter] != n for letter, n in pairs):
            raise ValueError(f"{owner}: {name} must be {_axes(letters, sizes)}; its shape is {shape}.")
        sizes = own
    return arrays


def _axes(letters: list[str], sizes: dict[str, int]) -> str:
    known = " and ".join(f"{a} = {sizes[a]}" for a in dict.fromkeys(letters) if a in sizes)
    return f"an array [{', '.join(letters)}]{' with ' if known else ''}{known} of finite numbers"
