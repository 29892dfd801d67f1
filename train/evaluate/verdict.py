"""The verdict on one observable: ensembles extrapolated to infinite width, held against the limit."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from train.evaluate.finding import Finding
from train.evaluate.grid import Limit
from train.evaluate.projections import Projections
from train.evaluate.statistics import (
    Extrapolation,
    PowerLaw,
    absolute_bias,
    extrapolate,
    extrapolate_curved,
    extrapolate_slow,
    hotelling,
    joint_dof,
    power_law,
    relative_variance,
)
from zoo import GPT, ViT

FAMILYWISE = 0.003  # probability that a report rejects anything although every limit is right
ROUNDING = 1e-6  # of the observable, in float32: what normalisation holds fixed varies by less, and says nothing beyond
PRECISION = 0.02  # a standard error above this share of the observable decides nothing
MEANING = {  # observable: (its name, what it is)
    "nngp": ("NNGP at the start", "feature kernel through the readout, at initialisation"),
    "ntk": ("tangent kernel at the start", "at initialisation"),
    "f": (
        "predictions",
        "after training, against the limit of training: lazy, or with feature learning where it says so",
    ),
    "path": ("predictions along training", "their size in the direction of the limit at each recorded step"),
    "ntk_end": ("tangent kernel at the end", "after training, against the same limit"),
}
AGREES = {"agrees": True, "does not converge": False, "undecided": None}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What was found of one observable at one depth, over all widths."""

    observable: str
    label: str
    depth: int
    verdict: str  # one of AGREES
    relative_error: float  # |extrapolated − limit| / |limit|
    relative_sem: float
    t2: float
    p: float
    level: float
    against: str  # which limit: "initialisation", "lazy" or "feature learning"
    dimensions: int
    largest_z: float
    model: str
    variance: PowerLaw | None
    bias: PowerLaw | None
    bias_projection: str
    projections: dict[str, dict[str, Any]]
    learns: bool = False  # the family learns features, which the lazy limit does not

    @property
    def name(self) -> str:
        """The observable in words."""
        return MEANING[self.observable][0]

    @property
    def finding(self) -> Finding:
        """Whether it agrees; that it does not is foreseen where this limit is not the family's own."""
        what = f"{self.name}, {self.label}, depth {self.depth}: ensembles agree with their limit ({self.against})"
        return Finding(what, AGREES[self.verdict], self.sentence, foreseen=self.learns and self.against == "lazy")

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.verdict == "agrees":
            size = f"within {self.largest_z:.1f} standard errors"
        elif self.verdict == "undecided":
            size = f"standard error {self.relative_sem:.1%} is above {PRECISION:.0%}: more members needed"
        else:
            size = f"off by {self.relative_error:.1%} ± {self.relative_sem:.1%}"
        return f"{self.verdict} ({size})"


@dataclasses.dataclass(frozen=True)
class Observed:
    """One observable at one depth: members' projections [members, projection] at every width, and the limit."""

    observable: str
    label: str
    depth: int
    limit: Limit
    samples: list[np.ndarray]
    head_sizes: tuple[int, ...] | None = None  # by width, where these grow more slowly than the width

    @property
    def functional(self) -> Projections:
        """The projections of this observable."""
        return self.limit.projections[self.observable]

    @property
    def against(self) -> str:
        """Which limit this is."""
        if self.observable in ("nngp", "ntk"):
            return "initialisation"
        return "lazy" if self.limit.rich is None else "feature learning"

    @property
    def expected(self) -> np.ndarray:
        """Their values in the limit."""
        return self.functional(self.limit.estimates(self.observable)).mean(0)

    @property
    def uncertainty(self) -> np.ndarray:
        """The covariance of `expected`: zero where the limit is exact."""
        each = self.functional(self.limit.estimates(self.observable))
        return np.atleast_2d(np.cov(each.T)) / len(each) if len(each) > 1 else np.zeros((each.shape[1],) * 2)


