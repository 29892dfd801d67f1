"""Variants of a study (optimisers, parameterizations, …) at one size, each at its own optimum: who is ahead, how sure that is."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from train.evaluate.interval import Interval, exact
from train.transfer.doubts import NotPredictableError
from train.transfer.expansion import Size, order
from train.transfer.mixture import within
from train.transfer.paired import Floor, differences
from train.transfer.prediction import SWEEPS, check_sizes, measured_floor, predict
from train.transfer.shift import percent, words
from train.transfer.sweep import Sweep
from zoo import checks


@dataclasses.dataclass(frozen=True)
class Stated:
    """What is known of one variant at the target: the `floor` (logarithms), the best `rate`, whether it was `measured` there, and
    what speaks against it where it is predicted."""

    floor: Floor
    rate: Interval
    measured: bool
    doubts: Sequence[str] = ()

    @classmethod
    def of(
        cls, sweeps: Mapping[Size, Sweep], target: Size, limits: Mapping[int, Sweep] | None, level: float
    ) -> "Stated":
        """Measured, where the target was swept; else predicted from what is smaller."""
        if target in sweeps:
            if sweeps[target].losses.shape[1] < 2:
                raise ValueError(
                    f"Width {target[0]:g}, depth {target[1]} has one seed; their spread is the noise: give two or more."
                )
            floor, place = measured_floor(sweeps[target])
            return cls(floor, within(2.0**place, level), True)
        found = predict(sweeps, int(target[0]), target[1], limits, level)
        return cls(found.floor, found.rate, False, found.doubts)


@dataclasses.dataclass(frozen=True)
class Compared:
    """Variants at `size`, the one of the least loss first: `loss` and best `rate` of each, and by which share its loss is `above`
    that of the first, `level` intervals; above is paired. `stated`: where they come from; `refused`: why others are not there."""

    size: Size
    level: float
    loss: dict[str, Interval]
    rate: dict[str, Interval]
    above: dict[str, Interval]
    stated: dict[str, Stated]
    refused: dict[str, str]

    @property
    def best(self) -> str:
        """The variant of the least loss."""
        return next(iter(self.loss))

    @property
    def open(self) -> list[str]:
        """Others that may be as good."""
        return [name for name, above in self.above.items() if name != self.best and not above.low > 0]

    @property
    def ahead(self) -> bool:
        """Whether the first is better than every other one."""
        return not self.open and len(self.loss) > 1

    @property
    def sentence(self) -> str:
        """Who is ahead, or between whom it is open."""
        where = f"At width {self.size[0]:g}, depth {self.size[1]}"
        if len(self.loss) < 2:
            return f"{where} there are no two variants to be compared."
        said = [name for name in self.loss if name != self.best and (self.ahead or name in self.open)]
        losses = "; ".join(f"“{name}” {words(self.above[name], signed)}" for name in said)
        doubtful = [f"“{name}”" for name, each in self.stated.items() if each.doubts]
        warning = f" Predictions of {', '.join(doubtful)} are not to be trusted." if doubtful else ""
        if self.ahead:
            return f"{where} “{self.best}” is ahead. Losses above its own: {losses}.{warning}"
        least = f"“{self.best}” has the least loss, and others may have as little: {losses}"
        return f"{where} it is open who is ahead: {least}.{warning}"


def signed(share: float) -> str:
    """A share with its sign.

    >>> signed(0.051)
    '+5.1%'
    """
    word = percent(share)
    return word if word[0] in "-×∞" else f"+{word}"


@checks.arguments(
    variants=checks.Check(
        "{name: {(width, depth): Sweep}}, two or more of them",
        lambda v: len(v) > 1 and all(SWEEPS.holds(each) for each in v.values()),
    ),
    width=checks.count(1),
    depth=checks.count(1),
    limits=checks.Check(
        "{name: {depth: Sweep}}", lambda v: all(isinstance(s, Sweep) for each in v.values() for s in each.values())
    ),
    level=checks.Check("a number between 0 and 1", lambda v: 0 < float(v) < 1),
    seed=checks.count(0),
)
def compare_variants(
    variants: Mapping[str, Mapping[Size, Sweep]],
    width: int,
    depth: int | None = None,
    limits: Mapping[str, Mapping[int, Sweep]] | None = None,
    level: float = 0.9,
    seed: int = 0,
) -> Compared:
    """Which of several variants reaches the least loss at a size, each at its own best learning rate.

    variants: {name: its sweeps}, as `predict` takes them. Where a variant was swept at that size, it is measured there; else it
    is predicted. Differences are paired: seeds of one number share initial keys and the order of the data in all variants
    (`sweep_rates`, `launch.transfer`), so that what they have in common falls out; the choice of the model does not. Variants
    that cannot be predicted are `refused`.

    >>> x, seeds = np.arange(-4.0, 5.0), 0.1 * np.random.default_rng(0).normal(size=(9, 4)).mean(0)
    >>> def swept(floor, noise):
    ...     losses = np.exp(floor + 0.1 * x[:, None] ** 2 + seeds + 0.01 * np.random.default_rng(noise).normal(size=(9, 4)))
    ...     return {(64, 2): Sweep(64, 2, 2.0**x, np.repeat(losses[..., None], 2, 2))}
    >>> found = compare_variants({"adam": swept(0.05, 1), "muon": swept(0.0, 2)}, 64)
    >>> found.best, found.ahead
    ('muon', True)
    """
    for sweeps in variants.values():
        check_sizes(sweeps)
    largest = max((size for sweeps in variants.values() for size in sweeps), key=order)
    target = (width, largest[1] if depth is None else depth)
    stated, refused = {}, {}
    for name, sweeps in variants.items():
        try:
            stated[name] = Stated.of(sweeps, target, (limits or {}).get(name), level)
        except NotPredictableError as error:
            refused[name] = str(error)
        except ValueError as error:
            raise ValueError(f"compare_variants: {name}: {error}") from error
    return compared(stated, refused, target, level, seed)


def compared(
    stated: Mapping[str, Stated], refused: Mapping[str, str], target: Size, level: float, seed: int = 0
) -> Compared:
    """Of what is known of each."""
    names = sorted(stated, key=lambda name: stated[name].floor.median)
    floors = [stated[name].floor for name in names]
    apart = differences(floors[0], floors[1:], np.random.default_rng(seed)) if floors else []
    above = [exact(0.0), *(within(np.expm1(each), level) for each in apart)]
    return Compared(
        target, level,
        {name: within(np.exp(stated[name].floor.draws), level) for name in names},
        {name: stated[name].rate for name in names},
        dict(zip(names, above, strict=False)),
        {name: stated[name] for name in names}, dict(refused),
    )  # fmt: skip
