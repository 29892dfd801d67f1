"""Figure B.3: the best learning rate can be read off after a small part of the training.

small: 11 minutes on two cores, busy with other work, handwritten digits; convolutions and a ViT.
paper: CIFAR-10 and 64 × 64 ImageNet, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

import numpy as np
import optax

from configs.papers.depthwise_transfer.shared import batches, conv_resnet, loss, octaves, settings, vit  # noqa: F401
from train.study.figure import Finding, Interval
from zoo import scaled

CONV, VIT = "convolutions, SGD", "ViT, Adam"
SHARE = 0.15
DRAWS = 1000  # of the bootstrap

get_config = settings(
    "figB3",
    {
        "widths": (16,), "depths": (4, 8), "values": octaves(-7, 1), "seeds": 4, "steps": 240, "base": (16, 1),
        "variants": {CONV: {"model": "conv"}, VIT: {"model": "vit"}},
    },
    {
        "dataset": "cifar10", "widths": (512,), "depths": (6, 12), "values": octaves(-4, 4), "seeds": 3, "steps": 15640,
        "base": (128, 1), "variants": {CONV: {"model": "conv"}, VIT: {"model": "vit", "dataset": "imagenet_resized/64x64"}},
    },
)  # fmt: skip


def make(width, depth, dataset, base, model):
    if model == "conv":
        return conv_resnet(width, depth, dataset, base, 0.5)
    return vit(width, depth, dataset, base, 0.5, None)


def optimizer(net, learning_rate, model):
    return scaled(optax.sgd(learning_rate) if model == "conv" else optax.adam(learning_rate / 16), net)


def claims(outcome):
    for label in outcome.labels:
        for (_, depth), sweep in outcome.sweeps[label].items():
            steps, settled, final = sweep.curves.shape[-1], settling(sweep), sweep.losses.mean(1)
            best = int(final.argmin())
            inner = np.isfinite(final[best]) and 0 < best < len(final) - 1
            figures = (
                f"within an octave of the final optimum, {sweep.rates[best]:.3g}, from step {settled:.0f} of {steps} on"
            )
            text = f"{label}, L = {depth}: read off after {SHARE:.0%} of the steps"
            yield Finding(text, settled.below(SHARE * steps + 0.5) if inner else None, figures)


def settling(sweep):
    """From which step on the best rate of the grid stays within an octave of the last, with a bootstrap interval over seeds."""
    count, steps = sweep.curves.shape[1], np.linspace(0, sweep.curves.shape[-1], 25)[1:].astype(int)
    losses = np.stack([sweep.until(step) for step in steps.tolist()])  # [step, rate, seed]

    def settled(seeds):
        path = np.log2(sweep.rates)[losses[:, :, seeds].mean(-1).argmin(1)]
        away = np.flatnonzero(abs(path - path[-1]) > 1)
        return steps[away[-1] + 1] if len(away) else steps[0]

    whole, picks = settled(np.arange(count)), np.random.default_rng(0).integers(count, size=(DRAWS, count))
    low, high = np.percentile([settled(pick) for pick in picks], [2.5, 97.5]) if count > 1 else (-np.inf, np.inf)
    return Interval(whole, low, high)
