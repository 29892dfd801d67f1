"""Whether Markov chains have converged, and how much they know: split R̂, effective sample size, standard errors."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

if TYPE_CHECKING:
    import scipy.stats

LARGEST_RHAT = 1.05
SMALLEST_ESS = 100.0


class NotConvergedWarning(UserWarning):
    """Chains have not converged: their averages and standard errors are not to be relied on."""


def split(draws: np.ndarray) -> np.ndarray:
    """Halves of chains as chains of their own: [chains, n, …] to [2 chains, n // 2, …]; an odd draw in the middle goes."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def variances(chains: np.ndarray) -> tuple[Any, Any]:
    """(mean variance W within chains [m, n, …], the variance estimate (n − 1)/n W + B/n that the distance of means enters)."""
    n = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(0)
    return within, within * (n - 1) / n + chains.mean(1).var(axis=0, ddof=1)


def rhat(draws: np.ndarray) -> float:
    """Rank-normalised split R̂ of draws [chains, n]: the larger of that for location and that for spread.

    >>> mixed = np.random.default_rng(0).normal(size=(4, 500))
    >>> rhat(mixed) < 1.01 < 1.5 < rhat(mixed + np.array([[0.0], [0.0], [0.0], [9.0]]))
    True

    Reference: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Rank-normalization, folding, and localization.
    """
    found = []
    for values in (draws, np.abs(draws - np.median(draws))):
        halves = split(values)
        ranks = scipy.stats.rankdata(halves).reshape(halves.shape)
        within, total = variances(scipy.stats.norm.ppf((ranks - 0.375) / (halves.size + 0.25)))
        found.append(float(np.sqrt(total / within)) if within > 0 else 1.0 if total == 0 else np.inf)
    return max(found)


def inefficiency(draws: np.ndarray) -> Any:
    """τ of draws [chains, n, …]: the variance of their mean is τ times what as many independent draws would give.

    τ = 1 + 2 Σ_t ρ_t with the autocorrelations of all chains together, in Geyer's initial monotone sequence of pairs.

    >>> rng, x = np.random.default_rng(0), np.zeros((4, 20000))
    >>> for t in range(1, 20000): x[:, t] = 0.8 * x[:, t - 1] + rng.normal(size=4)
    >>> bool(abs(inefficiency(x) - 1.8 / 0.2) < 0.9)
    True
    """
    chains = split(draws)
    n = chains.shape[1]
    within, total = variances(chains)
    away = chains - chains.mean(1, keepdims=True)
    power = np.abs(np.fft.rfft(away, 2 * n, axis=1)) ** 2
    covariance = np.fft.irfft(power, axis=1)[:, :n].mean(0) / n
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = 1 - (within - covariance * (n / (n - 1))) / total
    rho[0] = 1.0
    pairs = rho[: n // 2 * 2].reshape(n // 2, 2, *rho.shape[1:]).sum(1)
    pairs = np.minimum.accumulate(np.where(np.minimum.accumulate(pairs > 0, axis=0), pairs, 0.0), axis=0)
    tau = 2 * pairs.sum(0) - 1
    size = chains.shape[0] * n
    return np.where(total > 0, np.maximum(np.nan_to_num(tau, nan=1.0), 1 / np.log10(size)), 1.0)


def effective_sample_size(draws: np.ndarray) -> Any:
    """How many independent draws [chains, n, …] are worth."""
    return draws.shape[0] * draws.shape[1] / inefficiency(draws)


def standard_error(draws: np.ndarray) -> Any:
    """Of the mean of draws [chains, n, …], or of the means of equal stretches of chains in their place."""
    halves = split(draws)
    return np.sqrt(np.maximum(variances(halves)[1], 0) * inefficiency(draws) / (halves.shape[0] * halves.shape[1]))


@dataclasses.dataclass(frozen=True)
class Health:
    """R̂ and effective sample size of every quantity that was followed, and what they say together."""

    rhat: dict[str, float]
    ess: dict[str, float]

    @classmethod
    def of(cls, traces: dict[str, np.ndarray]) -> "Health":
        """Of traces [chains, n] by name."""
        moving = {name: trace for name, trace in traces.items() if np.ptp(trace) > 0}
        return cls(
            {name: rhat(trace) for name, trace in moving.items()},
            {name: float(effective_sample_size(trace)) for name, trace in moving.items()},
        )

    @property
    def converged(self) -> bool:
        """Whether all are well mixed: R̂ at most 1.05 and 100 effective draws."""
        return all(r <= LARGEST_RHAT for r in self.rhat.values()) and all(e >= SMALLEST_ESS for e in self.ess.values())

    @property
    def sentence(self) -> str:
        """The finding in words."""
        worst, fewest = max(self.rhat, key=self.rhat.__getitem__), min(self.ess, key=self.ess.__getitem__)
        figures = (
            f"largest R̂ {self.rhat[worst]:.3f} ({worst}), fewest effective draws {self.ess[fewest]:.0f} ({fewest})"
        )
        if self.converged:
            return f"The chains have converged: {figures}."
        return (
            f"The chains have NOT converged: {figures}; wanted are R̂ at most {LARGEST_RHAT} and {SMALLEST_ESS:.0f} draws. "
            "Take more steps or a longer warm-up; averages and standard errors are not to be relied on."
        )

    def as_dict(self) -> dict[str, Any]:
        """For `Posterior.diagnostics`."""
        return {"converged": self.converged, "sentence": self.sentence, "rhat": self.rhat, "ess": self.ess}
