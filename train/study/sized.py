"""What a config's file makes of one size: its runs, in one program; its limit; its score; how many parameters it has."""

import functools
import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from train.data.labels import check_labels
from train.study.asked import LIMIT
from train.study.experiment import plain_fields
from train.transfer.kept import KeptRuns
from train.transfer.runs import limit_losses, shuffled, train_scored
from train.transfer.sweep import Sweep
from train.variables import draws, forward, initial, loss_of, mode
from zoo import checks

if TYPE_CHECKING:
    from train.study.size import Size
    from train.study.study import Study

SCORED = {  # what config.scored says, and how it is called
    "training": "training loss at the end",
    "validation": "validation loss",
    "score": "score",
}
_FEW = 4  # batches whose targets are looked at
_HELD_OUT = "validation(…), which returns (inputs, targets) that no batch has"


def check_scored(study: "Study") -> None:
    """Raises unless the config's file has what is to be scored."""
    scored, there = study.scored, study.experiment.has
    if scored not in SCORED:
        raise ValueError(f"config.scored must be one of {', '.join(SCORED)}; got {scored!r}.")
    lacks = [f"score(outputs, targets), a number to be small, and {_HELD_OUT}"] * (
        scored == "score" and not there("score")
    )
    lacks += [_HELD_OUT] * (scored != "training" and not there("validation") and not lacks)
    if lacks:
        raise ValueError(f'{study.experiment.path}: config.scored="{scored}" needs a function {lacks[0]}.')
    if scored != "training" and study.config.get("limit") is not None:
        raise ValueError(
            f'The limit has a training loss, and config.scored="{scored}" is another: leave one of them out.'
        )


def train_size(
    study: "Study",
    cell: "Size",
    jobs: Mapping[str, np.ndarray],
    seeds: np.ndarray,
    advance: Callable[[int], None] = lambda _: None,
    hopeless: Callable[[np.ndarray], np.ndarray] | None = None,
    compiled: dict[Any, Any] | None = None,
) -> KeptRuns:
    """These runs (jobs {hyperparameter: [run]}, seeds [run]) of a cell, in one compiled program; what a run is does not depend on
    which others there are."""
    config, experiment = study.config, study.experiment
    build = builder(study, cell, jobs)
    if cell.width == min(config.widths):
        _check_targets(study, cell)

    def batches(seed: int) -> Any:
        if experiment.asks_for("seed", ("batches",)):
            return study.call("batches", **{**cell.fields, "seed": seed})
        return shuffled(study.call("batches", **cell.fields), config.steps, seed)

    began = time.perf_counter()
    curves, scores = train_scored(
        build,
        lambda outputs, targets: study.call("loss", outputs, targets, **cell.fields),
        batches,
        config.steps,
        jobs,
        seeds,
        config.get("together", 0) or None,
        advance,
        _score(study, cell),
        hopeless,
        compiled,
    )
    if scores is not None and study.scored == "score" and (least := np.min(scores, initial=np.inf)) <= 0:
        raise ValueError(
            f"{experiment.path}: score returned {least:.4g}. Scores are compared by their ratios: they must be above 0, and "
            "small where a run is good. Return 1 − accuracy, not −accuracy, and of an error that may be 0 that error + 1e-3, say."
        )
    kept = KeptRuns.of(jobs, seeds, curves, scores, time.perf_counter() - began, parameters(study, cell))
    if scores is not None and study.scored == "score":
        _say_turned(study, cell, kept, lambda run: next(iter(batches(int(seeds[run]))))[0])
    return kept


def _say_turned(study: "Study", cell: "Size", runs: KeptRuns, inputs: Callable[[int], Any]) -> None:
    """Warns where scores rise with training, as accuracies do, and so the worst runs have the least."""
    there = np.flatnonzero(np.isfinite(runs.losses))
    by_loss = there[np.argsort(runs.curves[there, -1])]
    few = len(by_loss) // 3
    if not few or not runs.scores[by_loss[:few]].mean() > runs.scores[by_loss[-few:]].mean():
        return
    best = int(by_loss[0])
    job = {name: float(values[best]) for name, values in runs.jobs.items()}
    net, score = builder(study, cell, runs.jobs)(job)[0], _score(study, cell)
    assert score is not None
    key = jax.random.fold_in(jax.random.key(0), int(runs.seeds[best]))
    trained, state = initial(net, key, jax.tree.map(jnp.asarray, inputs(best)))
    before, after = float(score(net, {**trained, **state} if state else trained)), float(runs.scores[best])
    if after > before:
        warnings.warn(
            f"{study.experiment.path}: the run of least training loss has score {after:.4g}, and {before:.4g} before training, "
            "and runs of less loss have larger scores, of which the least counts as best. Where a large one is good, return 1 − "
            "accuracy, or 1 / score; where it is an error, these runs fit their batches too closely.",
            stacklevel=2,
        )


