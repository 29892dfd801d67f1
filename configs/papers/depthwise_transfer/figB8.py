"""Figure B.8: whether loss curves of two depths lie together with weight decay too, by the strength of it.

small: 37 seconds on two cores with much other work, handwritten digits. paper: CIFAR-10, 20 epochs.
found: 0 of 1 claims hold; undecided: curves are up to 9 % apart, intervals of 4 seeds reach 15 %; from a decay of .5 on
nothing is learned.
"""

import optax

from configs.papers.depthwise_transfer.shared import batches, conv_resnet, loss, octaves, overlap, settings  # noqa: F401
from zoo import scaled

LABEL = "branches times 1/√L"

get_config = settings(
    "figB8",
    {
        "widths": (16,), "depths": (6, 18), "dial": "weight_decay", "values": octaves(-8, 0), "seeds": 4, "steps": 120,
        "base": (16, 1), "learning_rate": 0.125, "variants": {LABEL: {"alpha": 0.5}},
    },
    {
        "dataset": "cifar10", "widths": (256,), "values": octaves(-14, -6), "seeds": 3, "steps": 15640, "base": (64, 1),
        "learning_rate": 0.5,
    },
)  # fmt: skip


def make(width, depth, dataset, base, alpha):
    return conv_resnet(width, depth, dataset, base, alpha)


def optimizer(net, learning_rate, weight_decay):
    tx = optax.chain(optax.add_decayed_weights(weight_decay), optax.sgd(learning_rate))
    return scaled(tx, net)


def claims(outcome):
    # On the training loss the best decay is none, so that curves are compared in place of optima.
    yield overlap(outcome, LABEL, "depth")
