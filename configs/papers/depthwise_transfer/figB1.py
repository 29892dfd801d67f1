"""Figure B.1: at the best learning rate and a fixed number of parameters, a depth in between is best.

small: 171 seconds on two cores with much other work, handwritten digits. paper: CIFAR-10, up to 3.4e8 parameters, 20 epochs.
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

TEXT = "At the best learning rate and a fixed number of parameters a depth in between is best"


def get_config(size="small"):
    small = {
        "widths": (8, 16, 32), "depths": (3, 6, 12, 24), "grid": "product", "values": octaves(-6, -1), "seeds": 3,
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


def parameters(width, depth, dataset):
    """How many a network has."""
    x = jax.ShapeDtypeStruct((1, 8, 8, 1) if dataset == "digits" else (1, 32, 32, 3), jnp.float32)
    net = conv_resnet(width, depth, dataset, (16, 1), 0.5)
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(net.init, jax.random.key(0), x)))


def claims(outcome, dataset):
    (sizes,) = outcome.sweeps.values()
    best = {size: sweep.optimum() for size, sweep in sizes.items()}
    count = {(width, depth): parameters(width, depth, dataset) for width, depth in sizes}
    depths = sorted({depth for _, depth in sizes})
    at = {d: sorted((count[size], best[size].loss) for size in sizes if size[1] == d) for d in depths}
    laws = {}
    for d, pairs in at.items():
        x, y = np.log(np.array(pairs)).T
        if len(x) > 1:
            laws[d] = np.polyfit(x, y, 1)
    if len(laws) < 3:
        return [Claim(TEXT, None, f"it takes at least two widths at each of three depths; there are {sorted(sizes)}")]
    shared = np.exp(np.mean(np.log(list(count.values()))))  # in the middle of all
    there = {d: float(np.exp(np.polyval(law, np.log(shared)))) for d, law in laws.items()}
    least = min(there, key=there.__getitem__)
    words = ", ".join(f"L = {d}: {value:.4g} (loss ~ parameters^{laws[d][0]:.2f})" for d, value in there.items())
    edge = any(each.edge for each in best.values())
    return [
        Claim(
            TEXT,
            None if edge else least not in (depths[0], depths[-1]),
            f"power laws at {shared:.3g} parameters: {words}"
            + ("; some optima lie at an end of the grid" if edge else ""),
        )
    ]
