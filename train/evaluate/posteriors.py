"""Sampled posteriors against their theory, layer by layer, with the infinitely wide network beside it."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy

from limits import Task
from limits.posterior import Posterior
from train.evaluate.finding import Finding
from train.evaluate.projections import Projections, of_kernel, of_predictions
from train.evaluate.statistics import hotelling, weighted_fit
from train.evaluate.verdict import FAMILYWISE, PRECISION
from train.posterior.chains import inefficiency, standard_error

if TYPE_CHECKING:
    import scipy.stats

CLEAR = 3.0  # standard errors by which one theory must be closer than the other
CLOSER = {"agrees": True, "closer than the NNGP": True, "further than the NNGP": False}  # the others are undecided
RESOLVED = 2.0  # standard errors above zero that a distance must have to be told, and to enter a law in the width


@dataclasses.dataclass(frozen=True)
class Distance:
    """|sampled − theory| / |sampled|, root mean square over entries, cleared of the sampling noise; and its standard error."""

    value: float
    sem: float

    @property
    def resolved(self) -> bool:
        """Whether it stands out of the noise."""
        return self.value > RESOLVED * self.sem

    def __str__(self) -> str:
        if self.resolved:
            return f"{self.value:.2%} ± {self.sem:.2%}"
        return f"less than {self.value + RESOLVED * self.sem:.2%}"


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What was found of one quantity at one width: the theory at this width, and the network of infinite width (NNGP).

    gain: by how many standard errors the theory is closer than the NNGP. p, level: of fixed projections, by Hotelling's test
    and by the largest of them, largest_z standard errors off; there along `projection`, a part `along` of the distance.
    relative_sem: the error of the sampled quantity itself.
    """

    quantity: str
    width: int
    theory: Distance
    nngp: Distance
    gain: float
    p: float
    level: float
    largest_z: float
    projection: str
    along: float
    relative_sem: float

    @property
    def verdict(self) -> str:
        """agrees, closer than the NNGP, no closer, further, or undecided."""
        if self.p >= self.level:
            return "agrees" if self.relative_sem <= PRECISION else "undecided"
        if abs(self.gain) < CLEAR:
            return "no closer than the NNGP"
        return "closer than the NNGP" if self.gain > 0 else "further than the NNGP"

    @property
    def finding(self) -> Finding:
        """Whether the theory is right, or closer than the NNGP."""
        what = f"{self.quantity}, width {self.width}: the theory is right, or closer than the NNGP"
        return Finding(what, CLOSER.get(self.verdict), self.sentence)

    @property
    def sentence(self) -> str:
        """The verdict with its figures."""
        if self.verdict == "agrees":
            return f"agrees (within {self.largest_z:.1f} standard errors)"
        if self.verdict == "undecided":
            return f"undecided (standard error {self.relative_sem:.1%} is above {PRECISION:.0%}: longer chains needed)"
        off = f"off by {self.theory}"
        if not self.theory.resolved:
            off += (
                f" over all entries, along {self.projection} by {self.along:.2%}, {self.largest_z:.1f} standard errors"
            )
        return f"{self.verdict} (by {abs(self.gain):.1f} standard errors; {off})"


@dataclasses.dataclass(frozen=True)
class WidthLaw:
    """distance ~ width^exponent, from the widths at which it stands out of the noise; None where these are fewer than two."""

    exponent: float
    sem: float


@dataclasses.dataclass(frozen=True)
class PosteriorComparison:
    """Everything a report needs."""

    agreements: list[Agreement]
    rates: dict[str, tuple[WidthLaw | None, WidthLaw | None]]  # by quantity: of the theory, of the NNGP
    widths: tuple[int, ...]
    quantities: tuple[str, ...]
    task: Task
    noise: float
    sampled: tuple[Posterior, ...]
    limits: tuple[Posterior, ...]
    infinite: Posterior

    def find(self, quantity: str, width: int) -> Agreement:
        """What was found of it."""
        return next(a for a in self.agreements if (a.quantity, a.width) == (quantity, width))

    @property
    def unknown(self) -> tuple[int, ...]:
        """Widths at which the theory's own standard errors are not known; they count as 0."""
        return tuple(w for w, p in zip(self.widths, self.limits, strict=True) if np.isnan(p.kernels_sem[-1]).any())

    @property
    def converged(self) -> bool:
        """Whether all chains have converged."""
        return all(p.diagnostics["converged"] for p in self.sampled)


