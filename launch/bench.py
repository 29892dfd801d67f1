"""Times the kernels against neural-tangents, each in its own environment, in turn on this machine; or feature learning.

    python3 -m launch.bench [--what=]kernels|architectures|gradients|tangent|fields|transfer|train|entries
                            [--oracle=/path/to/oracle/bin/python] [--n=2000] [--rounds=3]

gradients: value and gradient of a kernel inside jit. entries: pairs of CIFAR-sized inputs a second by architecture, and what
that makes for 60,000 of them, as arithmetic. fields: a sweep of the limit against training a dense network whose width is the
number of samples (under Muon too), a sweep under Muon against one under gradient descent, and against an iterated fixed point
at equal standard error, all in this environment. transfer: a sweep of 9 learning rates and 3 seeds, as train.transfer runs it,
against one compiled program in a loop, and against compiling each run; compilation included. train: launch.train over the
compiled step alone on a batch that lies on the device, 6 rounds a `--rounds`, in turn in one process.
Otherwise --oracle is the Python of an environment made from tests/golden/requirements.txt; without it only this side is
timed. Each figure is the median over rounds of the fastest run in a fresh process, compilation apart where not said.
"""

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags
from rich.progress import track
from rich.table import Table

from launch.bench_child import ARCHITECTURES, SIZES
from launch.common import console

CHOICES = ("kernels", "architectures", "gradients", "tangent", "fields", "transfer", "train", "entries")
_WHAT = flags.DEFINE_enum("what", "kernels", CHOICES, "What to time.")
_ORACLE = flags.DEFINE_string("oracle", None, "Python of neural-tangents' environment.")
flags.register_validator("oracle", lambda v: v is None or Path(v).is_file(), "There is no such file.")
_N = flags.DEFINE_integer("n", None, "Inputs; default 2000 for kernels and 16 for tangent.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Times each measurement is repeated, the two sides in turn.", lower_bound=1)


