"""Unpacks an archive of `limit-zoo pack` into a new folder, for `limit-zoo predict --workdir=DIR` or to look at.

    limit-zoo unpack ARCHIVE DIR [--largest=BYTES]

All files are checked against their sums first, and then all are written or none. Nothing in the archive is executed, here or by
`predict`: no config file, no pickle. Its pages are somebody else's, though, and a browser runs the script in a page: where you do
not trust who made the archive, read report.json. A DIR that is there is not written into.
"""

import functools
from pathlib import Path

from absl import flags

from launch import common
from limits.kept.archive import LARGEST
from train.study.sharing import unpack

_LARGEST = flags.DEFINE_integer("largest", LARGEST, "How many bytes may be written in all.", lower_bound=1)


def main() -> None:
    """Unpacks the archive that was named."""
    if len(common.NAMED) != 2 or not Path(common.NAMED[0]).is_file():
        raise ValueError("Name an archive that is there and a new folder: limit-zoo unpack transfer_width.zip theirs")
    archive, folder = map(Path, common.NAMED)
    listed, screen = unpack(archive, folder, _LARGEST.value), common.console()
    files = listed["files"]
    size = sum(each["bytes"] for each in files.values())
    by = listed.get("made_by", "an unknown version")
    screen.print(
        f"wrote {len(files)} files, {size:,} bytes, into {folder}; packed by limit-zoo {by}",
        highlight=False,
        markup=False,
    )


run = functools.partial(common.start, main, __doc__, names=True)

if __name__ == "__main__":
    run()
