"""Figure B.2: in the standard parameterization the best learning rate does not transfer, with branches times 1/√L or without.

small: 168 seconds on two cores with much other work, handwritten digits. paper: CIFAR-10, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

import optax

from configs.papers.depthwise_transfer.shared import batches as batches
from configs.papers.depthwise_transfer.shared import conv_resnet, loses, octaves, settings
from configs.papers.depthwise_transfer.shared import loss as loss
from zoo import scaled

PLAIN, SCALED = "standard", "standard, branches times 1/√L"


def get_config(size="small"):
    small = {"widths": (8, 16, 32, 64), "depths": (6, 3, 12), "values": octaves(-10, 0), "seeds": 3, "steps": 80}
    paper = {
        "dataset": "cifar10", "widths": (64, 128, 256, 512), "depths": (6, 9, 12, 18), "values": octaves(-14, 0), "seeds": 3,
        "steps": 15640,
    }  # fmt: skip
    config = settings("figB2", size, small, paper)
    config.variants = {PLAIN: {"alpha": 0.0}, SCALED: {"alpha": 0.5}}
    return config


def make(width, depth, dataset, alpha):
    return conv_resnet(width, depth, dataset, None, alpha)


def optimizer(net, learning_rate):
    return scaled(optax.sgd(learning_rate), net)


def claims(outcome):
    return [loses(outcome, PLAIN, "width"), loses(outcome, SCALED, "width"), loses(outcome, PLAIN, "depth")]
