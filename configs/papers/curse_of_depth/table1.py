"""Table 1 (tangent kernels) and figure 2: kernel regression degrades with depth, unless branches are scaled by 1/√l.

Exact regression with infinite-width tangent kernels on the handwritten digits, trained to the end (t = ∞, no ridge) and, in
float64, for the time t = 100 / mean eigenvalue of exp(−K t/n). Not repeated: the columns of networks trained by SGD.
small: 4 to 7 minutes on two cores, busy with other work, handwritten digits.
paper: 1,000 training points and depths 3 to 1000, handwritten digits.
found: verdicts were not taken again since claims are judged by intervals.
"""

import math
from typing import Any

import numpy as np
import scipy.linalg

from limits.depth import deep_kernels, edge_of_chaos
from limits.predict import mse_dynamics
from train.data import digits
from train.study.figure import COLOURS, Finding, Settings, every, exact, mean, panels

EDGE, TANH, ORDERED, FLAT, RESNET, SCALED = (
    "relu, edge of chaos", "tanh, edge of chaos", "relu, ordered", "tanh, ordered", "ResNet", "scaled ResNet",
)  # fmt: skip
NETWORKS = {
    EDGE: ("relu", math.sqrt(2), 0.0, "none"),
    TANH: ("tanh", None, 0.2, "none"),
    ORDERED: ("relu", 1.0, 1.0, "none"),
    FLAT: ("tanh", 1.0, 1.0, "none"),
    RESNET: ("relu", math.sqrt(2), 0.0, "fixed"),
    SCALED: ("relu", math.sqrt(2), 0.0, "decreasing"),
}
FLOW = 100.0  # time of the early-stopped flow exp(−K t/n), in units of 1 / mean eigenvalue

get_config = Settings(
    "table1",
    {"n_train": 400, "n_test": 300, "depths": (3, 10, 30, 100, 300)},
    {"n_train": 1000, "n_test": 700, "depths": (3, 10, 30, 100, 300, 1000)},
)


def regress(k, y, n, dtype):
    """Predictions at the points after the first n, by Cholesky factorisation in this precision; None where it is singular."""
    k = k.astype(dtype)
    try:
        factor = scipy.linalg.cho_factor(k[:n, :n], lower=True)
    except np.linalg.LinAlgError:
        return None
    return k[n:, :n] @ scipy.linalg.cho_solve(factor, y.astype(dtype))


def measure(k, task):
    """One setting of the table, by name: accuracies, spread, condition, and as "hits…" which test points are right."""
    n, labels = len(task.x_train), task.y_test.argmax(1)
    k = k / np.trace(k[:n, :n]) * n
    right = lambda f: np.full(len(labels), math.nan) if f is None else (f.argmax(1) == labels).astype(float)  # noqa: E731
    exact, single = (regress(k, task.y_train, n, dtype) for dtype in (np.float64, np.float32))
    eigenvalues = np.linalg.eigvalsh(k[:n, :n])
    _, early = mse_dynamics(k[:n, :n], task.y_train, [1], FLOW / eigenvalues.mean(), k[n:, :n], flow=True)
    spread = math.nan if exact is None else float(exact.std(0).mean())
    condition = eigenvalues[-1] / eigenvalues[0] if eigenvalues[0] > 0 else math.inf
    hits = {"64": right(exact), "32": right(single), "_early": right(early[0])}
    found: dict[str, Any] = {f"hits{name}": hit for name, hit in hits.items()}
    found |= {f"accuracy{name}": float(hit.mean()) for name, hit in hits.items()}
    return found | {"spread": spread, "condition": float(condition)}


def run(config, screen, titles=tuple(NETWORKS)):
    task = digits(config.n_train, config.n_test, classes=range(10), targets="one_hot", seed=config.seed)
    x = task.x.reshape(len(task.x), -1)
    found = {"depths": np.array(config.depths)}
    for title in titles:
        activation, w_std, b_std, residual = NETWORKS[title]
        screen.print(f"{title} …", highlight=False)
        w_std = edge_of_chaos(activation, b_std) if w_std is None else w_std
        kernels = deep_kernels(x, config.depths, activation, w_std, b_std, residual)
        rows = [measure(k, task) for k in kernels.normalised(kernels.log_ntk.max(axis=(1, 2)))]
        found |= {f"{title}/{name}": np.array([row[name] for row in rows]) for name in rows[0]}
    return found


def row(arrays, title, name, form="{:.3f}", depths=(3, 30, 300)):
    """Numbers of one network at these depths, and the same as words."""
    places = [int(np.flatnonzero(arrays["depths"] == d)[0]) for d in depths]
    each = arrays[f"{title}/{name.replace('accuracy', 'hits')}"][places]
    values = each.mean(1) if name.startswith("accuracy") else each
    words = ["singular" if not math.isfinite(v) else form.format(v) for v in values]
    return values, ", ".join(f"L = {d}: {word}" for d, word in zip(depths, words, strict=True))


