"""Kernels of a definition with a width and a parameterization, read off its forward code, for any number of inputs."""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from limits import kernels as algebra
from limits.finite.output_power import check_output_power
from limits.kept.identity import numerics
from limits.kept.remembered import remembered
from limits.kernels.alike import Alike, TooLongError
from limits.program.accuracy import SAMPLES, Measurement
from limits.program.deep import DEPTHS
from limits.program.ended import SIGNS
from limits.program.read import KERNELS, TOLERANCE, ProgramKernels, read
from limits.program.undefined import check_defined
from limits.program.values import NoLimitError, Refused, as_power, reason_of
from limits.training import Training
from limits.types import Provenance
from zoo import parameterization
from zoo.abstract import abstract
from zoo.definition import definition_of, name_of
from zoo.plain import PlainNetwork, at_depth

_ROWS, _MORE_ROWS = 32, 256  # inputs that are looked at together; of few numbers, more of them
_NUMBERS = 2**13  # of inputs that are looked at together
_FEWER = 8  # signals of each such block on which series are measured, where there are several blocks
_NODE_BYTES = 2**28  # of the values of a function at quadrature nodes, for all inputs of a block
_NODES = 2000
_MARGIN = 0.25  # of a power of N
_READING = 5  # another number for rules that give other kernels
_LONG, _LONGEST, _FEW_BLOCKS = 200, 400, 30  # equations of a program, blocks of kernels: see `_step_by_step`


@remembered(maxsize=64)
def program_of(net: nn.Module, shape: tuple[int, ...], kind: str, trained: tuple[str, ...] | None) -> Any:
    """`ProgramKernels` of a definition for inputs of this shape and type; `Refused` where its program cannot be read."""
    x = abstract((1, *shape), kind)
    factors = Training("mse", trained=trained).factors(net, x)
    rates = {jax.tree_util.keystr(path): float(rate) for path, rate in jax.tree.leaves_with_path({"params": factors})}
    nets = net, net.clone(width=2 * net.width)

    def reading(single: bool) -> Any:
        return read(
            lambda i, key, x: nets[i].init(key, x),
            lambda i, variables, x: nets[i].apply(variables, x, rngs={"dropout": jax.random.key(0)}),
            np.zeros((1, *shape), kind),
            lambda path, _: rates.get(path, 0.0),
            single,
        )

    try:
        try:
            return reading(single=False)
        except (
            TypeError
        ) as error:  # a loop whose carry is float32 whatever its inputs are, as that of nn.RNN; or an index
            # held in a NumPy array, which JAX keeps in the type in which it met it first
            if "carry" not in str(error) and "same dtypes" not in str(error):
                raise
            return reading(single=True)
    except NoLimitError as error:
        return Refused(reason_of(error))
    except Exception as error:  # a module's own code may refuse twice the width, or one input more, with any error
        return Refused(f"its forward code could not be traced at two widths ({_sentence(error)})")


@remembered(maxsize=64)
def deep_program_of(net: nn.Module, shape: tuple[int, ...], kind: str, trained: tuple[str, ...] | None) -> Any:
    """The same of the limit of infinite depth, which readings at two depths say."""
    readings = [program_of(at_depth(net, depth), shape, kind, trained) for depth in DEPTHS]
    refused = next((reading for reading in readings if isinstance(reading, Refused)), None)
    if refused is not None:
        return refused
    with jax.enable_x64(True):
        try:
            return readings[0].at_infinite_depth(readings[1])
        except NoLimitError as error:
            return Refused(str(error))


