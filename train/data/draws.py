"""The random numbers of `train.data.batches.generators`, drawn in a compiled program for many positions at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Philox 4x64-10: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011).
_FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # of the key, from round to round
_ROUNDS = 10
Word = tuple[Any, Any]  # 64 bits, as the high and the low 32, since JAX has no others by default


def key_of(seed: int) -> np.ndarray:
    """What distinguishes the draws of this seed: [4] uint32."""
    bits: Any = np.random.Philox(np.random.SeedSequence((seed, 1))).state
    return np.array([part for whole in bits["state"]["key"].tolist() for part in _halves(whole)], np.uint32)


def counters(positions: np.ndarray) -> np.ndarray:
    """Positions as `PositionDraws` takes them: [2, …] uint32."""
    whole = np.asarray(positions, np.uint64)
    return np.stack([whole >> np.uint64(32), whole & np.uint64(2**32 - 1)]).astype(np.uint32)


@jax.tree_util.register_pytree_node_class
class PositionDraws:
    """What the generator of every position draws, one after the other, as float32 or int32 arrays [positions].

    Divergence: a whole number that NumPy would draw again, which happens once in 2^32 / range, is kept.

    >>> draws = PositionDraws(key_of(3), counters(np.array([7, 8])))
    >>> mine = draws.random()
    >>> from train.data.batches import generators
    >>> np.allclose(mine, [random.random() for random in generators(3, np.array([7, 8]))])
    True
    """

    def __init__(self, key: Any, positions: Any) -> None:
        self._positions = high, _ = positions[0], positions[1]
        self._key = [jnp.broadcast_to(part, jnp.shape(high)) for part in key]
        self._words, self._half, self._block = list[Word](), None, 0

    def tree_flatten(self) -> tuple[Any, int]:
        """Arrays, and how many blocks of words have been drawn."""
        return (self._key, self._positions, self._words, self._half), self._block

    @classmethod
    def tree_unflatten(cls, block: int, arrays: Any) -> "PositionDraws":
        """The draws that go on from there."""
        key, positions, words, half = arrays
        draws = cls(key, positions)
        draws._words, draws._half, draws._block = list(words), half, block
        return draws

    def random(self) -> Any:
        """Uniform in [0, 1)."""
        high, _ = self._next()
        return (high >> 8).astype(jnp.float32) * np.float32(2.0**-24)

    def uniform(self, low: float, high: float) -> Any:
        """Uniform between these."""
        return low + self.random() * np.float32(high - low)

    def integer(self, low: int, high: int) -> Any:
        """A whole number from low to high − 1."""
        return low + _product(self._next_half(), np.uint32(high - low))[0].astype(jnp.int32)

    def ranks(self, n: int) -> list[Any]:
        """Of n numbers in [0, 1), how many are smaller than each: n arrays."""
        drawn = [self.random() for _ in range(n)]
        return [
            sum((other <= one if j < i else other < one).astype(jnp.int32) for j, other in enumerate(drawn))
            for i, one in enumerate(drawn)
        ]

    def _next(self) -> Word:
        if not self._words:
            self._block += 1
            self._words = philox(self._key, self._block, self._positions)
        return self._words.pop(0)

    def _next_half(self) -> Any:
        if self._half is not None:
            half, self._half = self._half, None
            return half
        self._half, low = self._next()
        return low


def philox(key: Any, block: int, positions: Word) -> list[Word]:
    """Four words for every position; block: how many have been drawn before, counted from 1."""
    zero = jnp.zeros_like(positions[0])
    counter = [(zero, zero + np.uint32(block)), (zero, zero), (zero, zero), positions]
    keys = [(key[0], key[1]), (key[2], key[3])]

    def one(_: Any, carry: Any) -> Any:
        (a, b, c, d), keys = carry
        (high0, low0), (high1, low1) = (_wide(x, factor) for x, factor in zip((a, c), _FACTORS, strict=True))
        mixed = [_xor(high1, b, keys[0]), low1, _xor(high0, d, keys[1]), low0]
        return mixed, [_plus(k, step) for k, step in zip(keys, _STEPS, strict=True)]

    return list(jax.lax.fori_loop(0, _ROUNDS, one, (counter, keys))[0])


def _halves(whole: int) -> tuple[int, int]:
    return whole >> 32, whole & (2**32 - 1)


def _xor(*words: Word) -> Word:
    (a, b), (c, d), (e, f) = words
    return a ^ c ^ e, b ^ d ^ f


def _plus(word: Word, constant: int) -> Word:
    high, low = map(np.uint32, _halves(constant))
    total = word[1] + low
    return word[0] + high + (total < low).astype(jnp.uint32), total


def _product(a: Any, b: Any) -> Word:
    """Of two numbers of 32 bits, by halves of 16."""
    a1, a0, b1, b0 = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    low, one, other = a0 * b0, a0 * b1, a1 * b0
    middle = (low >> 16) + (one & 0xFFFF) + (other & 0xFFFF)
    return a1 * b1 + (one >> 16) + (other >> 16) + (middle >> 16), a * b


def _wide(word: Word, factor: int) -> tuple[Word, Word]:
    """The 128 bits of a product with a constant: (high, low)."""
    high, low = map(np.uint32, _halves(factor))
    (hh, hl), (mh, ml) = _product(word[0], high), _product(word[0], low)
    (nh, nl), (lh, ll) = _product(word[1], high), _product(word[1], low)
    third, carries = _sum(lh, ml, nl)
    second, more = _sum(hl, mh, nh, carries)
    return (hh + more, second), (third, ll)


def _sum(*parts: Any) -> Word:
    """(the sum, its carries)."""
    total, carries = parts[0], jnp.zeros_like(parts[0])
    for part in parts[1:]:
        total = total + part
        carries = carries + (total < part).astype(jnp.uint32)
    return total, carries
