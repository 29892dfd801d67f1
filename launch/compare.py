"""Trains ensembles over widths and depths and compares them with their infinite-width twins.

    python3 -m launch.compare --config=configs/mlp.py [--workdir=DIR] [--config.FIELD=VALUE …]

The config names architectures of zoo, or its file has a function make(width, depth, …) that returns a network of your own;
further arguments are filled with the config's fields of that name, and those of `variants`, {label: {argument: value}}.
`optimizer` is a name that `zoo.scaled` knows (adam, muon, …; "" for gradient descent), or a function optimizer(net,
learning_rate, …) of the file that returns an Optax transformation.

Ends in a table, DIR/report.html, DIR/report.json and DIR/config.json. Finished ensembles are kept in DIR/cells: an
interrupted run continues from them. --live serves what they say to a browser on this machine meanwhile. A config with `posterior`
compares Bayesian networks with their theory instead (configs/posterior.py).
"""

import functools
import json
import sys
import time
from pathlib import Path
from typing import Any

from launch import common, live
from launch.took import Took
from limits import Task, twin
from train.data import make_task
from train.evaluate import compare, compare_report, posterior_report
from train.evaluate.compare import Design
from train.evaluate.compare_so_far import so_far
from train.evaluate.posteriors import compare_posteriors
from train.posterior import sample_posterior
from train.study.experiment import Experiment
from train.study.families import Families, check_variants, families, has_make
from zoo import Parameterization, checks
from zoo.scaled import OF_MATRICES, OPTIMIZERS

_SIZES = checks.several(checks.count(), distinct=True)
FIELDS = {
    "widths": _SIZES, "depths": _SIZES, "steps": checks.count(), "learning_rate": checks.number(positive=True),
    "members": checks.count(),
    "init_members": checks.count(), "seed": checks.seed, "centred": checks.flag, "gamma": checks.number(positive=True),
    "task": checks.table, "architecture": checks.word, "activations": checks.several(checks.activation),
    "parameterizations": checks.several(checks.word | checks.a(Parameterization, "a Parameterization")), "net": checks.table,
    "fields": checks.table, "optimizer": checks.choice("", *OPTIMIZERS, *OF_MATRICES),
}  # fmt: skip
# Of packaged definitions, where there are neither `variants` nor a `make`.
_OPTIONAL = ("fields", "net", "optimizer")
OF_FAMILIES = ("architecture", "activations", "parameterizations", "net", "fields")
OF_TRAINING = ("members", "init_members", "centred")


def check_fields(config: Any, command: str, without: tuple[str, ...] = (), path: str | None = None) -> None:
    """Raises unless the config has the fields that a comparison reads, each of a kind that it can use."""
    own = Experiment(path, config, needed=()) if path is not None and has_make(path) else None
    if "variants" in config:
        checks.table("config.variants", config.variants)
    if own is not None or config.get("variants"):
        without += OF_FAMILIES
        _check_read(config, own)
    without += ("gamma",) if own is not None else ()
    missing = [name for name in FIELDS if name not in config and name not in (*without, *_OPTIONAL)]
    if missing:
        none = ", and its variants name none" if "variants" in config else ""
        raise ValueError(
            f"This config has no {', '.join(missing)}{none}: it is not one for {command}. configs/mlp.py is; training.py is "
            "for launch.train, what starts with transfer_ for launch.transfer."
        )
    if "variants" in config:
        check_variants(config, own)
    for name, check in FIELDS.items():
        if name in config and name not in without:
            check(f"config.{name}", config[name])
    checks.word("config.task.name", config.task.get("name"))
    for name in config.get("net", {}) if "net" not in without else ():
        checks.table(f"config.net.{name}", config.net[name])


def _check_read(config: Any, own: Experiment | None) -> None:
    """Raises where the config says of its networks what neither its `variants` nor its make(width, depth, …) reads."""
    asked = set() if own is None else own.asked_for(("make",))
    unread = [name for name in OF_FAMILIES if config.get(name) and name not in asked]
    if unread:
        who = "its `variants`" if own is None else f"the function make of {own.path.name}"
        raise ValueError(
            f"config.{unread[0]} = {checks.shown(config[unread[0]])} is not read: {who} says which networks are compared. Leave "
            f"{' and '.join(unread)} out, and give what is to vary as `variants`, {{label: {{argument: value}}}}."
        )


def unread(config: Any, path: str) -> list[str]:
    """Fields of the config that neither a comparison nor a function of its file reads."""
    asked = Experiment(path, config, needed=()).asked_for(("make", "optimizer"))
    return sorted(set(config) - {*FIELDS, "name", "rich", "posterior", "variants"} - asked)


def left_out(config: Any) -> tuple[str, ...]:
    """The fields that this config does not need: chains against theory have no training."""
    if "posterior" not in config:
        return ()
    checks.Check("a dictionary that is not empty", lambda v: hasattr(v, "items") and len(v))(
        "config.posterior", config.posterior
    )
    return ("steps", "learning_rate", *OF_TRAINING)