def closed_kernels(
    net: nn.Module,
    x1: np.ndarray,
    x2: np.ndarray | None,
    trained: tuple[str, ...] | None = None,
    diagonal: bool = False,
    block: int | None = None,
    folder: Any = None,
    deep: bool = False,
) -> tuple[dict[str, np.ndarray], Provenance, dict[str, str]]:
    """(kernels in float64 that have a closed form, how exact they are, why those that are missing have none).

    NNGPs are over γ₀² where d = 0; else they are the kernel of the last features times the readout's scale, as f(0) = 0.
    """
    kernels = (deep_program_of if deep else program_of)(net, x1.shape[1:], str(x1.dtype), trained)
    if isinstance(kernels, Refused):
        return {}, Provenance("absent", kernels.reason), dict.fromkeys(KERNELS, kernels.reason)
    with jax.enable_x64(True):
        try:
            seen, found, refused = look(kernels, x1 if x2 is None else np.concatenate([x1, x2]))
        except Exception as error:  # said in the provenance of what is drawn instead
            long = isinstance(error, TooLongError)
            reason = str(error) if long else f"its program could not be read ({_sentence(error)})"
            return {}, Provenance("absent", reason), dict.fromkeys(KERNELS, reason)
        names = tuple(name for name in KERNELS if name not in refused)
        lengths, provenance = seen.finish(found)
        if not names:
            return {}, provenance, refused
        static, rows = (kernels, lengths, names), block or _rows(seen)
        identity = (net, trained, "read in layer time" if deep else "read", _READING, numerics())
        kept = None if folder is None or diagonal else algebra.KeptKernels(folder, identity, names)
        try:
            parts, provenance = _computed(static, x1, x2, diagonal, rows, kept, provenance)
            if kernels.masks and x2 is None and not diagonal:
                parts = [np.array(part) for part in parts]
                for part, own in zip(parts, _computed(static, x1, None, True, rows, None, provenance)[0], strict=True):
                    part[np.arange(len(part)), np.arange(len(part))] = own
        except TooLongError as error:
            return {}, Provenance("absent", str(error)), refused | dict.fromkeys(names, str(error))
    values = dict(zip(names, parts, strict=True))
    for name, part in values.items():
        check_defined(net, x1 if x2 is None else np.concatenate([x1, x2]), part)
        _check_finite(net, name, part, deep)
    p = parameterization(net.parameterization)
    if "nngp" in values and p.d:
        values["nngp"] = values["nngp"] * float(p.output_scale(net.width, definition_of(net).gamma)) ** 2
    return values, provenance, refused


def _computed(
    static: tuple, x1: np.ndarray, x2: np.ndarray | None, diagonal: bool, rows: int, kept: Any, provenance: Provenance
) -> tuple[Any, Provenance]:
    """(these kernels, how exact they are)."""
    kernels, _, names = static
    deep = kernels.flow is not None
    blocks = -(-len(x1) // rows) * (1 if diagonal else -(-len(x1 if x2 is None else x2) // rows))
    in_steps = not deep and _step_by_step(kernels, blocks)
    pair = functools.partial(_pair, _in_steps if in_steps else _compiled_pair, static)
    if deep:
        from limits.depth.layer_time import in_layer_time

        pair, provenance = in_layer_time(pair, x1, x2, rows, TOLERANCE, provenance, series=False)
    if diagonal:
        return _in_chunks(_diagonal_in_steps if in_steps else _compiled_diagonal, static, x1, rows), provenance
    return algebra.pairwise(pair, x1, x2, len(names), rows, kept=kept, positions=kernels.positions), provenance


_DEEP = (
    ", or a branch, or a bias of it, does not fall with the depth, or has a mean (as that of relu, which adds up to √L), or the "
    "signal is not scaled by 1 − c/L"
)


def _check_finite(net: nn.Module, name: str, values: np.ndarray, deep: bool) -> None:
    broken = int(values.size - np.isfinite(values).sum())
    if broken:
        why = _DEEP if deep else ""
        raise FloatingPointError(
            f"{broken} of {values.size} entries of the {name.upper()} of {name_of(net)} are infinite or NaN: signals leave the "
            f"range of float64{why}. Scale its weights or its residual branches down; of words that it looks up its table "
            "must have rows."
        )


def check_scale(net: nn.Module, x: np.ndarray) -> None:
    """Raises unless the outputs go as N^(−d), as the parameterization says: read off the program, or seen from two widths."""
    kernels = program_of(net, x.shape[1:], str(x.dtype), None)
    with jax.enable_x64(True):
        shape = jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype)
        power = None if isinstance(kernels, Refused) else kernels.power(shape)
    p = parameterization(net.parameterization)
    if power is not None and abs(power + p.d) < _MARGIN:
        return
    if power is not None and isinstance(net, PlainNetwork):
        remedy = (
            "divide the sum over neurons that they are by the square root of their number"
            if not isinstance(kernels, Refused) and SIGNS in kernels.parameters
            else "powers of the width that its code multiplies by are the parameterization's to say. Take them out"
        )
        raise ValueError(
            f"in_parameterization: the outputs of {name_of(net)} go as {as_power(power + p.d)} with the width by themselves, and "
            f"must keep their size: {remedy}."
        )
    check_output_power(net, tuple(x.shape[1:]), str(x.dtype))


