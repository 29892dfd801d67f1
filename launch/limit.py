"""The infinite-width twin alone: its kernels, what they predict, and training in the kernel regime.

    python3 -m launch.limit --config=configs/mlp.py [--workdir=DIR] [--config.FIELD=VALUE …]

Prints a table over depths and writes DIR/limit.json, and for each family and depth DIR/NAME.npz (a Trajectory) and a plot
(without training, steps = 0, only the table). Of three networks or more, evidence.png: test error against evidence. Where
targets are no classes, tests are squared losses.

A config with `regression` (configs/kernels_large.py) is for whole data sets, of TFDS too: kernels in tiles on disk, which an
interrupted run goes on from, ridges by leave-one-out, and a table of accuracies; first a plan of time and disk, by the rate of
first tiles. With --shard=i/n (i from 0) n processes, or jobs of an array, that share DIR divide the tiles among them; what
finds all finished writes DIR/report.html and DIR/report.json.
"""

import dataclasses
import functools
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict
from rich.progress import track

from launch import common, live, shards
from launch.compare import FIELDS, OF_FAMILIES, OF_TRAINING, check_fields, optimizer_of, task_of
from launch.compare import unread as unread_by_compare
from launch.took import Took
from limits import AbsentError, Task, predict, twin
from train.evaluate.grid import steps_of
from train.evaluate.report import Table, plain
from train.study import regression, regression_report
from train.study.experiment import Experiment, plain_fields
from train.study.families import check_file_names, check_variants, families, has_make
from train.study.regression_samples import tell_classes
from zoo import checks
from zoo.messages import did_you_mean

if TYPE_CHECKING:
    import matplotlib.figure


# Of configs with `regression`, beside what a function make of the file asks for.
_OF_REGRESSION = {"name", "data", "regression", "widths", "depths", "gamma", "variants", *OF_FAMILIES}


def unread(config: Any, path: str) -> list[str]:
    """Fields of the config that nothing reads: neither a function of its file, nor this command, nor `launch.compare`, whose
    configs it takes."""
    if "regression" not in config:
        return unread_by_compare(config, path)
    return sorted(set(config) - _OF_REGRESSION - Experiment(path, config, needed=()).asked_for(("make",)))


def summary(net: Any, task: Task, training: dict[str, Any], noise: float) -> tuple[dict[str, Any], Any]:
    """Numbers of one twin, and its lazy trajectory, or why there is none; training: options of `lazy`."""
    limit, n, steps = twin(net), len(task.x_train), training["steps"]
    kernels = limit.kernels(task.x)
    run: Any = "steps = 0"
    if steps:
        try:
            run = limit.lazy(task, **training)
        except AbsentError as error:
            run = str(error)
    eigenvalues = np.linalg.eigvalsh(kernels.ntk[:n, :n])
    ridge = noise * float(np.trace(kernels.nngp[:n, :n])) / n
    posterior = predict.posterior(kernels.nngp[:n, :n], task.y_train, kernels.nngp[n:, :n], kernels.nngp[n:, n:], ridge)
    ridge_ntk = noise * float(np.trace(kernels.ntk[:n, :n])) / n
    of_ntk = predict.kernel_regression(kernels.ntk[:n, :n], task.y_train, kernels.ntk[n:, :n], ridge_ntk)
    numbers: dict[str, Any] = {
        "NNGP mean diagonal": float(np.trace(kernels.nngp)) / len(kernels.nngp),
        "NTK mean diagonal": float(np.trace(kernels.ntk)) / len(kernels.ntk),
        "largest stable rate": 2 * n / float(eigenvalues[-1]),
        "NTK condition": condition(eigenvalues),
        "evidence / point": posterior.log_marginal_likelihood / n,
    }
    score = test_score(task)
    for name, f in (("NNGP", posterior.mean), ("NTK", of_ntk)):
        wrong = (
            predict.error_rate(f, task.y_test) if score == "error" else float(((f - task.y_test) ** 2).sum(-1).mean())
        )
        numbers[f"{name} test {score}"] = wrong
    if steps:
        numbers[f"lazy loss, step {steps}"] = "absent" if isinstance(run, str) else float(run.loss[-1])
    return numbers, run


