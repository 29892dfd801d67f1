"""Predictions from the sweeps that a study has kept, or from its numbers alone, a setting at a time."""

import dataclasses
import math
from collections.abc import Sequence

from train.study.same_data import check_data
from train.study.sized import limit_sweeps
from train.study.study import Study
from train.transfer.cells import read, write
from train.transfer.checked import by_hand, check
from train.transfer.doubts import NotPredictableError
from train.transfer.numbers import Saved
from train.transfer.outcome import Outcome, Target
from train.transfer.predicted_report import Forecast
from train.transfer.prediction import predict
from train.transfer.sweep import Sweep
from zoo.parameterization import parameterization


def conduct(
    study: Study, level: float, given: Sequence[str] = (), from_limit: bool = False
) -> tuple[Outcome, list[Forecast], str]:
    """(what is kept, a prediction for each setting, the command that trains the target of the best of them).

    from_limit: also what the limit alone says of all widths.
    """
    if from_limit:  # of the task as it is now, beside what was trained
        check_data(study)
    wanted = study.config.get("target", {})
    size = wanted.get("width", max(study.config.widths)), wanted.get("depth", max(study.config.depths))
    outcome = with_unbounded(study, study.kept())
    found = forecasts(outcome, size, level)
    if not found:
        raise ValueError(
            f"{study.folder / 'cells'} holds no sweep of this config (same code, seeds, steps and values) below width {size[0]}, "
            f"depth {size[1]}: run launch.transfer with it first."
        )
    if from_limit:
        found = [dataclasses.replace(each, from_limit=_from_limit(study, outcome, each.label, size)) for each in found]
    sure = [(float(p.loss.value), each.label) for each in found if (p := each.prediction) is not None]
    if not sure:
        return outcome, found, ""
    best = next(each for each in found if each.label == min(sure)[1])
    assert best.prediction is not None
    target = Target(best.label, *size, float(best.prediction.rate.value), "")
    return outcome, found, study.command(outcome, given, target)


def of_numbers(saved: Saved, width: int | None, depth: int | None, level: float) -> list[Forecast]:
    """A prediction for each setting of somebody's numbers; the size is by default the target that they had."""
    sizes = [size for sweeps in saved.outcome.sweeps.values() for size in sweeps]
    size = (
        width or saved.target.get("width") or int(max(w for w, _ in sizes)),
        depth or saved.target.get("depth") or max(d for _, d in sizes),
    )
    found = forecasts(saved.outcome, size, level)
    if not found:
        raise ValueError(f"There is no sweep below width {size[0]}, depth {size[1]}: give a larger --width or --depth.")
    return found


def forecasts(outcome: Outcome, size: tuple[int, int], level: float) -> list[Forecast]:
    """Of every setting with other sizes than this one; raises where what each of them has is too little for a prediction."""
    found, lacking = [], []
    for label in (label for label, sweeps in outcome.sweeps.items() if any(s != size for s in sweeps)):
        try:
            found.append(_of(outcome, label, size, level))
        except ValueError as error:  # such as a setting that diverges at all sizes but one
            lacking.append(error)
            found.append(Forecast(label, None, str(error).removeprefix("predict: ")))
    if found and len(lacking) == len(found):
        raise lacking[0]
    return found


def _of(outcome: Outcome, label: str, size: tuple[int, int], level: float) -> Forecast:
    sweeps = outcome.sweeps[label]
    if label in outcome.unbounded and len({width for width, depth in sweeps if (width, depth) != size}) > 1:
        return Forecast(label, None, outcome.unbounded[label])
    try:
        found = predict(sweeps, *size, outcome.limits.get(label), level)
    except NotPredictableError as error:
        return Forecast(label, None, str(error))
    measured = sweeps.get(size)
    return Forecast(label, found, "", measured and check(found, measured, by_hand(sweeps, size)))


def _from_limit(study: Study, outcome: Outcome, label: str, target: tuple[int, int]) -> dict[tuple[float, int], Sweep]:
    """What the limit says of every width to first order in 1/width, no network trained; kept beside the other sizes."""
    if study.config.get("limit") is None:
        raise ValueError("--from_limit needs a limit in the config: {samples, replicas}, and task(…) in its file.")
    if study.axes:
        raise ValueError("--from_limit takes variants, but no axes: give the limit's setting as a variant.")
    cells = [c for c in study.cells() if math.isinf(c.width) and c.depth == target[1]]
    (cell,) = [c for c in cells if c.variant == outcome.settings[label]["setting"]]
    if why := study.no_limit(cell.fields):
        raise ValueError(f"{label} has no limit to predict from: {why}")
    widths = sorted({w for w, depth in outcome.sweeps[label] if depth == target[1]} | {target[0]})
    kept = study.file(cell)
    file = kept.with_name(f"{kept.stem}_at_{'_'.join(f'{w:g}' for w in widths)}.npz")
    found = read(file)
    if found is None:
        found = limit_sweeps(study, cell, lambda _: None, (*widths, math.inf))
        write(file, found)
    if lost := [f"{each.width:g}" for each in found if (each.losses <= 0).any()]:
        raise ValueError(
            f"{label}: what the limit says of widths {', '.join(lost)} is not a positive loss in every replica, and "
            "logarithms are compared: take more samples, or fewer steps."
        )
    return {(each.width, each.depth): each for each in found}


def with_unbounded(study: Study, outcome: Outcome) -> Outcome:
    """With why networks of zoo have nothing to extrapolate to in their width, whatever was measured."""
    said = {label: _unbounded(study, outcome, label) for label in outcome.labels}
    return dataclasses.replace(outcome, unbounded={label: why for label, why in said.items() if why})


def _unbounded(study: Study, outcome: Outcome, label: str) -> str:
    sizes = list(outcome.sweeps[label])
    if len({width for width, _ in sizes}) < 2:
        return ""
    setting = dict(outcome.settings[label])
    own = setting.pop("setting")
    fields = next(fields for variant, _, fields in study.variants() if variant == own)
    net = study.call("make", *map(int, sizes[0]), **{**fields, **setting, study.dial: float(study.values[0])})
    given = getattr(net, "parameterization", None)
    if given is None or parameterization(given).tangent_exponent("hidden") <= 0:
        return ""
    return (
        f"In the parameterization {parameterization(given).name or given}, features and outputs move by more at every "
        "larger width at one learning rate: the best one goes to zero and no loss has a limit. Use mup, or the width as it is."
    )
