"""Figure M.1: blocks of four layers that start at zero: α = 1 and α = 1/2 both transfer, and α = 1 improves with depth.

small: 2 minutes on two cores, handwritten digits, dense layers, SGD. paper: CIFAR-10, convolutions, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

from configs.papers.depthwise_transfer.shared import batches, classes, falls, keeps, loss, octaves, optimizer, settings  # noqa: F401
from zoo import Parameterization, ResNet

ODE, SDE = "α = 1", "α = 1/2"
EARLY = 0.2  # of the steps

get_config = settings(
    "figM1",
    {
        "widths": (64,), "depths": (3, 5, 9, 17), "values": octaves(-6, 4), "seeds": 3, "steps": 150, "base": (64, 1),
        "form": "dense", "stages": 1, "variants": {ODE: {"alpha": 1.0}, SDE: {"alpha": 0.5}},
    },
    {
        "dataset": "cifar10", "widths": (256,), "depths": (6, 12, 24), "values": octaves(-8, 3), "steps": 15640,
        "form": "conv", "stages": 4,
    },
)  # fmt: skip


def make(width, depth, dataset, base, alpha, form, stages):
    p = Parameterization.mup.replace(alpha=alpha).based(*base)
    options = {"form": form, "stages": stages, "branch_layers": 4, "zero_init": True, "parameterization": p}
    return ResNet(width, depth, classes(dataset), w_std=2**0.5, **options)


def claims(outcome):
    yield keeps(outcome, ODE, "depth")
    yield keeps(outcome, SDE, "depth")
    yield falls(outcome, ODE, "depth")
    yield falls(outcome, ODE, "depth", EARLY)
    yield falls(outcome, SDE, "depth", EARLY, 1)
