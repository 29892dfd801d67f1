"""What a sweep records on request: kernels between two times, samples of the fields, response functions."""

import math
from typing import Any

import jax
import numpy as np

from limits.fields.network import vectors_met

RECORDS = ("two_time", "fields", "responses")
KEPT_SAMPLES = 1000  # neurons of each field
AVERAGED = ("phi_two_time", "g_two_time", "responses_a", "responses_b")  # over sweeps; the rest is of the first


def check_record(record: tuple[str, ...], absent: Any) -> None:
    """Raises unless these can be recorded."""
    unknown = [name for name in record if name not in RECORDS]
    if unknown:
        raise ValueError(f"record must name some of {', '.join(RECORDS)}; got {', '.join(map(str, unknown))}.")
    if record and "g" in absent:
        raise ValueError(f"record: the fields of this network are not to be had: {absent['g'].detail}.")


def needs(record: tuple[str, ...]) -> tuple[str, ...]:
    """What to look at for these records."""
    fields = ("fields",) if {"two_time", "fields"} & set(record) else ()
    return (*fields, *(("responses",) if "responses" in record else ()))


def record_bytes(
    net: Any, x: Any, record: tuple[str, ...], times: int, samples: int, outputs: int, itemsize: int
) -> int:
    """How much memory the records of one sweep take: of fields, until they are averaged."""
    wide, size = net.clone(width=samples), 0
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype if x.dtype.kind in "iu" else "float32")
    if "fields" in needs(record):
        inside = jax.eval_shape(
            lambda key, x: wide.init_with_output(key, x, intermediates=True)[0][1], jax.random.key(0), shape
        )
        size += itemsize * times * (2 + outputs) * sum(math.prod(h.shape) for h in inside["h"])
    if "responses" in record:
        size += 2 * 8 * times**2 * outputs * sum(rows**2 for rows in vectors_met(wide, shape).values())
    return size


def reduce(seen: dict[str, Any], record: tuple[str, ...]) -> dict[str, Any]:
    """Of fields by time (leaves [time, …]) what is asked for, in their place.

    two_time: phi_two_time, g_two_time: Φ^l(t, s), G^l(t, s), tuples by layer of [time, time, n, n], averaged over equal
    positions (G over outputs too). fields: h, g [time, n, …, sample] of the first output.
    """
    if "fields" not in needs(record):
        return seen
    phi, g, h = (seen.pop(f"fields_{name}") for name in ("phi", "g", "h"))
    if "two_time" in record:
        seen["phi_two_time"] = tuple(_two_time(a[:, None]) for a in phi)
        seen["g_two_time"] = tuple(_two_time(a) for a in g)
    if "fields" in record:
        seen["h"] = tuple(a[..., :KEPT_SAMPLES] for a in h)
        seen["g_fields"] = tuple(a[:, 0, ..., :KEPT_SAMPLES] for a in g)
    return seen


def _two_time(a: np.ndarray) -> np.ndarray:
    """a [time, outputs, n, …, neurons] → [time, time, n, n]."""
    t, k, n = a.shape[:3]
    flat = a.reshape(t, k, n, -1)
    return np.einsum("tkif,skjf->tsij", flat, flat, optimize=True) / (k * flat.shape[-1])
