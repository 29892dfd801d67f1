"""The numbers of a comparison, to be moved through."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from train.evaluate.compare import Comparison, Curves
from train.evaluate.exploration import Exploration, Series
from train.evaluate.verdict import Verdict

_NONE: Mapping[Any, Any] = MappingProxyType({})
_LAZY, _RICH = "lazy limit", "limit with feature learning"


def explored(result: Comparison) -> list[Exploration]:
    """Losses along training, and what was judged against the width."""
    found = losses(result.curves, result.times, result.limits, result.learned), _judged(result)
    return [each for each in found if each.curves]


def losses(
    ensembles: Sequence[Curves],
    times: np.ndarray,
    limits: Mapping[Any, Any] = _NONE,
    learned: Mapping[Any, Any] = _NONE,
) -> Exploration:
    """Losses along training of ensembles, and of their limits, by family and depth."""
    curves = [
        Series(
            {"family": c.label, "depth": c.depth, "width": c.width}, {"step": times}, *_around(c.loss, 2 * c.loss_sem)
        )
        for c in ensembles
    ]
    curves += [
        Series({"family": label, "depth": depth, "width": _LAZY}, {"step": run.times}, run.loss)
        for (label, depth), run in limits.items()
    ]
    for (label, depth), sweeps in learned.items():
        loss = sweeps["loss"]
        sem = loss.std(0, ddof=1) / len(loss) ** 0.5 if len(loss) > 1 else np.zeros(loss.shape[1])
        at = {"family": label, "depth": depth, "width": _RICH}
        curves.append(Series(at, {"step": times}, *_around(loss.mean(0), 2 * sem)))
    start: dict[str, Any] = {"width": max((c.width for c in ensembles), default=0), "step": int(times[-1])}
    text = "Means over members, ± 2 standard errors where they are chosen."
    return Exploration("Training loss, with sliders", text, "training loss", curves, ("width",), start)


def _judged(result: Comparison) -> Exploration:
    curves = [curve for verdict in result.verdicts for curve in _of(verdict, result.widths)]
    start = {"observable": result.verdicts[0].name, "width": result.widths[-1], "what": "measured"} if curves else {}
    text = (
        "Projections of what is judged: means over members ± 2 standard errors; across, the limit and what is extrapolated to "
        "infinite width; where it was asked for, what the limit predicts to first order in 1/N."
    )
    return Exploration("Against the width, with sliders", text, "ensemble mean", curves, ("width", "what"), start)


def _of(verdict: Verdict, widths: tuple[int, ...]) -> list[Series]:
    found = []
    for name, part in verdict.projections.items():
        at = {"observable": verdict.name, "family": verdict.label, "depth": verdict.depth, "projection": name}
        for width, mean, sem in zip(widths, part["means"], part["sems"], strict=True):
            found.append(Series({**at, "width": width, "what": "measured"}, {}, *_around(mean, 2 * sem)))
        for width, mean in zip(widths, part["predicted"] or (), strict=False):
            found.append(Series({**at, "width": width, "what": "to first order in 1/N"}, {}, mean))
        found.append(Series({**at, "width": "the limit", "what": "measured"}, {}, part["limit"]))
        ends = _around(part["extrapolated"], 2 * part["sem"])
        found.append(Series({**at, "width": "extrapolated", "what": "measured"}, {}, *ends))
    return found


def _around(value: Any, margin: Any) -> tuple[Any, Any, Any]:
    return value, np.asarray(value) - margin, np.asarray(value) + margin
