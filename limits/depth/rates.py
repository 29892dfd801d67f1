"""What great depth makes of kernels: the result of a recursion, its limit over a normaliser, and how fast that is reached."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from limits.depth.averages import NETWORK, RESIDUAL, moment, squares
from limits.depth.phases import phase
from limits.kernels.activations import as_piecewise_linear, called
from limits.types import AbsentError, Provenance
from zoo import activation_function, checks


@dataclasses.dataclass(frozen=True, repr=False)
class DeepKernels:
    """Kernels of y^L at `depths` [t], each array [t, …]; numbers too large for a float are there as logarithms.

    gap: 1 − c^L. variance1, variance2 (`log_variance1`, `log_variance2`): of the two inputs. nngp: their covariance.
    ntk: the tangent kernel K^L, `log_ntk` = log |K^L| and `sign` beside it.

    Kept are mantissas and powers of two: the standard deviations are r1, r2 times 2^height, K^L is k 2^power.
    """

    depths: np.ndarray
    gap: np.ndarray
    r1: np.ndarray
    r2: np.ndarray
    height: np.ndarray
    k: np.ndarray
    power: np.ndarray
    provenance: Provenance

    @classmethod
    def of(cls, carries: list[Any], provenance: Provenance) -> "DeepKernels":
        """From the recorded states of a recursion."""
        names, shape = ("gap", "r1", "r2", "height", "k", "power"), carries[0].gap.shape
        arrays = {name: np.stack([np.broadcast_to(getattr(c, name), shape) for c in carries]) for name in names}
        return cls(np.array([int(c.l) for c in carries]), **arrays, provenance=provenance)

    @property
    def c(self) -> np.ndarray:
        """The correlation c^L."""
        return 1 - self.gap

    @property
    def log_variance1(self) -> np.ndarray:
        """Of the first input."""
        return 2 * _log(self.r1, self.height)

    @property
    def log_variance2(self) -> np.ndarray:
        """Of the second input."""
        return 2 * _log(self.r2, self.height)

    @property
    def variance1(self) -> np.ndarray:
        """Of the first input."""
        return np.exp(self.log_variance1)

    @property
    def variance2(self) -> np.ndarray:
        """Of the second input."""
        return np.exp(self.log_variance2)

    @property
    def log_ntk(self) -> np.ndarray:
        """Log |K^L|."""
        return _log(np.abs(self.k), self.power)

    @property
    def sign(self) -> np.ndarray:
        """Of K^L."""
        return np.sign(self.k)

    @property
    def ntk(self) -> np.ndarray:
        """K^L."""
        return self._whole(self.k, self.power, "ntk", "log_ntk, or normalised(…) for the kernel over its growth")

    @property
    def nngp(self) -> np.ndarray:
        """q^L(x, x')."""
        return self._whole(self.r1 * self.r2 * self.c, 2 * self.height, "nngp", "log_variance1 and c")

    def _whole(self, mantissa: np.ndarray, power: np.ndarray, name: str, other: str) -> np.ndarray:
        if np.any((power > 1023) & (mantissa != 0)):
            at = self.depths[np.argmax(np.any((power > 1023).reshape(len(power), -1), axis=1))]
            raise OverflowError(f"{name} is too large for a float from depth {at} on (2^{power.max()}): use {other}.")
        return np.ldexp(mantissa, np.maximum(power, -2000).astype(int))

    def normalised(self, log_normaliser: Any) -> np.ndarray:
        """K^L / exp(log_normaliser), [t, …]: `log_normaliser` is one number a depth (`limits.depth.log_normaliser`).

        >>> from limits.depth import deep_pair, log_normaliser
        >>> k = deep_pair(1.0, [100_000], residual="fixed", q=1.0)
        >>> k.normalised(log_normaliser([100_000], "fixed")).round(4).tolist()  # (σ_w²/2) / (1 + σ_w²/2)
        [0.5]
        """
        logs = np.asarray(log_normaliser, float).reshape(-1, *[1] * (self.gap.ndim - 1))
        return self.sign * np.exp(self.log_ntk - logs)

    def __repr__(self) -> str:
        return f"DeepKernels({len(self.depths)} depths to {self.depths.max()}, kernels {self.gap.shape[1:]})"


def _log(mantissa: np.ndarray, power: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(mantissa) + power * math.log(2)


@dataclasses.dataclass(frozen=True)
class LimitingKernel:
    """K^L / normaliser → `diagonal` for an input with itself and `off_diagonal` for two inputs that are not collinear.

    Both for inputs of variance q¹ = `variance` in the first layer (off the diagonal √(q¹ q¹') stands in its place).
    """

    diagonal: float
    off_diagonal: float
    normaliser: str
    sentence: str

    @property
    def ratio(self) -> float:
        """off_diagonal / diagonal: 1/4, 1/3, 1 (ordered: a constant) or 0 (chaotic: a delta)."""
        return self.off_diagonal / self.diagonal


@dataclasses.dataclass(frozen=True)
class ConvergenceRate:
    """|K^L / normaliser − limit| off the diagonal → coefficient · L^power · (log L)^log_power · factor^L.

    factor = 1 where it is no exponential. coefficient: None where it depends on the inputs.
    """

    factor: float
    power: float
    log_power: float
    coefficient: float | None
    sentence: str

    def __call__(self, depths: Any) -> np.ndarray:
        """The leading term at these depths."""
        if self.coefficient is None:
            raise AbsentError(f"The coefficient of this rate depends on the inputs. {self.sentence}")
        l = _depths(depths, 2 if self.log_power < 0 else 1)
        return self.coefficient * l**self.power * np.log(l) ** self.log_power * self.factor**l


@checks.arguments(depths=checks.matrix, residual=RESIDUAL, w_std=NETWORK["w_std"])
def log_normaliser(
    depths: Sequence[int] | np.ndarray, residual: str = "none", w_std: float = math.sqrt(2)
) -> np.ndarray:
    """Logarithm of what the tangent kernel of a critical network is divided by, for `DeepKernels.normalised`.

        feed-forward L,   "fixed" (1 + a)^(L−1) L,   "decreasing" L^a log L,   a = σ_w²/2 (relu)

    For the decreasing scale Hayou, Doucet, Rousseau print L^(1+a): their proof adds the total covariance in every block.
    The product Π (1 + a/k) ~ L^a / Γ(2 + a) times Σ a/(k + a) ~ a log L is what the increments give, and what finite networks do.

    >>> np.exp(log_normaliser([10], "fixed", w_std=1.0)).round(3).tolist()  # 10 · 1.5⁹
    [384.434]
    """
    l, a = _depths(depths, 2 if residual == "decreasing" else 1), float(w_std) ** 2 / 2
    if residual == "fixed":
        return (l - 1) * math.log1p(a) + np.log(l)
    return a * np.log(l) + np.log(np.log(l)) if residual == "decreasing" else np.log(l)


def _depths(depths: Any, least: int) -> np.ndarray:
    l = np.asarray(depths, float)
    if not (np.isfinite(l) & (l >= least)).all():
        raise ValueError(f'depths count from 1 (from 2 for "decreasing", whose log L is 0 at 1), got {depths}.')
    return l


def _relu_slope(activation: Any, w: float, b: float) -> float:
    """a = σ_w² E φ'² of a residual network for which the theory is complete."""
    linear = as_piecewise_linear(activation_function(activation))
    if linear is None or linear.negative == linear.positive or b > 0:
        raise AbsentError(
            f"Limits of residual networks are known for positively homogeneous activations with a kink and without bias; got "
            f"{called(activation)} with b_std {b**0.5:g}. Measure them with deep_kernels(…, residual=…)."
        )
    return w * float(moment(linear, 1.0, 1))


@checks.arguments(**NETWORK, residual=RESIDUAL, variance=checks.number(positive=True))
def limiting_kernel(
    activation: Any = "relu",
    w_std: float = math.sqrt(2),
    b_std: float = 0.0,
    residual: str = "none",
    variance: float | None = None,
) -> LimitingKernel:
    """What the tangent kernel over its normaliser tends to as L → ∞.

    variance: q¹, default σ_w² + σ_b² (inputs of size 1). Feed-forward networks forget it unless φ is homogeneous.

    As printed by Hayou, Doucet, Rousseau, and corrected here (both corrections are confirmed by finite networks):
    residual relu networks tend to q¹ a/(1+a) (1 or 1/4), a = σ_w²/2, where the paper lacks a/(1+a); with the decreasing scale
    K / (L^a log L) tends to q¹ a/Γ(2+a) (1 or 1/4), where its proof normalises by L^(1+a) and finds one value everywhere. In
    the chaotic phase the diagonal diverges as χ^L: the limit is no constant, but a delta.

    >>> from limits.depth import edge_of_chaos
    >>> limiting_kernel("relu").ratio, round(limiting_kernel("tanh", edge_of_chaos("tanh", 0.2), 0.2).ratio, 4)
    (0.25, 0.3333)
    >>> limiting_kernel("relu", w_std=1.0, b_std=1.0).off_diagonal  # σ_b² / (1 − σ_w²/2)²
    4.0
    """
    w, b = squares(w_std, b_std)
    q1 = w + b if variance is None else float(variance)
    if residual != "none":
        a = _relu_slope(activation, w, b)
        if residual == "fixed":
            top, name = q1 * a / (1 + a), "(1 + a)^(L−1) L"
        else:
            top, name = q1 * a / math.gamma(2 + a), "L^a log L"
        words = f"K/({name}) with a = σ_w² E φ'² = {a:g}: {top:g} on the diagonal, a quarter of it off the diagonal."
        return LimitingKernel(top, top / 4, name, words)
    found = phase(activation, w_std, b_std, start=q1)
    goes = found.q == 0 or math.isinf(found.q)
    linear = as_piecewise_linear(activation_function(activation))
    if linear is not None and linear.negative == linear.positive and (goes or found.name == "critical"):
        raise AbsentError(f"{called(activation)} is linear: its kernels do not lose angles, and have no trivial limit.")
    if goes:
        if math.isinf(found.curvature) and found.chi > 0:
            edge = "take w_std = edge_of_chaos(activation, 0) with b_std = 0, or " if linear is not None else ""
            raise AbsentError(
                f"The variance goes to {found.q:g}: up to the factor (σ_w² E φ'²)^L this is the critical kernel: {edge}divide by "
                f"(σ_w² E φ'²)^(L−1) = {found.chi:g}^(L−1) first."
            )
        raise AbsentError(f"The variance goes to 0 at w_std {w_std:g}, b_std {b_std:g}, and every kernel with it.")
    if found.name == "critical":
        share, part = (1 / 4, "a quarter") if math.isinf(found.curvature) else (1 / 3, "a third")
        words = f"K/L: q* = {found.q:g} on the diagonal and {part} of it off the diagonal."
        return LimitingKernel(found.q, share * found.q, "L", words)
    if found.name == "ordered":
        value = found.q / (1 - found.chi)
        return LimitingKernel(
            value, value, "1", f"K: {value:g} = q*/(1 − χ) everywhere, a constant function, singular for regression."
        )
    value = found.q * found.c / (1 - found.slope)
    words = (
        f"K: {value:g} = q* c*/(1 − f'(c*)) off the diagonal, which itself grows as χ^L, χ = {found.chi:g}: a delta."
    )
    return LimitingKernel(math.inf, value, "1", words)


@checks.arguments(**NETWORK, residual=RESIDUAL, variance=checks.number(positive=True))
def convergence_rate(
    activation: Any = "relu",
    w_std: float = math.sqrt(2),
    b_std: float = 0.0,
    residual: str = "none",
    variance: float | None = None,
) -> ConvergenceRate:
    """How fast the tangent kernel off the diagonal comes to `limiting_kernel`.

    Critical, with K/(L q*) − λ:  + 3/8 log L/L for relu (and all kinks), (1 − κ²ζ)/3 log L/L for smooth φ, κ = 2/f''(1),
    ζ = f'''(1)/6. They follow from f'(c^l) = 1 − 3/l + (9/2) log l/l² (kinks, where f(c) = c + s (1 − c)^(3/2) + …
    with s = (p − n)² / (p² + n²) · 2√2/(3π) of slopes n and p; the 9/2 whatever s) and
    1 − 2/l + 2(1 − κ²ζ) log l/l² (smooth) in K^l = f' K^(l−1) + 1. For smooth φ the coefficient is negative where κ²ζ > 1 (tanh):
    K/(Lq) crosses its limit and returns from below, so that a log-log fit over moderate depths is meaningless.
    Ordered: L χ^L; for relu χ^(L/2), since f' is only Hölder-1/2 at c = 1 (the paper's one exponent holds for its diagonal).
    Chaotic: L f'(c*)^L.

    >>> from limits.depth import edge_of_chaos
    >>> rate = convergence_rate("tanh", edge_of_chaos("tanh", 0.5), 0.5)
    >>> round(rate.coefficient / limiting_kernel("tanh", edge_of_chaos("tanh", 0.5), 0.5).diagonal, 3)
    -0.748
    """
    limit = limiting_kernel(activation, w_std, b_std, residual, variance)
    if residual == "fixed":
        value = 3 / 8 * limit.diagonal
        return ConvergenceRate(
            1.0, -1.0, 1.0, value, f"log L/L with coefficient 3/8 of the diagonal's limit, {value:g}."
        )
    if residual == "decreasing":
        return ConvergenceRate(1.0, 0.0, -1.0, None, "1/log L: a quarter is invisible at any depth that can be run.")
    found = phase(activation, w_std, b_std, start=sum(squares(w_std, b_std)) if variance is None else variance)
    if found.name == "critical":
        kink = math.isinf(found.curvature)
        share = 3 / 8 if kink else (1 - (2 / found.curvature) ** 2 * found.third / 6) / 3
        words = f"K/L − limit ≈ {share:g} q* log L/L, {'3/8' if kink else '(1 − κ²ζ)/3'}."
        return ConvergenceRate(1.0, -1.0, 1.0, share * found.q, words)
    if found.name == "ordered":
        if math.isinf(found.curvature):
            factor = math.sqrt(found.chi)
            return ConvergenceRate(factor, 0.0, 0.0, None, f"χ^(L/2) = {factor:g}^L off the diagonal, χ^L on it.")
        return ConvergenceRate(found.chi, 1.0, 0.0, None, f"L χ^L, χ = {found.chi:g}, everywhere.")
    return ConvergenceRate(
        found.slope, 1.0, 0.0, None, f"L f'(c*)^L, f'(c*) = {found.slope:g}; the diagonal grows as {found.chi:g}^L."
    )
