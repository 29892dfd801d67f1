"""Figure 4: the best momentum and the best γ₀ are the same at two depths, where branches are times 1/√L.

small: 63 seconds on two cores, busy with other work, handwritten digits.
paper: CIFAR-10, 20 epochs. Swept: v, with momentum 1 − 1/v, γ₀ = v/8.
found: 2 of 4 claims hold; undecided: loss curves (2 to 13 % apart by the value, intervals of 4 seeds reach 24 %).
"""

import optax

from configs.papers.depthwise_transfer.shared import batches as batches
from configs.papers.depthwise_transfer.shared import conv_resnet, keeps, overlap, settings
from configs.papers.depthwise_transfer.shared import loss as loss
from zoo import scaled

MOMENTUM, GAMMA = "momentum 1 − 1/v", "γ₀ = v/8"


def get_config(size="small"):
    small = {
        "widths": (16,), "depths": (6, 18), "seeds": 4, "steps": 100, "values": tuple(2.0**k for k in range(7)),
        "base": (16, 1), "learning_rate": 0.0625,
    }  # fmt: skip
    paper = {
        "dataset": "cifar10", "widths": (256,), "depths": (6, 18), "seeds": 3, "steps": 15640,
        "values": tuple(2.0**k for k in range(7)), "base": (64, 1), "learning_rate": 0.125,
    }  # fmt: skip
    config = settings("fig4", size, small, paper)
    config.dial, config.variants = "value", {MOMENTUM: {"what": "momentum"}, GAMMA: {"what": "gamma"}}
    return config


def make(width, depth, dataset, base, what, value):
    return conv_resnet(width, depth, dataset, base, 0.5, gamma=value / 8 if what == "gamma" else 1.0)


def optimizer(net, learning_rate, what, value):
    momentum = 1 - 1 / value if what == "momentum" else 0.0
    # The paper's momentum averages gradients (with 1 − μ), Optax's sums them.
    return scaled(optax.sgd(learning_rate * (1 - momentum), momentum), net)


def claims(outcome):
    kept = [keeps(outcome, label, "depth") for label in (MOMENTUM, GAMMA)]
    return kept + [overlap(outcome, label, "depth") for label in (MOMENTUM, GAMMA)]
