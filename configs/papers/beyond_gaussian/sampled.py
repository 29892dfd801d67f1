"""What figures 3.4 and 3.5 share: kernels of posterior networks, by theory and by chains, and their alignment with labels.

Divergence: the paper samples weights by Langevin dynamics without accept step; here the weights are integrated out and the
whitened layers are moved by gradients with an accept step (train.posterior, method "hamiltonian"): the same posterior, exactly.
"""

import warnings

import numpy as np
from rich.progress import track

from configs.papers.beyond_gaussian.posteriors import BIAS, NOISE
from limits import Task, twin
from limits.depth import phase
from limits.posterior import DivergenceError
from train.analysis.alignment import cka
from train.posterior import NotConvergedWarning, sample_posterior
from train.posterior.chains import standard_error
from train.study.figure import Finding, exact
from zoo import MLP

CHAINS = {"noise": NOISE, "chains": 4, "steps": 400, "warmup": 100}  # settings of both
NAMES = {"theory": "theory", "chains": "networks (chains)", "nngp": "NNGP"}
ARMS = {"theory": ("#0072b2", "-"), "chains": ("#d55e00", "o"), "nngp": ("#009e73", "--")}


def at_fixed_point(task, w2):
    """The training points, scaled so that the mean variance in C^(0) is q*: in place of a σ_w of the first layer's own."""
    x = task.x_train.reshape(len(task.x_train), -1)
    return Task(
        x * ((phase("erf", w2**0.5, BIAS**0.5).q - BIAS) / w2 / (x**2).mean()) ** 0.5, task.y_train, name=task.name
    )


def alignments(task, w2, width, depth, config, key):
    """CKA of C^(L) with the labels: {theory, chains, chains_sem, nngp, converged}; NaN for a theory that diverges."""
    net = MLP(width, depth, activation="erf", w_std=w2**0.5, b_std=BIAS**0.5)
    task = at_fixed_point(task, w2)
    labels = task.y_train @ task.y_train.T
    found = {"nngp": float(cka(twin(net).posterior(task, config.noise).kernels[-1], labels)), "theory": np.nan}
    try:
        theory = twin(net).posterior(task, config.noise, width=width, errors=False)
        found["theory"] = float(cka(theory.kernels[-1], labels))
    except DivergenceError:
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # `converged` is one of the claims
        chains = {"chains": config.chains, "steps": config.steps, "warmup": config.warmup, "thin": 2, "key": key}
        sampled = sample_posterior(net, task, config.noise, "hamiltonian", **chains)
    c = sampled.kernels[-1]
    draws = sampled.diagnostics["draws"]["kernels"][-1].reshape(config.chains, -1, *c.shape)
    found["chains"], step = float(cka(c, labels)), 1e-3
    slopes = (cka(c + step * (draws - c), labels) - cka(c - step * (draws - c), labels)) / (2 * step)
    found["chains_sem"] = float(standard_error(slopes))
    return found | {"converged": float(sampled.diagnostics["converged"])}


def sweep(cells, task_of, depth, config, screen):
    """`alignments` of cells (w², N, P) on every data set: {name: [cells, data sets]}."""
    todo = [(i, s) for i in range(len(cells)) for s in range(config.datasets)]
    table = {}
    for i, s in track(todo, f"{len(cells)} settings × {config.datasets} data sets", console=screen):
        w2, width, points = cells[i]
        seed = config.seed + s
        for name, value in alignments(task_of(points, seed), w2, width, depth, config, seed).items():
            table.setdefault(name, np.full((len(cells), config.datasets), np.nan))[i, s] = value
    return table


def draw(axis, x, arm, values, errors):
    """Over the data sets that were solved: mean, and two standard errors of it, from the spread and the errors of each."""
    kept = np.isfinite(values)
    count = np.maximum(kept.sum(-1), 1)
    mean = np.where(kept.any(-1), np.nansum(np.where(kept, values, 0.0), -1) / count, np.nan)
    spread = np.nansum(np.where(kept, values - mean[..., None], 0.0) ** 2, -1) / np.maximum(count - 1, 1) / count
    bars = 2 * np.sqrt(np.maximum(spread, np.nansum(errors**2, -1) / count**2))
    colour, style = ARMS[arm]
    axis.errorbar(x, mean, bars, fmt=style, ms=4, capsize=2, color=colour, label=NAMES[arm])


def convergence(converged):
    """Whether all chains have converged, as a claim."""
    return Finding(
        "All chains have converged (R̂ at most 1.05, 100 effective draws)",
        exact(converged).near(1, 0.5),
        f"{np.sum(converged == 1)} of {converged.size} points of the figure",
    )
