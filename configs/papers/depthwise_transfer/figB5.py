"""Figure B.5: batch normalisation over width and depth, with branches times 1/√L and without.

small: 10 minutes on two cores with much other work, handwritten digits. paper: CIFAR-10, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

from configs.papers.depthwise_transfer.shared import (  # noqa: F401
    batches,
    compared,
    he_resnet,
    keeps,
    loss,
    octaves,
    optimizer,
    settings,
)

ALONE, SCALED = "normalised", "normalised, branches times 1/√L"

get_config = settings(
    "figB5",
    {
        "widths": (8, 4, 16), "depths": (4, 8, 16), "values": octaves(-6, 2), "seeds": 3, "steps": 80,
        "variants": {ALONE: {"alpha": 0.0}, SCALED: {"alpha": 0.5}},
    },
    {"dataset": "cifar10", "widths": (64, 32, 128), "depths": (8, 16, 32), "values": octaves(-8, 3), "steps": 15640},
)  # fmt: skip


def make(width, depth, dataset, alpha):
    return he_resnet(width, depth, dataset, alpha, "batch")


def claims(outcome):
    yield keeps(outcome, SCALED, "width")
    yield keeps(outcome, SCALED, "depth")
    yield compared(outcome, ALONE, SCALED, "depth")
