"""Random bits on CPUs: those of JAX, several times sooner.

JAX draws by Threefry: twenty rounds of additions, rotations and exclusive ors of two words (Salmon et al., 2011, "Parallel random
numbers: as easy as 1, 2, 3"). On CPUs it writes them as a loop over whole arrays, which go through memory in every turn. Written
out, the rounds stay in registers, and the program of a large draw compiles sooner as well. The bits are the same ones; other
devices, and other generators, are left as they are.

    >>> import jax
    >>> int(jax.random.bits(jax.random.key(0), (64, 64))[3, 5]) == int(jax.random.bits(jax.random.key(0), (64 * 64,))[3 * 64 + 5])
    True
"""

import contextlib
import math

import jax
import jax.numpy as jnp

LARGE, LONG = 512, 8  # numbers, and numbers along the last axis: of what is written out
ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA


def _rounds(a, b, rotations):
    for rotation in rotations:
        a = a + b
        b = a ^ (b << rotation | b >> (32 - rotation))
    return a, b


def _written_out(key1, key2, x1, x2):
    keys = key1, key2, key1 ^ key2 ^ jnp.uint32(PARITY)
    a, b = x1 + key1, x2 + key2
    for turn in range(5):
        a, b = _rounds(a, b, map(jnp.uint32, ROTATIONS[turn % 2]))
        a, b = a + keys[(turn + 1) % 3], b + keys[(turn + 2) % 3] + jnp.uint32(turn + 1)
    return a, b


def _in_a_loop(key1, key2, x1, x2):
    def turn(i, state):
        (a, b), keys, (now, then) = state
        a, b = _rounds(a, b, now)
        return (a + keys[1], b + keys[2] + (i + 1).astype(jnp.uint32)), (*keys[1:], keys[0]), (then, now)

    keys = key1, key2, key1 ^ key2 ^ jnp.uint32(PARITY)
    state = (x1 + key1, x2 + key2), keys, tuple(jnp.asarray(r, jnp.uint32) for r in ROTATIONS)
    return jax.lax.fori_loop(0, 5, turn, state)[0]


def rounds(key1, key2, x1, x2):
    """Threefry's words of counters x1, x2 under the keys, all of one shape.

    XLA fuses what is written out into what takes it, and does it again in each place. For a draw that is what is wanted; the keys
    of keys, which are few numbers, would be worked out once for every number that is drawn with them: a loop keeps them apart.
    """
    shape = jnp.broadcast_shapes(*(x.shape for x in (key1, key2, x1, x2)))
    large = math.prod(shape) >= LARGE and shape[-1] >= LONG
    return tuple((_written_out if large else _in_a_loop)(key1, key2, x1, x2))


def register() -> None:
    """Programs that are compiled for CPUs from here on draw like this; a JAX without the two names stays as it is."""
    with contextlib.suppress(ImportError, AttributeError):
        from jax.extend.random import threefry2x32_p
        from jax.interpreters import mlir

        mlir.register_lowering(threefry2x32_p, mlir.lower_fun(rounds, multiple_results=True), platform="cpu")
