"""Sums of independent draws, and what becomes of them in the equations of a program."""

import dataclasses
import math
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo.laws.known import DOUBLE, KEPT, Known, array_of
from zoo.laws.law import Unknown

_DRAWS = {
    "_normal": "normal",
    "_truncated_normal": "truncated normal",
    "_uniform": "uniform",
    "_orthogonal": "orthogonal",
}


@dataclasses.dataclass(frozen=True)
class _Draw:
    """Independent centred entries, or an orthogonal matrix; equal ones are the same numbers, others independent if keys are."""

    kind: str
    variance: float
    keys: frozenset[bytes]
    layout: Any
    skewness: float = 0.0
    kurtosis: float = 0.0  # excess


@dataclasses.dataclass(frozen=True)
class Random:
    """mean + Σ scale × draw."""

    mean: float
    scales: dict[_Draw, float]
    size: int
    error: float


def is_draw(equation: Any) -> bool:
    """Whether this is one of jax.random's own functions, called with keys (and not the half of it without them)."""
    body, out = equation.params.get("jaxpr"), equation.outvars[0].aval
    if equation.params.get("name") not in _DRAWS or len(equation.outvars) != 1 or len(equation.invars) not in (1, 3):
        return False
    keys = jnp.issubdtype(equation.invars[0].aval.dtype, jax.dtypes.prng_key)
    source = body.jaxpr.debug_info.func_filename or ""
    return (
        keys and jnp.issubdtype(out.dtype, jnp.floating) and source.startswith(os.path.dirname(jax.__file__) + os.sep)
    )


def draw(equation: Any, values: list[Any]) -> Random | Unknown:
    """A draw by one key, or by one key for each slice; bounds of the uniform and the truncated normal are operands."""
    key, out, kind = equation.invars[0].aval, equation.outvars[0].aval, _DRAWS[equation.params["name"]]
    if out.dtype.itemsize < 4:  # a normal in bfloat16 has the mean -0.011 and the variance 0.995
        return Unknown(f"it is drawn in {out.dtype}, too coarsely for its law; draw in float32 and cast")
    data = np.asarray(jax.random.key_data(array_of(values[0], key.shape, key.dtype)))
    keys = [row.tobytes() for row in data.reshape(math.prod(key.shape), -1)]
    if len(set(keys)) < len(keys):
        return Unknown("several of its slices are drawn with the same key")
    if any(np.ndim(bound.values) for bound in values[1:]):
        return Unknown("the bounds of its entries differ")
    low, high = (float(bound.values) for bound in values[1:]) if values[1:] else (-math.inf, math.inf)
    if kind == "uniform":
        mean, variance, *higher = (low + high) / 2, (high - low) ** 2 / 12, 0.0, -1.2
    elif kind == "orthogonal":  # an entry is that of a unit vector: its square a beta variable
        n = max(out.shape[-2:])
        mean, variance, *higher = 0.0, 1 / n, 0.0, -6 / (n + 2)
    else:
        mean, variance, *higher = _truncated(low, high) if values[1:] else (0.0, 1.0, 0.0, 0.0)
    draw = _Draw(kind, variance, frozenset(keys), (tuple(keys), out.shape, out.dtype, low, high), *higher)
    return Random(mean, {draw: 1.0}, out.size, sum(bound.error for bound in values[1:]) + DOUBLE)


def _truncated(low: float, high: float) -> tuple[float, ...]:
    """(mean, variance, skewness, excess kurtosis) of a normal number between these bounds.

    >>> [round(each, 6) for each in _truncated(-2.0, 2.0)]
    [0.0, 0.773741, 0.0, -0.634463]
    """
    near = min(max(low, 0.0), high)  # where it is most dense
    reach = 40 / (4 + abs(near))
    edges = np.linspace(max(low, near - reach), min(high, near + reach), 17)
    t, weights = np.polynomial.legendre.leggauss(24)
    half = np.diff(edges)[:, None] / 2
    x = edges[:-1, None] + half * (1 + t)
    share = half * weights * np.exp((near - x) * (near + x) / 2)
    share /= share.sum()
    mean = float((share * x).sum())
    variance, third, fourth = (float((share * (x - mean) ** n).sum()) for n in (2, 3, 4))
    return mean, variance, third / variance**1.5, fourth / variance**2 - 3.0


