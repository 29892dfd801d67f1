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
  scored                 "training" (the loss at the end, the default), "validation" (the loss on what validation(…) returns:
                         inputs and targets that no batch has), or "score" (score(outputs, targets) on these, which is minimised)
  precision              octaves of the interval at which --budget stops
  also                   "tensorboard", "wandb", or both with a comma: runs are written there too, as they are finished
--budget=40% (of what the whole grid costs, in parameters times steps; 0.4 is the same) or 600s (of training) tries no grid, but
in rounds those runs that tell most of the target's optimum for their cost, until the budget is spent or --precision is reached;
a budget of the whole grid's cost or more whose rounds do not find the optimum ends in the grid.
Ends in DIR/report.html, report.json, arrays.npz, config.json. Runs are kept in DIR/cells, a file a size, as soon as they are
finished: the same command continues, and of more values or seeds only what is missing is trained (other steps are other runs);
of other widths or depths the report has those too that are there. Where the first batches, or validation, return other numbers
than then, it refuses (both are called before anything is trained).
--only=LABEL takes one of the variants. With --shard=i/n (i from 0) n processes that share DIR divide the sizes among them;
whoever finds all of them writes the report, and of rounds all do. --live serves the report of the sizes that are there, to a
browser on this machine.
"""

import functools
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import flags

from launch import common, live, shards
from launch.took import Took
from train.evaluate.report import Report
from train.study.asked import unread
from train.study.grid import conduct
from train.study.outcomes import with_earlier
from train.study.predicted import with_unbounded
from train.study.rounds import Budget, best_of, conduct_rounds
from train.study.same_data import check_data
from train.study.study import Study, study_of
from train.transfer import report
from train.transfer.cells import save_arrays
from train.transfer.searched import Searched

_ONLY = flags.DEFINE_string("only", "", "One of the config's variants.")
_BUDGET = flags.DEFINE_string(
    "budget", "", "Rounds of chosen runs instead of a grid: 40%, or 0.4, of its cost, or 600s."
)
_PRECISION = flags.DEFINE_float(
    "precision", None, "Octaves of the target's interval at which --budget stops; default the config's, or never.", 0.0
)

flags.register_validator("precision", lambda v: v is None or math.isfinite(v), "It must be a number of octaves.")


def so_far(study: Study) -> Report:
    """Of the sizes that are there; of what rounds choose no size is ever whole."""
    cells, kept = study.cells(), study.kept()
    if _BUDGET.value:
        begun = sum(map(len, kept.sweeps.values()))
        return report.so_far(
            kept, f"Runs of {begun} of {len(cells)} sizes are finished; rounds choose what comes next."
        )
    return report.so_far(kept, f"{sum(not study.missing(cell) for cell in cells)} of {len(cells)} sizes are finished.")


def budget(config: Any) -> Budget:
    """Of the flags and the config."""
    precision = config.get("precision", 0.0) if _PRECISION.value is None else _PRECISION.value
    return Budget.read(_BUDGET.value, precision)


def grid_is_paid(allowed: Budget, searched: Mapping[str, Searched]) -> bool:
    """Whether rounds that ended without an optimum of the target had as much to spend as the whole grid costs."""
    return 1 <= allowed.share < math.inf and any(each.end.before is None for each in searched.values())


def ends(searched: Mapping[str, Searched]) -> str:
    """Why no further run fits, and what would do, of every setting."""
    return "; ".join(
        f"{label}: {each.end.why}" if len(searched) > 1 else each.end.why for label, each in searched.items()
    )


def main() -> None:
    """Runs the config."""
    started, config, screen = time.time(), common.config(), common.console()
    if _PRECISION.value is not None and not _BUDGET.value:
        raise ValueError("--precision says when the rounds of --budget end: give --budget too, such as --budget=40%.")
    folder, part = common.workdir(config.get("name")), shards.part()
    study, took = study_of(common.config_file(), config, folder, _ONLY.value), Took(folder, started)
    run = common.provenance(config)
    check_data(study)
    common.keep_config(folder, run)
    common.say_unread(screen, unread(study))
    page = live.start(folder, lambda: so_far(study), screen)
    searched = None
    if _BUDGET.value:
        outcome, searched = conduct_rounds(study, budget(config), part, screen)
    if searched is not None and grid_is_paid(budget(config), searched):
        screen.print(
            f"The rounds know no optimum of the target, and --budget={_BUDGET.value} pays for the whole grid: it is run."
        )
        searched = None
    if searched is None and (outcome := conduct(study, part, screen)) is None:
        return
    every = with_earlier(study, outcome)
    if every is not outcome:
        screen.print("The report has the sizes too that were trained here before.")
        save_arrays(folder / "arrays.npz", every.arrays())
    outcome = with_unbounded(study, every)
    sizes = [sweep for sweeps in outcome.sweeps.values() for sweep in sweeps.values()]
    if not sizes:
        raise ValueError(f"--budget={_BUDGET.value} is not enough for a first round: {ends(searched or {})}.")
    if not any(np.isfinite(sweep.curves[..., 0]).any() for sweep in sizes):
        raise FloatingPointError(
            "The loss of every run is infinite or NaN at the first step already, before anything is trained: look at "
            "what loss and batches return."
        )
    ended = [sweep.until(sweep.curves.shape[-1]) for sweep in sizes]
    if not any(np.isfinite(sweep.losses).any() for sweep in sizes) and any(np.isfinite(each).any() for each in ended):
        raise FloatingPointError(
            f"Training ended with finite losses, but what is scored ({study.scored}) is infinite or NaN for every run: look at "
            f"what validation{' and score' * (study.scored == 'score')} return."
        )
    if not any(np.isfinite(sweep.optimum().loss) for sweep in sizes):
        raise FloatingPointError(
            f"Every run of every size diverged, at {study.dial} from {study.values[0]:g} to {study.values[-1]:g}: give smaller "
            "values."
        )
    best = best_of(study, outcome, searched) if searched else study.target(outcome)
    command = study.command(outcome, sys.argv[1:], best)
    made = report.report(outcome, took.of(run), command, best.advice, searched)
    made.print(screen)
    common.write(folder, made.documents(), screen, started)
    if page:
        page.finish()


run = functools.partial(common.start, main, __doc__)

if __name__ == "__main__":
    run()
