"""Figure B.2: in the standard parameterization the best learning rate does not transfer, with branches times 1/√L or without.

small: 168 seconds on two cores with much other work, handwritten digits. paper: CIFAR-10, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

from configs.papers.depthwise_transfer.shared import batches, conv_resnet, loses, loss, octaves, optimizer, settings  # noqa: F401

PLAIN, SCALED = "standard", "standard, branches times 1/√L"

get_config = settings(
    "figB2",
    {
        "widths": (8, 16, 32, 64), "depths": (6, 3, 12), "values": octaves(-10, 0), "seeds": 3, "steps": 80,
        "variants": {PLAIN: {"alpha": 0.0}, SCALED: {"alpha": 0.5}},
    },
    {
        "dataset": "cifar10", "widths": (64, 128, 256, 512), "depths": (6, 9, 12, 18), "values": octaves(-14, 0),
        "steps": 15640,
    },
)  # fmt: skip


def make(width, depth, dataset, alpha):
    return conv_resnet(width, depth, dataset, None, alpha)


def claims(outcome):
    yield loses(outcome, PLAIN, "width")
    yield loses(outcome, SCALED, "width")
    yield loses(outcome, PLAIN, "depth")
