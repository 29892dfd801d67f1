"""Packs what a command left in a folder into one archive, to hand on: report, numbers, config, what code it was, checksums.

    limit-zoo pack DIR [--archive=FILE.zip] [--checkpoints] [--nocells]

Of folders of transfer, predict, compare, reproduce, train, limit and analyze. Only files that these commands write go in; the
others are named, and so are modules of your own that the config imports, which are not in it. The default archive is NAME.zip
beside the folder; one that is there is not written over. Equal folders give equal bytes.
--nocells leaves out the single cells of a grid: `limit-zoo predict` does without, a sweep cannot go on without.
"""

import collections
import functools
from pathlib import Path

from absl import flags

from launch import common
from train.study.sharing import ATTACHABLE, not_packed, pack

_ARCHIVE = flags.DEFINE_string("archive", "", "The archive to write; default NAME.zip beside the folder.")
_CHECKPOINTS = flags.DEFINE_boolean("checkpoints", False, "Also the checkpoints of a training run.")
_CELLS = flags.DEFINE_boolean("cells", True, "Also the cells that a command goes on from.")


def main() -> None:
    """Packs the folder that was named."""
    if len(common.NAMED) != 1 or not Path(common.NAMED[0]).is_dir():
        raise ValueError("Name one folder that is there: limit-zoo pack runs/transfer_width")
    folder, screen = Path(common.NAMED[0]).resolve(), common.console()
    archive = Path(_ARCHIVE.value or folder.with_name(f"{folder.name}.zip"))
    if not archive.parent.is_dir():
        raise ValueError(f"There is no folder {archive.parent} to write --archive={archive} into: make it.")
    kept, left = pack(folder, archive, _CHECKPOINTS.value, _CELLS.value)
    size, unpacked = archive.stat().st_size, sum((folder / name).stat().st_size for name in kept)
    screen.print(f"wrote {archive}: {len(kept)} files, {unpacked:,} bytes in {size:,}", highlight=False)
    if left:
        groups = collections.Counter(f"{name.partition('/')[0]}/" if "/" in name else name for name in left)
        words = [f"{name} ({n} files)" if name.endswith("/") else name for name, n in groups.items()]
        screen.print(f"left out: {', '.join(words)}", highlight=False, markup=False)
    for name in (each for each in kept if "/" not in each and each.endswith(".py")):
        if modules := not_packed(folder / name):
            screen.print(
                f"{name} imports {', '.join(modules)}, which the archive does not have: reports and `limit-zoo predict` do "
                "without, whoever is to go on, or to execute that file, needs it beside.",
                highlight=False,
                markup=False,
            )
    if size > ATTACHABLE:
        screen.print(
            f"That is more than the {ATTACHABLE:,} bytes that can commonly be attached: --nocells makes it smaller."
        )


run = functools.partial(common.start, main, __doc__, names=True)

if __name__ == "__main__":
    run()
