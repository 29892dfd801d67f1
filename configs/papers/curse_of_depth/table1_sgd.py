"""Table 1 (networks trained by SGD): what the kernel regime loses with depth, training the network itself does not.

Dense networks in the standard parameterization, cross-entropy, the best of a grid of learning rates for each (by accuracy on
training points). The ResNet without scale has them over 2^L, by which its tangent kernel grows. Not repeated: convolutional
networks; depth 300, where a branch without scale leaves the range of float32.
small: 4 to 8 minutes on two cores, handwritten digits.
paper: depths to 100, width 256, more steps; handwritten digits.
found: verdicts were not taken again since claims are judged by intervals.
"""

import math
from typing import Any

import numpy as np

from configs.papers.curse_of_depth.table1 import EDGE, FLAT, NETWORKS, ORDERED, RESNET, SCALED, TANH
from limits.depth import edge_of_chaos
from train import ensemble
from train.data import digits, shuffled_batches
from train.study.figure import COLOURS, Finding, Settings, every, mean, panels
from zoo import MLP, Parameterization, ResNet

CHANCE, TRAINED = 0.1, 0.8

get_config = Settings(
    "table1_sgd",
    {
        "n_train": 400, "n_test": 700, "batch": 64, "rates": tuple(2.0**-k for k in (1, 3, 5, 7, 9)),
        "depths": (3, 30), "width": 128, "steps": 600, "members": 4,
    },
    {"depths": (3, 30, 100), "width": 256, "steps": 2000, "members": 8},
)  # fmt: skip


def networks(width, depth):
    size = (width, depth, 10)
    half = Parameterization.standard.replace(alpha=0.5)
    relu: dict[str, Any] = {"activation": "relu", "w_std": math.sqrt(2)}
    return {
        EDGE: MLP(*size, **relu, parameterization="standard"),
        TANH: MLP(*size, activation="tanh", w_std=edge_of_chaos("tanh", 0.2), b_std=0.2, parameterization="standard"),
        ORDERED: MLP(*size, activation="relu", w_std=1.0, b_std=1.0, parameterization="standard"),
        FLAT: MLP(*size, activation="tanh", w_std=1.0, b_std=1.0, parameterization="standard"),
        RESNET: ResNet(*size, **relu, residual="fixed", parameterization="standard"),
        SCALED: ResNet(*size, **relu, residual="decreasing", parameterization=half),
    }


def accuracies(net, task, config):
    """By learning rate, means over members: accuracy on training and test points [rate, 2], and on every test point
    [rate, point]; NaN where a member diverged."""
    rows = shuffled_batches(len(task.x_train), config.batch, config.steps, config.seed)
    labels, n = np.concatenate([task.y_train, task.y_test]).argmax(1), len(task.x_train)

    def right(net, variables, x):
        return (net.apply(variables, x).argmax(-1) == labels).astype(float)

    found, hits = [], []
    growth = 2.0**net.depth if getattr(net, "residual", "") == "fixed" else 1.0
    for rate in np.array(config.rates) / growth:
        options = {"times": [config.steps], "seed": config.seed, "batches": rows, "kernels": (), "observe": right}
        try:
            hit = ensemble(net, task, config.members, config.steps, float(rate), **options).observed["observe"][-1]
        except FloatingPointError:
            hit = np.full(len(labels), math.nan)
        found.append((hit[:n].mean(), hit[n:].mean()))
        hits.append(hit[n:])
    return np.array(found), np.array(hits)


def run(config, screen):
    task = digits(config.n_train, config.n_test, range(10), targets="one_hot", loss="cross_entropy", seed=config.seed)
    found = {"depths": np.array(config.depths), "rates": np.array(config.rates)}
    for depth in config.depths:
        for title, net in networks(config.width, depth).items():
            screen.print(f"{title}, depth {depth} …", highlight=False)
            found[f"{title}/{depth}"], found[f"{title}/{depth}/hits"] = accuracies(net, task, config)
    return found


def best(arrays, title, depth):
    """Test accuracy at the learning rate with the best accuracy on training points; its interval is that of the test points."""
    train = arrays[f"{title}/{depth}"][:, 0]
    rate = int(np.nanargmax(train)) if np.isfinite(train).any() else 0
    return mean(arrays[f"{title}/{depth}/hits"][rate])


def claims(arrays):
    shallow, *_, deep = arrays["depths"].tolist()
    found = {title: [best(arrays, title, d) for d in (shallow, deep)] for title in NETWORKS}
    words = {title: f"{title}: {a:.3f}, {b:.3f}" for title, (a, b) in found.items()}
    both = f"at depths {shallow} and {deep}"

    def trains(title):
        return every(*(accuracy.above(TRAINED) for accuracy in found[title]))

    dies = [every(found[title][0].above(TRAINED), found[title][1].below(3 * CHANCE)) for title in (ORDERED, FLAT)]
    yield Finding(
        f"At the edge of chaos SGD trains to depth {deep} (test accuracy above {TRAINED:.0%})",
        every(trains(EDGE), trains(TANH)),
        f"{both}: {words[EDGE]}; {words[TANH]}",
    )
    yield Finding(
        f"Ordered networks train at depth {shallow} and not at {deep} (below {3 * CHANCE:.0%})",
        every(*dies),
        f"{both}: {words[ORDERED]}; {words[FLAT]}",
    )
    yield Finding(f"ResNets scaled by 1/√l train to depth {deep}", trains(SCALED), f"{both}: {words[SCALED]}")
    yield Finding(
        f"ResNets without scale train to depth {deep}, as in the paper", trains(RESNET), f"{both}: {words[RESNET]}"
    )


def figures(arrays):
    depths = arrays["depths"].tolist()
    figure, (axes,) = panels(1, len(depths), 4.6, 3.8, margin=0)
    for axis, depth in zip(axes, depths, strict=True):
        for title, colour in zip(NETWORKS, COLOURS, strict=True):
            words = title + " (rates / 2^L)" * (title == RESNET)
            axis.plot(arrays["rates"], arrays[f"{title}/{depth}"][:, 1], "o-", ms=4, lw=1.3, color=colour, label=words)
        axis.set(xscale="log", ylim=(0, 1), xlabel="learning rate", ylabel="test accuracy", title=f"depth {depth}")
    axes[0].legend(fontsize=8)
    text = "Means over networks; where one of them diverged there is no point."
    return [("Networks trained by SGD", text, figure)]
