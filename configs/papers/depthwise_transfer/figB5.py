"""Figure B.5: batch normalisation over width and depth, with branches times 1/√L and without.

small: 10 minutes on two cores with much other work, handwritten digits. paper: CIFAR-10, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

import optax

from configs.papers.depthwise_transfer.shared import batches as batches
from configs.papers.depthwise_transfer.shared import compared, he_resnet, keeps, octaves, settings
from configs.papers.depthwise_transfer.shared import loss as loss
from zoo import scaled

ALONE, SCALED = "normalised", "normalised, branches times 1/√L"


def get_config(size="small"):
    small = {"widths": (8, 4, 16), "depths": (4, 8, 16), "values": octaves(-6, 2), "seeds": 3, "steps": 80}
    paper = {
        "dataset": "cifar10", "widths": (64, 32, 128), "depths": (8, 16, 32), "values": octaves(-8, 3), "seeds": 3,
        "steps": 15640,
    }  # fmt: skip
    config = settings("figB5", size, small, paper)
    config.variants = {ALONE: {"alpha": 0.0}, SCALED: {"alpha": 0.5}}
    return config


def make(width, depth, dataset, alpha):
    return he_resnet(width, depth, dataset, 8 if dataset == "digits" else 64, alpha, "batch")


def optimizer(net, learning_rate):
    return scaled(optax.sgd(learning_rate), net)


def claims(outcome):
    return [
        keeps(outcome, SCALED, "width"), keeps(outcome, SCALED, "depth"), compared(outcome, ALONE, SCALED, "depth"),
    ]  # fmt: skip