def compare_posteriors(
    task: Task, infinite: Posterior, limits: Posterior | Sequence[Posterior], sampled: Posterior | Sequence[Posterior]
) -> PosteriorComparison:
    """Judges theories `limits`, at widths N, by chains `sampled` at the same widths; `infinite` is the NNGP's posterior.

    Judged are the kernels C^(1) … C^(L) and the predictions. The theory keeps shifts of order P/N and drops others of
    order 1/N, so that enough steps always tell it from the truth; what counts then is whether it is closer than the NNGP.
    All must be of this task and of one depth, which is checked (but for the targets of the chains, which they do not keep).

    >>> from limits import twin
    >>> from train.posterior import sample_posterior
    >>> from zoo import MLP
    >>> task, net = Task(np.eye(2), [1.0, -1.0]), MLP(width=32, depth=1, activation="erf")
    >>> infinite, narrow = (twin(net).posterior(task, noise=0.5, width=width) for width in (None, 32))
    >>> result = compare_posteriors(task, infinite, narrow, sample_posterior(net, task, noise=0.5, steps=1500))
    >>> result.quantities, result.find("C^(1)", 32).verdict in ("agrees", "undecided", "closer than the NNGP")
    (('C^(1)', 'predictions'), True)
    """
    theories, chains = (tuple(x) if isinstance(x, Sequence) else (x,) for x in (limits, sampled))
    _check(task, infinite, theories, chains)
    order = np.argsort([int(p.width or 0) for p in chains])
    theories, chains = (tuple(each[i] for i in order) for each in (theories, chains))
    quantities = (*(f"C^({l})" for l in range(1, infinite.layers + 1)), "predictions")
    level = FAMILYWISE / (len(quantities) * len(chains))
    found = [
        _judge(quantity, task, infinite, theory, drawn, level)
        for theory, drawn in zip(theories, chains, strict=True)
        for quantity in quantities
    ]
    by_quantity = {q: [a for a in found if a.quantity == q] for q in quantities}
    rates = {q: (_law(each, "theory"), _law(each, "nngp")) for q, each in by_quantity.items()}
    widths = tuple(int(p.width or 0) for p in chains)
    return PosteriorComparison(found, rates, widths, quantities, task, infinite.noise, chains, theories, infinite)


def _check(task: Task, infinite: Posterior, theories: tuple[Posterior, ...], chains: tuple[Posterior, ...]) -> None:
    """Of one noise and depth, of these inputs; pairs of one width; and theories of these targets."""
    if infinite.width is not None:
        raise ValueError(
            f"compare_posteriors: `infinite` must be the posterior of infinite width; it has {infinite.width}."
        )
    if not chains or [p.width for p in theories] != [p.width for p in chains]:
        raise ValueError(
            f"compare_posteriors: theories are at widths {[p.width for p in theories]} and chains at "
            f"{[p.width for p in chains]}; give one theory for every sampled posterior, in the same order."
        )
    if any("draws" not in p.diagnostics for p in chains):
        raise ValueError("compare_posteriors: the last argument must come from train.posterior.sample_posterior.")
    predicting = {"the NNGP": infinite} | {f"the theory at width {p.width}": p for p in theories}
    everything = predicting | {f"the chains at width {p.width}": p for p in chains}
    if any(p.noise != infinite.noise for p in everything.values()):
        raise ValueError(f"compare_posteriors: noises differ: {[p.noise for p in everything.values()]}.")
    expected = (task.y_train.shape, task.y_test.shape)
    for name, p in everything.items():
        if not p.has("kernels"):
            raise ValueError(
                f"compare_posteriors: {name} has no kernels of its layers; only those of an MLP can be compared."
            )
        if p.layers != infinite.layers:
            raise ValueError(f"compare_posteriors: {name} has depth {p.layers} and the NNGP {infinite.layers}.")
        shapes = np.shape(p.f_train), np.shape(p.f_test)
        if shapes != expected:
            raise ValueError(
                f"compare_posteriors: {name} has predictions of shapes {shapes[0]} and {shapes[1]} for training and test "
                f"points, the task targets {expected[0]} and {expected[1]}."
            )
        if not np.allclose(p.kernels[0], infinite.kernels[0], rtol=1e-6, atol=1e-9):
            raise ValueError(
                f"compare_posteriors: {name} and the NNGP have another C^(0): other inputs, w_std or b_std."
            )
    n = len(task.x_train)
    for name, p in predicting.items():
        c, f = (
            p.kernels[-1][:n, :n],
            p.diagnostics.get("saddle_f_train", p.f_train),
        )  # without its kernel's fluctuations
        # f = C (C + noise)⁻¹ y, so that (C + noise)⁻¹ y is solved by y − f over the noise: no inverse is needed.
        residual = (c + p.noise * np.eye(n)) @ (task.y_train - f) - p.noise * task.y_train
        if np.abs(residual).max() > 1e-6 * np.abs(c).max() * max(np.abs(task.y_train).max(), np.abs(f).max()):
            raise ValueError(
                f"compare_posteriors: {name} does not predict from the targets of this task (C (C + noise)⁻¹ y with its own C)."
            )