@functools.lru_cache(maxsize=64)
def start_of(kernels: ProgramKernels, shape: tuple[int, ...], kind: str) -> tuple[str, str]:
    """`ProgramKernels.start` for inputs of this shape and type."""
    with jax.enable_x64(True):
        return kernels.start(jax.ShapeDtypeStruct((1, *shape), kind))


def _step_by_step(kernels: ProgramKernels, blocks: int = 1) -> bool:
    """Whether steps that are compiled each for itself take less time in all than a compilation of the whole.

    That takes seconds for every layer, and more the more there are (and of hundreds, more memory than machines have).
    """
    length = kernels.loops.length
    return length > _LONGEST or (length > _LONG and blocks <= _FEW_BLOCKS)


def _pair(run: Any, static: tuple, x1: Any, x2: Any, tolerance: float = TOLERANCE) -> list[Any]:
    with jax.enable_x64(True):  # the setting belongs to a thread, and blocks run in several
        return run(static, x1, x2, tolerance)


def _whole(static: tuple, a: Any, b: Any, tolerance: Any) -> list[Any]:
    kernels, lengths, names = static
    return list(kernels(jnp.asarray(a), jnp.asarray(b), lengths, names, tolerance=tolerance).values())


def _in_steps(static: tuple, a: Any, b: Any, tolerance: Any) -> list[Any]:
    del tolerance
    kernels, lengths, names = static
    return list(kernels(jnp.asarray(a), jnp.asarray(b), lengths, names, roll=False).values())


def _diagonal(static: tuple, a: Any, roll: bool = True) -> list[Any]:
    kernels, lengths, names = static
    return list(kernels.diagonal(jnp.asarray(a), lengths, names, roll).values())


_diagonal_in_steps = functools.partial(_diagonal, roll=False)
_compiled_pair = Alike(_whole)
_compiled_diagonal = Alike(_diagonal)


@functools.lru_cache(maxsize=64)
def _looking(kernels: ProgramKernels, shape: tuple[int, ...], kind: str, samples: int) -> tuple[Any, dict[str, Any]]:
    """(what measures so many inputs, what is found beside arrays: of shapes only)."""
    x = jax.ShapeDtypeStruct(shape, kind)
    beside: dict[str, Any] = {}
    in_steps = kernels.flow is None and _step_by_step(kernels)

    def look(_: None, x: Any) -> Any:
        beside["seen"], beside["refused"] = kernels.look(x, not in_steps, samples)
        return beside["seen"].arrays()

    run = look if in_steps else Alike(look)
    beside["arrays"] = jax.eval_shape(look, None, x)
    return run, beside


def look(kernels: ProgramKernels, x: np.ndarray) -> tuple[Measurement, Any, dict[str, str]]:
    """(what the averages for these inputs need: without arrays, and their arrays; why some kernels have no closed form)."""
    rows = min(len(algebra.padded(x)), int(np.clip(_NUMBERS // math.prod(x.shape[1:]), _ROWS, _MORE_ROWS)))
    samples = SAMPLES if len(x) <= rows else _FEWER
    look, beside = _looking(kernels, (rows, *x.shape[1:]), str(x.dtype), samples)
    found = beside["arrays"]
    if not jax.tree.leaves(found):  # all averages are closed: no input needs to be looked at
        return beside["seen"], found, beside["refused"]
    found = None
    for start in range(0, len(x), rows):
        chunk = x[np.minimum(np.arange(start, start + rows), len(x) - 1)]
        here = jax.tree.map(np.asarray, look(None, jnp.asarray(chunk)))
        found = here if found is None else jax.tree.map(np.maximum, found, here)
    return beside["seen"], found, beside["refused"]


def _rows(seen: Measurement) -> int:
    """Rows of a block."""
    pairs = algebra.block_rows(seen.largest, 8)
    return pairs if not any(seen.arrays()[:3]) else max(1, min(pairs, _NODE_BYTES // (8 * _NODES * seen.positions)))


def _in_chunks(function: Any, static: tuple, x: np.ndarray, rows: int) -> list[np.ndarray]:
    rows = min(rows, len(algebra.padded(x)))
    chunks = [x[np.minimum(np.arange(i, i + rows), len(x) - 1)] for i in range(0, len(x), rows)]
    parts = [[np.asarray(part) for part in function(static, chunk)] for chunk in chunks]
    return [np.concatenate(column)[: len(x)] for column in zip(*parts, strict=True)]


def _sentence(error: Exception) -> str:
    """The first line of an error, with its type."""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:200] if said else 'no message'}"
