"""The law of every parameter: the program of `init` read with random variables in place of numbers. Nothing is drawn."""

import dataclasses
import fractions
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from zoo.laws.draws import Random, arithmetic, draw, is_draw, moved, normal_of_uniform, placed, together
from zoo.laws.known import DOUBLE, KEPT, MOVED, Known, array_of, known, of_known
from zoo.laws.law import SUPPORTED, Fixed, Law, Unknown
from zoo.scans import CALLS, scan_counts

# Primitives, by what becomes of a draw in them.
_LARGEST = 2**20  # numerator × denominator of a rational number that is recognised


def laws(init: Callable[..., Any], *arguments: Any) -> Any:
    """The `Law` of every array that init(key, *arguments) returns, or `Unknown`: a tree like it. Shapes are enough.

    >>> import flax.linen as nn
    >>> laws(nn.Dense(4).init, jax.ShapeDtypeStruct((1, 8), "float32"))["params"]["kernel"]
    Law(mean=0.0, variance=0.125, gaussian=False, kind='truncated normal')
    """
    key = jax.eval_shape(jax.random.key, 0)
    program, shapes = jax.make_jaxpr(init, return_shape=True)(key, *arguments)
    words = jax.eval_shape(jax.random.key_data, key)
    with jax.ensure_compile_time_eval():  # a caller may be tracing
        key = jax.random.wrap_key_data(np.zeros(words.shape, words.dtype))  # pyright: ignore[reportArgumentType]
    given = Unknown("it depends on the arguments of init")
    inputs = [Known(key, (), secret=True), *[given] * (len(program.jaxpr.invars) - 1)]
    with jax.ensure_compile_time_eval(), np.errstate(all="ignore"):
        found = _run(program, inputs)
    paths, tree = jax.tree_util.tree_flatten_with_path(shapes)
    named = [
        _named(_law(value), jax.tree_util.keystr(path, simple=True, separator="."))
        for (path, _), value in zip(paths, found, strict=True)
    ]
    return jax.tree.unflatten(tree, named)


def _named(law: Law | Unknown, path: str) -> Law | Unknown:
    """The reason as a sentence that names the parameter."""
    if isinstance(law, Law):
        return law
    sentence = f"The law of {path or 'the array'} at initialisation is not known: {law.reason}. {SUPPORTED}."
    return dataclasses.replace(law, reason=sentence)


def _law(value: Any) -> Law | Unknown:
    """What is said of an array that init returns."""
    if isinstance(value, Unknown):
        return value
    if isinstance(value, Random):
        kinds = {draw.kind for draw, scale in value.scales.items() if scale**2 * draw.variance > 0}
        variance = _variance(sum(scale**2 * draw.variance for draw, scale in value.scales.items()), value.error)
        mean = rational(value.mean, value.error)
        third, fourth = (
            sum((scale * each.variance**0.5) ** n * of(each) for each, scale in value.scales.items())
            for n, of in ((3, lambda each: each.skewness), (4, lambda each: each.kurtosis))
        )
        size = variance**0.5 or 1.0
        kind = " + ".join(sorted(kinds)) or "constant"
        return Law(mean, variance, kinds <= {"normal"}, kind, third / size**3, fourth / size**4)
    if value.secret:
        return Unknown("it is made of random bits")
    if value.values.ndim:
        low, high = value.values.min(), value.values.max()
        size = float(np.sqrt(np.mean(np.abs(value.values.astype(np.complex128)) ** 2)))
        return Fixed(f"it is a constant array whose entries differ, from {low} to {high}", size)
    if value.values.dtype.kind == "c":
        return Unknown("it is complex")
    return Law(rational(float(value.values), value.error), 0.0, True, "constant")


def _variance(value: float, error: float) -> float:
    """The square of a number of at most three digits, where it is that but for rounding; else the rational number that near."""
    std = math.sqrt(value)
    digits = float(f"{std:.3g}")
    return rational(digits**2, DOUBLE) if abs(digits - std) <= 4 * DOUBLE * std else rational(value, 2 * error)


