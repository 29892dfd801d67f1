"""What `launch.predict` reports."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from train.evaluate.drawing import at_sizes, colour, gallery, legend_beside, log_ticks, shades
from train.evaluate.interval import Interval
from train.evaluate.report import Folded, Part, Picture, Report, Table, Text, notes
from train.transfer.checked import Checked
from train.transfer.checked_report import parts as checked_parts
from train.transfer.doubts import HeldOut
from train.transfer.explored import predicted
from train.transfer.outcome import Outcome
from train.transfer.prediction import Prediction, measured
from train.transfer.shift import percent, words
from train.transfer.sweep import Sweep
from train.transfer.variants import Stated
from train.transfer.variants_report import FLOOR, Contest, parts_of
from train.transfer.written import sentence

if TYPE_CHECKING:
    import matplotlib.figure

READING = (
    "All sizes below the target are fitted together: one valley over log₂ of the value, whose floor and place go "
    "to their limit as "
    "powers of 1/size, with what is left of second order; exponents are averaged over by how well each predicts "
    "every size from the "
    "smaller ones. The loss is the {scored} (a training loss is that over the last tenth of the steps), averaged (its logarithm) "
    "over seeds, at the floor of the valley: "
    "launch.transfer's tables have the mean of the loss itself at the best value of the grid. Intervals "
    "hold {level:.0%}: noise of seeds, shape of the valley, choice of the model. Plain transfer is the largest measured size's "
    "optimum, used at the target."
)
LEFT_OUT = (
    "Left out: more steps, data, or another schedule than the sweeps have; a sweep keeps losses of one number of "
    "steps, whose learning "
    "rate may depend on it."
)


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Of one setting: the prediction, or why there is none; what was measured at the target, where it was; and what the limit
    alone says of every width."""

    label: str
    prediction: Prediction | None
    refused: str = ""
    checked: Checked | None = None
    from_limit: Mapping[tuple[float, int], Sweep] = dataclasses.field(default_factory=dict)


def report(
    outcome: Outcome,
    found: Sequence[Forecast],
    run: Mapping[str, Any],
    command: str,
    written: Mapping[str, Any] | None = None,
) -> Report:
    """A table of predictions, the check on the largest size, what was measured, pictures, and every number. written: what was
    written down before targets were trained (`written.py`)."""
    written = written or {}
    dial = outcome.dial.replace("_", " ")
    said = [(each, p) for each in found if (p := each.prediction) is not None]
    level = said[0][1].level if said else 0.9
    contests = variants(outcome, found)
    parts: list[Part] = [_table(found, dial)]
    parts += [Text(f"{each.label}: {each.refused}") for each in found if each.refused]
    parts += [Text(f"{each.label}: {doubt}") for each, p in said for doubt in p.doubts]
    parts += parts_of(contests, dial)
    if held := {each.label: p.held_out for each, p in said if p.held_out}:
        parts.append(_held_out(held, dial))
    if seen := {each.label: each.checked for each, _ in said if each.checked}:
        parts += checked_parts(seen, level)
        parts.append(Text(sentence(found, written)))
    measured_ones = _measured_variants(outcome, seen)
    parts += [part for each in measured_ones for part in each.parts(dial)]
    parts += [_from_limit(outcome, each, dial, level) for each in found if each.from_limit]
    if shown := predicted(outcome, [(each.label, p) for each, p in said]):
        parts.append(shown)
    if said:
        limit = "; dashed: the limit's own" if any(outcome.limits.values()) else ""
        parts += [
            Picture("Loss and optimum against the size", _SIZES.format(limit=limit), sizes(outcome, said)),
            Picture(
                f"Loss against {dial}",
                "Measured sizes; black: the target, predicted, and its interval.",
                curves(outcome, said),
            ),
            Folded("Models", [_models(each.label, p, dial) for each, p in said]),
        ]
    parts += notes([READING.format(level=level, scored=outcome.scored), LEFT_OUT])
    if command:
        parts += [Text("To train the target size", "title"), Text(command, "code")]
    numbers = {"predictions": [_numbers(each) for each in found], "run": dict(run), "command": command}
    numbers |= {"written": dict(written), "variants": [each.numbers() for each in contests]}
    numbers |= {"measured_variants": [each.numbers() for each in measured_ones]}
    return Report(f"What larger sizes will reach, by {dial}", parts, numbers, run, tab=f"prediction of {dial}")


def variants(outcome: Outcome, found: Sequence[Forecast]) -> list[Contest]:
    """The predictions of several variants against each other."""
    said = {each.label: each.prediction for each in found if each.prediction}
    if not said:
        return []
    first = next(iter(said.values()))
    stated = {label: Stated(p.floor, p.rate, False, p.doubts) for label, p in said.items()}
    return Contest.of(
        outcome, first.size, stated, {each.label: each.refused for each in found if each.refused}, first.level
    )


