"""What the figures of Bayesian networks share: tasks, layers at the fixed point of their variance, alignment, sweeps.

Divergences: the means of the XOR task are not printed; ±√D e₁ (y = +1) and ±√D e₂ (y = −1) are taken, so that overlaps x·x'/D
between clusters are of order 1. Numbers of alignment depend on that.
"""

import numpy as np

from limits.depth import phase
from limits.posterior import Draws, Stack, prior_kernels
from train.analysis.alignment import cka, label_kernel

BIAS, NOISE, VARIANCE, INPUTS = 0.05, 1e-3, 0.4, 100
SHADES = ("#08306b", "#2171b5", "#41b6c4", "#fd8d3c", "#b10026")


def clusters(samples, seed):
    """XOR: (x [P, D], y [P, 1]), sorted by cluster."""
    cluster = np.repeat(np.arange(4), samples // 4)
    x = VARIANCE**0.5 * np.random.default_rng(seed).normal(size=(len(cluster), INPUTS))
    x[np.arange(len(x)), cluster // 2] += np.where(cluster % 2 == 0, 1.0, -1.0) * INPUTS**0.5
    return x, np.where(cluster < 2, 1.0, -1.0)[:, None]


def layers(x, weight, depth, feature_scale=1.0):
    """erf layers; the inputs are scaled so that their mean variance is the fixed point, the readout's weight by 1/γ₀."""
    overlap = x @ x.T / x.shape[1]
    size = (phase("erf", weight**0.5, BIAS**0.5).q - BIAS) / np.diagonal(overlap).mean()
    weights = np.full(depth, weight)
    weights[-1] /= feature_scale
    return Stack(size * overlap + BIAS, weights, np.full(depth, BIAS), "erf")


def draws(config, samples):
    """The draws for averages over four samples, the same for all data sets."""
    return Draws("erf", np.random.default_rng(config.seed).normal(size=(config.draws, samples)))


def alignment(kernel, y):
    """Centred kernel alignment with Y Yᵀ."""
    return float(cka(kernel, label_kernel(y)))


def prior_alignment(stack, y):
    """That of the infinitely wide network's output kernel."""
    return alignment(prior_kernels(stack)[-1], y)


def away(kernel):
    """Mean |entry| off the diagonal."""
    return float(np.abs(kernel[~np.eye(len(kernel), dtype=bool)]).mean())


def banded(axis, x, each, **style):
    """Mean over data sets (the first axis) with bars of one standard deviation."""
    axis.errorbar(x, each.mean(0), each.std(0, ddof=1) if len(each) > 1 else None, capsize=2, ms=3.5, lw=1.2, **style)


def kernel_picture(axis, kernel, title, figure, shown, colours="viridis"):
    """A kernel as a heat map; `shown` are the limits of the colours."""
    picture = axis.imshow(kernel, vmin=shown[0], vmax=shown[1], cmap=colours)
    axis.set(title=title, xticks=[], yticks=[])
    axis.grid(visible=False)
    return figure.colorbar(picture, ax=axis, shrink=0.8)
