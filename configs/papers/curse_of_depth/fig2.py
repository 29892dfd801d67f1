"""Figure 2: how much accuracy kernel regression loses with depth, ordered against edge of chaos (relu, dense).

The loss in per cent of the accuracy at depth 3, of the early-stopped flow of `table1` (t = 100 / mean eigenvalue, float64): run
to the end, exact arithmetic would still solve kernels that no training reaches. The paper does not explain its "100 × 100".
small: 15 seconds on two cores, handwritten digits.
paper: 1,000 training points, handwritten digits.
found: 2 of 2 claims hold.
"""

from configs.papers.curse_of_depth import table1
from configs.papers.curse_of_depth.table1 import EDGE, ORDERED
from train.study.figure import COLOURS, Finding, Settings, every, mean, panels

COMPARED = (EDGE, ORDERED)
CHANCE = 0.1

get_config = Settings(
    "fig2", {"depths": (3, *range(30, 301, 30)), "n_train": 300, "n_test": 300}, {"n_train": 1000, "n_test": 700}
)


def run(config, screen):
    found = table1.run(config, screen, COMPARED)
    early = {title: found[f"{title}/accuracy_early"] for title in COMPARED}
    return {"depths": found["depths"]} | early | {f"{title}/hits": found[f"{title}/hits_early"] for title in COMPARED}


def lost(accuracy):
    """Per cent of the accuracy at the first depth, by depth."""
    return 100 * (1 - accuracy / accuracy[0])


def claims(arrays):
    edge = arrays[f"{EDGE}/hits"]
    dead = mean(arrays[f"{ORDERED}/hits"][1])
    said = [f"{d}: {e:.0f} %" for d, e in zip(arrays["depths"][1::3], lost(edge.mean(1))[1::3], strict=True)]
    half = mean((edge[0] - edge[1]) - (edge[0] - edge[-1]) / 2)
    yield Finding(
        "The ordered network has lost everything at depth 30: its accuracy is below 1.5 times chance",
        dead.below(1.5 * CHANCE),
        f"{dead:.3f}",
    )
    yield Finding(
        f"The edge of chaos loses slowly: something by depth {arrays['depths'][-1]}, less than half of it by 30",
        every(mean(edge[0] - edge[-1]).above(0), half.below(0)),
        "; ".join(said),
    )


def figures(arrays):
    figure, ((axis,),) = panels(1, 1, 5.5, 3.8, margin=0)
    for title, colour in zip(COMPARED, COLOURS, strict=False):
        axis.plot(arrays["depths"], lost(arrays[title]), "o-", ms=4, lw=1.4, color=colour, label=title)
    axis.set(xlabel="depth L", ylabel="loss of test accuracy, % of depth 3")
    axis.legend(fontsize=8)
    return [("Accuracy lost with depth", "Kernel regression stopped at t = 100 / mean eigenvalue.", figure)]
