"""What speaks against extrapolating sweeps to a larger size: said where it weakens the prediction, raised where there is none."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy

from train.evaluate.interval import Interval
from train.transfer.expansion import Axis, Model, Size, endless, models, order
from train.transfer.fit import Curve, JointFit, fit
from train.transfer.mixture import drawn, over, weights_of, within
from train.transfer.shift import bracketed, octaves
from train.transfer.sweep import interval

if TYPE_CHECKING:
    import scipy.special
    import scipy.stats

LEVELLING = 0.2  # the chance of a drift without end, from which on it is not known to level off
FAR, MATTERS = (
    0.6,
    0.25,
)  # octaves of a drift without end that are refused (at least `MATTERS` by its interval), and said
MISSED = 0.99  # of the interval of a size held out, of its loss and of its place
UNLIKELY, IMPOSSIBLE = 1e-2, 1e-4  # chances of what is left of a common curve: said, and refused


class NotPredictableError(ValueError):
    """What was measured says nothing of larger sizes, and why."""


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """The largest size, predicted from the others: logarithms of losses and log₂ of the best values, with `MISSED` intervals of
    predicted less measured."""

    size: Size
    loss: Interval
    place: Interval
    predicted: tuple[float, float]
    measured: tuple[float, float]

    @property
    def missed(self) -> list[str]:
        """Which of both is not where it was predicted."""
        found = (("loss", self.loss), ("optimum", self.place))
        return [name for name, off in found if not off.low <= 0 <= off.high]


def collapse(best: JointFit) -> list[str]:
    """Whether the curves of all sizes are one, moved."""
    if best.freedom < 1:
        return []
    ratio = best.misfit / best.freedom
    chance = float(scipy.stats.f.sf(ratio, best.freedom, max(best.system.freedom, 1)))
    words = (
        f"Curves of different sizes do not collapse: they are not one curve whose floor and optimum follow powers of "
        f"the size; what "
        f"that leaves is {ratio:.1f} times what noise would (chance {chance:.1g})."
    )
    if chance < IMPOSSIBLE:
        raise NotPredictableError(f"{words} Nothing is said of larger sizes.")
    return [words] if chance < UNLIKELY else []


def endless_drift(
    curves: Sequence[Curve], fits: Sequence[JointFit], target: Size, random: np.random.Generator
) -> list[str]:
    """Whether the optimum goes on moving with the logarithm of the size."""
    others = [fit(curves, model) for model in endless()]
    weighed = ([f.evidence + math.log(f.model.share) for f in each] for each in (others, fits))
    scores: list[float] = [np.logaddexp.reduce(each) for each in weighed]
    chance = float(scipy.special.expit(scores[0] - scores[1]))
    draws = drawn(others, weights_of(others), 1000, random)
    last = max((c.size for c in curves), key=order)
    first = min((c.size for c in curves), key=order)
    seen = over(draws, lambda d: d.place(last)) - over(draws, lambda d: d.place(first))
    ahead = over(draws, lambda d: d.place(target)) - over(draws, lambda d: d.place(last))
    move, (low, high) = float(np.median(ahead)), interval(ahead, ahead)
    if chance < LEVELLING or low <= 0 <= high or abs(move) < MATTERS:
        return []
    words = (
        f"The optimum moves by {bracketed(octaves, float(np.median(seen)), *interval(seen, seen))} octaves over the "
        f"sizes measured and "
        f"is not seen to level off (chance that it goes on with log size: {chance:.0%}, which would be {octaves(move)} more)."
    )
    if abs(move) >= FAR and min(abs(low), abs(high)) >= MATTERS:
        raise NotPredictableError(
            f"{words} It has no limit that is seen: measure larger sizes, or take a parameterization that has one, as mup."
        )
    return [words]


def held_out(curves: Sequence[Curve], random: np.random.Generator) -> HeldOut | None:
    """The check on the largest size; None where what is left does not say how losses go with the size."""
    out = max((c for c in curves if c.finite), key=lambda c: order(c.size))
    rest = [c for c in curves if c is not out]
    axes = {axis.name for axis in Axis.of([c.size for c in curves])}
    left = [c.size for c in rest if c.finite]
    if {axis.name for axis in Axis.of(left)} != axes or len(left) < 1 + len(axes):
        return None
    fits = [fit(rest, model) for model in models()]
    said = drawn(fits, weights_of(fits), 2000, random)
    own = fit([out], Model(1.0, 1.0, 1.0)).draws(2000, random)
    floors, places = over(said, lambda d: d.floor(out.size)), over(said, lambda d: d.place(out.size))
    mixed = random.permutation(len(floors))  # models lie one after the other
    loss = floors[mixed] - own.floor(out.size)
    place = places[mixed] - own.place(out.size)
    medians = [float(np.median(each)) for each in (floors, places, own.floor(out.size), own.place(out.size))]
    return HeldOut(
        out.size, within(loss, MISSED), within(place, MISSED), (medians[0], medians[1]), (medians[2], medians[3])
    )


def of_held_out(held: HeldOut | None) -> list[str]:
    """What the check says against a prediction."""
    if held is None:
        return [
            "There are too few sizes to hold one out, so that nothing says whether larger ones follow from smaller ones."
        ]
    if not held.missed:
        return []
    width, depth = held.size
    (loss, place), (own, best) = held.predicted, held.measured
    return [
        f"Width {width:g}, depth {depth}, predicted from the smaller sizes, is missed in its "
        f"{' and '.join(held.missed)}: predicted "
        f"{math.exp(loss):.4g} at {2**place:.3g}, measured {math.exp(own):.4g} at {2**best:.3g}."
    ]


def of_the_grid(place: np.ndarray, edge: np.ndarray, rates: np.ndarray, best: float) -> list[str]:
    """Whether the optimum lies among the values that were tried, and before those that diverge."""
    doubts, low, high = [], *np.log2(rates[[0, -1]])
    outside = float(np.mean((place < low) | (place > high)))
    if outside > 0.05:
        doubts.append(f"The optimum may lie beyond the values that were tried (chance {outside:.0%}): widen the grid.")
    lost = float(np.mean(edge < math.log2(best)))
    if lost > 0.05:
        doubts.append(f"At {best:.3g} it may diverge (chance {lost:.0%}): take less, or sweep closer to the edge.")
    return doubts
