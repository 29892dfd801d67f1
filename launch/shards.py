"""The flag of commands whose work several processes, or jobs of an array, share."""

from absl import flags


def shard(text: str) -> tuple[int, int]:
    """(i, n) of "i/n".

    >>> shard("1/4")
    (1, 4)
    """
    i, _, n = text.partition("/")
    if not (i.isdigit() and n.isdigit() and int(i) < int(n)):
        raise ValueError(f'--shard must be i/n with i from 0 to n − 1, such as 0/4; got "{text}".')
    return int(i), int(n)


class _Shard(flags.ArgumentParser):
    def parse(self, text: str) -> tuple[int, int]:
        return shard(text)


_SHARD = flags.DEFINE(_Shard(), "shard", "0/1", "i/n: only the i-th of n parts of the work, i from 0.")


def check_whole(where: str) -> None:
    """Raises where a part was asked for and there are none."""
    if _SHARD.present:
        raise ValueError(f"{where} the work is not divided: leave out --shard.")


def part() -> tuple[int, int]:
    """--shard, read."""
    return _SHARD.value
