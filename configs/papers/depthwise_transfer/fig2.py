"""Figure 2: normalisation alone transfers a learning rate over depth less reliably than with branches times 3/√L.

small: 170 seconds on two cores, busy with other work, handwritten digits; batch normalisation.
paper: CIFAR-10, 20 epochs, ResNet-18 and its relatives.
found: verdicts were not taken again since claims are judged by intervals.
"""

import optax

from configs.papers.depthwise_transfer.shared import batches as batches
from configs.papers.depthwise_transfer.shared import compared, he_resnet, keeps, octaves, settings
from configs.papers.depthwise_transfer.shared import loss as loss
from zoo import scaled

ALONE, SCALED = "normalised", "normalised, branches times 3/√L"


def get_config(size="small", name="fig2", norm="batch"):
    small = {"widths": (8,), "depths": (2, 4, 8, 16), "values": octaves(-6, 2), "seeds": 3, "steps": 80}
    paper = {
        "dataset": "cifar10", "widths": (64, 128), "depths": (8, 16, 32), "values": octaves(-8, 3), "seeds": 3, "steps": 15640,
    }  # fmt: skip
    config = settings(name, size, small, paper)
    config.norm = norm
    config.variants = {ALONE: {"alpha": 0.0, "beta": 1.0}, SCALED: {"alpha": 0.5, "beta": 3.0}}
    return config


def make(width, depth, dataset, alpha, beta, norm):
    return he_resnet(width, depth, dataset, 8 if dataset == "digits" else 64, alpha, norm, beta)


def optimizer(net, learning_rate):
    return scaled(optax.sgd(learning_rate), net)


def claims(outcome):
    return [keeps(outcome, SCALED, "depth"), compared(outcome, ALONE, SCALED, "depth")]
