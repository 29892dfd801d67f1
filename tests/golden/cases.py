"""What is compared with neural-tangents: NumPy only, so that both environments can import it.

Inputs are formulas, not random draws: one seed gives other numbers on other versions of jax.
"""

import itertools

import numpy as np

ACTIVATIONS = ("linear", "relu", "leaky_relu", "erf", "gelu", "sin", "quadratic")
SHAPES = ((1, 1.0, 0.0), (3, 1.4, 0.3), (10, 1.2, 0.1))  # depth, w_std, b_std
PREDICTION_TIMES = (0.0, 0.5, 7.0, 300.0)
PREDICTION_RATE = 0.3
DIAG_REG = 1e-2


def inputs(n: int, d: int, phase: float) -> np.ndarray:
    """n points of R^d with different norms."""
    i, j = np.arange(n)[:, None], np.arange(d)[None, :]
    return np.sin(1.7 * i * (j + 1) + phase) + 0.3 * np.cos(0.9 * i + j * j)


X1, X2 = inputs(6, 5, 0.0), inputs(4, 5, 1.0)
X_TRAIN, X_TEST = inputs(8, 5, 2.0), inputs(5, 5, 3.0)
Y1 = np.cos(1.3 * np.arange(8.0))[:, None]
Y3 = np.cos(np.arange(8.0)[:, None] * np.array([1.0, 2.0, 3.0]) + np.array([0.0, 0.5, 1.0]))
LABELS3 = np.eye(3)[np.arange(8) % 3]


def kernel_cases() -> list[tuple[str, str, int, float, float]]:
    """(key, activation, depth, w_std, b_std)."""
    return [
        (f"{name}_{depth}_{w}_{b}", name, depth, w, b)
        for name, (depth, w, b) in itertools.product(ACTIVATIONS, SHAPES)
        if not (name == "quadratic" and depth == 10)  # its signal overflows
    ]