def in_process(python: str, job: dict[str, Any]) -> dict[str, Any]:
    """One measurement in a fresh process."""
    child = Path(__file__).with_name("bench_child.py")
    home = str(child.parent.parent)
    ours = {"PYTHONPATH": home, "PYTHONSAFEPATH": "1"}  # launch/train.py must not stand for the package `train`
    environment = {**os.environ, **(ours if python == sys.executable else {})}
    done = subprocess.run(
        [python, str(child), json.dumps(job)], capture_output=True, text=True, env=environment, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        raise RuntimeError(f"{python} could not run {job}:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1].removeprefix("RESULT "))


def jobs() -> list[dict[str, Any]]:
    """What is timed."""
    grids: dict[str, dict[str, tuple]] = {
        "tangent": {"what": ("tangent",), "n": (_N.value or 16,)},
        "gradients": {"what": ("gradients",), "of": ("inputs", "w_std", "w_std and b_std"), "kernels": ("nngp", "both"),
                      "n": (_N.value or 500,)},
        "fields": {"what": ("fields",), "samples": (1024, 4096, 16384), "steps": (16, 50)},
        "transfer": {"what": ("transfer",), "width": (64, 256, 512), "against": ("one loop", "each compiled")},
        "architectures": {"what": ("architecture",), "name": tuple(ARCHITECTURES), "dtype": ("float32", "float64")},
        "kernels": {"what": ("kernels",), "activation": ("relu", "erf"), "dtype": ("float32", "float64"),
                    "pair": ("xx", "xz"), "n": (_N.value or 2000,)},
    }  # fmt: skip
    grid = grids[_WHAT.value]
    found = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if _WHAT.value != "fields":
        return found
    muon = [{"what": "fields", "samples": s, "steps": 4, "optimizer": "muon"} for s in (1024, 4096)]
    other = {"what": "fields", "samples": 16384, "steps": 16, "optimizer": "muon", "against": "sgd"}
    return [*found, *muon, other, {"what": "fixed_point", "samples": 256, "steps": 16}]


def rows(job: dict[str, Any], runs: dict[str, list[dict[str, float]]]) -> list[list[str]]:
    """The lines of the table for one case; refuses sides that computed different kernels."""
    case = ", ".join(str(value) for key, value in job.items() if key != "what")
    seconds = {side: statistics.median(run["seconds"] for run in each) for side, each in runs.items()}
    first = {side: each[0] for side, each in runs.items()}
    memory = [
        f"{run[key]:.{digits}f}"
        for key, digits in (("memory / output", 1), ("megabytes", 0))
        for run in first.values()
        if key in run
    ]
    if "theirs" not in runs:
        return [[case, f"{seconds['ours']:.4f} s", "–", "–", ", ".join(memory) or "–"]]
    if "sum" in first["ours"] and abs(first["ours"]["sum"] / first["theirs"]["sum"] - 1) > 1e-3:
        raise ValueError(f"{case}: the two sides disagree, {first['ours']['sum']} and {first['theirs']['sum']}.")

    def row(name: str, theirs: float, digits: int) -> list[str]:
        return [name, f"{seconds['ours']:.4f} s", f"{theirs:.4f} s", f"{theirs / seconds['ours']:.{digits}f}×"]

    if "standard error" in first["ours"]:  # falls as 1/sqrt(samples) on both sides, and the cost is linear in them
        ours, theirs = first["ours"], first["theirs"]
        equal = seconds["theirs"] * (theirs["standard error"] / ours["standard error"]) ** 2
        errors = f"standard errors {ours['standard error']:.4f}, {theirs['standard error']:.4f}"
        return [[*row(f"fixed point at equal standard error, {case}", equal, 0), errors]]
    lines = [[*row(case, seconds["theirs"], 2), ", ".join(memory) or "–"]]
    if "seconds by Jacobian product" in first["theirs"]:
        lines.append([*row(f"{case}, by Jacobian product", first["theirs"]["seconds by Jacobian product"], 0), ""])
    return lines


def turns(config: str, found: dict[str, list[float]]) -> list[str]:
    """A line of the table: medians, and the mean ratio to the step of the same round with its standard error."""
    middle = {side: f"{1e3 * float(np.median(seconds)):.2f} ms" for side, seconds in found.items()}

    def ratio(side: str, of: str = "") -> str:
        ratios = np.array(found[side + of]) / np.array(found["step" + of])
        return f"{ratios.mean():.3f} ± {ratios.std(ddof=1) / len(ratios) ** 0.5:.3f}"

    of = " of processors"  # which other work on the machine does not change
    return [config, middle["step"], ratio("loop"), ratio("loop and data"), ratio("loop and data", of), middle["data"]]


def training() -> None:
    """Measures the training loop and prints its table."""
    screen, table = console(), Table(title=f"train: the loop over its step, {os.cpu_count()} cores")
    for column in (
        "config",
        "step alone",
        "loop / step",
        "loop with data / step",
        "in processor time",
        "making a batch",
    ):
        table.add_column(column)
    for name in track(("mlp", "cnn", "resnet", "vit", "gpt"), "measuring", console=screen):
        job = {"what": "train", "config": name, "rounds": 6 * _ROUNDS.value}
        table.add_row(*turns(f"train_{name}", in_process(sys.executable, job)))
    screen.print(table)


def entries() -> None:
    """Measures how many pairs of inputs a second there are, and prints the table."""
    screen, table = console(), Table(title=f"entries: 32 × 32 × 3 inputs, float32, {os.cpu_count()} cores")
    for column in ("network", "entries a second", "60,000 images"):
        table.add_column(column)
    for name in track(SIZES, "measuring", console=screen):
        runs = [in_process(sys.executable, {"what": "entries", "name": name}) for _ in range(_ROUNDS.value)]
        rate = statistics.median(run["rate"] for run in runs)
        hours = statistics.median(run["hours"] for run in runs)
        table.add_row(name, f"{rate:.3g}", f"{60 * hours:.2g} minutes" if hours < 1 else f"{hours:.2g} hours")
    screen.print(table)


def against() -> None:
    """Measures the two sides of every case and prints the table."""
    other = {"fields": "dense network", "transfer": "the other way"}.get(_WHAT.value, "neural-tangents")
    oracle = _ORACLE.value if other == "neural-tangents" else sys.executable
    sides = {"ours": sys.executable} | ({"theirs": oracle} if oracle else {})
    screen, table = console(), Table(title=f"{_WHAT.value}: limit-zoo against {other}, {os.cpu_count()} cores")
    for column in ("case", "limit-zoo", other, "speed-up", "memory above idle (ours, theirs)"):
        table.add_column(column)
    times: dict[int, list[tuple[int, float]]] = {}
    for job in track(jobs(), "measuring", console=screen):
        runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _round in range(_ROUNDS.value):
            for side, python in sides.items():
                runs[side].append(in_process(python, {**job, "side": side}))
        for row in rows(job, runs):
            table.add_row(*row)
            screen.print(" | ".join(row), highlight=False)
        if job["what"] == "fields" and "optimizer" not in job:
            ours = statistics.median(run["seconds"] for run in runs["ours"])
            times.setdefault(job["steps"], []).append((job["samples"], ours))
            screen.print(f"compilation {runs['ours'][0]['compilation']:.1f} s", highlight=False)
    screen.print(table)
    for steps, pairs in times.items():
        (small, low), (large, high) = pairs[0], pairs[-1]
        slope = math.log(high / low) / math.log(large / small)
        screen.print(f"{steps} steps: time grows as samples^{slope:.2f} from {small} to {large}.", highlight=False)


def main(named: list[str]) -> None:
    """Measures and prints the tables."""
    if len(named) > 2 or not set(named[1:]) <= set(CHOICES):
        raise app.UsageError(f"bench times one of {', '.join(CHOICES)}; got {' '.join(named[1:])}.")
    if len(named) == 2:  # `launch.bench train` is `launch.bench --what=train`
        flags.FLAGS.what = named[1]
    if _WHAT.value == "train":
        training()
    elif _WHAT.value == "entries":
        entries()
    else:
        against()


def run() -> None:
    """Entry point."""
    app.run(main)


if __name__ == "__main__":
    run()
