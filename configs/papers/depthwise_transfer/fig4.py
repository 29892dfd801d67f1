"""Figure 4: the best momentum and the best γ₀ are the same at two depths, where branches are times 1/√L.

small: 63 seconds on two cores, busy with other work, handwritten digits.
paper: CIFAR-10, 20 epochs. Swept: v, with momentum 1 − 1/v, γ₀ = v/8.
found: 2 of 4 claims hold; undecided: loss curves (2 to 13 % apart by the value, intervals of 4 seeds reach 24 %).
"""

import optax

from configs.papers.depthwise_transfer.shared import batches, conv_resnet, keeps, loss, octaves, overlap, settings  # noqa: F401
from zoo import scaled

MOMENTUM, GAMMA = "momentum 1 − 1/v", "γ₀ = v/8"

get_config = settings(
    "fig4",
    {
        "widths": (16,), "depths": (6, 18), "seeds": 4, "steps": 100, "base": (16, 1), "learning_rate": 0.0625,
        "dial": "value", "values": octaves(0, 6), "variants": {MOMENTUM: {"what": "momentum"}, GAMMA: {"what": "gamma"}},
    },
    {"dataset": "cifar10", "widths": (256,), "seeds": 3, "steps": 15640, "base": (64, 1), "learning_rate": 0.125},
)  # fmt: skip


def make(width, depth, dataset, base, what, value):
    return conv_resnet(width, depth, dataset, base, 0.5, gamma=value / 8 if what == "gamma" else 1.0)


def optimizer(net, learning_rate, what, value):
    momentum = 1 - 1 / value if what == "momentum" else 0.0
    # The paper's momentum averages gradients (with 1 − μ), Optax's sums them.
    return scaled(optax.sgd(learning_rate * (1 - momentum), momentum), net)


def claims(outcome):
    for check in (keeps, overlap):
        for label in (MOMENTUM, GAMMA):
            yield check(outcome, label, "depth")
