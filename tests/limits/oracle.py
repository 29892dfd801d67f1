"""Numbers to compare with: neural-tangents' golden file, and Gaussian averages by plain quadrature."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special

_GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CASES: Any = runpy.run_path(str(_GOLDEN / "cases.py"))
FC: Any = np.load(_GOLDEN / "fc.npz", allow_pickle=False)


def relative(found, expected):
    """The largest error over the largest number."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    return np.abs(found - expected).max() / np.abs(expected).max()


def _bell(x):
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _leaky(slope):
    return lambda x: np.where(x > 0, x, slope * x), lambda x: np.where(x > 0, 1.0, slope)


# φ and φ', written with numpy and scipy.
FUNCTIONS = {
    "linear": _leaky(1.0),
    "relu": _leaky(0.0),
    "leaky_relu": _leaky(0.01),
    "abs": _leaky(-1.0),
    "erf": (scipy.special.erf, lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x)),
    "gelu": (lambda x: x * scipy.special.ndtr(x), lambda x: scipy.special.ndtr(x) + x * _bell(x)),
    "sin": (np.sin, np.cos),
    "quadratic": (lambda x: x + x * x / 2, lambda x: 1 + x),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(x)), lambda x: np.where(x > 0, 1.0, np.exp(x))),
    "silu": (
        lambda x: x * scipy.special.expit(x),
        lambda x: scipy.special.expit(x) * (1 + x * scipy.special.expit(-x)),
    ),
}


def average(f, r1, r2, c, g=None):
    """E f(u) g(v) of Gaussians with these standard deviations and correlation c (g = f unless given).

    In polar coordinates u = r1 ρ cos θ, v = r2 ρ cos(θ − arccos c), so that kinks at u = 0 and v = 0 lie on rays, where
    one panel of the Gauss-Legendre rule ends and the next begins. Nothing is special at c = ±1.
    """
    turn = np.arccos(c)
    kinks = np.array([0.5, 1.5]) * np.pi
    edges = np.sort(np.concatenate([[0, 2 * np.pi], kinks, (kinks + turn) % (2 * np.pi)]))
    t, w = np.polynomial.legendre.leggauss(40)
    halves = np.diff(edges)[:, None] / 2
    theta, w_theta = (edges[:-1, None] + halves * (1 + t)).ravel(), (halves * w).ravel()
    rho_edges = np.arange(10.0)[:, None]
    rho, w_rho = (rho_edges + 0.5 * (1 + t)).ravel(), np.tile(0.5 * w, 10)
    w_rho = w_rho * rho * np.exp(-rho * rho / 2) / (2 * np.pi)
    u, v = r1 * np.outer(rho, np.cos(theta)), r2 * np.outer(rho, np.cos(theta - turn))
    return w_rho @ (f(u) * (g or f)(v)) @ w_theta