def _measured_variants(outcome: Outcome, seen: Mapping[str, Checked]) -> list[Contest]:
    """The same at the target itself, of those that were trained there."""
    if not seen:
        return []
    width, depth = next(iter(seen.values())).size
    there = {label: {each.size: outcome.sweeps[label][each.size]} for label, each in seen.items()}
    return Contest.at(dataclasses.replace(outcome, sweeps=there), {"width": int(width), "depth": depth})


_SIZES = (
    "Points: measured, with intervals, losses at the floor of each size's own valley; black: predicted from the points left of "
    "it{limit}."
)


def _table(found: Sequence[Forecast], dial: str) -> Table:
    rows, kinds = [], []
    for each in found:
        p = each.prediction
        kinds.append("bad" if p is None else "good" if p.trusted else "unsure")
        if p is None:
            rows.append((each.label, "refused", "", "", "", "", ""))
            continue
        verdict = "trusted" if p.trusted else "doubtful"
        size, edge = (
            f"{p.size[0]:g} × {p.size[1]}",
            "none seen" if math.isinf(float(p.edge.value)) else words(p.edge, "{:.3g}".format),
        )
        rows.append((each.label, verdict, size, words(p.loss), words(p.rate), words(p.regret, percent), edge))
    columns = (
        "setting",
        "verdict",
        "width × depth",
        f"loss ({FLOOR})",
        f"best {dial}",
        "plain transfer costs",
        "diverges from",
    )
    return Table(columns, rows, kinds, title="Predicted")


def _held_out(found: Mapping[str, HeldOut], dial: str) -> Table:
    rows, kinds = [], []
    for label, held in found.items():
        (loss, place), (own, best) = held.predicted, held.measured
        kinds.append("bad" if held.missed else "good")
        verdict = f"misses its {' and '.join(held.missed)}" if held.missed else "holds"
        rows.append(
            (label, verdict, f"{held.size[0]:g} × {held.size[1]}", f"{math.exp(loss):.4g}", f"{math.exp(own):.4g}",
        f"{2**place:.3g}", f"{2**best:.3g}") )  # fmt: skip
    columns = (
        "setting",
        "verdict",
        "width × depth",
        "loss predicted",
        f"measured ({FLOOR})",
        f"best {dial} predicted",
        "measured",
    )
    return Table(columns, rows, kinds, title="The largest measured size, from the smaller ones")


def _from_limit(outcome: Outcome, each: Forecast, dial: str, level: float) -> Table:
    rows = []
    for size, sweep in each.from_limit.items():
        own = outcome.sweeps[each.label].get(size)
        pairs = [measured(sweep, level), measured(own, level) if own is not None else None]
        said = [
            (words(Interval(*map(np.exp, p[0].ends))), words(Interval(*map(np.exp2, p[1].ends)))) if p else ("", "")
            for p in pairs
        ]
        rows.append((f"{size[0]:g} × {size[1]}", said[0][0], said[1][0], said[0][1], said[1][1]))
    columns = ("width × depth", "loss from the limit", f"measured ({FLOOR})", f"best {dial} from the limit", "measured")
    title = f"{each.label}: from the limit to first order in 1/width, with no network trained"
    return Table(columns, rows, title=title)


def _models(label: str, p: Prediction, dial: str) -> Table:
    rows = [(model, f"{w:.1%}", f"{loss:.4g}", f"{rate:.4g}") for model, w, loss, rate in p.models]
    return Table(("model", "weight", "loss", f"best {dial}"), rows, title=label, screen=0)


def _numbers(each: Forecast) -> dict[str, Any]:
    p = each.prediction
    found: dict[str, Any] = {"setting": each.label, "refused": each.refused}
    if p is not None:
        for name in ("loss", "rate", "regret", "one_run", "cost", "edge"):
            found[name] = dataclasses.asdict(getattr(p, name))
        rates, losses = p.curve
        found |= {
            "width": p.size[0], "depth": p.size[1], "level": p.level, "plain": p.plain, "doubts": p.doubts, "used": p.used,
            "models": p.models, "curve": {"rates": rates, **dataclasses.asdict(losses)},
            "held_out": p.held_out and dataclasses.asdict(p.held_out),
        }  # fmt: skip
    for size, sweep in each.from_limit.items():
        loss, place = measured(sweep, 0.9)
        found.setdefault("from_limit", []).append({"size": size, "log_loss": loss.ends, "log2_rate": place.ends})
    if each.checked is not None:
        found["measured"] = dataclasses.asdict(each.checked) | {"hits": each.checked.hits}
    return found


