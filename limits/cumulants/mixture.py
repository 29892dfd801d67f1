"""Data as mixtures: statistics by class or component, tasks given by them, samples, Gaussian surrogates, output densities."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from limits.cumulants.cumulants import Cumulants, Mixture, empirical_cumulants, from_moments, mixture_of, order_of
from zoo import checks

if TYPE_CHECKING:
    import scipy.stats


def _by_target(target: np.ndarray, probability: np.ndarray, of_rows: Callable[[np.ndarray], Cumulants]) -> Mixture:
    """One component for every different target: `of_rows` makes its cumulants."""
    targets = np.unique(target, axis=0)
    rows = [np.flatnonzero((target == each).all(1)) for each in targets]
    parts = [of_rows(each) for each in rows]
    stacked = Cumulants(*(None if each[0] is None else np.stack(each) for each in zip(*parts, strict=True)))
    return Mixture(np.array([probability[each].sum() for each in rows]), targets, stacked)


@checks.arguments(x=checks.array(least=1), y=checks.array(least=1), order=order_of)
def class_cumulants(x: Any, y: Any, order: int = 2) -> Mixture:
    """Empirical cumulants of inputs x [n, …], class by class; a class is a different row of the targets y [n, outputs].

    >>> data = class_cumulants([[0.0], [2.0], [5.0]], [[1.0], [1.0], [-1.0]])
    >>> data.target.tolist(), data.probability.round(3).tolist(), data.cumulants.mean.tolist()
    ([[-1.0], [1.0]], [0.333, 0.667], [[5.0], [1.0]])
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    y = y[:, None] if y.ndim == 1 else y
    if len(x) != len(y):
        raise ValueError(f"class_cumulants: x has {len(x)} samples and y has {len(y)}.")
    classes = len(np.unique(y, axis=0))
    if classes > max(len(y) // 2, 2):
        raise ValueError(f"class_cumulants: {classes} different targets in {len(y)} samples are not classes.")
    found = _by_target(y, np.ones(len(y)), lambda rows: empirical_cumulants(x[rows], order))
    return found._replace(probability=found.probability / len(y))


def _shared_out(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a ⊗ b, summed over the ways of giving the indices to a and b (both symmetric)."""
    n = a.ndim + b.ndim
    total = np.zeros((a.shape or b.shape)[:1] * n)
    product = np.multiply.outer(a, b)
    for first in itertools.combinations(range(n), a.ndim):
        order = (*first, *(i for i in range(n) if i not in first))
        total += np.transpose(product, np.argsort(order))
    return total


@checks.arguments(mixture=mixture_of, order=order_of)
def pooled(mixture: Mixture, order: int = 2) -> Mixture:
    """Components of one target as one, with the cumulants of their mixture up to `order` (the law of total cumulance).

    >>> one = pooled(xor_mixture(), order=2)
    >>> one.target.ravel().tolist(), one.cumulants.covariance.round(3)[1].tolist()
    ([-1.0, 1.0], [[0.3, 0.25], [0.25, 0.3]])
    """
    probability = np.asarray(mixture.probability)

    def of_rows(rows: np.ndarray) -> Cumulants:
        return _merged(probability[rows] / probability[rows].sum(), mixture.cumulants, rows, order)

    return _by_target(np.asarray(mixture.target), probability, of_rows)


def _merged(weights: np.ndarray, cumulants: Cumulants, rows: np.ndarray, order: int) -> Cumulants:
    means = np.asarray(cumulants.mean)[rows]
    mean = weights @ means
    second, third, fourth = 0.0, 0.0, 0.0
    # Moments about the common mean, component by component: every way to share the indices out among d and the cumulants.
    for w, row, d in zip(weights, rows, means - mean, strict=True):
        s, pairs = np.asarray(cumulants.covariance)[row], np.multiply.outer(d, d)
        k3 = np.zeros((len(d),) * 3) if cumulants.third is None else np.asarray(cumulants.third)[row]
        k4 = np.zeros((len(d),) * 4) if cumulants.fourth is None else np.asarray(cumulants.fourth)[row]
        second += w * (s + pairs)
        if order > 2:
            third += w * (k3 + _shared_out(s, d) + np.multiply.outer(d, pairs))
        if order > 3:
            own = (
                k4
                + _shared_out(s, s) / 2
                + _shared_out(k3, d)
                + _shared_out(s, pairs)
                + np.multiply.outer(pairs, pairs)
            )
            fourth += w * own
    return from_moments(mean, second, third if order > 2 else None, fourth if order > 3 else None)


@checks.arguments(
    probability=checks.array(None),
    target=checks.array(least=1),
    mean=checks.array(None, None),
    covariance=checks.array(None, None) | checks.array(None, None, None),
)
def gaussian_mixture(probability: Any, target: Any, mean: Any, covariance: Any) -> Mixture:
    """Gaussian components: probability [K], target [K] or [K, outputs], mean [K, D], covariance [K, D, D] or one [D, D].

    >>> gaussian_mixture([0.5, 0.5], [1, -1], [[1.0], [-1.0]], [[0.1]]).cumulants.covariance.shape
    (2, 1, 1)
    """
    p, mean = np.asarray(probability, np.float64), np.asarray(mean, np.float64)
    target, covariance = np.asarray(target, np.float64), np.asarray(covariance, np.float64)
    k, d = mean.shape
    target = target[:, None] if target.ndim == 1 else target
    if p.shape != (k,) or len(target) != k or not math.isclose(p.sum(), 1) or (p < 0).any():
        raise ValueError(
            f"gaussian_mixture: mean [K, D] of {k} components needs as many targets ({len(target)}) and a probability of each, "
            f"which sum to 1 ({p})."
        )
    if covariance.shape not in ((k, d, d), (d, d)):
        raise ValueError(
            f"gaussian_mixture: means {mean.shape} need a covariance {(k, d, d)} or one {(d, d)}; here it is {covariance.shape}."
        )
    values, size = np.linalg.eigvalsh(covariance), np.abs(covariance).max()
    askew = np.abs(covariance - np.swapaxes(covariance, -1, -2)).max()
    if askew > 1e-10 * size or values.min() < -1e-10 * size:
        raise ValueError(
            "gaussian_mixture: covariances are symmetric and have no negative eigenvalue; here Σ − Σᵀ is up to "
            f"{askew:.3g} and the smallest eigenvalue {values.min():.3g}."
        )
    return Mixture(p, target, Cumulants(mean, np.broadcast_to(covariance, (k, d, d)).copy()))


@checks.arguments(variance=checks.number(0))
def xor_mixture(variance: float = 0.05) -> Mixture:
    """Four Gaussians at (±½, ±½), target +1 where the signs agree: the statistics of `train.data.xor_mixture`.

    The classes by the means of their components ("mean coding"). `pooled(xor_mixture())` keeps only class and covariance, mean
    zero and ±¼ between the inputs ("covariance coding").

    >>> xor_mixture().cumulants.mean.shape
    (4, 2)
    """
    means = [[0.5, 0.5], [-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5]]
    return gaussian_mixture(np.full(4, 0.25), [1, 1, -1, -1], means, variance * np.eye(2))


@checks.arguments(variance=checks.number(0))
def third_cumulant_mixture(variance: float = 0.05) -> Mixture:
    """Two classes of equal mean and covariance that differ in their third cumulant only, G3_111 = ±¾.

    In the plane: target +1 at (−½, 0) with probability 3/8 and (3/2, 0) with 1/8; target −1 mirrored. The class covariance
    is diag(0.75 + variance, variance), G4_1111 = −3/8. The best classifier gets 97.98 %.

    >>> pooled(third_cumulant_mixture(), order=4).cumulants.third[:, 0, 0, 0].tolist()
    [-0.75, 0.75]

    Reference: K. Fischer (2025), eqs. 2.34 to 2.38. Divergence: 2.37 prints the covariance as diag(0.8, 0.5), for
    diag(0.8, 0.05); the text says 97 %.
    """
    means = [[-0.5, 0.0], [1.5, 0.0], [0.5, 0.0], [-1.5, 0.0]]
    return gaussian_mixture([3 / 8, 1 / 8, 3 / 8, 1 / 8], [1, 1, -1, -1], means, variance * np.eye(2))


@checks.arguments(mixture=mixture_of, n=checks.count(), seed=checks.seed)
def sample(mixture: Mixture, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """n inputs [n, D] and targets [n, outputs] of Gaussian components.

    >>> x, y = sample(xor_mixture(), 1000)
    >>> x.shape, bool(abs((x[:, 0] * x[:, 1] * y[:, 0]).mean() - 0.25) < 0.03)
    ((1000, 2), True)
    """
    if mixture.cumulants.order > 2:
        raise ValueError("sample: only Gaussian components can be sampled; drop higher cumulants with .upto(2).")
    random = np.random.default_rng(seed)
    which = random.choice(len(mixture.probability), size=n, p=np.asarray(mixture.probability))
    means, covariances = np.asarray(mixture.cumulants.mean), np.asarray(mixture.cumulants.covariance)
    values, vectors = np.linalg.eigh(covariances)
    if (values < -1e-10 * np.abs(values).max(initial=0)).any():
        raise ValueError(f"sample: a covariance has the negative eigenvalue {values.min():.3g}.")
    values = np.where(values > 1e-14 * values.max(), values, 0)  # the square root of rounding is not small
    roots = vectors * np.sqrt(values)[:, None, :]
    x, noise = means[which], random.normal(size=(n, means.shape[1]))
    for k in range(len(roots)):
        x[which == k] += noise[which == k] @ roots[k].T
    return x, np.asarray(mixture.target)[which]


@checks.arguments(mixture=mixture_of, y=checks.array(None))
def density(mixture: Mixture, y: Any) -> np.ndarray:
    """p(y) of a single output, every component Gaussian: Σ_k p_k N(y; μ_k, Σ_k).

    >>> one = gaussian_mixture([1.0], [1], [[0.0]], [[1.0]])
    >>> density(one, [0.0]).round(4).tolist()
    [0.3989]
    """
    mean, std = _one_output(mixture)
    return scipy.stats.norm.pdf(np.asarray(y)[:, None], mean, std) @ np.asarray(mixture.probability)


@checks.arguments(mixture=mixture_of, y=checks.array(least=1), bins=checks.count(1, 10**6))
def divergence(y: Any, mixture: Mixture, bins: int = 60) -> float:
    """D_KL(p_emp ‖ p)/H(p_emp) of samples y [n] of a single output against a mixture, in `bins` equal bins over their range.

    p_emp are the shares of samples in the bins, p the mixture's probabilities of the same bins, H(p_emp) = −Σ p_emp ln p_emp.
    The finite sample alone gives about (bins in use)/(2 n H).

    >>> y = np.random.default_rng(0).normal(size=20000)
    >>> 0 < divergence(y, gaussian_mixture([1.0], [1], [[0.0]], [[1.0]])) < 2e-3
    True

    Reference: K. Fischer (2025), eq. 2.29, where the bins are not given.
    """
    y = np.ravel(np.asarray(y, np.float64))
    if not np.ptp(y) > 0:
        raise ValueError(
            f"divergence: all {len(y)} samples y are {y[0]:g}, and the entropy of their histogram is 0; is the network dead?"
        )
    counts, edges = np.histogram(y, bins)
    seen = counts > 0
    p = counts[seen] / counts.sum()
    mean, std = _one_output(mixture)
    inside = np.diff(scipy.stats.norm.cdf(edges[:, None], mean, std), axis=0) @ np.asarray(mixture.probability)
    return float((p * np.log(p / np.maximum(inside[seen], 1e-300))).sum() / -(p * np.log(p)).sum())


def _one_output(mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
    mean, covariance = np.asarray(mixture.cumulants.mean), np.asarray(mixture.cumulants.covariance)
    if mean.shape[1] != 1:
        raise ValueError(f"Densities are drawn of one output; this mixture has {mean.shape[1]}.")
    if not (covariance > 0).all():
        raise ValueError(
            f"A density needs positive variances; those of this mixture's components are {covariance[:, 0, 0].tolist()}."
        )
    return mean[:, 0], np.sqrt(covariance[:, 0, 0])


@dataclasses.dataclass(frozen=True)
class Surrogate:
    """`mixture`: the Gaussian classes, to sample or to hand to the statistical model. kept: components kept in each class;
    missing: the share of each class's variance that was left out."""

    mixture: Mixture
    kept: np.ndarray
    missing: np.ndarray


@checks.arguments(x=checks.matrix, y=checks.matrix, threshold=checks.number(0))
def gaussian_surrogate(x: Any, y: Any, threshold: float = 1e-2) -> Surrogate:
    """Each class of (x [n, …], y [n, outputs]) as N(μ, V D Vᵀ), of the eigenvalues D of its covariance above `threshold`.

    The threshold is absolute, in units of the inputs squared.

    >>> x = np.random.default_rng(0).normal(size=(400, 3)) * [2.0, 1.0, 1e-3]
    >>> gaussian_surrogate(x, np.repeat([1.0, -1.0], 200)).kept.tolist()
    [2, 2]

    Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, eqs. 2.31 to 2.33.
    """
    data = class_cumulants(x, y)
    values, vectors = np.linalg.eigh(data.cumulants.covariance)
    kept = np.where(values > threshold, values, 0)
    if not kept.any(axis=1).all():
        raise ValueError(
            f"gaussian_surrogate: no eigenvalue of class {np.flatnonzero(~kept.any(axis=1)).tolist()} is above the threshold "
            f"{threshold:g} (largest: {values.max(1).tolist()}); lower the threshold or scale the inputs."
        )
    covariance = np.einsum("kia,ka,kja->kij", vectors, kept, vectors)
    total = np.maximum(values, 0).sum(1)
    return Surrogate(
        data._replace(cumulants=Cumulants(data.cumulants.mean, covariance)), (kept > 0).sum(1), 1 - kept.sum(1) / total
    )
