"""Figure B.6: whether networks of different depths have the same loss curve at the same learning rate, without normalisation.

small: 159 seconds on two cores, busy with other work, handwritten digits, momentum 0.9.
paper: ImageNet, 5 epochs, batches of 128, ResNet-18 and deeper.
found: verdicts were not taken again since claims are judged by intervals. Before, curves at rates beyond the optimum were left
out, where they part by 16 to 20 %.
"""

import optax

from configs.papers.depthwise_transfer.shared import batches as batches
from configs.papers.depthwise_transfer.shared import he_resnet, keeps, octaves, overlap, settings
from configs.papers.depthwise_transfer.shared import loss as loss
from zoo import scaled

LABEL = "no norm, branches times 1/√L"


def get_config(size="small"):
    small = {"widths": (8,), "depths": (4, 8, 16), "values": octaves(-8, -1), "seeds": 8, "steps": 100}
    paper = {
        "dataset": "imagenet2012", "image": 224, "batch": 128, "widths": (64,), "depths": (8, 16, 32), "seeds": 1,
        "values": octaves(-8, -1), "steps": 50000,
    }  # fmt: skip
    config = settings("figB6", size, small, paper)
    config.variants = {LABEL: {"alpha": 0.5}}
    return config


def make(width, depth, dataset, alpha):
    return he_resnet(width, depth, dataset, 8 if dataset == "digits" else 64, alpha, None)


def optimizer(net, learning_rate):
    return scaled(optax.sgd(learning_rate, 0.9), net)


def claims(outcome):
    return [keeps(outcome, LABEL, "depth"), overlap(outcome, LABEL, "depth")]
