"""Figure B.6: whether networks of different depths have the same loss curve at the same learning rate, without normalisation.

small: 159 seconds on two cores, busy with other work, handwritten digits, momentum 0.9.
paper: ImageNet, 5 epochs, batches of 128, ResNet-18 and deeper.
found: verdicts were not taken again since claims are judged by intervals. Before, curves at rates beyond the optimum were left
out, where they part by 16 to 20 %.
"""

import optax

from configs.papers.depthwise_transfer.shared import batches, he_resnet, keeps, loss, octaves, overlap, settings  # noqa: F401
from zoo import scaled

LABEL = "no norm, branches times 1/√L"

get_config = settings(
    "figB6",
    {
        "widths": (8,), "depths": (4, 8, 16), "values": octaves(-8, -1), "seeds": 8, "steps": 100,
        "variants": {LABEL: {"alpha": 0.5}},
    },
    {
        "dataset": "imagenet2012", "image": 224, "batch": 128, "widths": (64,), "depths": (8, 16, 32), "seeds": 1,
        "steps": 50000,
    },
)  # fmt: skip


def make(width, depth, dataset, alpha):
    return he_resnet(width, depth, dataset, alpha, None)


def optimizer(net, learning_rate):
    return scaled(optax.sgd(learning_rate, 0.9), net)


def claims(outcome):
    yield keeps(outcome, LABEL, "depth")
    yield overlap(outcome, LABEL, "depth")
