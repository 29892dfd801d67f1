"""Networks of finite width before they see data: kernels drawn from their exact law, how these respond, and the evidence."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import scipy

from limits import predict
from limits.depth.finite_width import finite_kernels
from limits.posterior.averages import pair_averages
from limits.posterior.equations import Stack, columns, prior_kernels, stack_of
from zoo import checks

if TYPE_CHECKING:
    import scipy.special

_PART = 500  # networks at a time


@checks.arguments(stack=stack_of, width=checks.count(), members=checks.count(), seed=checks.seed)
def draw_kernels(stack: Stack, width: int, members: int, seed: int = 0) -> np.ndarray:
    """C^(0) … C^(L) of `members` networks of this width, [members, L + 1, n, n], from their exact law.

    C^(l) = (w_l/N) Σ_j φ(h_j)φ(h_j)ᵀ + b_l with N independent h_j ~ N(0, C^(l−1)): no weights are drawn.

    >>> draw_kernels(Stack(np.eye(2), [1.2, 0.6], [0.05, 0.05]), width=50, members=3).shape
    (3, 3, 2, 2)
    """
    w, b = stack.weights, stack.biases
    if len(set(w[:-1])) > 1 or len(set(b[:-1])) > 1:
        raise ValueError(f"draw_kernels: hidden layers of one variance are needed; got weights {w} and biases {b}.")
    drawn = finite_kernels(
        stack.k0, stack.depth, width, members, None, w[0] ** 0.5, b[0] ** 0.5, stack.activation, seed
    )
    drawn[:, -1] = w[-1] / w[0] * (drawn[:, -1] - b[0]) + b[-1]  # the readout may have another scale
    return drawn


@checks.arguments(stack=stack_of)
def response_to_output(stack: Stack) -> np.ndarray:
    """χ^(l)_ab = Π_{s=l}^{L−1} w_(s+1) <φ_a'φ_b'> over N(0, C^(s)), [L + 1, n, n]: ∂C^(L)_ab / ∂C^(l)_ab, variances held.

    At infinite width C̃^(l)_ab = C̃^(L)_ab χ^(l)_ab for a ≠ b. Forward responses, with variances: `limits.depth.response`.

    >>> response_to_output(Stack(np.eye(2), [1.0, 0.5], [0.0, 0.0], "linear"))[:, 0, 1].round(12).tolist()
    [0.5, 0.5, 1.0]
    """
    found = [np.ones_like(stack.k0)]
    for c, w in zip(prior_kernels(stack)[-2::-1], stack.weights[::-1], strict=True):
        found.append(w * pair_averages(stack.activation, c)[1] * found[-1])
    return np.array(found[::-1])


@dataclasses.dataclass(frozen=True)
class Evidence:
    """log p(Y), its standard error, and of how many equal draws the average is worth."""

    value: float
    sem: float
    effective: float


@checks.arguments(
    stack=stack_of,
    y=checks.array(None) | checks.array(None, None),
    noise=checks.number(0),
    width=checks.count(),
    members=checks.count(2),
    seed=checks.seed,
)
def log_evidence(stack: Stack, y: np.ndarray, noise: float, width: int, members: int = 4000, seed: int = 0) -> Evidence:
    """log p(Y) at finite width, log <N(Y | 0, C^(L) + noise)> over kernels drawn from the prior.

    An error where the average is worth fewer than 50 draws: the data select networks that the prior hardly ever draws.

    >>> stack = Stack(np.eye(2), [1.0], [0.0], "linear")
    >>> found = log_evidence(stack, np.ones((2, 1)), 1.0, width=1000, members=200)
    >>> round(found.value, 1), float(round(-np.log(4 * np.pi) - 0.5, 1))  # and at infinite width
    (-3.0, -3.0)
    """
    logs, y, no_tests = [], columns(y), (np.zeros((0, len(y))), np.zeros((0, 0)))
    if len(y) != len(stack.k0):
        raise ValueError(f"log_evidence: y has {len(y)} rows, and the stack's k0 is of {len(stack.k0)} points.")
    for part, first in enumerate(range(0, members, _PART)):
        drawn = draw_kernels(stack, width, min(_PART, members - first), seed + 7919 * part)
        logs += [predict.posterior(c[-1], y, *no_tests, noise).log_marginal_likelihood for c in drawn]
    total = scipy.special.logsumexp(logs)
    weights = np.exp(np.asarray(logs) - total)
    effective = float(1 / np.sum(weights**2))
    if effective < 50:
        raise ValueError(
            f"log_evidence: {members} networks of width {width} from the prior are worth {effective:.1f}; at least 50 are "
            "needed. Take more `members`, a larger width or noise, or fewer training points."
        )
    return Evidence(float(total - np.log(members)), float(np.sqrt(max(1 / effective - 1 / members, 0))), effective)
