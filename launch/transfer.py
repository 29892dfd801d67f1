"""Sweeps a hyperparameter over widths, depths and seeds: where its optimum lies, how far it moves, what that costs.

    python3 -m launch.transfer --config=configs/transfer_width.py [--workdir=DIR] [--config.FIELD=VALUE …] [--shard=i/n]

The config is any Python file with get_config() and make(width, depth), optimizer(net, learning_rate), loss(outputs,
targets), batches(); further arguments of these are filled with the config's fields of that name. Fields:
  widths, depths, grid   all pairs ("product", the default), or widths at the first depth and depths at the first ("cross")
  dial, values           what is swept (default learning_rate); seeds, steps, seed
  variants               {label: {field: value}}: settings to compare, each compiled of its own
  axes                   {field: values}: more hyperparameters (momentum, …); numbers are traced, so nothing is compiled again
  limit                  {samples, replicas, order}: the limit's own curve under the same optimiser, with task(…) and for
                         minibatches rows(…) in the file
  target                 {width, depth} of the network to be trained in the end
  together               how many runs go side by side on an accelerator (default all)
Ends in DIR/report.html, report.json, arrays.npz, config.json. Every size is kept in DIR/cells as soon as it is finished, and
the same command continues. --only=LABEL takes one of the variants. With --shard=i/n (i from 0) n processes that share DIR
divide the sizes among them; whoever finds all of them writes the report. --live serves the report of the sizes that are there, to
a browser on this machine.
"""

import sys
import time

import numpy as np
from absl import flags

from launch import common, live, shards
from train.evaluate.report import Report
from train.study.predicted import with_unbounded
from train.study.study import Study, conduct, study_of
from train.transfer import report

_ONLY = flags.DEFINE_string("only", "", "One of the config's variants.")


def so_far(study: Study) -> Report:
    """Of the sizes that are there."""
    files = [study.file(cell) for cell in study.cells()]
    return report.so_far(study.kept(), sum(file.exists() for file in files), len(files))


def main() -> None:
    """Runs the config."""
    started, config, screen = time.time(), common.config(), common.console()
    folder, part = common.workdir(config.name), shards.part()
    study = study_of(common.config_file(), config, folder, _ONLY.value)
    run = common.provenance(config)
    common.keep_config(folder, run)
    page = live.start(folder, lambda: so_far(study), screen)
    outcome = conduct(study, part, screen)
    if outcome is None:
        return
    outcome = with_unbounded(study, outcome)
    sizes = [sweep for sweeps in outcome.sweeps.values() for sweep in sweeps.values()]
    if not any(np.isfinite(sweep.optimum().loss) for sweep in sizes):
        raise FloatingPointError(
            f"Every run of every size diverged, at {study.dial} from {study.values[0]:g} to {study.values[-1]:g}: give smaller "
            "values."
        )
    run["seconds"], command = round(time.time() - started, 1), study.command(outcome, sys.argv[1:])
    made = report.report(outcome, run, command, study.target(outcome).advice)
    made.print(screen)
    common.write(folder, made.documents(), screen, started)
    if page:
        page.finish()


def run() -> None:
    """Entry point."""
    common.start(main, __doc__)


if __name__ == "__main__":
    run()
