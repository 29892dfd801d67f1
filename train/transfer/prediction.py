"""What a size that was not trained will reach, at which learning rate, and how sure that is: from sweeps of smaller sizes."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from train.evaluate.interval import Interval
from train.transfer.doubts import HeldOut, collapse, endless_drift, held_out, of_held_out, of_the_grid
from train.transfer.edge import Edge
from train.transfer.expansion import Axis, Model, Size, models, order
from train.transfer.fit import Curve, DrawnSizes, JointFit, fit
from train.transfer.mixture import drawn, over, weights_of, within
from train.transfer.paired import Floor
from train.transfer.shift import percent, words
from train.transfer.sweep import Sweep
from train.transfer.valley import near
from zoo import checks

DRAWS = 4000


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Of one size, with intervals of this `level`: the least `loss` (mean over seeds, of logarithms), the best `rate`, and
    what plain transfer costs: the largest measured size's optimum, `plain`, used here (`regret`: a share of the loss; infinite
    where it diverges).

    one_run: the loss of a single run; cost: what `rate` costs, being uncertain; edge: the least value that diverges; curve:
    rates and the loss at each; models: (words, weight, loss, rate) of each; held_out: the check on the largest size measured;
    doubts: why not to trust this; used: the sizes; floor: draws of the logarithm of the loss, and what they owe to which seeds.
    """

    size: Size
    level: float
    loss: Interval
    rate: Interval
    regret: Interval
    plain: float
    one_run: Interval
    cost: Interval
    edge: Interval
    curve: tuple[np.ndarray, Interval]
    models: list[tuple[str, float, float, float]]
    held_out: HeldOut | None
    doubts: list[str]
    used: list[Size]
    floor: Floor

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.doubts

    @property
    def sentence(self) -> str:
        """What is predicted."""
        width, depth = self.size
        doubts = "" if self.trusted else f" Not to be trusted: {' '.join(self.doubts)}"
        return (
            f"Width {width:g}, depth {depth}: loss {words(self.loss)} at {words(self.rate)}; with {self.plain:.4g}, the largest "
            f"measured size's optimum, it costs {words(self.regret, percent)} more.{doubts}"
        )


SWEEPS = checks.Check(
    "sweeps {(width, depth): Sweep}", lambda v: v and all(len(k) == 2 and isinstance(s, Sweep) for k, s in v.items())
)


def check_sizes(sweeps: Mapping[Size, Sweep]) -> None:
    """Raises where a sweep is said to be of another size than its own."""
    for (width, depth), sweep in sweeps.items():
        if (width, depth) != (sweep.width, sweep.depth):
            raise ValueError(
                f"predict: the sweep under ({width:g}, {depth:g}) says that it is of width {sweep.width:g}, depth "
                f"{sweep.depth:g}: keys are (width, depth) of the sweeps themselves."
            )


@checks.arguments(
    sweeps=SWEEPS,
    width=checks.count(1),
    depth=checks.count(1),
    limits=checks.Check("limits {depth: Sweep}", lambda v: all(isinstance(each, Sweep) for each in v.values())),
    level=checks.Check("a number between 0 and 1", lambda v: 0 < float(v) < 1),
    seed=checks.count(0),
)
@np.errstate(over="ignore")  # floors that nothing bounds from above: their intervals are open
def predict(
    sweeps: Mapping[tuple[float, int], Sweep],
    width: int,
    depth: int | None = None,
    limits: Mapping[int, Sweep] | None = None,
    level: float = 0.9,
    seed: int = 0,
) -> Prediction:
    """The loss and the best learning rate of a larger size, from sweeps of smaller ones (`sweep_rates`, `launch.transfer`).

    All sizes below the target are fitted together (`fit.py`): floor and optimum go to their limit as powers of 1/width and
    1/depth, with what is left of second order; exponents are averaged over by how well each predicts every size from the
    smaller ones. limits: {depth: sweep of the limit}, a size of its own with the errors of its replicas. depth: by default that
    of the largest size. Intervals hold noise and the choice of model; the target itself, where it is among the sweeps, is not
    looked at.

    Raises `NotPredictableError` where curves of different sizes have nothing in common, and where the optimum moves without
    levelling off, as in `standard` over width. What is less bad is said in `doubts`. Not modelled: steps, data and schedules.

    >>> x, sizes = np.arange(-4.0, 5.0), (16, 32, 64, 128)
    >>> noise = 1 + 0.01 * np.random.default_rng(0).normal(size=(4, 9, 4))
    >>> losses = [np.exp(0.1 * (x - 0.3) ** 2 + 4 / n)[:, None] * e for n, e in zip(sizes, noise)]
    >>> found = predict({(n, 2): Sweep(n, 2, 2.0**x, np.repeat(y[..., None], 2, 2)) for n, y in zip(sizes, losses)}, 1024)
    >>> bool(found.loss.low < 1 < found.loss.high), bool(found.rate.low < 2**0.3 < found.rate.high), found.trusted
    (True, True, True)
    """
    check_sizes({**sweeps, **{(math.inf, each): sweep for each, sweep in (limits or {}).items()}})
    largest = max(sweeps, key=order)
    target = (width, largest[1] if depth is None else depth)
    curves = _curves(sweeps, target, limits or {})
    finite = [c for c in curves if c.finite]
    try:
        fits = [fit(curves, model) for model in models()]
    except np.linalg.LinAlgError:
        raise ValueError(
            "predict: the losses of a size are the same for all seeds, whose spread is the noise: give seeds that differ, or "
            "leave that size out."
        ) from None
    weights = weights_of(fits)
    random = np.random.default_rng(seed)
    doubts = collapse(fits[int(np.argmax(weights))])
    if len(finite) == len(curves):
        doubts += endless_drift(curves, fits, target, random)
    draws = drawn(fits, weights, DRAWS, random)
    held = held_out(curves, random)
    doubts += of_held_out(held)
    last = max(finite, key=lambda c: order(c.size))
    plain = sweeps[last.size].optimum().rate
    edge = Edge.of(curves).draws(target, DRAWS, random)
    place = np.minimum(over(draws, lambda d: d.place(target)), edge)
    rate, floor = within(2.0**place, level), over(draws, lambda d: d.floor(target))
    rates = np.unique(np.concatenate([sweeps[c.size].rates for c in finite]))
    doubts += of_the_grid(place, edge, rates, float(rate.value))

    def costs(x: np.ndarray) -> np.ndarray:
        return np.where(np.log2(x) > edge[:, None], np.inf, over(draws, lambda d: d.cost(np.log2(x), target)))

    def cost(x: float) -> Interval:  # never negative: that of what may be the optimum begins at nothing
        found = within(np.expm1(costs(np.array([x]))[:, 0]), level)
        return dataclasses.replace(found, low=0.0) if rate.low <= x <= rate.high else found

    spread = math.sqrt(
        float(last.offsets @ last.offsets) / (len(last.offsets) - 1) + float(np.median(last.near.variance))
    )
    one = within(np.exp(floor + spread * random.standard_t(len(last.offsets) - 1, DRAWS)), level)
    between = np.geomspace(rates[0], rates[-1], 49)
    apart = np.abs(np.log2(between[:, None] / rates)).min(1) > 1e-6
    x = np.sort(np.concatenate([between[apart], rates]))  # at the measured values too
    return Prediction(
        target, level, within(np.exp(floor), level), rate, cost(plain), plain, one, cost(float(rate.value)),
        within(2.0**edge, level), (x, within(np.exp(floor[:, None] + costs(x)), level)),
        _by_model(fits, weights, target, random), held, doubts, [c.size for c in curves],
        Floor.of(draws, curves, fits, weights, target),
    )  # fmt: skip


