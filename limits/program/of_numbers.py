"""What a kernel function reads: the kernels of a definition as a function of numbers in it too."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from limits.kept.remembered import remembered
from limits.program.closed import look, program_of
from limits.program.larger import usual
from limits.program.read import KERNELS
from limits.program.values import NoLimitError, Refused
from limits.program.varied import Dependence, dependence
from limits.types import Provenance
from zoo.hyperparameters import hyperparameters, with_hyperparameters


@remembered(maxsize=64)
def _varied(net: Any, shape: tuple[int, ...], kind: str, trained: Any, names: tuple[str, ...]) -> Any:
    """`ProgramKernels` as a function of these numbers of its network too."""
    kernels = program_of(net, shape, kind, trained)
    if not names or isinstance(kernels, Refused):
        return kernels
    known = hyperparameters(net)
    places = [(name, at) for name in names for at in np.ndindex(np.shape(known[name]))]

    def read(factors: tuple[float, ...]) -> Any:
        values = {name: np.array(known[name], float) for name in names}
        for (name, at), factor in zip(places, factors, strict=True):
            values[name][at] *= factor
        changed = {name: tuple(v.tolist()) if v.ndim else v.item() for name, v in values.items()}
        return (
            kernels if set(factors) == {1.0} else program_of(with_hyperparameters(net, **changed), shape, kind, trained)
        )

    labels = [f"{name}[{at[0]}]" if at else name for name, at in places]
    try:
        with jax.enable_x64(True):
            moves: Dependence = dependence(read, labels)
    except NoLimitError as error:
        return Refused(str(error))
    return dataclasses.replace(kernels, varied=moves)


@remembered(maxsize=64)
def function_of(twin: Any, shape: tuple[int, ...], kind: str, names: tuple[str, ...], like: Any) -> Any:
    """(the reading, lengths of series for inputs like these, how exact kernels are or why they are absent, covariances of a pair
    of inputs, or 0 where there are series: what these need of each input would be worked out again in every tile)."""
    kernels = _varied(twin.net_read, shape, kind, twin.trained, names)
    if isinstance(kernels, Refused):
        return None, None, dict.fromkeys(KERNELS, Provenance("absent", kernels.reason)), 0
    measured = like is not None
    if not measured:
        like = usual(shape, kind)
    with jax.enable_x64(True):
        seen, found, refused = look(kernels, like)
        lengths, how = seen.finish(found)
    absent = {name: Provenance("absent", reason) for name, reason in refused.items()} | twin.absent(like[:1])
    said = {name: absent.get(name, how) for name in KERNELS}
    return (
        kernels,
        dataclasses.replace(lengths, differentiable=True, measured=measured),
        said,
        0 if any(seen.arrays()[:3]) else seen.largest,
    )


def other_signs(defaults: dict[str, Any], values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(numbers of another definition, numbers to call its function with): known ones turn the sign of the default, or are 0.

    Numbers of the code are read as powers, which say nothing of |a| or relu(x - a) beyond the sign that a has.

    >>> other_signs({"a": 0.5, "b": 2.0, "c": 1.0}, {"a": -3.0, "b": 0.0, "c": 4.0})
    ({'a': -0.5, 'b': 0.0}, {'a': -3.0, 'c': 4.0})
    """
    changed, rest = dict[str, Any](), dict(values)
    for name, value in values.items():
        if any(isinstance(each, Tracer) for each in jax.tree.leaves(value)):
            continue
        now, default = np.asarray(value, float), np.asarray(defaults[name], float)
        if (now == 0).any():
            changed[name] = now
            del rest[name]
        elif (now * default < 0).any():
            changed[name] = np.sign(now) * np.abs(default)
    return {name: tuple(v.tolist()) if v.ndim else v.item() for name, v in changed.items()}, rest
