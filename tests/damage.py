"""Kept files, damaged in every way that disks know, and what their reader makes of them."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

FLIPS = int(os.environ.get("LIMIT_ZOO_FLIPS", "60"))  # what one bit in twenty hides is missed in one of twenty files


def damaged(data: bytes, flips: int = FLIPS, seed: int = 0) -> Iterator[bytes]:
    """`data` with one bit flipped, cut off, with a part that is zero, empty, with a byte more."""
    rng = random.Random(seed)
    for _ in range(flips):
        other = bytearray(data)
        other[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        yield bytes(other)
    for _ in range(10):
        yield data[: rng.randrange(len(data))]
        start = rng.randrange(len(data))
        zeroed = data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :]
        if zeroed != data:
            yield zeroed
    yield from (b"", bytes(len(data)), data + b"\0", data[:-1])


def silently_different(file: Path, read: Callable[[], object], flips: int = FLIPS) -> tuple[int, int, int]:
    """(how many damages were tried, how many read() noticed, how many it took for whole though they were not).

    read() returns whether it said so, or raises a ValueError that names the file; else True or False: whether what it
    returned is right in every bit.
    """
    whole = file.read_bytes()
    tried = noticed = wrong = 0
    for data in damaged(whole, flips):
        file.write_bytes(data)
        tried += 1
        try:
            found = read()
        except ValueError as error:
            found = "said" if file.name in str(error) else False
        noticed += found == "said"
        wrong += found is False
        for aside in file.parent.glob("*.damaged-*"):
            aside.unlink()
    file.write_bytes(whole)
    print(f"{file.name}: {tried} damages, {noticed} noticed, {wrong} silently different")
    return tried, noticed, wrong
