"""Times what people wait for, each figure beside another way to get it, in turn on this machine, and keeps a file of them.

    python3 -m launch.bench [--what=]all|kernels|architectures|gradients|evidence|tangent|reading|fields|transfer|train|
                            step|entries|start|accelerator (several, with commas) [--oracle=/path/to/oracle/bin/python] [--n=2000]
                            [--rounds=3] [--workdir=runs/bench] [--against=FILE]

kernels, architectures, gradients (value and gradient inside jit), tangent: against neural-tangents; --oracle is the Python of
an environment made from tests/golden/requirements.txt, and without it only this side is timed. evidence: a log evidence with
its gradient against its value. reading: kernels read off the
forward code against the recursions by hand, first calls and further ones. fields: a sweep of the limit against training a dense
network whose width is the number of samples (under Muon too), a sweep under Muon against one under gradient descent, and
against an iterated fixed point at equal standard error. transfer: a sweep of 9 learning rates and 3 seeds, as train.transfer
runs it, against one compiled program in a loop, and against compiling each run; compilation included. train: launch.train over
the compiled step alone on a batch that lies on the device, 6 rounds a `--rounds`, in turn in one process. step: a training step
against the matrix products in it alone. entries: pairs of CIFAR-sized inputs a second by architecture, and what that makes for
60,000 of them, as arithmetic. start: commands with nothing compiled before and once more; imports. accelerator: what is worth
knowing of a GPU or TPU; its rows are empty where there is none. Everything but train is measured in fresh processes, a figure
is the median over rounds, compilation apart where nothing is said.

All rows go to WORKDIR/WHAT_TIME.json. --against=FILE, one of these, says what became slower since: rows with another side by
their ratio to it, the others by the machine's own matrix product.
"""

import datetime
import functools
import os
import platform
from pathlib import Path
from typing import Any

from absl import flags
from rich.progress import track

from launch import common
from launch.bench_rows import Timing, changes, document, read, same_machine, table, verdict
from launch.bench_sections import SECTIONS, Options, here
from limits.kept.identity import version_of

CHOICES = ("all", *SECTIONS)
_WHAT = flags.DEFINE_list("what", ["kernels"], "What to time.")
flags.register_validator("what", lambda v: v and {*v} <= {*CHOICES}, f"Give one or more of {', '.join(CHOICES)}.")
_ORACLE = flags.DEFINE_string("oracle", None, "Python of neural-tangents' environment.")
flags.register_validator("oracle", lambda v: v is None or Path(v).is_file(), "There is no such file.")
_N = flags.DEFINE_integer("n", None, "Inputs; default 2000 for kernels and 16 for tangent.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Times each measurement is repeated, the two sides in turn.", lower_bound=1)
_AGAINST = flags.DEFINE_string("against", None, "A file of an earlier run, to be compared with.")
flags.register_validator("against", lambda v: v is None or Path(v).is_file(), "There is no such file.")


def chosen() -> list[str]:
    """The sections to run, in the order in which they stand."""
    return [name for name in SECTIONS if {name, "all"} & {*_WHAT.value}]


def machine() -> dict[str, Any]:
    """What is measured, on what; the device is asked for in a process of its own, which gives it back."""
    names = ("limit-zoo", "jax", "jaxlib", "flax", "optax", "numpy")
    return {
        "command": common.command_line(),
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in names}},
        "processor": {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()},
        "device": here(what="machine"),
    }


def main() -> None:
    """Measures, prints the table, and keeps it."""
    named = common.NAMED
    if len(named) > 1 or not set(named) <= set(CHOICES):
        raise ValueError(f"bench times one of {', '.join(CHOICES)}; got {' '.join(named)}.")
    if named:  # `launch.bench train` is `launch.bench --what=train`
        flags.FLAGS.what = [named[0]]
    before = read(Path(_AGAINST.value)) if _AGAINST.value else None
    folder, screen, run = common.workdir("bench"), common.console(), machine()
    yardstick = run["device"].pop("product")
    options, rows = Options(_ORACLE.value, _N.value, _ROUNDS.value), list[Timing]()
    name = f"{'_'.join(_WHAT.value)}_{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}.json"
    for section in track(chosen(), "measuring", console=screen):
        for row in SECTIONS[section](options):
            rows.append(row)
            screen.print(" | ".join(row.words()), highlight=False)
            common.write_whole(folder / name, document(rows, run, yardstick))
    screen.print(table(f"{', '.join(chosen())}: {run['device']['kind']}, {os.cpu_count()} cores", rows))
    screen.print(f"wrote {folder / name}", highlight=False)
    if before:
        then, about = before
        changed = changes(rows, then, (about["yardstick"], yardstick), same_machine(run, about))
        screen.print(changed)
        screen.print(verdict(rows, then, changed, _AGAINST.value), highlight=False)


run = functools.partial(common.start, main, __doc__, names=True)

if __name__ == "__main__":
    run()
