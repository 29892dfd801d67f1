"""What an analysis reports: networks of one definition taken together, held against their twin, and every picture."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from limits import Kernels, Task
from train import curves
from train.analysis import plots, token_plots
from train.analysis.against import against_twin, limits_of
from train.analysis.analyse import KERNELS
from train.analysis.runs import Points
from train.analysis.sharpness import edge_of_stability
from train.evaluate.report import Picture, Report, Table, Text
from train.study.resume import FREE
from zoo.definition import name_of
from zoo.saved import to_json

HEAD = ("definition", "limit", "quantity", "distance", "2 standard errors", "")
_MEASURED = {"kernels": ("phi", "g", "nngp"), "ntk": ("ntk",), "positions": ("positions",), "attention": ("attention",)}
_OF_WEIGHTS = (
    "Over the edge of a random matrix of that size; of many the first six. NAME[0] is the first layer of an array."
)
_ANY = {*FREE, "seed", "members"}  # fields of a config in which networks of one training may differ
_CURVES = 12  # more than that cannot be told apart


def groups(
    jobs: Sequence[Any], found: Sequence[dict[str, Any]], trained: bool = False
) -> list[tuple[Any, str, list[dict[str, Any]]]]:
    """[(definition, in words, what was measured of its members)]: networks of one definition with checkpoints at the same
    steps, and where it is asked how they were `trained`, by configs and code that are the same but for what changes nothing in
    that; the words name the runs where several groups have one definition."""
    together: dict[str, tuple[Any, list, list]] = {}
    codes = [job.run.info.get("code") or {} for job in jobs]
    versions = {json.dumps(code.get("versions"), sort_keys=True, default=str) for code in codes}
    told = len(versions) == 1  # the words for functions are others with every version
    for job, code, each in zip(jobs, codes, found, strict=True):
        net = job.run.definition()
        kind = [job.run.kind, np.asarray(each["steps"]).tolist()]
        if trained:
            fields = {name: value for name, value in job.run.config.items() if name not in _ANY}
            kind += [fields, code.get("functions") if told else None]
        kind = json.dumps(kind, sort_keys=True, default=str)
        _, names, members = together.setdefault(kind, (net, [], []))
        names.append(job.run.name)
        members.append(each)
    words = [_in_words(net) for net, _, _ in together.values()]
    return [
        (net, about if words.count(about) == 1 else f"{about} ({', '.join(dict.fromkeys(names))})", members)
        for about, (net, names, members) in zip(words, together.values(), strict=True)
    ]


def at_other_rates(jobs: Sequence[Any], rate: float | None) -> list[str]:
    """A sentence for each run whose config has another learning rate than the twin that it is held against."""
    own = {job.run.name: job.run.config.get("learning_rate") for job in jobs}
    return [
        f"{name} has learning_rate {given:g} in its config, and is held against the twin that is trained at {rate:g}."
        for name, given in own.items()
        if rate is not None and isinstance(given, int | float) and not np.isclose(given, rate, atol=0)
    ]


def _written(net: Any) -> dict[str, Any]:
    try:
        return to_json(net)
    except (TypeError, ValueError) as error:
        return {"absent": str(error)}


def _in_words(net: Any) -> str:
    sizes = [f"{name} {getattr(net, name)}" for name in ("width", "depth") if hasattr(net, name)]
    return ", ".join([name_of(net), *sizes])


def against(
    net: Any, members: list[dict[str, Any]], task: Task | Points, rate: float | None, momentum: float
) -> dict[str, Any]:
    """{"kernels" (at the first checkpoint), "lazy", "rich"}: what `against_twin` returns, or {"absent": …}."""
    members, steps = _distinct(members), np.asarray(members[0]["steps"])
    which = (*(("kernels",) if steps[0] == 0 else ()), *(() if rate is None else ("lazy", "rich")))
    limits = limits_of(net, task, steps, rate or 0.0, which, momentum)
    start = [_at_start(member) for member in members]
    found = {
        name: against_twin(start if isinstance(limit, Kernels) else members, limit) for name, limit in limits.items()
    }
    if steps[0] != 0:
        why = f"the first checkpoint is of step {steps[0]}, and these are the kernels at step 0; train with analysis=8, say"
        found["kernels"] = {"absent": why}
    return found


def _distinct(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without networks that start as another one does, such as that of the same seed in an ensemble."""
    seen: dict[bytes, dict[str, Any]] = {}
    for member in members:
        start = _at_start(member)
        leaves = jax.tree.leaves([start[part] for part in ("outputs", "kernels", "ntk") if part in start])
        seen.setdefault(b"".join(np.asarray(leaf).tobytes() for leaf in leaves), member)
    return list(seen.values())


def _at_start(member: dict[str, Any]) -> dict[str, Any]:
    """The first checkpoint alone."""
    measured = {part: {name: value for name, value in member[part].items() if name != "drift"}
                for part in ("kernels", "ntk", "outputs") if part in member}  # fmt: skip
    return {**member, **jax.tree.map(lambda a: a[:1], measured), "steps": np.asarray(member["steps"])[:1]}


