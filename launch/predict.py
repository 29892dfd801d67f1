"""Predicts what a larger size will reach, and with which learning rate, from the sweeps that `launch.transfer` has kept.

    python3 -m launch.transfer --config=CONFIG --workdir=DIR
    python3 -m launch.predict --config=CONFIG --workdir=DIR [--config.target.width=N] [--level=0.9]

The config is that of launch.transfer, with the `target`: {width, depth}. Nothing is trained. Sizes below the target are used,
as many as are kept; with at least three, the largest is predicted from the others as a check. Settings whose optimum does not
level off, or whose curves do not lie on one another, are refused. Ends in DIR/predicted.html and predicted.json. Once the
target is swept (launch.transfer --config.widths="(N,)" in the same DIR), the same command says how far off the prediction
was: it does not look at it. --from_limit adds what the limit alone says of every width to first order in 1/width, with no
network trained (for configs with a `limit`).
"""

import math
import sys
import time

from absl import flags

from launch import common
from train.study.predicted import conduct
from train.study.study import study_of
from train.transfer.predicted_report import report

_LEVEL = flags.DEFINE_float("level", 0.9, "Of the intervals.", 0.01, 0.999)
flags.register_validator("level", math.isfinite, "It must be a number from 0.01 to 0.999.")
_FROM_LIMIT = flags.DEFINE_boolean("from_limit", False, "Also compute what the limit alone says of every width.")


def main() -> None:
    """Runs the config."""
    started, config, screen = time.time(), common.config(), common.console()
    folder = common.workdir(config.name)
    study = study_of(common.config_file(), config, folder).with_target()
    outcome, found, command = conduct(study, _LEVEL.value, sys.argv[1:], _FROM_LIMIT.value)
    made = report(outcome, found, common.provenance(config), command)
    made.print(screen)
    common.write(folder, made.documents("predicted"), screen, started)


def run() -> None:
    """Entry point."""
    common.start(main, __doc__)


if __name__ == "__main__":
    run()