def check_folder(folder: Path, settings: dict[str, Any]) -> None:
    """Raises where the folder holds a comparison with other settings, and its report: cells alone say what they are of."""
    file = folder / "config.json"
    if not file.exists() or not (folder / "report.json").exists():
        return
    try:
        before = dict(json.loads(file.read_text())["config"])
    except (ValueError, KeyError, TypeError):
        print(f"{file} cannot be read, and is written anew.", file=sys.stderr)
        return
    other = [name for name in {**before, **settings} if before.get(name) != settings.get(name)]
    if other:
        raise ValueError(
            f"{folder} holds a comparison with another {', '.join(other)} ({before.get(other[0])}, now "
            f"{settings.get(other[0])}): its report would be a mixture of both. Give another folder with --workdir, or delete "
            "this one."
        )


def task_of(config: Any) -> Task:
    """The config's task."""
    return make_task(config.task.name, **{key: value for key, value in config.task.items() if key != "name"})


def trainings(config: Any, each: Families, task: Task, folder: Any, screen: Any) -> tuple[Any, live.Live | None]:
    """(ensembles against the limits of training, the page that was served meanwhile)."""
    optimizer = optimizer_of(config)
    if isinstance(optimizer, str):
        each = {f"{label}, {optimizer}": make for label, make in each.items()}
    numbers = ("steps", "learning_rate", "members", "init_members", "seed", "centred")
    how: dict[str, Any] = {"rich": of_learning(config, screen), "optimizer": optimizer}
    how |= {name: config[name] for name in numbers}
    what, cells = (each, config.widths, config.depths, task), folder / "cells"
    page = live.start(folder, lambda: so_far(Design(*what, **how), cells), screen)
    return compare(*what, folder=cells, console=screen, **how), page


def of_learning(config: Any, screen: Any) -> dict[str, Any] | None:
    """config.rich, at those of its depths that are compared: on the command line `depths` alone is changed. At all if none is."""
    rich = dict(config.get("rich") or {})
    for name in {"samples", "replicas"} & set(rich):  # else ensembles are trained before anybody looks
        checks.count()(f"config.rich.{name}", rich[name])
    at, compared = tuple(rich.get("depths") or ()), tuple(config.depths)
    left = [depth for depth in at if depth not in compared]
    if left:
        rich["depths"] = tuple(depth for depth in at if depth in compared) or compared
        screen.print(
            f"config.rich.depths = {at} has {', '.join(map(str, left))}, which config.depths = {compared} does not: what learns "
            f"features is held against its limit at {', '.join(map(str, rich['depths']))}.",
            highlight=False,
        )
    return rich or None


def optimizer_of(config: Any) -> Any:
    """The file's optimizer(net, learning_rate, …), or the name that the config gives, or None: gradient descent."""
    own = Experiment(common.config_file(), config, needed=())
    return own.bound("optimizer", 2) if own.has("optimizer") else config.get("optimizer") or None


def posteriors(config: Any, each: Families, task: Task, folder: Any, screen: Any) -> tuple[Any, None]:
    """Chains against the theory of posteriors, at every width; config.posterior: noise, and options of `sample_posterior`."""
    options = dict(config.posterior)
    if len(each) * len(config.depths) != 1:
        raise ValueError(
            f"config.posterior compares one family at one depth; here are {list(each)} at depths {list(config.depths)}."
        )
    if not len(config.widths):
        raise ValueError("config.widths is empty: give the widths at which chains and theory are to be compared.")
    (make,), (depth,), noise = each.values(), config.depths, options.pop("noise")
    nets = [make(width, depth) for width in sorted(config.widths)]
    theories = [twin(net).posterior(task, noise, width=net.width) for net in nets]
    chains = [sample_posterior(net, task, noise, key=config.seed, progress=True, **options) for net in nets]
    return compare_posteriors(task, twin(nets[0]).posterior(task, noise), theories, chains), None


def conduct_and_report(config: Any, folder: Path, run: dict[str, Any], screen: Any, started: float) -> None:
    """Compares, and writes the report into the folder."""
    task, took = task_of(config), Took(folder, started)
    result, pages = (posteriors, posterior_report) if config.get("posterior") else (trainings, compare_report)
    found, page = result(config, families(config, common.config_file(), task.outputs), task, folder, screen)
    made = pages.report(found, took.of(run))
    made.print(screen)
    common.write(folder, made.documents(), screen, started)
    if page:
        page.finish()


def main() -> None:
    """Runs the config."""
    started = time.time()
    config, screen = common.config(), common.console()
    folder = common.workdir(config.get("name"))
    run = common.provenance(config)
    check_fields(config, "launch.compare", left_out(config), common.config_file())
    check_folder(folder, run["config"])
    began = not (folder / "config.json").exists()
    common.keep_config(folder, run)
    common.say_unread(screen, unread(config, common.config_file()))
    try:
        conduct_and_report(config, folder, run, screen, started)
    except BaseException:
        if began and not any((folder / "cells").glob("*.npz")):  # nothing that could be mixed with what is mended
            (folder / "config.json").unlink(missing_ok=True)
        raise


run = functools.partial(common.start, main, __doc__)

if __name__ == "__main__":
    run()
