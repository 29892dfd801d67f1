"""Figure 1: in muP the best learning rate transfers over width alone; with branches times 1/√L over depth as well.

small: 404 seconds on two cores with much other work, handwritten digits. paper: CIFAR-10, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

import optax

from configs.papers.depthwise_transfer.shared import MUP, OURS, compared, conv_resnet, keeps, loses, octaves, settings
from configs.papers.depthwise_transfer.shared import batches as batches
from configs.papers.depthwise_transfer.shared import loss as loss
from zoo import scaled


def get_config(size="small"):
    small = {"widths": (16, 8, 32), "depths": (6, 12, 24), "values": octaves(-9, 1), "seeds": 8, "steps": 100}
    paper = {
        "dataset": "cifar10", "widths": (128, 64, 256, 512), "depths": (9, 6, 12, 18, 30), "values": octaves(-8, 3),
        "seeds": 3, "steps": 15640,
    }  # fmt: skip
    config = settings("fig1", size, small, paper)
    base = (16, 1) if size == "small" else (64, 1)
    config.variants = {MUP: {"base": base, "alpha": 0.0}, OURS: {"base": base, "alpha": 0.5}}
    return config


def make(width, depth, dataset, base, alpha):
    return conv_resnet(width, depth, dataset, base, alpha)


def optimizer(net, learning_rate):
    return scaled(optax.sgd(learning_rate), net)


def claims(outcome):
    return [
        keeps(outcome, OURS, "width"), keeps(outcome, OURS, "depth"), keeps(outcome, MUP, "width"),
        loses(outcome, MUP, "depth"), compared(outcome, MUP, OURS, "depth"),
    ]  # fmt: skip
