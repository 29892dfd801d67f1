"""Table 2: residual networks trained by SGD with branches scaled by 1/√l, against the same without scale.

Convolutional residual networks with batch normalisation, momentum 0.9, learning rate 0.1, a tenth of it from half of the epochs
on and a hundredth from three quarters on (so "after n_e/4 epochs" in the paper is taken).
small: 8 to 15 minutes on two cores, handwritten digits.
paper: CIFAR-100 in TFDS, ResNet 32, 50 and 104 of basic blocks, an accelerator.
found: verdicts were not taken again since claims are judged by intervals.
"""

import numpy as np
import optax

from train.data import Batches, digits, evaluation_batches, source
from train.losses import cross_entropy
from train.mesh import make_mesh
from train.step import Program
from train.study.figure import COLOURS, Finding, Settings, mean, panels
from train.trainer import Trainer
from zoo import HeResNet, Parameterization

KINDS = {"standard": "uniform", "scaled by 1/√l": "decreasing"}

get_config = Settings(
    "table2",
    {
        "members": 4, "n_train": 300, "rate": 0.1, "momentum": 0.9, "dataset": "digits", "width": 8, "blocks": (1, 3, 8),
        "epochs": 32, "early": 2, "batch": 50, "augment": (),
    },
    {
        "dataset": "cifar100", "width": 16, "blocks": (5, 8, 17), "epochs": 160, "early": 10, "batch": 128,
        "augment": ("crop", "flip"),
    },
)  # fmt: skip


def data(config):
    """(training, test) samples."""
    if config.dataset != "digits":
        return source(config.dataset, "train"), source(config.dataset, "test")
    options = {"targets": "one_hot", "loss": "cross_entropy", "seed": config.seed}
    task = digits(config.n_train, 1797 - config.n_train, range(10), **options)
    return source(task, "train"), source(task, "test")


def network(config, blocks, residual, outputs):
    alpha = 0.0 if residual == "uniform" else 0.5
    p = Parameterization.standard.replace(alpha=alpha)
    return HeResNet(config.width, (blocks,) * 3, outputs, stem="small", residual=residual, parameterization=p)


def accuracies(net, train, test, config):
    """Test accuracy of every member after the early epochs and after all, [2, member]."""
    batches = Batches(train, config.batch, config.seed, augment=config.augment)
    early, steps = (epochs * batches.steps_per_epoch for epochs in (config.early, config.epochs))
    rate = optax.piecewise_constant_schedule(config.rate, {steps // 2: 0.1, 3 * steps // 4: 0.1})
    program = Program(net, optax.sgd(rate, config.momentum), cross_entropy)
    trainer = Trainer(program, make_mesh(), (config.batch, *train.shape), members=config.members, seed=config.seed)
    state, found = trainer.initial(), []
    for k, batch in zip(range(1, steps + 1), batches.iterate(), strict=False):
        state, _ = trainer.step(state, batch)
        if k in (early, steps):
            found.append(trainer.evaluate(state, evaluation_batches(test, config.batch))["accuracy"])
    return np.array(found)


def run(config, screen):
    train, test = data(config)
    found = {"blocks": np.array(config.blocks), "epochs": np.array([config.early, config.epochs])}
    for blocks in config.blocks:
        for title, residual in KINDS.items():
            screen.print(f"{title}, {depth(blocks)} layers …", highlight=False)
            net = network(config, blocks, residual, train.outputs)
            found[f"{title}/{blocks}"] = accuracies(net, train, test, config)
    return found


def depth(blocks):
    """Layers with weights on the way through three stages of blocks of two."""
    return 6 * blocks + 2


def gaps(arrays):
    """Scaled less standard in points, [size, (early, end)] (members of one seed have the same initial weights)."""
    plain, scaled = KINDS
    return mean([100 * (arrays[f"{scaled}/{b}"] - arrays[f"{plain}/{b}"]) for b in arrays["blocks"]], -1)


def claims(arrays):
    gap = gaps(arrays)
    early, last = arrays["epochs"].tolist()
    words = [
        "; ".join(f"{depth(arrays['blocks'][i])} layers: {gap.at(i, when):+.1f}" for i in rows)
        for when, rows in ((0, (0, -1)), (1, range(len(arrays["blocks"]))))
    ]
    yield Finding(
        f"Scaled networks are ahead of standard ones after {last} epochs, at every depth",
        gap.at(slice(None), 1).above(0),
        f"points of test accuracy at {words[1]}",
    )
    yield Finding(
        f"The lead after {early} epochs grows with depth",
        (gap.at(-1, 0) - gap.at(0, 0)).above(0),
        f"points at {words[0]}",
    )


def figures(arrays):
    figure, (axes,) = panels(1, 2, 4.6, 3.8, margin=0)
    for i, (axis, epochs) in enumerate(zip(axes, arrays["epochs"], strict=True)):
        for title, colour in zip(KINDS, COLOURS, strict=False):
            each = np.array([arrays[f"{title}/{b}"][i] for b in arrays["blocks"]])
            bars = each.std(1, ddof=1) / each.shape[1] ** 0.5
            axis.errorbar(
                depth(arrays["blocks"]), each.mean(1), bars, fmt="o-", ms=4, lw=1.4, color=colour, label=title
            )
        axis.set(xlabel="layers", ylabel="test accuracy", title=f"after {epochs} epochs")
    axes[0].legend(fontsize=8)
    return [("Test accuracy over depth", "Means over networks with standard errors.", figure)]