def condition(eigenvalues: np.ndarray) -> float:
    """The largest of ascending eigenvalues over the least; infinite where that is 0 but for rounding, as of inputs that recur.

    >>> condition(np.array([1.0, 4.0])), condition(np.array([-1e-16, 4.0]))
    (4.0, inf)
    """
    least, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    return largest / least if least > len(eigenvalues) * np.finfo(eigenvalues.dtype).eps * largest else math.inf


def test_score(task: Task) -> str:
    """What tests of predictions are called: "error", a share of wrong classes, or where targets are none "loss", squared."""
    return "error" if tell_classes(np.concatenate([task.y_train, task.y_test])) else "loss"


def small_task(config: Any, path: str) -> Task:
    """The task of a config that is one for this command; steps = 0: no training."""
    check_fields(config, "launch.limit", (*OF_TRAINING, "steps"), path)
    checks.count(0)("config.steps", config.get("steps"))
    task = task_of(config)
    if not len(task.x_test):
        raise ValueError("limit needs test points: set --config.task.n_test to 1 or more.")
    if task.positions:
        raise ValueError(
            f"limit predicts one row of outputs for each input; config.task has targets of {task.positions[0]} positions each. "
            "launch.compare trains limits of these (configs/gpt.py, gpt_rich.py), and twin(net).kernels has their kernels."
        )
    return task


def evidence_and_error(records: list[dict[str, Any]], task: Task) -> "matplotlib.figure.Figure":
    """Whether the networks that data prefer are those that predict best: tests of the NNGP against its evidence."""
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(6, 4), layout="constrained")
    axis, n, score = figure.subplots(), len(task.x_test), test_score(task)
    most = max(record["evidence / point"] for record in records)
    for family in dict.fromkeys(_kind(record) for record in records):
        each = [record for record in records if _kind(record) == family]
        error = np.array([record[f"NNGP test {score}"] for record in each])
        spread = np.sqrt(error * (1 - error) / n) if score == "error" else None
        below = [record["evidence / point"] - most for record in each]
        axis.errorbar(below, error, spread, fmt="o", ms=4, lw=1, alpha=0.7, label=family)
    best = max(records, key=lambda record: record["evidence / point"])
    name = f"largest evidence: {best['family']}, depth {best['depth']}"
    axis.plot(0, best[f"NNGP test {score}"], "*", ms=14, color="k", label=name)
    axis.set_xscale("symlog", linthresh=1)
    axis.set(xlabel="log evidence a training point, below the largest", ylabel=f"test {score} of the NNGP ({n} points)")
    axis.set_title(task.name)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8)
    return figure


def _kind(record: dict[str, Any]) -> str:
    """The family up to its first comma: variants that differ in numbers have one colour."""
    return record["family"].partition(",")[0]


def work_of(config: Any, path: str, folder: Path, part: tuple[int, int] = (0, 1)) -> tuple[Any, Any, list[Any]]:
    """(settings, samples, a job for every network) of a config with `regression`."""
    for name in ("data", "regression"):
        checks.table(f"config.{name}", config.get(name))
    for name, default in (("name", None), ("train", "train"), ("test", "test")):
        checks.word(f"config.data.{name}", config.data.get(name, default))
    for name in ("widths", "depths"):
        FIELDS[name](f"config.{name}", config.get(name))
    if not has_make(path):
        FIELDS["gamma"]("config.gamma", config.get("gamma"))
        given = config.get("variants")
        if given is None or (isinstance(given, ConfigDict) and not given):
            raise ValueError(
                "Kernels of which networks? The config has no `variants` (label → architecture and its fields, as in "
                "configs/kernels_large.py), and its file has no function make(width, depth, …)."
            )
        check_variants(config, None)
    known = {f.name for f in dataclasses.fields(regression.Regression)}
    for name in config.regression:
        if name not in known:
            raise ValueError(f"config.regression has no field {name}. {did_you_mean(name, known)}")
    settings = regression.Regression(**plain_fields(config.regression))
    data = regression.samples(plain_fields(config.data), settings)
    every = families(config, path, data.y.shape[1])
    return settings, data, regression.jobs(every, max(config.widths), config.depths, data, settings, folder, part)


