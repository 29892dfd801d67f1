"""The law of every parameter: the program of `init` read with random variables in place of numbers. Nothing is drawn."""

import dataclasses
import fractions
import hashlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

SUPPORTED = (
    "Supported: independent entries that are normal, truncated normal or uniform, and constants; scaled, shifted, "
    "reshaped, stacked, and sums of draws from different keys"
)
# Primitives, by what becomes of a draw in them.
_CALLS = {"jit", "checkpoint", "remat2", "custom_jvp_call", "custom_vjp_call", "closed_call", "core_call"}
_SAME = {"copy", "copy_p", "stop_gradient", "convert_element_type", "sharding_constraint"}
_MOVED = {
    "reshape",
    "transpose",
    "squeeze",
    "expand_dims",
    "broadcast_in_dim",
    "rev",
    "slice",
    "split",
    "unstack",
    "tile",
}
_KEYS = {
    "random_split",
    "random_fold_in",
    "random_wrap",
    "random_unwrap",
    "random_clone",
    "concatenate",
    "stack",
    "gather",
}
_DRAWS = {"_normal": "normal", "_truncated_normal": "truncated normal", "_uniform": "uniform"}  # jax's functions
_FLOATS: dict[str, Callable] = {  # of constants: evaluated in double precision, whatever the program says
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "square": np.square,
}
_SINGLE, _DOUBLE = 2.0**-24, 2.0**-52  # relative errors of rounding
_LARGEST = 2**20  # numerator × denominator of a rational number that is recognised


@dataclasses.dataclass(frozen=True)
class Law:
    """Independent entries of one law; kind: "normal", "truncated normal", "uniform", "constant", or a sum of them.

    gaussian: whether exactly normal; a truncated normal and a uniform are not, a constant is: N(mean, 0).
    """

    mean: float
    variance: float
    gaussian: bool
    kind: str


@dataclasses.dataclass(frozen=True)
class Unknown:
    """In place of a `Law` that was not found."""

    reason: str


@dataclasses.dataclass(frozen=True)
class _Constant:
    """Numbers or keys that are known; values: one, if all entries are equal. error: relative, of the float type."""

    values: Any
    shape: tuple[int, ...]
    error: float = 0.0
    secret: bool = False  # made from the key: known here only to tell draws apart


@dataclasses.dataclass(frozen=True)
class _Draw:
    """Independent centred entries; equal ones are the same numbers, others are independent if their keys are."""

    kind: str
    variance: float
    keys: frozenset[bytes]
    layout: Any


@dataclasses.dataclass(frozen=True)
class _Random:
    """mean + Σ scale × draw."""

    mean: float
    scales: dict[_Draw, float]
    size: int
    error: float


def laws(init: Callable, *arguments: Any) -> Any:
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
    inputs = [_Constant(key, (), secret=True), *[given] * (len(program.jaxpr.invars) - 1)]
    with jax.ensure_compile_time_eval(), np.errstate(all="ignore"):
        found = _run(program, inputs)
    paths, tree = jax.tree_util.tree_flatten_with_path(shapes)
    named = [
        _named(_law(value), jax.tree_util.keystr(path, simple=True, separator="."))
        for (path, _), value in zip(paths, found, strict=True)
    ]
    return jax.tree.unflatten(tree, named)


def law_of(leaf: "Law | Unknown") -> Law:
    """The law; a ValueError with the reason where it is not known."""
    if isinstance(leaf, Unknown):
        raise ValueError(leaf.reason)
    return leaf


def _named(law: Law | Unknown, path: str) -> Law | Unknown:
    """The reason as a sentence that names the parameter."""
    if isinstance(law, Law):
        return law
    return Unknown(f"The law of {path or 'the array'} at initialisation is not known: {law.reason}. {SUPPORTED}.")