def hits(arrays, title, how, depths=(3, 30, 300)):
    """Which test points one network has right at these depths, [depth, point]."""
    places = [int(np.flatnonzero(arrays["depths"] == d)[0]) for d in depths]
    return arrays[f"{title}/hits{how}"][places]


def ordered(arrays):
    """The ordered kernels, which cannot be solved in the end, as they can in the beginning."""
    verdicts, words = [], []
    for title in (ORDERED, FLAT):
        condition, size = row(arrays, title, "condition", "{:.2g}")
        (single, in32), (double, in64) = row(arrays, title, "accuracy32"), row(arrays, title, "accuracy64")
        begins = bool(np.isfinite([single[0], double[0], condition[0]]).all())
        singular = bool(np.isnan([single[2], double[2]]).all())
        verdicts += [exact(condition[1:]).above(1e7), singular if begins else None]
        words.append(f"{title}: condition number {size}; accuracy in float32 {in32}; in float64 {in64}")
    text = "Ordered kernels become singular: condition number above 1e7 from L = 30, no float32 or float64 solution at L = 300"
    return Finding(text, every(*verdicts), "; ".join(words))


def claims(arrays):
    """Intervals are those of the test points, the same for all networks."""
    names = (EDGE, ORDERED, RESNET, SCALED)
    in_edge, _, in_resnet, in_scaled = (row(arrays, t, "accuracy64")[1] for t in names)
    edge, _, resnet, scaled = (hits(arrays, t, "64") for t in names)
    early = {t: hits(arrays, t, "_early") for t in names}
    in_early = {t: row(arrays, t, "accuracy_early")[1] for t in names}
    spread, in_spread = row(arrays, EDGE, "spread")
    condition, in_condition = row(arrays, EDGE, "condition", "{:.3g}")
    yield Finding(
        "relu at the edge of chaos: accuracy falls over L = 3, 30, 300 (t = ∞, float64)",
        mean(np.diff(edge, axis=0), 1).below(0),
        in_edge,
    )
    yield Finding(
        "It fails by predicting the same everywhere: the spread of predictions falls, the condition number does not rise",
        every(exact(np.diff(spread)).below(0), exact(condition[2]).below(condition[0])),
        f"standard deviation over test points {in_spread}; condition number {in_condition}",
    )
    yield ordered(arrays)
    yield Finding(
        "The ResNet scaled by 1/√l keeps its accuracy to 3 points from L = 3 to 300 (t = ∞, float64)",
        mean(scaled[2] - scaled[0]).near(0, 0.03),
        f"{in_scaled}; change {mean(scaled[2] - scaled[0]):+.3f}",
    )
    yield Finding(
        "At L = 300 scaled ResNet > ResNet > edge of chaos (t = ∞, float64)",
        every(mean(scaled[2] - resnet[2]).above(0), mean(resnet[2] - edge[2]).above(0)),
        f"scaled {in_scaled}; ResNet {in_resnet}; edge {in_edge}",
    )
    yield Finding(
        f"Stopped at t = {FLOW:g} / mean eigenvalue (float64) the ordered network is at chance (below 20 %) from L = 30, the "
        "scaled ResNet keeps its accuracy to 3 points from L = 3 to 300",
        every(mean(early[ORDERED][1:], 1).below(0.2), mean(early[SCALED][2] - early[SCALED][0]).near(0, 0.03)),
        f"{ORDERED}: {in_early[ORDERED]}; {SCALED}: {in_early[SCALED]}",
    )
    yield Finding(
        "Stopped there the edge of chaos is at chance (below 20 %) at L = 300, as for the paper's larger and harder images",
        mean(early[EDGE][2]).below(0.2),
        f"{EDGE}: {in_early[EDGE]}",
    )


def figures(arrays):
    figure, (axes,) = panels(1, 4, 4, 3.8, margin=0)
    depths = arrays["depths"]
    for title, colour in zip(NETWORKS, COLOURS, strict=True):
        for axis, name in zip(axes, ("accuracy64", "accuracy_early", "spread", "condition"), strict=True):
            values = arrays[f"{title}/{name}"]
            values = np.where(np.isfinite(values) & (values < 1e18), values, math.nan)
            axis.plot(depths, values, "o-", ms=4, lw=1.4, color=colour, label=title)
        axes[0].plot(depths, arrays[f"{title}/accuracy32"], "x:", ms=5, lw=1, color=colour)
    axes[0].set(title="test accuracy, t = ∞ (crosses: float32)")
    axes[1].set(title="test accuracy, t = 100 / mean eigenvalue", ylim=(0, 1))
    axes[2].set(title="standard deviation of predictions", yscale="log")
    axes[3].set(title="condition number", yscale="log")
    for axis in axes:
        axis.set(xscale="log", xlabel="depth L")
    axes[0].legend(fontsize=8)
    text = "Kernel regression to the end of training with the tangent kernels of infinitely wide networks. A line ends where the "
    text += "training kernel can no longer be factorised."
    return [("Kernel regression over depth", text, figure)]