def whole_data(config: Any, folder: Path, screen: Any) -> None:
    """Regression with kernels of real size."""
    started = time.time()
    took = Took(folder, started, "kernels")
    settings, data, work = work_of(config, common.config_file(), folder, shards.part())
    found, waiting = regression.regress(work, regression.plan(work, screen), screen)
    if waiting:
        screen.print("\n".join(waiting), highlight=False)
        return
    made = regression_report.report(found, data, settings, took.of(common.provenance(config)))
    made.print(screen)
    common.write(folder, made.documents(), screen, started)


def complete(config: Any, named: set[str]) -> None:
    """Fields of `regression` that the command line names and the config leaves to their defaults."""
    given = config.get("regression")
    if not isinstance(given, ConfigDict):
        return
    known = {field.name: field.default for field in dataclasses.fields(regression.Regression)}
    for name in sorted(each.removeprefix("regression.") for each in named if each.startswith("regression.")):
        if name not in {*known, *given}:
            raise SystemExit(f'error: config.regression has no field "{name}". {did_you_mean(name, known)}')
        if name not in given:
            given[name] = known[name]


def main() -> None:
    """Runs the config."""
    live.not_here("launch.limit")
    config, screen = common.config(), common.console()
    if "regression" not in config:
        shards.check_whole("Without `regression` in the config")
    folder = common.workdir(config.get("name"))
    common.keep_config(folder, common.provenance(config))
    common.say_unread(screen, unread(config, common.config_file()))
    if "regression" in config:
        whole_data(config, folder, screen)
        return
    task = small_task(config, common.config_file())
    records = list[dict[str, Any]]()
    every = families(config, common.config_file(), task.outputs)
    if config.steps:
        check_file_names(every)
    optimizer, absent, kept = optimizer_of(config), list[str](), False
    jobs = [(label, depth, make) for label, make in every.items() for depth in config.depths]
    for label, depth, make in track(jobs, "twins", console=screen):
        net = make(max(config.widths), depth)
        how = {"steps": config.steps, "centred": config.get("centred", False)}
        if config.steps:
            how |= steps_of(net, config.learning_rate, optimizer)
        numbers, run = summary(net, task, how, noise=1e-3)
        name = f"limit_{label.replace(' ', '_')}_depth{depth}"
        if isinstance(run, str):
            absent += [run] if config.steps and run not in absent else []
        else:
            kept = True
            run.save(folder / name)
            run.plot().savefig(folder / f"{name}.png", dpi=100)
        records.append({"family": label, "depth": depth, **numbers})
    words = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in record.values()] for record in records]
    screen.print(Table(list(records[0]), words, title=f"Infinite-width twins — {task.name}"))
    screen.print("\n".join(absent), highlight=False, end="\n" * bool(absent))
    picture = len(records) > 2
    if picture:
        evidence_and_error(records, task).savefig(folder / "evidence.png", dpi=100)
    document = {"run": common.provenance(config), "noise": "1e-3 of the mean diagonal", "limits": records}
    common.write_whole(folder / "limit.json", json.dumps(plain(document), indent=2) + "\n")
    more = ", evidence.png" if picture else ""
    more += f", and a trajectory (.npz) and a plot (.png) of each{' that has one' if absent else ''}" if kept else ""
    screen.print(f"wrote {folder}/limit.json{more}", highlight=False)


run = functools.partial(common.start, main, __doc__, complete=complete)

if __name__ == "__main__":
    run()
