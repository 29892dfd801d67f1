"""Figure 1: in muP the best learning rate transfers over width alone; with branches times 1/√L over depth as well.

small: 404 seconds on two cores with much other work, handwritten digits. paper: CIFAR-10, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

from configs.papers.depthwise_transfer import shared
from configs.papers.depthwise_transfer.shared import MUP, OURS, batches, conv_resnet, loss, octaves, optimizer, settings  # noqa: F401


def variants(base):
    return {MUP: {"base": base, "alpha": 0.0}, OURS: {"base": base, "alpha": 0.5}}


get_config = settings(
    "fig1",
    {
        "widths": (16, 8, 32), "depths": (6, 12, 24), "values": octaves(-9, 1), "seeds": 8, "steps": 100,
        "variants": variants((16, 1)),
    },
    {
        "dataset": "cifar10", "widths": (128, 64, 256, 512), "depths": (9, 6, 12, 18, 30), "values": octaves(-8, 3),
        "seeds": 3, "steps": 15640, "variants": variants((64, 1)),
    },
)  # fmt: skip


def make(width, depth, dataset, base, alpha):
    return conv_resnet(width, depth, dataset, base, alpha)


def claims(outcome):
    yield shared.keeps(outcome, OURS, "width")
    yield shared.keeps(outcome, OURS, "depth")
    yield shared.keeps(outcome, MUP, "width")
    yield shared.loses(outcome, MUP, "depth")
    yield shared.compared(outcome, MUP, OURS, "depth")