def _law(value: Any) -> Law | Unknown:
    """What is said of an array that init returns."""
    if isinstance(value, Unknown):
        return value
    if isinstance(value, _Random):
        kinds = {draw.kind for draw, scale in value.scales.items() if scale**2 * draw.variance > 0}
        variance = rational(sum(scale**2 * draw.variance for draw, scale in value.scales.items()), 2 * value.error)
        mean = rational(value.mean, value.error)
        return Law(mean, variance, kinds <= {"normal"}, " + ".join(sorted(kinds)) or "constant")
    if value.secret:
        return Unknown("it is made of random bits")
    if value.values.ndim:
        low, high = value.values.min(), value.values.max()
        return Unknown(f"it is a constant array whose entries differ, from {low} to {high}")
    if value.values.dtype.kind == "c":
        return Unknown("it is complex")
    return Law(rational(float(value.values), value.error), 0.0, True, "constant")


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
    found |= {v: _constant(value) for v, value in zip(jaxpr.constvars, consts, strict=True) if v in wanted}

    def read(v: Any) -> Any:
        return _constant(np.asarray(v.val, getattr(v.aval, "dtype", None))) if isinstance(v, Literal) else found[v]

    for equation in reversed(equations):
        found |= zip(equation.outvars, _outputs(equation, [read(v) for v in equation.invars]), strict=True)
    return [read(v) for v in jaxpr.outvars]


def _outputs(equation: Any, values: list[Any]) -> list[Any]:
    """The outputs of one equation."""
    name, outs = equation.primitive.name, equation.outvars
    first = next((value for value in values if isinstance(value, Unknown)), None)
    if name == "scan":
        return _scan(equation, values)
    if name in _CALLS:
        if _is_draw(equation):
            return [first or _draw(equation, values)]
        return _run(equation.params.get("jaxpr", equation.params.get("call_jaxpr")), values)
    if name == "optimization_barrier":
        return values
    if first is not None:
        return [first] * len(outs)
    if all(isinstance(value, _Constant) for value in values):
        return _known(equation, values)
    if name in ("concatenate", "stack"):
        return [_together(values, outs[0].aval)]
    if name in _SAME | _MOVED:
        return [_moved(equation, values[0], i) for i in range(len(outs))]
    if name in ("add", "sub", "mul", "div", "neg"):
        return [_arithmetic(name, values, outs[0].aval)]
    return [Unknown(f'its draw goes through "{name}"')] * len(outs)


def _constant(value: Any, error: float | None = None) -> _Constant:
    """A constant of the program; a float32 with at most three digits is meant as that decimal number."""
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return _Constant(value, value.shape, secret=True)
    array = np.asarray(value)
    if array.size == 0 or (array == array.flat[0]).all():
        one, shape = (array.flat[0] if array.size else array.dtype.type(0)), array.shape
        if array.dtype == np.float32 and error is None:
            digits = np.format_float_scientific(one, trim="-")
            short = len(digits.split("e")[0].strip("-").replace(".", "")) <= 3
            return _Constant(np.asarray(float(digits if short else one)), shape, _DOUBLE if short else _SINGLE)
        array = np.asarray(one)
    else:
        shape = array.shape
    if jnp.issubdtype(array.dtype, jnp.floating):
        own = {np.dtype(np.float32): _SINGLE, np.dtype(np.float64): _DOUBLE}.get(array.dtype, 0.0)
        return _Constant(array.astype(np.float64), shape, own if error is None else error)
    return _Constant(array, shape)


def _known(equation: Any, values: list[Any]) -> list[Any]:
    """The outputs of an equation between constants; keys are derived, but nothing is drawn from them."""
    name, outs = equation.primitive.name, [v.aval for v in equation.outvars]
    secret = any(value.secret for value in values)
    if secret and name not in _KEYS | _SAME | _MOVED:
        return [Unknown(f'it comes from the random key through "{name}"')] * len(outs)
    error = sum(value.error for value in values)
    equal = all(not np.ndim(value.values) for value in values)
    if equal and not secret and name in _MOVED:
        return [_Constant(values[0].values, out.shape, error) for out in outs]
    floats = all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in (*equation.invars, *equation.outvars))
    if equal and floats and name in {*_FLOATS, *_SAME} and outs[0].dtype.itemsize >= 4:
        result = _FLOATS.get(name, np.asarray)(*[value.values for value in values])
        return [_Constant(np.asarray(result), outs[0].shape, error + _DOUBLE)]
    arrays = [_array(value, v.aval.shape, v.aval.dtype) for value, v in zip(values, equation.invars, strict=True)]
    if name in ("random_fold_in", "random_split"):
        return [_Constant(_derived(arrays, equation.params.get("shape"), outs[0].shape), outs[0].shape, secret=True)]
    results = equation.primitive.bind(*arrays, **equation.params)
    results = results if equation.primitive.multiple_results else [results]
    loss = error + 2 * _SINGLE if any(out.dtype == np.float32 for out in outs) else error + 2 * _DOUBLE
    found = [_constant(result, loss) for result in results]
    return [dataclasses.replace(each, secret=each.secret or secret) for each in found]


