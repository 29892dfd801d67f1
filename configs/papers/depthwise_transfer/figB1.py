"""Figure B.1: at the best learning rate and a fixed number of parameters, a depth in between is best.

small: TIME minutes, handwritten digits. paper: CIFAR-10, up to a billion parameters, 20 epochs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from configs.papers.depthwise_transfer.shared import batches as batches
from configs.papers.depthwise_transfer.shared import conv_resnet, octaves, settings
from configs.papers.depthwise_transfer.shared import loss as loss
from train.evaluate.claim import Claim
from zoo import scaled


def get_config(size="small"):
    small = {
        "widths": (8, 16, 32), "depths": (3, 6, 12, 24), "grid": "product", "values": octaves(-5, -2), "seeds": 3,
        "steps": 100, "base": (16, 1),
    }  # fmt: skip
    paper = {
        "dataset": "cifar10", "widths": (128, 256, 512, 1024, 2048), "depths": (6, 9, 12, 18, 30), "grid": "product",
        "values": (0.046,), "seeds": 1, "steps": 15640, "base": (64, 1),
    }  # fmt: skip
    return settings("figB1", size, small, paper)


def make(width, depth, dataset, base):
    return conv_resnet(width, depth, dataset, base, 0.5)


def optimizer(net, learning_rate):
    return scaled(optax.sgd(learning_rate), net)


def parameters(width, depth, dataset="digits"):
    """How many a network has."""
    x = jax.ShapeDtypeStruct((1, 8, 8, 1) if dataset == "digits" else (1, 32, 32, 3), jnp.float32)
    net = conv_resnet(width, depth, dataset, (16, 1), 0.5)
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(net.init, jax.random.key(0), x)))


def claims(outcome):
    (sizes,) = outcome.sweeps.values()
    dataset = "digits" if min(width for width, _ in sizes) < 64 else "cifar10"
    points = sorted((parameters(w, d, dataset), s.losses.mean(1).min(), w, d) for (w, d), s in sizes.items())
    front = [p for i, p in enumerate(points) if all(p[1] < q[1] for q in points[:i])]
    depths = sorted({d for _, d in sizes})
    at = {d: [(n, l) for n, l, _, depth in points if depth == d] for d in depths}
    common = np.exp(np.mean([np.log(n) for n, *_ in points]))  # in the middle of all
    loss_there = {d: float(np.exp(np.interp(np.log(common), *np.log(np.array(pairs)).T))) for d, pairs in at.items()}
    best = min(loss_there, key=loss_there.__getitem__)
    words = ", ".join(f"L = {d}: {value:.4g}" for d, value in loss_there.items())
    return [
        Claim(
            "At a fixed number of parameters a depth in between is best",
            best not in (depths[0], depths[-1]),
            f"loss at {common:.3g} parameters: {words}",
        ),
        Claim(
            "Depths in between are on the front of loss against parameters",
            any(depths[0] < d < depths[-1] for *_, d in front),
            "front: " + "; ".join(f"{n} parameters, width {w}, L = {d}: {l:.4g}" for n, l, w, d in front),
        ),
    ]
