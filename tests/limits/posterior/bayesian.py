"""References for the posterior of kernels that use none of its theory, in NumPy."""

import numpy as np
from scipy.special import erf

from limits.depth.phases import fixed_variance


def clusters(samples: int, seed: int, dim: int = 100, variance: float = 0.4):
    """XOR: Gaussians about ±√D e₁ (y = +1) and ±√D e₂ (y = −1)."""
    random = np.random.default_rng(seed)
    means = np.zeros((4, dim))
    means[[0, 1, 2, 3], [0, 0, 1, 1]] = dim**0.5 * np.array([1, -1, 1, -1])
    which = np.repeat(np.arange(4), samples // 4)
    return means[which] + variance**0.5 * random.normal(size=(samples, dim)), np.where(which < 2, 1.0, -1.0)[:, None]


def at_fixed_point(x: np.ndarray, w: float, b: float) -> np.ndarray:
    """C^(0) of erf networks with variances w, b, scaled so that its mean diagonal is the fixed point of the variance."""
    overlap = x @ x.T / x.shape[1]
    return (fixed_variance("erf", w**0.5, b**0.5) - b) / np.diagonal(overlap).mean() * overlap + b


def elliptical_slice(k0, w, b, layers, y, noise, width, steps, chains):
    """C^(1) … C^(L), [chains, steps, L, P, P]: the exact posterior of erf networks, by elliptical slice sampling.

    The state are whitened pre-activations Z^(0) … Z^(L−1) with prior N(0, 1); weights are integrated out.
    """
    random, samples = np.random.default_rng(0), len(k0)
    first, tiny = np.linalg.cholesky(k0), 1e-12 * np.eye(samples)

    def kernels(z):
        found, h = [], z[:, 0] @ first.T
        for l in range(layers):
            a = erf(h)
            found.append(w / width * a.swapaxes(1, 2) @ a + b)
            if l < layers - 1:
                h = z[:, l + 1] @ np.linalg.cholesky(found[-1] + tiny).swapaxes(1, 2)
        root = np.linalg.cholesky(found[-1] + noise * np.eye(samples))
        v = np.linalg.solve(root, np.broadcast_to(y, (len(z), *y.shape)))
        volume = y.shape[1] * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
        return -0.5 * (v * v).sum((1, 2)) - volume, np.stack(found, 1)

    z = random.normal(size=(chains, layers, width, samples))
    likelihood, found = kernels(z)
    path = []
    for _ in range(steps):
        away, level = random.normal(size=z.shape), likelihood + np.log(random.uniform(size=chains))
        angle = random.uniform(0, 2 * np.pi, chains)
        low, high = angle - 2 * np.pi, angle
        left = np.ones(chains, bool)  # chains that look for their next point
        while left.any():
            turned = angle[left, None, None, None]
            new = z[left] * np.cos(turned) + away[left] * np.sin(turned)
            value, inside = kernels(new)
            taken = value > level[left]
            which = np.flatnonzero(left)[taken]
            z[which], likelihood[which], found[which] = new[taken], value[taken], inside[taken]
            left[which] = False
            low, high = np.where(angle < 0, angle, low), np.where(angle < 0, high, angle)
            angle = random.uniform(low, high)
        path.append(found.copy())
    return np.stack(path, 1)


def printed_backward(force, own, across, w):
    """The backward equation with the term c = a of its sum over c alone."""
    del across
    return w * force * own


def closer(chains, better, worse):
    """By how many standard errors `better` is closer to the mean over chains than `worse`, layer by layer.

    |worse − m|² − |better − m|² is linear in the mean m, so that the chains' spread gives its error. [chains, L, P, P].
    """
    gap = [
        [np.sum((w - c) ** 2) - np.sum((b - c) ** 2) for b, w, c in zip(better, worse, chain, strict=True)]
        for chain in chains
    ]
    return np.mean(gap, axis=0) / (np.std(gap, axis=0, ddof=1) / len(chains) ** 0.5)
