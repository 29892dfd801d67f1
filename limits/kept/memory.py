"""How much memory there is for what JAX computes."""

import jax
import psutil


def memory_left() -> int:
    """Bytes that are free where JAX computes: on the host, or on the accelerators of this process together.

    >>> memory_left() > 0
    True
    """
    parts = [] if jax.default_backend() == "cpu" else [device.memory_stats() or {} for device in jax.local_devices()]
    if parts and all({"bytes_limit", "bytes_in_use"} <= part.keys() for part in parts):
        return sum(part["bytes_limit"] - part["bytes_in_use"] for part in parts)
    return psutil.virtual_memory().available
