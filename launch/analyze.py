"""Looks into trained networks, from their checkpoints alone: kernels, alignment, spectra, sharpness, distance from the limit.

    python3 -m launch.analyze RUN… [--workdir=DIR] [--points=64] [--test_points=32] [--parts=kernels,ntk,…] [--config=FILE …]

Each RUN is the folder of a run of launch.train (or its folder of checkpoints), of one network or of an ensemble; runs of one
definition are taken together as members. Parts: kernels, ntk, alignment, spectra, sharpness, linearisation; of sequences, the
loss by position (positions) and maps of attention. Kernels are of the first points of the training and test sets. Everything
that has a limit at initialisation is compared with the twin. With --learning_rate=… (of plain full-batch gradient descent on the
first --points points, constant, with --momentum) training is held against the twin's `lazy` and `rich` training too, of runs
whose configs differ in the seed alone taken together. Ends in DIR/report.html, report.json and a table. Parameters are those of
evaluation: averaged ones where a run has `average`. What is finished is kept in DIR/cells, and the same command continues. A RUN
is data: nothing in it is executed. Modules, batches and test data (what validation() returns) of one's own are taken from the
configs that --config names (once, or several times), such as the copy that lies in a RUN: these are executed. Networks are
spread over the devices of this machine.
"""

import functools
import math
import sys
import time

from absl import flags

from launch import common
from launch.took import Took
from train.analysis import PARTS, report
from train.analysis.runs import analyse_all
from train.study.runs import jobs_of, task_of, untested

_POINTS = flags.DEFINE_integer("points", 64, "How many training points to look at.", lower_bound=1)
_TEST_POINTS = flags.DEFINE_integer("test_points", 32, "How many test points to look at.", lower_bound=0)
_PARTS = flags.DEFINE_list("parts", list(PARTS), "What to measure.")
_LOSS = flags.DEFINE_enum("loss", "cross_entropy", ["cross_entropy", "mse"], "The loss, for sharpness.")
_RATE = flags.DEFINE_float(
    "learning_rate", None, "Of plain gradient descent on these points: compare training with the twin's."
)
_MOMENTUM = flags.DEFINE_float("momentum", 0.0, "Of that gradient descent.")
flags.register_validator(
    "learning_rate", lambda v: v is None or 0 < v < math.inf, "It must be a finite number above 0."
)
flags.register_validator("momentum", lambda v: 0 <= v < 1, "It must be at least 0 and below 1.")
flags.register_validator("parts", lambda v: v and set(v) <= {*PARTS}, f"Give one or more of {', '.join(PARTS)}.")


def main() -> None:
    """Analyses the runs that were named."""
    started, screen = time.time(), common.console()
    configs = [common.find_config(each).partition(":")[0] for each in common.named_configs(sys.argv).values()]
    jobs = jobs_of(common.NAMED, configs)
    folder = common.workdir("analysis")
    took = Took(folder, started)
    task = task_of(jobs, _POINTS.value, _TEST_POINTS.value, _LOSS.value, configs)
    if "alignment" in _PARTS.value and len(task.x_train) < 2:
        raise ValueError(
            f"--points={_POINTS.value}: alignment compares samples, and {len(task.x_train)} is too few; give 2 or more, or name "
            "other --parts."
        )
    found = analyse_all(jobs, task, folder, {"loss": _LOSS.value, "parts": tuple(_PARTS.value)}, screen)
    compared = [
        (net, about, report.against(net, members, task, _RATE.value, _MOMENTUM.value))
        for net, about, members in report.groups(jobs, found, _RATE.value is not None)
    ]
    run = took.of({"command": common.command_line()})
    said = untested(jobs, task, _TEST_POINTS.value, configs) + report.at_other_rates(jobs, _RATE.value)
    made = report.report(jobs, found, compared, _PARTS.value, run, said)
    made.print(screen)
    common.write(folder, made.documents(), screen, started)


run = functools.partial(common.start, main, __doc__, names=True)

if __name__ == "__main__":
    run()