def _curves(sweeps: Mapping[Size, Sweep], target: Size, limits: Mapping[int, Sweep]) -> list[Curve]:
    """Of the sizes below the target, and of the limit."""
    smaller = {s: w for s, w in sweeps.items() if s[0] <= target[0] and s[1] <= target[1] and s != target}
    for size, sweep in smaller.items():
        if sweep.losses.shape[1] < 2:
            raise ValueError(
                f"predict: width {size[0]:g}, depth {size[1]} has one seed; their spread is the noise: give two or more."
            )
        if len(sweep.rates) < 2:
            raise ValueError(
                f"predict: width {size[0]:g}, depth {size[1]} was swept at one value, {sweep.rates[0]:g}, which says nothing of "
                "an optimum: sweep three or more."
            )
        if (sweep.losses[np.isfinite(sweep.losses)] <= 0).any():
            raise ValueError(
                f"predict: losses of width {size[0]:g}, depth {size[1]} are not all positive, and their logarithm is what is "
                "predicted: choose another score."
            )
    curves = Curve.all({**smaller, **{(math.inf, depth): sweep for depth, sweep in limits.items()}})
    axes = Axis.of([c.size for c in curves])
    finite, names = [c.size for c in curves if c.finite], {axis.name for axis in axes}
    if len(finite) < 1 + max(len(axes), 1):
        raise ValueError(
            f"predict: of sizes below width {target[0]:g}, depth {target[1]} with a value at which no seed diverges there are "
            f"{len(finite)}; at least {1 + max(len(axes), 1)} are needed."
        )
    for i, name in enumerate(("width", "depth")):
        if finite and name not in names and target[i] != finite[0][i]:
            raise ValueError(
                f"predict: the target's {name} is {target[i]:g}, and all smaller sizes have {name} {finite[0][i]:g}: sweep "
                f"two or "
                f"more {name}s."
            )
    return curves


def measured_draws(sweep: Sweep, seed: int = 0) -> tuple[Curve, JointFit, DrawnSizes]:
    """What is known of a size that was trained, with the noise of its seeds."""
    size = (sweep.width, sweep.depth)
    found = near(np.log2(sweep.rates), sweep.losses)
    if found is None:
        raise ValueError(f"Width {sweep.width:g}, depth {sweep.depth} diverges at every value.")
    curve = Curve.of(size, found)
    alone = fit([curve], Model(1.0, 1.0, 1.0))
    return curve, alone, alone.draws(DRAWS, np.random.default_rng(seed))


def measured_floor(sweep: Sweep, seed: int = 0) -> tuple[Floor, np.ndarray]:
    """(logarithm of the least loss, log₂ of the best value [draw]) of that."""
    curve, alone, draws = measured_draws(sweep, seed)
    return Floor.of([draws], [curve], [alone], np.ones(1), curve.size), draws.place(curve.size)


def measured(sweep: Sweep, level: float, seed: int = 0) -> tuple[Interval, Interval]:
    """The same with its intervals."""
    floor, place = measured_floor(sweep, seed)
    return within(floor.draws, level), within(place, level)


def _by_model(
    fits: Sequence[JointFit], weights: np.ndarray, target: Size, random: np.random.Generator
) -> list[tuple[str, float, float, float]]:
    """(words, weight, loss, best value) of each model."""
    each_draws = [each.draws(400, random) for each in fits]
    return [
        (f.model.words, float(w), math.exp(np.median(d.floor(target))), 2.0 ** float(np.median(d.place(target))))
        for f, w, d in zip(fits, weights, each_draws, strict=True)
    ]