def slow_sizes(nets: Sequence[Any]) -> tuple[int, ...] | None:
    """The sizes of a head of definitions over widths, where what they are off their limit by falls as one over these; or None.

    >>> slow_sizes([ViT(width, 1, heads="grow") for width in (16, 32, 64)]), slow_sizes([ViT(16, 1), ViT(32, 1)])
    ((4, 8, 8), None)
    """
    grow = (
        isinstance(net, GPT | ViT) and net.heads == "grow" and getattr(net, "head_dim", None) is None for net in nets
    )
    return tuple(net.width // net.head_count for net in nets) if all(grow) else None


def judge(row: Observed, widths: Sequence[int], level: float) -> Verdict:
    """The verdict at this level: Hotelling's test of the extrapolation, with a second order where the first is rejected.

    Where heads grow in number too, a rejection must also hold with what falls as one over the size of a head.
    """
    names, expected, samples = row.functional.names, row.expected, row.samples
    size = float(np.linalg.norm(expected))
    if not size:
        raise ValueError(
            f"{row.label} at depth {row.depth}: the limit of {row.observable} is 0, and a distance relative to it does not "
            "exist: are the targets 0, or the learning rate too small to move anything?"
        )
    fit = extrapolate(widths, samples)
    difference, cov, (t2, p, dimensions) = _tested(row, fit)
    others = [lambda: extrapolate_curved(widths, samples)] if fit.order == 1 else []
    if (sizes := row.head_sizes) is not None:
        others.append(lambda: extrapolate_slow(widths, samples, sizes))
    for other in others:
        if p < level and (better := other()) is not None:
            fit = better
            difference, cov, (t2, p, dimensions) = _tested(row, fit)
    sem = np.sqrt(np.diag(cov))
    relative_sem = float(np.sqrt(np.trace(cov)) / size)
    variance = power_law(widths, samples, relative_variance(size)) if len(widths) > 2 else None
    bias, bias_projection = _bias(widths, samples, expected, names)
    predictions = [row.limit.at_width(row.observable, width) for width in widths]
    said = [row.functional(each) for each in predictions if each is not None]
    projections = {
        name: {"limit": expected[j], "extrapolated": fit.a[j], "sem": sem[j],
               "means": [float(s[:, j].mean()) for s in samples],
               "sems": [float(s[:, j].std(ddof=1) / len(s) ** 0.5) for s in samples],
               "predicted": [float(each[:, j].mean()) for each in said]}
        for j, name in enumerate(names)
    }  # fmt: skip
    return Verdict(
        observable=row.observable,
        label=row.label,
        depth=row.depth,
        verdict="does not converge" if p < level else "undecided" if relative_sem > PRECISION else "agrees",
        relative_error=float(np.linalg.norm(difference)) / size,
        relative_sem=relative_sem,
        t2=t2,
        p=p,
        level=level,
        against=row.against,
        dimensions=dimensions,
        largest_z=float(np.max(np.abs(difference) / sem)),
        model=fit.model,
        variance=variance,
        bias=bias,
        bias_projection=bias_projection,
        projections=projections,
        learns=row.limit.learns,
    )


def _tested(row: Observed, fit: Extrapolation) -> tuple[np.ndarray, np.ndarray, tuple[float, float, int]]:
    """(extrapolated − limit, its covariance, Hotelling's test of it)."""
    difference, cov = fit.a - row.expected, fit.cov + row.uncertainty
    cov = cov + np.eye(len(cov)) * (ROUNDING * np.linalg.norm(row.expected)) ** 2
    sweeps = len(row.limit.estimates(row.observable))
    dof = joint_dof((fit.cov, fit.dof + 1), (row.uncertainty, sweeps))
    return difference, cov, hotelling(difference, cov, dof)


def _bias(
    widths: Sequence[int], samples: list, expected: np.ndarray, names: Sequence[str]
) -> tuple[PowerLaw | None, str]:
    """The power law of the bias where it stands out of its noise: 4 standard errors at three widths or more."""
    means, sems = (np.stack([getattr(np, f)(s, axis=0) for s in samples]) for f in ("mean", "std"))
    z = np.abs(means - expected) / (sems / np.sqrt([len(s) for s in samples])[:, None])
    j = int(np.argmax(np.sum(z > 4, axis=0) + 1e-6 * z[0]))
    clear = [i for i in range(len(widths)) if z[i, j] > 4]
    if len(clear) < 3:
        return None, ""
    law = power_law([widths[i] for i in clear], [samples[i][:, j] for i in clear], absolute_bias(expected[j]))
    return law, names[j]