def _judge(
    quantity: str, task: Task, infinite: Posterior, theory: Posterior, drawn: Posterior, level: float
) -> Agreement:
    limit, error = _value(theory, quantity)
    nngp, _ = _value(infinite, quantity)
    members = _draws(drawn, quantity)
    mean = members.mean((0, 1))
    size = float(np.linalg.norm(mean))
    of_f = quantity == "predictions"
    functional = of_predictions(limit, infinite.kernels[-1], task) if of_f else of_kernel(limit, task)
    difference, cov, dof = _projected(functional, members, limit, error)
    sem = np.sqrt(np.diag(cov))
    z = np.abs(difference) / np.where(sem > 0, sem, np.inf)
    worst = int(z.argmax())
    # Hotelling's T² spreads over all projections; one that is far off alone counts as well.
    single = len(z) * 2 * float(scipy.stats.t.sf(z[worst], max(dof, 1.0)))
    p = min(1.0, 2 * min(hotelling(difference, cov, dof)[1], single))
    noise = float(np.sum(standard_error(members) ** 2))

    def distance(centre: np.ndarray, error: np.ndarray) -> Distance:
        away = mean - centre
        square, length = float(np.sum(away**2)), float(np.linalg.norm(away))
        direction = away / length if length > 0 else away
        sem = np.hypot(_linear_sem(members, direction), np.sqrt(np.sum((direction * error) ** 2)))
        return Distance(max(square - noise, 0.0) ** 0.5 / size, float(sem) / size)

    # |sampled − nngp|² − |sampled − theory|² is linear in what is sampled: no noise to clear it of.
    gain = float(np.sum((mean - nngp) ** 2) - np.sum((mean - limit) ** 2))
    spread = np.hypot(_linear_sem(members, 2 * (limit - nngp)), np.sqrt(np.sum((2 * (mean - limit) * error) ** 2)))
    length = float(np.linalg.norm(functional.weights[worst]))
    return Agreement(
        quantity,
        int(drawn.width or 0),
        distance(limit, error),
        distance(nngp, np.zeros_like(error)),
        gain / float(spread) if spread > 0 else 0.0,
        p,
        level,
        float(z[worst]),
        functional.names[worst],
        abs(float(difference[worst])) / (length * size),
        noise**0.5 / size,
    )


def _value(posterior: Posterior, quantity: str) -> tuple[np.ndarray, np.ndarray]:
    """(the quantity, its standard error; 0 where that is not known, which `PosteriorComparison.unknown` says)."""
    if quantity == "predictions":
        parts = (posterior.f_train, posterior.f_test), (posterior.f_train_sem, posterior.f_test_sem)
        return np.concatenate(parts[0]), np.nan_to_num(np.concatenate(parts[1]))
    l = int(quantity[3:-1])
    return posterior.kernels[l], np.nan_to_num(posterior.kernels_sem[l])


def _draws(posterior: Posterior, quantity: str) -> np.ndarray:
    """Means over stretches, [chains, stretches, …]."""
    draws = posterior.diagnostics["draws"]
    values = draws["f"] if quantity == "predictions" else draws["kernels"][int(quantity[3:-1])]
    return values.reshape(posterior.diagnostics["chains"], -1, *values.shape[1:])


def _linear_sem(members: np.ndarray, weights: np.ndarray) -> float:
    """Standard error of Σ weights · mean."""
    return float(standard_error(members.reshape(*members.shape[:2], -1) @ weights.ravel()))


def _projected(
    functional: Projections, members: np.ndarray, limit: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """(sampled − theory in the projections, covariance of that, degrees of freedom)."""
    each = functional(members)
    sem = standard_error(each)
    flat = each.reshape(-1, each.shape[-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.nan_to_num(np.atleast_2d(np.corrcoef(flat.T)), nan=0.0)
    weights = functional.weights.reshape(len(sem), -1)
    cov = correlation * np.outer(sem, sem) + (weights * error.ravel() ** 2) @ weights.T
    return flat.mean(0) - functional(limit), cov, float(np.min(len(flat) / inefficiency(each))) - 1


def _law(found: list[Agreement], which: str) -> WidthLaw | None:
    """Weighted least squares of log distance against log width."""
    parts = [(a.width, getattr(a, which)) for a in found]
    clear = [(width, d) for width, d in parts if d.sem > 0 and d.resolved]
    if len({width for width, _ in clear}) < 2:
        return None
    x, y = np.log([width for width, _ in clear]), np.log([d.value for _, d in clear])
    fitted, covariance = weighted_fit(np.stack([x**0, x]), y[:, None], np.array([d.sem / d.value for _, d in clear]))
    return WidthLaw(float(fitted[1, 0]), float(covariance[1, 1]) ** 0.5)