def _derived(arrays: list[Any], split: tuple[int, ...] | None, shape: tuple[int, ...]) -> Any:
    """Keys that are folded with numbers, or split, told apart as those of jax are, for each of which it compiles."""
    words, numbers = np.asarray(jax.random.key_data(arrays[0])), np.asarray(arrays[-1] if split is None else 0)
    if split is not None:
        words = words.reshape(*words.shape[:-1], *(1,) * len(split), -1)
        numbers = np.arange(math.prod(split)).reshape(split)
    words, numbers = np.broadcast_to(words, (*shape, words.shape[-1])), np.broadcast_to(numbers, shape)
    rows = [
        hashlib.blake2b(row.tobytes() + int(number).to_bytes(8, "little", signed=True), digest_size=row.nbytes).digest()
        for row, number in zip(words.reshape(-1, words.shape[-1]), numbers.ravel(), strict=True)
    ]
    found: Any = np.frombuffer(b"".join(rows), words.dtype).reshape(words.shape)
    return jax.random.wrap_key_data(found)


def _array(constant: _Constant, shape: tuple[int, ...], dtype: Any) -> Any:
    """All entries, in the type that the program has them in."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(constant.values, shape)
    return np.broadcast_to(constant.values, shape).astype(dtype)


def _is_draw(equation: Any) -> bool:
    """Whether this is one of jax.random's own functions, called with keys (and not the half of it without them)."""
    body, out = equation.params.get("jaxpr"), equation.outvars[0].aval
    if equation.params.get("name") not in _DRAWS or len(equation.outvars) != 1 or len(equation.invars) not in (1, 3):
        return False
    keys = jnp.issubdtype(equation.invars[0].aval.dtype, jax.dtypes.prng_key)
    source = body.jaxpr.debug_info.func_filename or ""
    return (
        keys and jnp.issubdtype(out.dtype, jnp.floating) and source.startswith(os.path.dirname(jax.__file__) + os.sep)
    )


def _draw(equation: Any, values: list[Any]) -> _Random | Unknown:
    """A draw by one key, or by one key for each slice; bounds of the uniform and the truncated normal are operands."""
    key, out, kind = equation.invars[0].aval, equation.outvars[0].aval, _DRAWS[equation.params["name"]]
    if out.dtype.itemsize < 4:  # a normal in bfloat16 has the mean -0.011 and the variance 0.995
        return Unknown(f"it is drawn in {out.dtype}, too coarsely for its law; draw in float32 and cast")
    data = np.asarray(jax.random.key_data(_array(values[0], key.shape, key.dtype)))
    keys = [row.tobytes() for row in data.reshape(math.prod(key.shape), -1)]
    if len(set(keys)) < len(keys):
        return Unknown("several of its slices are drawn with the same key")
    if any(np.ndim(bound.values) for bound in values[1:]):
        return Unknown("the bounds of its entries differ")
    low, high = (float(bound.values) for bound in values[1:]) if values[1:] else (-math.inf, math.inf)
    if kind == "uniform":
        mean, variance = (low + high) / 2, (high - low) ** 2 / 12
    else:
        mean, variance = _truncated(low, high) if values[1:] else (0.0, 1.0)
    draw = _Draw(kind, variance, frozenset(keys), (tuple(keys), out.shape, out.dtype, low, high))
    return _Random(mean, {draw: 1.0}, out.size, sum(bound.error for bound in values[1:]) + _DOUBLE)


