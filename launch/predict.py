"""Predicts what a larger size will reach, and with which learning rate, from the sweeps that `launch.transfer` has kept.

    python3 -m launch.transfer --config=CONFIG --workdir=DIR
    python3 -m launch.predict --config=CONFIG --workdir=DIR [--config.target.width=N] [--level=0.9]
    python3 -m launch.predict --workdir=DIR [--width=N] [--depth=L]

The config is that of launch.transfer, with the `target`: {width, depth}. Nothing is trained. Sizes below the target are used,
as many as are kept; with at least three, the largest is predicted from the others as a check. Settings whose optimum does not
level off, or whose curves do not lie on one another, are refused. Variants are compared, each at its own predicted optimum. Ends
in DIR/predicted.html and predicted.json. Once the target is swept (launch.transfer --config.widths="(N,)" in the same DIR), the
same command says how far off the prediction was (it does not look at the target), and whether it is the one that was written down
before. --from_limit adds what the limit alone says of every width to first order in 1/width, with no network trained (for configs
with a `limit`).

Without --config, DIR is the folder of a finished launch.transfer, yours or somebody else's (`limit-zoo unpack ARCHIVE DIR`): its
numbers alone are read, whatever machine and versions they are from, and nothing of it is executed.
"""

import functools
import math
import sys
import time
from pathlib import Path

from absl import flags

from launch import common
from train.study import predicted
from train.study.study import study_of
from train.transfer.numbers import Saved
from train.transfer.predicted_report import report
from train.transfer.written import earlier, written

_LEVEL = flags.DEFINE_float("level", 0.9, "Of the intervals.", 0.01, 0.999)
flags.register_validator("level", math.isfinite, "It must be a number from 0.01 to 0.999.")
_FROM_LIMIT = flags.DEFINE_boolean("from_limit", False, "Also compute what the limit alone says of every width.")
_WIDTH = flags.DEFINE_integer("width", None, "Without --config: the width to predict.", lower_bound=1)
_DEPTH = flags.DEFINE_integer("depth", None, "Without --config: the depth to predict.", lower_bound=1)

_INSTEAD = (
    "predictions are written beside the sweeps they are made from. Allow it, or predict in a copy of that folder (cp -r, then "
    "--workdir=COPY)"
)


def main() -> None:
    """Runs the config, or reads the folder."""
    started, screen = time.time(), common.console()
    alone = common.CONFIG.value is None and common.WORKDIR.value is not None
    if not alone and (_WIDTH.value or _DEPTH.value):
        raise ValueError("--width and --depth go without --config, with --workdir; a config has --config.target.width.")
    if alone:
        folder = Path(str(common.WORKDIR.value))
        saved = Saved.read(folder)
        if _FROM_LIMIT.value:
            raise ValueError("--from_limit computes a limit: it needs the --config that says of what.")
        outcome, command = saved.outcome, ""
        found = predicted.of_numbers(saved, _WIDTH.value, _DEPTH.value, _LEVEL.value)
        run = {"command": common.command_line(), "sweeps": saved.run}
    else:
        config = common.config()
        folder, run = common.workdir(config.get("name"), _INSTEAD), common.provenance(config)
        study = study_of(common.config_file(), config, folder).with_target()
        outcome, found, command = predicted.conduct(study, _LEVEL.value, sys.argv[1:], _FROM_LIMIT.value)
    kept = written(found, earlier(folder / "predicted.json"), time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    made = report(outcome, found, run, command, kept)
    made.print(screen)
    common.write(folder, made.documents("predicted"), screen, started)


run = functools.partial(common.start, main, __doc__)

if __name__ == "__main__":
    run()
