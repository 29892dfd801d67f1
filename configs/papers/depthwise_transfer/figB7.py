"""Figure B.7 (and 5): predictions scatter as 1/N at every depth, and their mean converges in depth, squared, as 1/L².

small: 209 seconds on two cores, busy with other work, handwritten digits, dense layers.
paper: CIFAR-10, convolutions, widths to 512, depths to 128.
found: verdicts were not taken again since claims are judged by intervals.
"""

import itertools

import numpy as np

from configs.papers.depthwise_transfer.shared import settings
from limits import Task
from limits.training import Training
from train.data import image_batches
from train.ensemble import run_members
from train.study.figure import Finding, cells, jackknife, panels, power
from zoo import ResNet

get_config = settings(
    "figB7",
    {
        "widths": (32, 64, 128, 256), "depths": (4, 8, 16, 32), "members": 64, "steps": 60, "learning_rate": 0.2,
        "form": "dense", "test": 16,
    },
    {
        "dataset": "cifar10", "widths": (32, 64, 128, 256, 512), "depths": (8, 16, 32, 64, 128), "members": 15, "steps": 250,
        "batch": 32, "form": "conv", "test": 64,
    },
)  # fmt: skip


def study(config):
    """(task, the training points of every step)."""
    images = image_batches(config.dataset, config.batch, config.steps + -(-config.test // config.batch), config.seed)
    x, y = (np.concatenate(parts) for parts in zip(*images, strict=True))
    signs = np.where(y.argmax(1) < y.shape[1] / 2, 1.0, -1.0)[:, None]  # whether it is of the first half of the classes
    count = config.steps * config.batch
    task = Task(x[:count], signs[:count], x[count:][: config.test], signs[count:][: config.test])
    return task, np.arange(count).reshape(config.steps, config.batch)


def outputs(config, data, width, depth):
    """f at the test points after the last step, [network, point]."""
    task, rows = data
    net = ResNet(width, depth, form=config.form, readout="average", parameterization="mup")
    training = Training.of(task, config.steps, config.learning_rate, batches=rows)
    chunks = run_members(net, task, training, config.members, [config.steps], config.seed, kernels=())
    return np.concatenate([chunk["f"][:, -1, len(task.x_train) :, 0] for chunk in chunks])


def run(config, folder, screen, part):
    held = cells(outputs, study(config), config, folder, screen, part)
    if held is None:
        return None
    found = {"widths": np.array(config.widths), "depths": np.array(config.depths)}
    return found | {f"f_{depth}_{width}": f for (width, depth), f in held.items()}


def scatter(arrays):
    """E|f − <f>|² over points, [depth, width]."""
    return np.array([[arrays[f"f_{d}_{w}"].var(0, ddof=1).mean() for w in arrays["widths"]] for d in arrays["depths"]])


def steps_in_depth(arrays):
    """|<f> at L − <f> at 2L|² at the largest width, without what the scatter of the means adds: [depth but the last]."""
    width = arrays["widths"][-1]
    each = itertools.pairwise(arrays[f"f_{d}_{width}"] for d in arrays["depths"])
    away = [a - b for a, b in each]  # by member: those of one seed have the same weights where both have the layer
    return np.array([(f.mean(0) ** 2 - f.var(0, ddof=1) / len(f)).mean() for f in away])


def claims(arrays):
    widths, depths = arrays["widths"], arrays["depths"]
    names = [f"f_{d}_{w}" for d in depths for w in widths]

    def measured(number):
        """number(arrays) with its interval: the jackknife over networks."""
        return jackknife(
            lambda *each: number(arrays | dict(zip(names, each, strict=True))), *(arrays[n] for n in names)
        )

    slopes = measured(lambda a: [power(widths, row) for row in scatter(a)])
    level = measured(lambda a: (scatter(a) * widths).mean(1))
    falls = measured(lambda a: power(depths[:-1], steps_in_depth(a)))
    wider = measured(lambda a: scatter(a)[:-1, -1] - steps_in_depth(a))
    spread, steps = scatter(arrays), steps_in_depth(arrays)
    yield Finding(
        "At every depth predictions scatter as 1/N (exponent −1 ± 0.2)",
        slopes.near(-1, 0.2),
        ", ".join(f"L = {d}: {slopes.at(i):.2f}" for i, d in enumerate(depths)),
    )
    yield Finding(
        "N times the scatter is the same at every depth, to a factor of 2",
        level.alike(2),
        ", ".join(f"L = {d}: {level.at(i)}" for i, d in enumerate(depths)),
    )
    yield Finding(
        "The squared distance of mean predictions from L to 2L falls as 1/L² (exponent −2 ± 0.5)",
        falls.near(-2, 0.5),
        f"{falls:.2f}; " + ", ".join(f"L = {d}: {v:.3g}" for d, v in zip(depths, steps, strict=False)),
    )
    yield Finding(
        "At the largest width single networks scatter by more than depths L and 2L differ: width is the bottleneck",
        wider.above(0),
        ", ".join(f"L = {d}: {a:.3g} and {b:.3g}" for d, a, b in zip(depths, spread[:, -1], steps, strict=False)),
    )


def figures(arrays):
    widths, depths = arrays["widths"], arrays["depths"]
    figure, ((left, right),) = panels(1, 2, 5, 3.8, margin=0)
    for depth, row in zip(depths, scatter(arrays), strict=True):
        left.loglog(widths, row, "o-", ms=4, label=f"L = {depth}")
    left.loglog(widths, scatter(arrays)[0, 0] * widths[0] / widths, "k--", lw=1, label="1/N")
    left.set(xlabel="width", ylabel="scatter of predictions over networks")
    steps = steps_in_depth(arrays)
    right.loglog(depths[:-1], abs(steps), "o-", ms=4, label="ensemble means, L to 2L")
    right.loglog(depths[:-1], abs(steps[0]) * (depths[0] / depths[:-1]) ** 2, "k--", lw=1, label="1/L²")
    right.set(xlabel="depth L", ylabel="squared distance")
    for axis in (left, right):
        axis.legend(fontsize=8)
    text = "Left: single networks; right: means over networks at the largest width."
    return [("Convergence in width and depth", text, figure)]
