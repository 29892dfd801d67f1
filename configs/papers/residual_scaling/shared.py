"""What the figures of this paper share: networks with weights that the theory is compared with, data, axes.

Divergence: responses are those to the input kernel, η^(0) = 1; the paper divides all of them by the number of inputs D.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.ticker import MaxNLocator
from rich.progress import track

from limits.depth import response
from train.data import image_batches
from train.study.figure import Finding, mean
from zoo import MLP, ResNet

W_STD, B_STD, INPUTS = 1.2**0.5, 0.2**0.5, 100  # figures 4.2, 4.3, C.1
SMALL = {"w_std": 1.25**0.5, "b_std": 0.05**0.5}  # figures 4.4 to 4.6
DIGITS, IMAGES = (("digits", 0, 3), ("digits", 1, 7)), (("mnist", 0, 3), ("cifar10", 5, 0))  # tasks: (data, classes)
K0 = np.array([[0.05, 0.03], [0.03, 0.05]])  # figure 4.4
DIAGONAL, COVARIANCE = "variances", "covariances"
ELEMENTS = {DIAGONAL: (0, 0), COVARIANCE: (0, 1)}
AT_ONCE = 20  # networks


def network(width, depth, rho):
    """With weights; rho=None: without skip connections."""
    common = {"activation": "erf", "w_std": W_STD, "b_std": B_STD, "parameterization": "standard"}
    return MLP(width, depth, **common) if rho is None else ResNet(width, depth, residual="fixed", beta=rho, **common)


def theory(depth, rho):
    """Kernels and responses of two orthogonal inputs with |x|² = D."""
    k0 = np.array([[W_STD**2 + B_STD**2, B_STD**2], [B_STD**2, W_STD**2 + B_STD**2]])
    return response(k0, depth, rho, W_STD, B_STD)


def orthogonal_pairs(count, seed):
    """[2, count, D]: inputs with |x|² = D, those of a pair orthogonal."""
    first, second = np.random.default_rng(seed).normal(size=(2, count, INPUTS))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second -= (first * second).sum(1, keepdims=True) * first
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    return INPUTS**0.5 * np.stack([first, second])


def simulated(config, depth, rho, screen):
    """Of every network, means over pairs of inputs of C^(l) and η^(l), l = 1 … L: {name: [networks, L]}.

    η is the derivative of C along a change of the input, over that of K^(0): for variances x is made longer, ẋ = x, so that
    dK^(0) = 2 σ_w² and dC = 2 ρ² σ_w² <φφ̇>; for covariances the second input is turned towards the first.
    """
    net, (a, b) = network(config.width, depth, rho), orthogonal_pairs(config.pairs, config.seed)
    scale = 1.0 if rho is None else rho**2
    inputs = jnp.asarray(np.concatenate([a, b, b]), "float32")
    tangents = jnp.asarray(np.concatenate([a, 0 * b, a]), "float32")  # longer; as it is; turned

    @jax.jit
    @jax.vmap
    def one(key):
        variables = net.init(key, inputs[:1])

        def features(x):
            inside: Any = net.apply(variables, x, intermediates=True)[1]
            return jnp.stack(inside["phi"][:depth])

        phi, change = jax.jvp(features, (inputs,), (tangents,))
        (pa, pb, _), (da, _, db) = (jnp.split(each, 3, axis=1) for each in (phi, change))
        means = [(pa * pa).mean((1, 2)), (pa * pb).mean((1, 2)), (pa * da).mean((1, 2)), (pa * db).mean((1, 2))]
        return jnp.stack(means)

    keys = jax.random.split(jax.random.key(config.seed), config.networks)
    parts = range(0, config.networks, AT_ONCE)
    words = "without skips" if rho is None else f"ρ = {rho}"
    found = np.concatenate([np.asarray(one(keys[i : i + AT_ONCE])) for i in track(parts, words, console=screen)])
    c, slopes = scale * (W_STD**2 * found[:, :2].astype(np.float64) + B_STD**2), scale * found[:, 2:].astype(np.float64)
    return {
        f"c {DIAGONAL}": c[:, 0], f"c {COVARIANCE}": c[:, 1], f"eta {DIAGONAL}": slopes[:, 0], f"eta {COVARIANCE}": slopes[:, 1],
    }  # fmt: skip


def at_theory(words, measured, expected):
    """Whether every layer's mean over networks is the theory's, to 2 % of the largest of all layers."""
    off = mean((measured - expected) / abs(expected).max())
    figures = f"at most {off.at(int(abs(off.value).argmax())):.2%} off"
    return Finding(f"{words}: networks are at the theory, within 2 % of the largest", off.near(0, 0.02), figures)


def rates(eta):
    """−d ln η / dl between layers, of the mean over networks; not a number where that is not positive."""
    middle = eta.mean(0)
    return -np.diff(np.log(np.where(middle > 0, middle, np.nan)))


def points(axis, layers, each, bars, **style):
    """Means over networks; on logarithmic axes those within two standard errors of zero are left out."""
    mean, error = each.mean(0), each.std(0, ddof=1) / len(each) ** 0.5
    seen = mean > 2 * error if axis.get_yscale() == "log" else np.full(len(mean), True)
    axis.errorbar(layers[seen], mean[seen], bars[seen], ms=3.5, capsize=2, lw=0.8, **style)


def samples(dataset, classes, count, seed):
    """`count` inputs [count, D], half of them of each of two classes, sorted by class."""
    kept = {each: {} for each in classes}  # images by their bytes: after an epoch they come again
    for images, labels in image_batches(dataset, 100, 200, seed):
        for image, label in zip(images, labels.argmax(1), strict=True):
            if label in kept and len(kept[label]) < count // 2:
                kept[label][image.tobytes()] = image.ravel()
        if all(len(each) == count // 2 for each in kept.values()):
            return np.concatenate([np.array(list(each.values()), np.float64) for each in kept.values()])
    raise ValueError(f"{dataset} has fewer than {count // 2} images of class {' or '.join(map(str, classes))}.")


def overlaps(x, variance=0.05):
    """Input kernel of inputs scaled to one length: `variance` on the diagonal."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return variance * unit @ unit.T


def elements(best):
    """(variances, covariances) of a matrix [P, P]."""
    return np.diagonal(best), best[np.triu_indices(len(best), 1)]


def inner(values):
    """Those with an inner optimum."""
    return values[(values > 0) & np.isfinite(values)]


def matrix(axis, values, title, figure, label, **options):
    """A heat map with its scale; what is not a number stays grey."""
    axis.set_facecolor("0.85")
    shown = axis.imshow(values, **options)
    axis.set(title=title)
    axis.grid(visible=False)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure.colorbar(shown, ax=axis, shrink=0.8, label=label)