def _truncated(low: float, high: float) -> tuple[float, float]:
    """(mean, variance) of a normal number between these bounds.

    >>> round(_truncated(0.0, math.inf)[0] ** 2 * math.pi / 2, 14)
    1.0
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
    return mean, float((share * (x - mean) ** 2).sum())


def _moved(equation: Any, value: _Random, i: int) -> _Random | Unknown:
    """Output i of an equation that keeps or drops entries, or changes where they stand."""
    name, out = equation.primitive.name, equation.outvars[i].aval
    if not jnp.issubdtype(out.dtype, jnp.floating):
        return Unknown(f"its draw is cast to {out.dtype}")
    if out.size > value.size:
        return Unknown("several of its entries are one draw, repeated")
    return value if name in _SAME else _placed(value, (name, i, str(equation.params)), out.size)


def _placed(value: _Random, where: Any, size: int) -> _Random:
    """The same draws with their entries at other places: independent of what they were only at equal places."""
    scales = {dataclasses.replace(draw, layout=(draw.layout, where)): scale for draw, scale in value.scales.items()}
    return _Random(value.mean, scales, size, value.error)


def _arithmetic(name: str, values: list[Any], out: Any) -> _Random | Unknown:
    """Sums, and products with a constant."""
    if any(isinstance(value, _Random) and value.size != out.size for value in values):
        return Unknown("several of its entries share one draw")
    if any(isinstance(value, _Constant) and (np.ndim(value.values) or value.secret) for value in values):
        return Unknown(f'"{name}" takes its draw and a constant array whose entries differ')
    error = sum(value.error for value in values) + _DOUBLE
    if name in ("add", "sub"):
        first, second = (_as_random(value, out.size) for value in values)
        return _sum(first, second, -1.0 if name == "sub" else 1.0)
    constants = [float(value.values) for value in values if isinstance(value, _Constant)]
    if len(values) - len(constants) > 1 or (name == "div" and (isinstance(values[0], _Constant) or constants == [0.0])):
        return Unknown(f'"{name}" takes two draws, or divides by a draw or by 0')
    draw = next(value for value in values if isinstance(value, _Random))
    factor = (1 / constants[0] if name == "div" else constants[0]) if constants else -1.0  # "neg"
    scales = {each: scale * factor for each, scale in draw.scales.items()}
    return _Random(draw.mean * factor, scales, out.size, error)


def _as_random(value: Any, size: int) -> _Random:
    return value if isinstance(value, _Random) else _Random(float(value.values), {}, size, value.error)


def _sum(a: _Random, b: _Random, sign: float) -> _Random | Unknown:
    """a ± b: equal draws add up, draws from different keys are independent."""
    scales = dict(a.scales)
    for draw, scale in b.scales.items():
        if draw not in scales and any(draw.keys & other.keys for other in scales):
            return Unknown("it adds two different draws from the same key")
        scales[draw] = scales.get(draw, 0.0) + sign * scale
    mean, error = a.mean + sign * b.mean, a.error + b.error + _DOUBLE
    # What cancels but for rounding is zero: whether a mean is zero decides which rules apply.
    return _Random(0.0 if abs(mean) <= error * abs(a.mean) else mean, scales, a.size, error)


def _together(parts: list[Any], out: Any) -> Any:
    """Parts of one array: draws of one law from different keys, or constants."""
    first = next((part for part in parts if isinstance(part, Unknown)), None)
    if first is not None:
        return first
    if not parts:
        return _Constant(np.zeros((), out.dtype), out.shape)
    if any(isinstance(part, _Constant) or len(part.scales) != 1 for part in parts):
        return Unknown("its parts are not one draw each")
    draws = [next(iter(part.scales)) for part in parts]
    if len({(part.mean, *part.scales.values(), d.kind, d.variance) for part, d in zip(parts, draws, strict=True)}) > 1:
        return Unknown("its parts have different laws")
    keys = frozenset().union(*(draw.keys for draw in draws))
    if len(keys) < sum(len(draw.keys) for draw in draws):
        return Unknown("several of its parts are drawn with the same key")
    joined = dataclasses.replace(draws[0], keys=keys, layout=tuple(draw.layout for draw in draws))
    scale = next(iter(parts[0].scales.values()))
    return _Random(parts[0].mean, {joined: scale}, out.size, parts[0].error)


def _scan(equation: Any, values: list[Any]) -> list[Any]:
    """A loop, step by step: each has its own keys."""
    options, outs = equation.params, [v.aval for v in equation.outvars]
    consts, carries, length = options["num_consts"], options["num_carry"], options["length"]
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
    if isinstance(value, _Random):
        return _placed(value, ("row", i), value.size // length)
    if isinstance(value, Unknown):
        return value
    if not np.ndim(value.values):
        return dataclasses.replace(value, shape=value.shape[1:])
    row = _constant(value.values[i], value.error)
    return dataclasses.replace(row, secret=value.secret)


def _stacked(parts: list[Any], out: Any) -> Any:
    """The parts along a new first axis."""
    if not parts or not all(isinstance(part, _Constant) for part in parts):
        return _together(parts, out)
    together = jnp.stack if jnp.issubdtype(out.dtype, jax.dtypes.prng_key) else np.stack
    values = together([_array(part, part.shape, out.dtype) for part in parts])
    found = _constant(values, max(part.error for part in parts))
    return dataclasses.replace(found, secret=any(part.secret for part in parts))
