"""Words for what data hold, by which a run that goes on knows its own."""

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from train.data.batches import epoch_order
from train.data.sources import Source

_ROWS = 256  # of a batch, at most


def word_of(*values: Any) -> str:
    """A word for these trees of arrays: of large ones, for some rows.

    >>> word_of(np.zeros(2)) == word_of(np.zeros(2)), word_of(np.zeros(2)) == word_of(np.zeros(3))
    (True, False)
    """
    found = hashlib.sha256()
    for each in map(np.atleast_1d, map(np.asarray, jax.tree.leaves(values))):
        rows = some_rows(each, _ROWS)
        found.update(f"{each.dtype.str}{each.shape}".encode())
        found.update(np.ascontiguousarray(rows).tobytes())
    return found.hexdigest()[:16]


def some_rows(array: np.ndarray, most: int) -> np.ndarray:
    """All rows of an array, or so many from its first to its last.

    >>> some_rows(np.arange(9), 3)
    array([0, 4, 8])
    """
    return array[np.unique(np.linspace(0, len(array) - 1, most).astype(int))] if len(array) > most else array


def content_of(source: Source, batch: int, seed: int | None, again: bool) -> Any:
    """Of a text or a file of arrays, of all of it; else `made` of the rows of the first batch as they are stored, without a seed
    of some of all."""
    if (whole := getattr(source, "content", None)) is not None:
        return whole
    return made(*(_word(each, batch, seed) for each in (source, *(source.again() for _ in range(again)))))


def of_files(content: Mapping[str, Any]) -> dict[str, str]:
    """Of words by data those of what is read of files, of which each host may have its own.

    >>> of_files({"train": {"file": "1f"}, "test": {"cpu": "2a"}, "validation": "3c"})
    {'the content of data.train': '1f', 'the content of data.validation': '3c'}
    """
    words = {name: word.get("file") if isinstance(word, Mapping) else word for name, word in content.items()}
    return {f"the content of data.{name}": word for name, word in words.items() if word}


def _word(source: Source, batch: int, seed: int | None) -> str:
    count = len(source)
    if seed is None:
        rows = np.unique(np.linspace(0, count - 1, _ROWS).astype(int))
    else:
        rows = epoch_order(count, seed, 0)[: min(batch, _ROWS)]
    return word_of(np.array([count]), *source.read(rows))


def made(*words: str) -> dict[str, str] | None:
    """{kind of device: word} of data that were made once or more often, as arithmetic rounds differently on other devices; None
    where they were not the same, and so tell nothing of another start.

    >>> made("a", "a"), made("a", "b")
    ({'cpu': 'a'}, None)
    """
    return {jax.default_backend(): words[0]} if len({*words}) == 1 else None
