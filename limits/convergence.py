"""How fast networks of growing depth come to their infinite-depth twin."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from limits.twin import twin
from zoo import checks

if TYPE_CHECKING:
    import scipy.stats


@dataclasses.dataclass(frozen=True)
class Convergence:
    """|K_L − K_∞| / |K_∞| (Frobenius) at depths L, and e of L^(−e) with its 95 % interval, from a line in logarithms."""

    quantity: str
    depths: tuple[int, ...]
    differences: tuple[float, ...]
    exponent: float
    low: float
    high: float

    @classmethod
    def of(cls, quantity: str, depths: Sequence[int], kernels: Sequence[Any], limit: Any) -> "Convergence":
        """From the kernels at these depths, and their limit.

        >>> fit = Convergence.of("ntk", [8, 16, 32], [1 + 1 / 8, 1 + 1 / 16, 1 + 1 / 32], 1.0)
        >>> print(fit.sentence)
        ntk converges to the infinite-depth twin as L^(−e), e = 1.000 [1.000, 1.000], L = 8 … 32
        """
        if len(depths) < 3 or min(depths) < 1:
            raise ValueError(f"a rate takes at least three depths, got {list(depths)}.")
        size = float(np.linalg.norm(np.asarray(limit)))
        away = [float(np.linalg.norm(np.asarray(k) - limit)) / size for k in kernels]
        if min(away) == 0:
            raise ValueError(
                f"the {quantity} of depth {depths[away.index(0)]} is its limit: there is no rate to measure."
            )
        line: Any = scipy.stats.linregress(np.log(depths), np.log(away))
        half = float(scipy.stats.t.ppf(0.975, len(depths) - 2) * line.stderr)
        return cls(quantity, tuple(depths), tuple(away), -line.slope, -line.slope - half, -line.slope + half)

    @property
    def sentence(self) -> str:
        """The rate in words."""
        interval = f"[{self.low:.3f}, {self.high:.3f}]"
        what = "converges to the infinite-depth twin as L^(−e), e ="
        if not math.isfinite(self.exponent) or self.low <= 0:
            what = "is not seen to converge to the infinite-depth twin: |difference| ~ L^(−e), e ="
        return f"{self.quantity} {what} {self.exponent:.3f} {interval}, L = {self.depths[0]} … {self.depths[-1]}"


@checks.arguments(
    net=checks.module,
    x=checks.array(least=2),
    depths=checks.several(checks.count(), distinct=True),
    quantity=checks.choice("nngp", "ntk"),
)
def convergence(net: Any, x: Any, depths: Sequence[int] = (32, 64, 128, 256), quantity: str = "ntk") -> Convergence:
    """The rate at which the twins of this definition with other `depths` come to that of infinite depth, on inputs x.

    `quantity` is "ntk" or "nngp". The rate is 1 for α = 1/2 and α = 1 (the step of Euler's method for the layer-time equations),
    2α − 1 between them, from what the branches still do to signals at depth L. Shallow depths bend the line: the
    interval is that of the fit, not of what a straight line leaves out.

    Reference: Bordelon et al. (2023), Depthwise hyperparameter transfer in residual networks, equation 57.
    """
    if quantity not in ("ntk", "nngp"):
        raise ValueError(f'convergence: quantity is "ntk" or "nngp", got "{quantity}".')
    limit = getattr(twin(net, depth=math.inf).kernels(x), quantity)
    each = [getattr(twin(net.clone(depth=depth)).kernels(x), quantity) for depth in depths]
    return Convergence.of(quantity, depths, each, limit)