def rational(value: float, error: float) -> float:
    """The fraction with numerator × denominator up to 2²⁰ that lies within the relative error, if there is one.

    >>> rational(float(np.float32(1 / 7)), 2.0**-24) == 1 / 7
    True
    """
    if not math.isfinite(value) or value == 0 or error == 0:
        return value
    # Two fractions with such numerators and denominators differ by 2⁻²⁰, relatively: few errors are large enough for two.
    near = fractions.Fraction(value).limit_denominator(max(math.isqrt(int(_LARGEST / abs(value))), 1))
    return float(near) if abs(float(near) - value) <= error * abs(value) else value


def _run(program: Any, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a program, of whose equations only those are read that they depend on."""
    jaxpr, consts = (program.jaxpr, program.consts) if isinstance(program, ClosedJaxpr) else (program, [])
    wanted, equations = {v for v in jaxpr.outvars if not isinstance(v, Literal)}, []
    for equation in reversed(jaxpr.eqns):
        if not wanted.isdisjoint(equation.outvars):
            equations.append(equation)
            wanted |= {v for v in equation.invars if not isinstance(v, Literal)}
    found = dict(zip(jaxpr.invars, inputs, strict=True))
    found |= {v: known(value) for v, value in zip(jaxpr.constvars, consts, strict=True) if v in wanted}

    def read(v: Any) -> Any:
        return known(np.asarray(v.val, getattr(v.aval, "dtype", None))) if isinstance(v, Literal) else found[v]

    for equation in reversed(equations):
        found |= zip(equation.outvars, _outputs(equation, [read(v) for v in equation.invars]), strict=True)
    return [read(v) for v in jaxpr.outvars]


def _outputs(equation: Any, values: list[Any]) -> list[Any]:
    """The outputs of one equation."""
    name, outs = equation.primitive.name, equation.outvars
    first = next((value for value in values if isinstance(value, Unknown)), None)
    if name == "scan":
        return _scan(equation, values)
    if name in CALLS:
        if is_draw(equation):
            return [first or draw(equation, values)]
        return _run(equation.params.get("jaxpr", equation.params.get("call_jaxpr")), values)
    if name == "optimization_barrier":
        return values
    if first is not None:
        return [first] * len(outs)
    if all(isinstance(value, Known) for value in values):
        return of_known(equation, values)
    if name in ("concatenate", "stack"):
        return [together(values, outs[0].aval)]
    if name in KEPT | MOVED:
        return [moved(equation, values[0], i) for i in range(len(outs))]
    if name == "erf_inv":
        return [normal_of_uniform(values[0], outs[0].aval)]
    if name in ("add", "sub", "mul", "div", "neg"):
        return [arithmetic(name, values, outs[0].aval)]
    return [Unknown(f'its draw goes through "{name}"')] * len(outs)


def _scan(equation: Any, values: list[Any]) -> list[Any]:
    """A loop, step by step: each has its own keys."""
    options, outs = equation.params, [v.aval for v in equation.outvars]
    (consts, carries), length = scan_counts(options), options["length"]
    fixed, carry, rows = values[:consts], values[consts : consts + carries], values[consts + carries :]
    steps: list[list[Any]] = []
    for i in reversed(range(length)) if options["reverse"] else range(length):
        found = _run(options["jaxpr"], [*fixed, *carry, *(_row(value, i, length) for value in rows)])
        carry = found[:carries]
        steps.append(found[carries:])
    stacked = steps[::-1] if options["reverse"] else steps
    return [*carry, *(_stacked([step[i] for step in stacked], out) for i, out in enumerate(outs[carries:]))]


def _row(value: Any, i: int, length: int) -> Any:
    """Entry i of the first axis."""
    if isinstance(value, Random):
        return placed(value, ("row", i), value.size // length)
    if isinstance(value, Unknown):
        return value
    if not np.ndim(value.values):
        return dataclasses.replace(value, shape=value.shape[1:])
    row = known(value.values[i], value.error)
    return dataclasses.replace(row, secret=value.secret)


def _stacked(parts: list[Any], out: Any) -> Any:
    """The parts along a new first axis."""
    if not parts or not all(isinstance(part, Known) for part in parts):
        return together(parts, out)
    join = jnp.stack if jnp.issubdtype(out.dtype, jax.dtypes.prng_key) else np.stack
    values = join([array_of(part, part.shape, out.dtype) for part in parts])
    found = known(values, max(part.error for part in parts))
    return dataclasses.replace(found, secret=any(part.secret for part in parts))
