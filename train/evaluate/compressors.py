"""What else predicts a text: compressors, and n-grams; all in bits a byte, as the loss of a model of bytes in units of ln 2."""

import gzip
import lzma
from collections.abc import Callable

import numpy as np

from zoo import checks

_BYTES = checks.Check("bytes, or an array of them", lambda v: np.asarray(bytearray(v)).size > 0)
LONGEST = 7  # a context and the byte after it are one number of 64 bits

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda text: gzip.compress(text, 9),
    "xz": lambda text: lzma.compress(text, preset=9 | lzma.PRESET_EXTREME),
}


@checks.arguments(text=_BYTES, compressor=checks.choice(*COMPRESSORS))
def compressed_bits(text: bytes, compressor: str, after: bytes = b"") -> float:
    """8 · |C(text)| / |text|, or what the text adds to the text before it, 8 · (|C(after + text)| − |C(after)|) / |text|.

    >>> compressed_bits(bytes(1000), "gzip") < 0.5
    True
    """
    size, text, after = COMPRESSORS[compressor], bytes(text), bytes(after)
    return 8 * (len(size(after + text)) - (len(size(after)) if after else 0)) / len(text)


@checks.arguments(text=_BYTES, train=_BYTES, order=checks.count(0, LONGEST))
def ngram_bits(text: bytes, train: bytes, order: int = 3) -> float:
    """−mean log₂ p(byte | the `order` before it) over all bytes of `text` but the first, of counts n in `train`.

        p_k(b | c) = (n(c b) + u(c) p_{k−1}(b | c′)) / (n(c) + u(c)),   p_{−1} = 1/256

    with c the k bytes before b, c′ without the earliest, u(c) how many different bytes follow c. Fewer count in the beginning.

    >>> round(ngram_bits(b"ababab", b"abababababab" * 20, order=1), 2)
    0.01

    Reference: Witten, Bell (1991), The zero-frequency problem.
    """
    p = np.full(len(text) - 1, 1 / 256)
    for k in range(order + 1):
        grams, counts = np.unique(_grams(train, k + 1), return_counts=True)
        contexts, first = np.unique(grams >> np.uint64(8), return_index=True)
        total, different = (np.add.reduceat(each, first) for each in (counts, np.ones_like(counts)))
        asked = _grams(text, k + 1)[1 if k == 0 else 0 :]
        if not len(asked) or not len(grams):
            break
        together = _found(grams, counts, asked)
        n, u = (_found(contexts, each, asked >> np.uint64(8)) for each in (total, different))
        below = p[len(p) - len(asked) :]
        below[:] = np.where(n > 0, (together + u * below) / np.maximum(n + u, 1), below)
    return float(-np.log2(p).mean())


def _grams(text: bytes, length: int) -> np.ndarray:
    """Every run of so many bytes as one number."""
    bytes_ = np.frombuffer(bytes(text), np.uint8).astype(np.uint64)
    count = max(len(bytes_) - length + 1, 0)
    found = np.zeros(count, np.uint64)
    for i in range(length):
        found = (found << np.uint64(8)) | bytes_[i : i + count]
    return found


def _found(keys: np.ndarray, values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The values of these keys, which are in order; 0 for others."""
    at = np.searchsorted(keys, asked).clip(max=len(keys) - 1)
    return np.where(keys[at] == asked, values[at], 0)


def other_models(test: bytes, train: bytes, order: int = 3) -> dict[str, float]:
    """Bits a byte of the test text, all of them but the first: compressors alone and after the training text, and n-grams."""
    found = {name: compressed_bits(test[1:], name) for name in COMPRESSORS}
    found |= {f"{name} after the training text": compressed_bits(test[1:], name, train) for name in COMPRESSORS}
    return {**found, f"{order + 1}-grams of the training text": ngram_bits(test, train, order)}
