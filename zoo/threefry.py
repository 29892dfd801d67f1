"""Random bits on CPUs: those of JAX, twice as soon.

JAX draws by Threefry: twenty rounds of additions, rotations and exclusive ors of two words (Salmon et al., 2011, "Parallel random
numbers: as easy as 1, 2, 3"). On CPUs it writes them as a loop of five turns over whole arrays, which go through memory in each.
Written out, the rounds stay in registers, and programs compile sooner as well. The bits are the same ones; other devices, and
other generators, are left as they are.

    >>> import jax
    >>> int(jax.random.bits(jax.random.key(0), (64, 64))[3, 5]) == int(jax.random.bits(jax.random.key(0), (64 * 64,))[3 * 64 + 5])
    True
"""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA


def words(key1: Any, key2: Any, x1: Any, x2: Any) -> tuple[Any, Any]:
    """Threefry's words of the counters x1, x2 under the keys.

    XLA fuses what is written out into what takes it and does it again in each place: for every sample that noise is added to, and
    keys of keys for every number that is drawn with them. So it is the body of a loop, which XLA does not see to have one turn
    before it has left loops of one turn out.
    """
    keys = key1, key2, key1 ^ key2 ^ jnp.uint32(PARITY)

    def once(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        count, a, b = state
        for turn in range(5):
            for rotation in ROTATIONS[turn % 2]:
                a = a + b
                b = a ^ (b << jnp.uint32(rotation) | b >> jnp.uint32(32 - rotation))
            a, b = a + keys[(turn + 1) % 3], b + keys[(turn + 2) % 3] + jnp.uint32(turn + 1)
        return count + 1, a, b

    start = jax.lax.optimization_barrier(jnp.int32(0)), x1 + key1, x2 + key2
    return jax.lax.while_loop(lambda state: state[0] < 1, once, start)[1:]


def register() -> None:
    """Programs that are compiled for CPUs from here on draw like this; a JAX without the two names stays as it is."""
    with contextlib.suppress(ImportError, AttributeError):
        from jax.extend.random import threefry2x32_p
        from jax.interpreters import mlir

        mlir.register_lowering(threefry2x32_p, mlir.lower_fun(words, multiple_results=True), platform="cpu")