def rows_of(about: str, compared: dict[str, Any]) -> list[list[str]]:
    """The cells under `HEAD` of what was compared, at the last step that both have."""
    rows = []
    for limit, quantities in compared.items():
        reasons = {str(found.get("absent")) for found in quantities.values() if isinstance(found, dict)}
        if len(reasons) == 1 and all(isinstance(found, dict) and "absent" in found for found in quantities.values()):
            rows.append([about, limit, "all", "absent", "", reasons.pop()])
            continue
        for name, found in quantities.items():
            if name == "absent" or "absent" in found:
                reason = found if name == "absent" else found["absent"]
                rows.append([about, limit, name, "absent", "", str(reason)])
                continue
            mean, sem = (np.atleast_2d(np.asarray(found[part]))[-1, -1] for part in ("mean", "sem"))
            error, count = f"± {2 * sem:.1%}" if np.isfinite(sem) else "", len(found["each"])
            rows.append([about, limit, name, f"{mean:.1%}", error, f"{count} network{'s' if count > 1 else ''}"])
    return rows


def report(
    jobs: Sequence[Any],
    found: Sequence[dict[str, Any]],
    compared: Sequence[tuple[Any, str, dict[str, Any]]],
    parts: Sequence[str],
    run: dict[str, Any],
    said: Sequence[str] = (),
) -> Report:
    """The table, every picture and every number. compared: (definition, in words, what `against` returned) of every group.
    run: the command and its time. said: more sentences."""
    labelled = {job.label: each for job, each in zip(jobs, found, strict=True)}
    shown = dict(list(labelled.items())[:_CURVES])
    rates = {job.label: float(job.run.config["learning_rate"]) for job in jobs if "learning_rate" in job.run.config}
    logs = {job.run.name: job.run.place for job in jobs if (job.run.place / "log.jsonl").exists()}
    text = " ".join(["Lines: batches of training. Dots: the test set.", *curves.differences(logs)])
    images = [Picture("Loss", text, curves.figure(logs))] if logs else []
    images += pictures(shown, parts, {label: rates[label] for label in shown if label in rates})
    names = list(dict.fromkeys(job.run.name for job in jobs))
    single = dict.fromkeys(job.run.name for job in jobs if len(job.run.steps) == 1)
    rows = [row for _, about, each in compared for row in rows_of(about, each)]
    still = "has one checkpoint, and nothing can have drifted: train with analysis=8, say."
    means = dict.fromkeys(job.run.name for job in jobs if job.run.averaged)
    mean = "was evaluated with averaged parameters (the field average): everything but the training loss is of these."
    texts = [f"{name} {word}" for word, some in ((still, single), (mean, means)) for name in some]
    texts += [*said, *nothing(labelled, parts)]
    shows = [*map(Text, texts), Table(HEAD, rows, title="Distance from the twin"), *images]
    distances = [{"definition": _written(net), "distances": each} for net, _, each in compared]
    numbers = {**run, "networks": labelled, "against": distances}
    return Report(f"Analysis: {', '.join(names)}", shows, numbers, run, tab="analysis")


def pictures(labelled: dict[str, dict[str, Any]], parts: Sequence[str], rates: dict[str, float]) -> list[Picture]:
    """Of everything that was measured; rates: learning rates by label."""
    edges = {label: edge_of_stability(rate) for label, rate in rates.items()}
    edge = "Largest eigenvalue of the loss's Hessian; dashed: 2 over the learning rate, where plain descent becomes unstable."
    every = [
        ("kernels ntk", "Drift of kernels", "Relative change from the first checkpoint, and 1 − cosine.", plots.drift),
        ("alignment", "Alignment with labels", "Centred kernel alignment with y yᵀ.", plots.alignment),
        ("spectra", "Spectra of kernels", "Dashed: first checkpoint; solid: last.", plots.spectra),
        ("spectra", "Spectra of weights", _OF_WEIGHTS, plots.weights),
        ("sharpness", "Sharpness", edge, lambda runs: plots.sharpness(runs, edges)),
        ("linearisation", "Distance from linearisation", "Relative to how far outputs moved.", plots.linearisation),
        ("positions", "Loss by position", "Mean over points, of the first step and the last.", token_plots.positions),
        (
            "attention",
            "Attention",
            "Mean over points; the largest weight of every query is bright.",
            token_plots.attention,
        ),
        ("attention", "Spread of attention", "Mean over points, queries and heads.", token_plots.spread),
    ]
    found = []
    for of, title, text, draw in every:
        asked = {*of.split()} & {*parts}
        have = {label: run for label, run in labelled.items() if asked & {*run}}
        with contextlib.suppress(plots.NothingToDrawError):  # `nothing` says why
            found += [Picture(title, text, draw(have))] if have else []
    return found


def nothing(labelled: dict[str, dict[str, Any]], parts: Sequence[str]) -> list[str]:
    """A sentence for each part that found nothing in some of the networks, with the reasons."""
    said = []
    for part in parts:
        empty = {label: run for label, run in labelled.items() if not jax.tree.leaves(run.get(part, {}))}
        absent = [run["absent"].get(name) for run in empty.values() for name in _MEASURED.get(part, KERNELS)]
        why = " ".join(dict.fromkeys(reason for reason in absent if reason))
        of = "" if len(empty) == len(labelled) else f" of {', '.join(empty)}"
        said += [f"{part}{of}: nothing to show. {why}".rstrip()] if empty else []
    return said