def sizes(outcome: Outcome, found: Sequence[tuple[Forecast, Prediction]]) -> "matplotlib.figure.Figure":
    """Loss at the optimum, and the optimum, against the size along which the target lies: two panels a setting."""
    figure, axes = gallery(2 * len(found), 4.2, 3.3, 1.4)
    for number, (each, p) in enumerate(found):
        largest = max(s for s in p.used if math.isfinite(s[0]))
        axis = 0 if p.size[0] != largest[0] else 1
        line = [s for s in outcome.sweeps[each.label] if s[1 - axis] == p.size[1 - axis] and s in [*p.used, p.size]]
        x = np.array([s[axis] for s in line], float)
        known = [measured(outcome.sweeps[each.label][s], p.level) for s in line]
        limit = outcome.limits.get(each.label, {}).get(p.size[1])
        drawn = (
            ("loss", [k[0] for k in known], p.loss, np.exp),
            (f"best {outcome.dial.replace('_', ' ')}", [k[1] for k in known], p.rate, np.exp2),
        )
        for place, (name, points, said, back) in zip(axes.flat[2 * number :], drawn, strict=False):
            value, low, high = (back(np.array([getattr(k, end) for k in points])) for end in ("value", "low", "high"))
            place.errorbar(
                x, value, [value - low, high - value], fmt="o-", ms=4, capsize=3, color=colour(0), label="measured"
            )
            ends = np.array([[said.value - said.low], [said.high - said.value]], float)
            place.errorbar(
                [p.size[axis] * 1.04], [said.value], ends, fmt="s", ms=5, capsize=4, color="k", label="predicted"
            )
            if axis == 0 and each.from_limit:
                told = [
                    (s[0], measured(w, p.level)[name != "loss"])
                    for s, w in each.from_limit.items()
                    if math.isfinite(s[0])
                ]
                ends = back(np.array([(k.value, k.low, k.high) for _, k in told]))
                errors = [ends[:, 0] - ends[:, 1], ends[:, 2] - ends[:, 0]]
                none = "from the limit, none trained"
                place.errorbar(
                    [w * 0.96 for w, _ in told], ends[:, 0], errors, fmt="^:", ms=4, color=colour(2), label=none
                )
            if limit is not None and axis == 0:
                own = measured(limit, p.level)[0 if name == "loss" else 1]
                place.axhline(float(back(own.value)), ls="--", lw=1, color=colour(1), label="limit")
            place.set(xscale="log", yscale="log", xlabel=("width", "depth")[axis], title=f"{each.label}: {name}")
            place.title.set_fontsize(9)
            at_sizes(place, sorted({*x.tolist(), float(p.size[axis])}))
            log_ticks(place)
    legend_beside(figure, axes)
    return figure


def curves(outcome: Outcome, found: Sequence[tuple[Forecast, Prediction]]) -> "matplotlib.figure.Figure":
    """Loss against the value, measured sizes and the target."""
    figure, axes = gallery(len(found), 4.6, 3.5, 1.4)
    for axis, (each, p) in zip(axes.flat, found, strict=False):
        used = [s for s in p.used if s in outcome.sweeps[each.label]]
        for size, shade in zip(used, shades(len(used)), strict=True):
            sweep = outcome.sweeps[each.label][size]
            finite = np.asarray(np.isfinite(sweep.losses).all(1))
            means = np.exp(np.log(np.where(finite[:, None], sweep.losses, 1.0)).mean(1))
            axis.plot(
                sweep.rates[finite], means[finite], "o-", ms=3, lw=1, color=shade, label=f"{size[0]:g} × {size[1]}"
            )
        rates, losses = p.curve
        value, low, high = (np.where(np.isfinite(each), each, np.nan) for each in losses.ends)
        axis.plot(rates, value, "k-", label="target, predicted")
        axis.fill_between(rates, low, high, color="k", alpha=0.15, lw=0)
        own = outcome.sweeps[each.label].get(p.size)
        if own is not None:
            finite = np.isfinite(own.losses).all(1)
            axis.plot(
                own.rates[finite], np.exp(np.log(own.losses[finite]).mean(1)), "kx", ms=5, label="target, measured"
            )
        tops = [float(outcome.sweeps[each.label][size].optimum().loss) for size in used]
        axis.set(xscale="log", yscale="log", title=each.label, xlabel=outcome.dial.replace("_", " "))
        axis.set_ylim(0.8 * min(*tops, float(p.loss.low)), 5 * max(*tops, float(p.loss.high)))
        log_ticks(axis, "x")
        log_ticks(axis)
    axes[0, 0].set_ylabel(outcome.scored)
    legend_beside(figure, axes, "width × depth")
    return figure
