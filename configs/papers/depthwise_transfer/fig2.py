"""Figure 2: normalisation alone transfers a learning rate over depth less reliably than with branches times 3/√L.

small: 170 seconds on two cores, busy with other work, handwritten digits; batch normalisation.
paper: CIFAR-10, 20 epochs, ResNet-18 and its relatives.
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

ALONE, SCALED = "normalised", "normalised, branches times 3/√L"

get_config = settings(
    "fig2",
    {
        "widths": (8,), "depths": (2, 4, 8, 16), "values": octaves(-6, 2), "seeds": 3, "steps": 80, "norm": "batch",
        "variants": {ALONE: {"alpha": 0.0, "beta": 1.0}, SCALED: {"alpha": 0.5, "beta": 3.0}},
    },
    {"dataset": "cifar10", "widths": (64, 128), "depths": (8, 16, 32), "values": octaves(-8, 3), "steps": 15640},
)  # fmt: skip


def make(width, depth, dataset, alpha, beta, norm):
    return he_resnet(width, depth, dataset, alpha, norm, beta)


def claims(outcome):
    yield keeps(outcome, SCALED, "depth")
    yield compared(outcome, ALONE, SCALED, "depth")