def builder(study: "Study", cell: "Size", jobs: Mapping[str, Any]) -> Callable[[dict[str, Any]], tuple[Any, Any]]:
    """(model, optimiser) of a run, from its hyperparameters."""

    def model(job: dict[str, Any]) -> Any:
        return study.call("make", cell.width, cell.depth, **cell.fields, **job)

    one = None if any(study.experiment.asks_for(name, ("make",)) for name in jobs) else model({})

    def build(job: dict[str, Any]) -> Any:
        net = model(job) if one is None else one  # a user's own `make` need not be traceable
        return net, study.call("optimizer", net, **cell.fields, **job)

    return build


def _score(study: "Study", cell: "Size") -> Callable[[Any, Any], Any] | None:
    if study.scored == "training":
        return None
    inputs, targets = jax.tree.map(jnp.asarray, _held_out(study, cell))
    function = "loss" if study.scored == "validation" else "score"

    def score(net: Any, variables: Any) -> Any:
        outputs = net.apply(variables, inputs, **mode(net, False))
        return loss_of(lambda f, y: study.call(function, f, y, **cell.fields), net, outputs, targets, name=function)

    return score


def _held_out(study: "Study", cell: "Size") -> tuple[Any, Any]:
    given = study.call("validation", **cell.fields)
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise ValueError(
            f"{study.experiment.path}: validation returned {checks.shown(given)}; it must be (inputs, targets)."
        )
    return tuple(given)


def _check_targets(study: "Study", cell: "Size") -> None:
    """Raises where targets of batches, or of validation, are classes that the network does not have and the loss takes for
    others; and where a validation loss is of targets with other columns than batches, and outputs, have."""
    found = [jax.tree.map(np.asarray, each) for each in itertools.islice(study.call("batches", **cell.fields), _FEW)]
    given = [(f"{study.experiment.path}: batches", *each) for each in found if len(each) == 2]
    if study.scored == "validation":
        given.append((f"{study.experiment.path}: validation", *jax.tree.map(np.asarray, _held_out(study, cell))))

    @functools.cache
    def outputs_of() -> Callable[[Any, Any], Any]:  # made where it is needed, and not while something is traced
        net = study.call("make", cell.width, cell.depth, **cell.fields, **study.job_example())

        def outputs(key: Any, x: Any) -> Any:
            trained, state = initial(net, key, x)
            return forward(net, trained, state, x, **draws(net, key, 0))[0]

        return outputs

    def outputs(x: Any) -> Any:
        return jax.eval_shape(outputs_of(), jax.random.key(0), x)

    def loss(outputs: Any, targets: Any) -> Any:
        return study.call("loss", outputs, targets, **cell.fields)

    for what, x, y in given:
        if isinstance(y, np.ndarray):
            check_labels(loss, lambda x=x: outputs(x), y, [y], what)
    if study.scored == "validation" and given[:-1]:
        (_, _, usual), (_, x, y) = given[0], given[-1]
        real = all(isinstance(each, np.ndarray) and each.dtype.kind == "f" for each in (usual, y))
        if real and usual.shape[1:][-1:] != y.shape[1:][-1:] and y.shape != outputs(x).shape:
            raise ValueError(
                f"{study.experiment.path}: validation gives targets of shape {list(y.shape)}, and batches of "
                f"{list(usual.shape)}: the last axis must be the same for both."
            )


def parameters(study: "Study", cell: "Size") -> int:
    """How many numbers of this size are trained; nothing is computed."""
    net = study.call("make", cell.width, cell.depth, **cell.fields, **study.job_example())
    inputs, _ = next(iter(study.call("batches", **cell.fields)))
    trained, _ = jax.eval_shape(lambda key, x: initial(net, key, x), jax.random.key(0), inputs)
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(trained))


def limit_sweeps(study: "Study", cell: "Size", advance: Any, widths: Sequence[float] = ()) -> list[Sweep]:
    """Sweeps of the infinitely wide network, one for each setting; or what it says of networks of these widths, for the first."""
    how, found = plain_fields(study.config.limit), []
    task = study.call("task", **cell.fields)
    batches = study.call("rows", **cell.fields) if study.experiment.has("rows") else None
    for setting in study.settings()[: 1 if len(widths) else None]:
        curves, rules = [], {}
        options = {name: how[name] for name in LIMIT if name in how}
        for value in study.values.tolist():
            job = {**cell.fields, **setting}
            net = study.call("make", study.config.widths[0], cell.depth, **job, **{study.dial: value})

            def rule(value: Any, net: Any = net, job: Any = job) -> Any:
                return study.call("optimizer", net, **job, **{study.dial: value})

            rule = rules.setdefault(net, rule)  # one for all values, whose programs are compiled once
            more = {**options, "widths": widths} if len(widths) else options
            curves.append(limit_losses(net, task, study.config.steps, value, rule, batches=batches, **more))
            advance(study.config.seeds)
        if len(widths):
            each = [np.stack([c[i] for c in curves]) for i in range(len(widths))]
            return [Sweep(N, cell.depth, study.values, c) for N, c in zip(widths, each, strict=True)]
        found.append(Sweep(np.inf, cell.depth, study.values, np.stack(curves)))
    return found