def moved(equation: Any, value: Random, i: int) -> Random | Unknown:
    """Output i of an equation that keeps or drops entries, or changes where they stand."""
    name, out = equation.primitive.name, equation.outvars[i].aval
    if not jnp.issubdtype(out.dtype, jnp.floating):
        return Unknown(f"its draw is cast to {out.dtype}")
    if out.size > value.size:
        return Unknown("several of its entries are one draw, repeated")
    return value if name in KEPT else placed(value, (name, i, str(equation.params)), out.size)


def placed(value: Random, where: Any, size: int) -> Random:
    """The same draws with their entries at other places: independent of what they were only at equal places."""
    scales = {dataclasses.replace(draw, layout=(draw.layout, where)): scale for draw, scale in value.scales.items()}
    return Random(value.mean, scales, size, value.error)


def normal_of_uniform(value: Random, out: Any) -> Random | Unknown:
    """erf⁻¹ of a uniform draw between −1 and 1 is a normal one over √2: so newer initialisers write it themselves."""
    (draw, scale), *others = value.scales.items()
    low, high = draw.layout[-2:]
    ends = float(np.nextafter(np.array(-1.0, out.dtype), np.array(0.0, out.dtype))), 1.0
    if others or scale != 1.0 or draw.kind != "uniform" or (low, high) != ends or value.mean != sum(ends) / 2:
        return Unknown('its draw goes through "erf_inv"')
    root = float(np.sqrt(np.array(2.0, out.dtype)))  # as it is multiplied by in that type
    return Random(
        0.0, {_Draw("normal", 1.0, draw.keys, (draw.layout, "normal")): 1 / root}, value.size, value.error + DOUBLE
    )


def arithmetic(name: str, values: list[Any], out: Any) -> Random | Unknown:
    """Sums, and products with a constant."""
    if any(isinstance(value, Random) and value.size != out.size for value in values):
        return Unknown("several of its entries share one draw")
    if any(isinstance(value, Known) and (np.ndim(value.values) or value.secret) for value in values):
        return Unknown(f'"{name}" takes its draw and a constant array whose entries differ')
    error = sum(value.error for value in values) + DOUBLE
    if name in ("add", "sub"):
        first, second = (_as_random(value, out.size) for value in values)
        return _sum(first, second, -1.0 if name == "sub" else 1.0)
    constants = [float(value.values) for value in values if isinstance(value, Known)]
    if len(values) - len(constants) > 1 or (name == "div" and (isinstance(values[0], Known) or constants == [0.0])):
        return Unknown(f'"{name}" takes two draws, or divides by a draw or by 0')
    draw = next(value for value in values if isinstance(value, Random))
    factor = (1 / constants[0] if name == "div" else constants[0]) if constants else -1.0  # "neg"
    scales = {each: scale * factor for each, scale in draw.scales.items()}
    return Random(draw.mean * factor, scales, out.size, error)


def _as_random(value: Any, size: int) -> Random:
    return value if isinstance(value, Random) else Random(float(value.values), {}, size, value.error)


def _sum(a: Random, b: Random, sign: float) -> Random | Unknown:
    """a ± b: equal draws add up, draws from different keys are independent."""
    scales = dict(a.scales)
    for draw, scale in b.scales.items():
        if draw not in scales and any(draw.keys & other.keys for other in scales):
            return Unknown("it adds two different draws from the same key")
        scales[draw] = scales.get(draw, 0.0) + sign * scale
    mean, error = a.mean + sign * b.mean, a.error + b.error + DOUBLE
    # What cancels but for rounding is zero: whether a mean is zero decides which rules apply.
    return Random(0.0 if abs(mean) <= error * abs(a.mean) else mean, scales, a.size, error)


def together(parts: list[Any], out: Any) -> Any:
    """Parts of one array: draws of one law from different keys, or constants."""
    first = next((part for part in parts if isinstance(part, Unknown)), None)
    if first is not None:
        return first
    if not parts:
        return Known(np.zeros((), out.dtype), out.shape)
    if any(isinstance(part, Known) or len(part.scales) != 1 for part in parts):
        return Unknown("its parts are not one draw each")
    draws = [next(iter(part.scales)) for part in parts]
    if len({(part.mean, *part.scales.values(), d.kind, d.variance) for part, d in zip(parts, draws, strict=True)}) > 1:
        return Unknown("its parts have different laws")
    keys = frozenset().union(*(draw.keys for draw in draws))
    if len(keys) < sum(len(draw.keys) for draw in draws):
        return Unknown("several of its parts are drawn with the same key")
    joined = dataclasses.replace(draws[0], keys=keys, layout=tuple(draw.layout for draw in draws))
    scale = next(iter(parts[0].scales.values()))
    return Random(parts[0].mean, {joined: scale}, out.size, parts[0].error)
