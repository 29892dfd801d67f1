"""One step of gradient descent in a deep linear residual network: what it does to features along the depth."""

from typing import Any

import numpy as np
from jaxtyping import Float

from zoo import checks


@checks.arguments(
    tau=checks.matrix,
    learning_rate=checks.number(),
    gamma=checks.number(positive=True),
    y=checks.number(),
    h0=checks.number(),
)
def one_step_profile(
    tau: Any, learning_rate: float, gamma: float = 1.0, y: float = 1.0, h0: float = 1.0
) -> Float[np.ndarray, "..."]:
    """H_1(τ) = <h²> at layer time τ after one step on one sample, |x|²/D = h0, target y, with only the branches trained:

        H_1(τ) = h0 e^τ + 2 c² y² h0² e^(1 + τ) (τ³/3 + τ²/2),   c = η₀ γ₀,   0 ≤ τ ≤ 1,

    the solution of dH_1/dτ = H_1 + 2 c² C G ∫₀^τ C with C = (1 + τ) e^τ y h0 and the gradient kernel before the step
    G = e^(1 − τ), for β = w_std = 1.

    >>> one_step_profile(1.0, learning_rate=0.5).round(3).item()
    5.797
    >>> one_step_profile([0.0, 1.0], learning_rate=0.25).round(3).tolist()
    [1.0, 3.488]

    Reference: Bordelon, Noci, Li, Hanin, Pehlevan (2023), Depthwise hyperparameter transfer in residual networks, equations 7
    and 99. Divergence: printed there is another profile, made with G = e^(−τ) + 1 − e^(−1), which does not solve the paper's
    own dG/dτ = −G; even with that G, integrating its equation 98 gives (1 − e^(−1)) where (1 + e^(−1)) is printed, and y²
    is dropped. Which is right was decided by finite networks, and by `one_step_recursion` at finite depth.
    """
    t, c = np.asarray(tau, np.float64), learning_rate * gamma
    if np.any((t < 0) | (t > 1)):
        raise ValueError(f"one_step_profile: layer time tau runs from 0 to 1, got {t.min():g} … {t.max():g}.")
    return np.asarray(h0 * np.exp(t) + 2 * (c * y * h0) ** 2 * np.exp(1 + t) * (t**3 / 3 + t**2 / 2))


@checks.arguments(
    depth=checks.count(most=10**7),
    learning_rate=checks.number(),
    gamma=checks.number(positive=True),
    y=checks.number(),
    h0=checks.number(),
)
def one_step_recursion(
    depth: int, learning_rate: float, gamma: float = 1.0, y: float = 1.0, h0: float = 1.0
) -> Float[np.ndarray, " depth"]:
    """<h²> of h¹ … h^L after the same step at finite depth, and infinite width:

        C^l = (1/L) Σ_{k<l} C^k + H^l y,   H^l = h0 (1 + 1/L)^(l − 1),   G^l = (1 + 1/L)^(L − l),
        H_1^(l+1) = (1 + 1/L) H_1^l + (c/L)² G^(l+1) C^l (2 Σ_{k<l} C^k + C^l)

    >>> one_step_recursion(4, learning_rate=0.0).round(4).tolist()
    [1.0, 1.25, 1.5625, 1.9531]
    """
    c, total, profile = learning_rate * gamma, 0.0, [h0]
    for l in range(1, depth):
        field = total / depth + h0 * (1 + 1 / depth) ** (l - 1) * y
        g = (1 + 1 / depth) ** (depth - l - 1)
        profile.append(profile[-1] * (1 + 1 / depth) + (c / depth) ** 2 * g * field * (2 * total + field))
        total += field
    return np.array(profile)
