"""A prediction against the size that it was made for, once that is trained; and what one would have said by hand."""

import dataclasses
import math
import warnings
from collections.abc import Mapping

import numpy as np
import scipy

from train.evaluate.interval import Interval
from train.transfer.expansion import Size, order
from train.transfer.prediction import Prediction, measured, measured_draws
from train.transfer.sweep import Sweep, loss_at


@dataclasses.dataclass(frozen=True)
class ByHand:
    """The loss by L + b N^−c through the least losses, and the best value by a straight line through logarithms, over the sizes
    that differ from the largest in one number alone; not a number where they are too few, or nothing fits."""

    loss: float
    rate: float


@dataclasses.dataclass(frozen=True)
class Checked:
    """Predicted over measured: the loss (share by which it is off), the best value (octaves), each with whether the interval of
    the difference holds none; `regret` of the predicted value in the measured valley, `plain` of plain transfer, `by_hand` of the
    line; and by how much the loss by hand is off."""

    size: Size
    loss: Interval
    octaves: Interval
    regret: float
    plain: float
    by_hand: float
    loss_by_hand: float

    @property
    def hits(self) -> tuple[bool, bool]:
        """Whether loss and best value lie in their intervals."""
        loss, place = (bool(each.low <= 0 <= each.high) for each in (self.loss, self.octaves))
        return loss, place


def check(prediction: Prediction, sweep: Sweep, hand: ByHand) -> Checked:
    """Of a prediction and the sweep of its size."""
    loss, place = measured(sweep, prediction.level)
    said = prediction.loss.log(), Interval(*(np.log2(each) for each in prediction.rate.ends))
    off = said[0] - loss
    means, best = np.exp(np.log(sweep.losses).mean(1)), math.exp(float(loss.value))
    curve, _, draws = measured_draws(sweep)

    def regret(rate: float) -> float:
        if not rate > 0:
            return math.nan
        x = math.log2(rate)
        if curve.near.x[0] <= x <= curve.near.x[-1]:  # straight lines would lie above a valley between two points
            return float(np.expm1(np.median(draws.cost(np.array([x]), curve.size))))
        return max(loss_at(sweep.rates, means, x) / min(best, means.min()) - 1, 0.0)

    return Checked(
        prediction.size, Interval(*(np.expm1(each) for each in off.ends)), said[1] - place,
        regret(float(prediction.rate.value)), regret(prediction.plain), regret(hand.rate), hand.loss / best - 1,
    )  # fmt: skip


def by_hand(sweeps: Mapping[Size, Sweep], target: Size) -> ByHand:
    """Over the sizes below the target."""
    smaller = [s for s in sweeps if s[0] <= target[0] and s[1] <= target[1] and s != target]
    largest = max(smaller, key=order)
    axis = 0 if target[0] != largest[0] else 1
    line = sorted(s for s in smaller if s[1 - axis] == largest[1 - axis])
    sizes, best = np.array([s[axis] for s in line], float), [sweeps[s].optimum() for s in line]
    if len(line) < 2 or not all(math.isfinite(each.loss) for each in best):
        return ByHand(math.nan, math.nan)
    slope, start = np.polyfit(np.log2(sizes), [each.log_rate for each in best], 1)
    rate = float(2.0 ** (start + slope * math.log2(target[axis])))
    losses, u = np.array([each.loss for each in best]), sizes[0] / sizes
    if len(line) < 3:
        return ByHand(math.nan, rate)

    def law(u: np.ndarray, limit: float, b: float, c: float) -> np.ndarray:
        return limit + b * u**c

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", scipy.optimize.OptimizeWarning)
            found, _ = scipy.optimize.curve_fit(
                law,
                u,
                losses,
                (losses[-1], losses[0] - losses[-1], 1.0),
                bounds=([-np.inf, -np.inf, 0.1], [np.inf, np.inf, 4.0]),
            )
    except RuntimeError:
        return ByHand(math.nan, rate)
    return ByHand(float(law(np.array(sizes[0] / target[axis]), *found)), rate)
