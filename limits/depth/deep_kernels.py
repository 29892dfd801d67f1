"""The result of a recursion over depth."""

import dataclasses
import math
from typing import Any

import numpy as np

from limits.types import Provenance


@dataclasses.dataclass(frozen=True, repr=False)
class DeepKernels:
    """Kernels of y^L at `depths` [t], each array [t, …]; numbers too large for a float are there as logarithms.

    gap: 1 − c^L. variance1, variance2 (`log_variance1`, `log_variance2`): of the two inputs. nngp: their covariance.
    ntk: the tangent kernel K^L, `log_ntk` = log |K^L| and `sign` beside it.
    """

    depths: np.ndarray
    gap: np.ndarray
    log_variance1: np.ndarray
    log_variance2: np.ndarray
    log_ntk: np.ndarray
    sign: np.ndarray
    mantissas: tuple[np.ndarray, ...]  # ntk, nngp
    powers: tuple[np.ndarray, ...]
    provenance: Provenance

    @classmethod
    def of(cls, carries: list[Any], provenance: Provenance) -> "DeepKernels":
        """From the recorded states of a recursion."""
        shape = carries[0].gap.shape
        stack = lambda name: np.stack([np.broadcast_to(getattr(c, name), shape) for c in carries])  # noqa: E731
        r1, r2, gap, k, power, height = (stack(name) for name in ("r1", "r2", "gap", "k", "power", "height"))
        with np.errstate(divide="ignore"):
            size, unit = np.log(np.abs(k)) + power * math.log(2), 2 * height * math.log(2)
            logs = (2 * np.log(r1) + unit, 2 * np.log(r2) + unit)
        covariance = r1 * r2 * (1 - gap)
        depths = np.array([int(c.l) for c in carries])
        return cls(depths, gap, *logs, size, np.sign(k), (k, covariance), (power, 2 * height), provenance)

    @property
    def c(self) -> np.ndarray:
        """The correlation c^L."""
        return 1 - self.gap

    @property
    def variance1(self) -> np.ndarray:
        """Of the first input."""
        return np.exp(self.log_variance1)

    @property
    def variance2(self) -> np.ndarray:
        """Of the second input."""
        return np.exp(self.log_variance2)

    @property
    def ntk(self) -> np.ndarray:
        """K^L."""
        return self._whole(0, "ntk")

    @property
    def nngp(self) -> np.ndarray:
        """q^L(x, x')."""
        return self._whole(1, "nngp")

    def _whole(self, which: int, name: str) -> np.ndarray:
        mantissa, power = self.mantissas[which], self.powers[which]
        if np.any((power > 1023) & (mantissa != 0)):
            at = self.depths[np.argmax(np.any((power > 1023).reshape(len(power), -1), axis=1))]
            other = (
                "log_ntk, or normalised(…) for the kernel over its growth" if name == "ntk" else "log_variance1 and c"
            )
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

    def reshaped(self, shape: tuple[int, ...]) -> "DeepKernels":
        """The same numbers with pairs in this shape."""
        arrays = {
            field.name: getattr(self, field.name).reshape(-1, *shape)
            for field in dataclasses.fields(self)
            if field.name in ("gap", "log_variance1", "log_variance2", "log_ntk", "sign")
        }
        both = {name: tuple(a.reshape(-1, *shape) for a in getattr(self, name)) for name in ("mantissas", "powers")}
        return dataclasses.replace(self, **arrays, **both)

    def __repr__(self) -> str:
        return f"DeepKernels({len(self.depths)} depths to {self.depths.max()}, kernels {self.gap.shape[1:]})"
