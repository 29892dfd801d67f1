"""Overlaps of a network's mean activations, and the depth over which they settle."""

from typing import Any

import numpy as np

from limits.cumulants.cumulants import Mixture, layers_of
from limits.depth.phases import Phase, correlation_map, phase
from zoo import activation_function, checks


@checks.arguments(layers=layers_of)
def overlaps(layers: list[tuple[Mixture, Mixture]]) -> np.ndarray:
    """O^(l) = Σ_k p_k |μ_y^(l)|²/N for the hidden layers of `propagate`: the overlap <y(x)·y(x')>/N of two independent inputs.

    (Of one component. With several, inputs of the same one.)

    Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, eq. A.67.
    """
    return np.array([np.asarray(y.probability) @ (y.cumulants.mean**2).mean(-1) for _, y in layers[:-1]])


@checks.arguments(activation=checks.activation, start=checks.number(0))
def overlap_phase(activation: Any, w_std: float, b_std: float, start: float = 1.0) -> Phase:
    """Fixed points of signals of wide random networks; `.q` is A_0, and `.depth_scale` is ξ = −1/ln(σ_w² <φ'φ'>).

    >>> from zoo.activations import Quadratic
    >>> found = overlap_phase(Quadratic(0.1), 0.76, 0.76)
    >>> round(found.q, 3), round(found.depth_scale, 2)
    (1.454, 2.03)
    """
    return phase(activation, w_std, b_std, start)


@checks.arguments(activation=checks.activation, depth=checks.count(0, 10**6), start=checks.number(0))
def expected_overlaps(activation: Any, w_std: float, b_std: float, depth: int, start: float = 1.0) -> np.ndarray:
    """O^(l), l = 1 … depth, of infinitely wide random networks, for independent inputs of mean zero and variance A_0 a feature.

        C^(1) = σ_b²,   O^(l) = <φφ'>_{A_0, C^(l)},   C^(l+1) = σ_w² O^(l) + σ_b²

    >>> from zoo.activations import Quadratic
    >>> expected_overlaps(Quadratic(0.1), 0.76, 0.76, depth=2).round(2).tolist()
    [0.61, 0.97]
    """
    phi, q = activation_function(activation), overlap_phase(activation, w_std, b_std, start).q
    if not 0 < q < np.inf:
        raise ValueError(
            f"expected_overlaps: with w_std = {w_std:g} and b_std = {b_std:g} the variance of signals goes to {q:g} in depth, "
            "so that there is no A_0 to start from; take another w_std or b_std."
        )
    ahead, gap, found = correlation_map(phi, w_std, b_std, q), 1 - b_std**2 / q, []
    for _ in range(depth):
        gap = float(np.ravel(ahead(gap)[0])[0])
        found.append((q * (1 - gap) - b_std**2) / w_std**2)
    return np.array(found)
