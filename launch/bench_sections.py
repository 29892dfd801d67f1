"""What `launch.bench` can time, by name: each yields rows as they are found."""

import dataclasses
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from launch.bench_child import ARCHITECTURES, SIZES
from launch.bench_rows import Timing

ROOT = Path(__file__).parent.parent
ORACLE = "neural-tangents"
_OTHER = {"fields": "dense network", "fixed_point": "fixed point", "transfer": "the other way"}
_PROGRAMS = {
    "compare, mlp": ("compare", "--config=configs/mlp.py"),
    "train, mlp": ("train", "--config=configs/training.py:mlp"),
}
_READ = ("MLP, relu", "MLP, erf", "MLP, tanh", "ResNet, 20 blocks", "CNN, flattened", "CNN, average", "ViT")


@dataclasses.dataclass(frozen=True)
class Options:
    """oracle: the Python of neural-tangents' environment, if there is one; n: inputs; rounds: of each measurement."""

    oracle: str | None = None
    n: int | None = None
    rounds: int = 3


def in_process(python: str, job: dict[str, Any]) -> dict[str, Any]:
    """One measurement in a fresh process."""
    child = ROOT / "launch" / "bench_child.py"
    environment = {**os.environ, **(_home() if python == sys.executable else {})}
    done = subprocess.run(
        [python, str(child), json.dumps(job)], capture_output=True, text=True, env=environment, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        raise RuntimeError(f"{python} could not run {job}:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1].removeprefix("RESULT "))


def here(**job: Any) -> dict[str, Any]:
    """The same, in this environment."""
    return in_process(sys.executable, job)


def in_turn(what: str, cases: Sequence[dict[str, Any]]) -> Callable[[Options], Iterator[Timing]]:
    """Rows of cases that two sides measure, in turn."""

    def section(options: Options) -> Iterator[Timing]:
        other = _OTHER.get(what, ORACLE)
        theirs = options.oracle if other == ORACLE else sys.executable
        sides = {"ours": sys.executable} | ({"theirs": theirs} if theirs else {})
        for case in cases:
            job = {"what": what, **case, **({"n": options.n} if options.n and "n" in case else {})}
            runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
            for _round in range(options.rounds):
                for side, python in sides.items():
                    runs[side].append(in_process(python, {**job, "side": side}))
            yield from rows(job, other, runs)

    return section


def rows(job: dict[str, Any], other: str, runs: dict[str, list[dict[str, float]]]) -> Iterator[Timing]:
    """The lines for one case; refuses sides that computed different kernels."""
    what = job["what"]
    case = ", ".join(str(value) for key, value in job.items() if key != "what")
    seconds = {side: tuple(run["seconds"] for run in each) for side, each in runs.items()}
    first = {side: each[0] for side, each in runs.items()}
    if "theirs" not in runs:
        yield Timing(what, case, seconds["ours"], note=_beside(first))
        return
    ours, theirs = first["ours"], first["theirs"]
    if "sum" in ours and abs(ours["sum"] / theirs["sum"] - 1) > 1e-3:
        raise ValueError(f"{case}: the two sides disagree, {ours['sum']} and {theirs['sum']}.")
    if "standard error" in ours:  # falls as 1/sqrt(samples) on both sides, and the cost is linear in them
        equal = (theirs["standard error"] / ours["standard error"]) ** 2
        note = f"at equal standard error; they are {ours['standard error']:.4f}, {theirs['standard error']:.4f}"
        yield Timing(what, case, seconds["ours"], "fixed point", tuple(equal * s for s in seconds["theirs"]), note)
        return
    yield Timing(what, case, seconds["ours"], other, seconds["theirs"], _beside(first))
    if "seconds by Jacobian product" in theirs:
        slow = tuple(run["seconds by Jacobian product"] for run in runs["theirs"])
        yield Timing(what, f"{case}, by Jacobian product", seconds["ours"], other, slow)


def _beside(first: dict[str, dict[str, float]]) -> str:
    """What a row says beside its times: memory above idle of both sides, and what compiled how long."""
    words = []
    for key, name, digits in (("memory / output", "memory above idle / output", 1), ("megabytes", "MB above idle", 0)):
        found = [f"{run[key]:.{digits}f}" for run in first.values() if key in run]
        words += [f"{name} {', '.join(found)}"] if found else []
    compilation = first["ours"].get("compilation")
    return "; ".join(words + ([f"compilation {compilation:.1f} s"] if compilation is not None else []))


def training(options: Options) -> Iterator[Timing]:
    """The training loop over its step."""
    for name in ("mlp", "cnn", "resnet", "vit", "gpt"):
        found = here(what="train", config=name, rounds=6 * options.rounds)
        ratios = (np.array(found[f"loop and data{of}"]) / np.array(found[f"step{of}"]) for of in ("", " of processors"))
        said = [f"{each.mean():.3f} ± {each.std(ddof=1) / len(each) ** 0.5:.3f}" for each in ratios]
        note = f"loop over step {said[0]}; in processor time {said[1]}; a batch {1e3 * np.median(found['data']):.2f} ms"
        loop, step = (tuple(found[side]) for side in ("loop and data", "step"))
        yield Timing("train", f"train_{name}, a step with its loop and data", loop, "step alone", step, note)


def entries(options: Options, names: Sequence[str] = tuple(SIZES), dtype: str = "float32") -> Iterator[Timing]:
    """Pairs of 32 × 32 × 3 inputs a second, by architecture; for 60,000 images as arithmetic."""
    for name in names:
        runs = [here(what="entries", name=name, dtype=dtype) for _ in range(options.rounds)]
        hours = float(np.median([run["hours"] for run in runs]))
        whole = f"{60 * hours:.2g} minutes" if hours < 1 else f"{hours:.2g} hours"
        rate = float(np.median([run["rate"] for run in runs]))
        seconds = tuple(1e6 / run["rate"] for run in runs)
        yield Timing(
            "entries", f"{name}, {dtype}, a million pairs", seconds, note=f"{rate:.3g} a second; 60,000 images {whole}"
        )


def start(options: Options) -> Iterator[Timing]:
    """Commands as they are typed, with nothing compiled before and once more; and imports, in processor time."""
    for case, words in _PROGRAMS.items():
        first, again = list[float](), list[float]()
        for _round in range(options.rounds):
            with tempfile.TemporaryDirectory() as place:
                for i, times in enumerate((first, again)):
                    flags = [f"--workdir={place}/{i}"]
                    times.append(_command(["-m", f"launch.{words[0]}", *words[1:], *flags], place)[0])
        yield Timing("start", f"{case}, nothing compiled before", tuple(first))
        yield Timing("start", f"{case}, once more", tuple(again), "the first time", tuple(first))
    for case, ours, theirs in (
        ("import limits, zoo, train", ["-c", "import limits, zoo, train"], ["-c", "import jax, flax"]),
        ("train --help", ["-m", "launch.train", "--help"], ["-c", "import jax, flax"]),
    ):
        took = [[_command(words)[1] for words in (ours, theirs)] for _ in range(options.rounds + 1)][1:]
        mine, other = zip(*took, strict=True)
        yield Timing("start", f"{case}, processor time", mine, "import jax, flax", other)


def _command(words: list[str], cache: str = "") -> tuple[float, float]:
    """(seconds, processor seconds) of Python with these arguments."""
    environment = {**os.environ, **_home(), **({"XDG_CACHE_HOME": cache} if cache else {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every start compiles this package, and none those installed
    used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )
    seconds, now = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"python {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return seconds, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def _home() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}  # launch/train.py must not stand for the package `train`


def reading(options: Options) -> Iterator[Timing]:
    """Kernels read off the forward code over the recursions by hand: first calls (processor time), and further ones."""
    for name in _READ:
        runs = [
            [here(what="reading", name=name, side=side) for side in ("program", "walk")] for _ in range(options.rounds)
        ]
        for key, case in (("first", "first call, processor time"), ("seconds", "further calls")):
            mine, other = zip(*([run[key] for run in pair] for pair in runs), strict=True)
            yield Timing("reading", f"{name}, {case}", mine, "recursion by hand", other)


def evidence(options: Options) -> Iterator[Timing]:
    """The evidence of 500 points with its gradient, over the evidence alone."""
    for phi in ("erf", "relu", "tanh"):
        runs = [here(what="evidence", activation=phi, n=500) for _ in range(options.rounds)]
        mine, alone = (tuple(run[key] for run in runs) for key in ("seconds", "value"))
        yield Timing("evidence", f"{phi}, 500 points, with its gradient", mine, "its value alone", alone)


def step(options: Options) -> Iterator[Timing]:
    """A step of a ViT over the matrix products in it alone."""
    yield _share(options, size="ViT of training:vit")


def _share(options: Options, **job: Any) -> Timing:
    runs = [here(what="share", **job) for _ in range(options.rounds)]
    seconds, alone = (tuple(run[key] for run in runs) for key in ("seconds", "products"))
    note = f"memory beside parameters {runs[0]['bytes'] / 2**20:.0f} MB; these and moments {runs[0]['held'] / 2**20:.0f} MB"
    return Timing("step", ", ".join(map(str, job.values())), seconds, "its products alone", alone, note)


def accelerator(options: Options) -> Iterator[Timing]:
    """What a GPU or TPU is asked; where there is none, the rows stay empty."""
    if here(what="machine")["platform"] == "cpu":
        for case in (
            "conv kernels with an average, float32", "conv kernels with an average, float64",
            "sweep of 16,384 samples, 16 steps", "largest sweep that fits", "ViT-S/16, bfloat16, a step",
            "GPT-2 small, bfloat16, a step", "9 rates × 3 seeds, width 512, 1,000 steps",
        ):  # fmt: skip
            yield Timing("accelerator", case, (), note="no accelerator on this machine")
        return
    for dtype in ("float32", "float64"):
        yield from (_renamed(row) for row in entries(options, ("CNN, average, depth 3",), dtype))
    sweeps = [{"samples": 16384, "steps": 16}]
    yield from (_renamed(row) for row in in_turn("fields", sweeps)(options))
    for size in ("ViT-S/16", "GPT-2 small"):
        yield _renamed(_share(options, size=size, dtype="bfloat16"))
    runs = {"width": 512, "against": "one loop", "steps": 1000, "apart": True}
    yield from (_renamed(row) for row in in_turn("transfer", [runs])(options))
    found = here(what="largest")
    yield Timing(
        "accelerator", "largest sweep that fits, a step", (found["seconds"],), note=f"{found['samples']:,.0f} samples"
    )


def _renamed(row: Timing) -> Timing:
    return dataclasses.replace(row, what="accelerator", case=f"{row.what}: {row.case}")


def _grid(**values: tuple) -> list[dict[str, Any]]:
    return [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]


_MUON = [{"samples": s, "steps": 4, "optimizer": "muon"} for s in (1024, 4096)]
_MUON += [{"samples": 16384, "steps": 16, "optimizer": "muon", "against": "sgd"}]


def _fields(options: Options) -> Iterator[Timing]:
    yield from in_turn("fields", [*_grid(samples=(1024, 4096, 16384), steps=(16, 50)), *_MUON])(options)
    yield from in_turn("fixed_point", [{"samples": 256, "steps": 16}])(options)


SECTIONS: dict[str, Callable[[Options], Iterator[Timing]]] = {
    "kernels": in_turn("kernels", _grid(activation=("relu", "erf"), dtype=("float32", "float64"), pair=("xx", "xz"), n=(2000,))),
    "architectures": in_turn("architecture", _grid(name=tuple(ARCHITECTURES), dtype=("float32", "float64"))),
    "gradients": in_turn("gradients", _grid(of=("inputs", "w_std", "w_std and b_std"), kernels=("nngp", "both"), n=(500,))),
    "evidence": evidence,
    "tangent": in_turn("tangent", [{"n": 16}]),
    "reading": reading,
    "fields": _fields,
    "transfer": in_turn("transfer", _grid(width=(64, 256, 512), against=("one loop", "each compiled"))),
    "train": training,
    "step": step,
    "entries": entries,
    "start": start,
    "accelerator": accelerator,
}  # fmt: skip
