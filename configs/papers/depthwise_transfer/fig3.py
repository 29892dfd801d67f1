"""Figure 3 (a to d): a ViT with branches times 1/√L keeps Adam's learning rate over depth, and improves with depth.

small: about 10 minutes on two cores, handwritten digits, patches of 2.
paper: images of 64 × 64 in place of Tiny ImageNet, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

import optax

from configs.papers.depthwise_transfer import shared
from configs.papers.depthwise_transfer.shared import batches, loss, octaves, settings, vit  # noqa: F401
from zoo import scaled

A, B, C, D = "a no norm, 1/√L", "b norm first, 1/√L", "c norm first, branches not scaled", "d no norm, 1/√L, cosine"
OFF = "no norm, branches not scaled"

get_config = settings(
    "fig3",
    {
        "widths": (16,), "depths": (2, 4, 8, 16), "values": octaves(-11, -2), "seeds": 6, "steps": 150, "warmup": 20,
        "base": (16, 1),
        "variants": {
            A: {"norm": "none", "alpha": 0.5, "cosine": False},
            B: {"norm": "layer", "alpha": 0.5, "cosine": False},
            C: {"norm": "layer", "alpha": 0.0, "cosine": False},
            D: {"norm": "none", "alpha": 0.5, "cosine": True},
            OFF: {"norm": "none", "alpha": 0.0, "cosine": False},
        },
    },
    {
        "dataset": "imagenet_resized/64x64", "n_train": 100000, "widths": (256, 320), "depths": (12, 18, 24, 36, 60), "seeds": 1,
        "values": octaves(-14, -8), "steps": 31250, "warmup": 1000, "base": (256, 1),
    },
)  # fmt: skip


def make(width, depth, dataset, base, alpha, norm):
    return vit(width, depth, dataset, base, alpha, None if norm == "none" else norm)


def optimizer(net, learning_rate, warmup, steps, cosine):
    rates = optax.linear_schedule(0.0, learning_rate, warmup)
    if cosine:
        rates = optax.join_schedules([rates, optax.cosine_decay_schedule(learning_rate, steps - warmup)], [warmup])
    return scaled(optax.adam(rates), net)


def claims(outcome):
    for label in (A, B, D):
        yield shared.keeps(outcome, label, "depth")
    yield shared.loses(outcome, OFF, "depth")
    yield shared.compared(outcome, OFF, A, "depth")
    for label in (A, B):
        yield shared.falls(outcome, label, "depth")
    yield shared.ends_lower(outcome, B, C, "depth")
