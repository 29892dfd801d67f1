"""What regression with kernels of whole data sets says: a table and a picture."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from train.evaluate.report import Picture, Report, Table, Text
from train.study.regression import KernelScore, Regression, Samples

if TYPE_CHECKING:
    import scipy.stats


def report(found: Sequence[KernelScore], data: Samples, settings: Regression, run: Any) -> Report:
    """A row a kernel, and the scores of all ridges."""
    rows, n, approximate = [], len(data.x_test), settings.landmarks or settings.networks
    for each in found:
        best, at_end = int(np.argmin(each.path.loss)), " (at the end)" if each.path.at_end else ""
        if each.test_error is None:
            scores = [f"{each.test_loss:.4g}", f"{each.path.loss[best]:.4g}"]
        else:
            interval = scipy.stats.binomtest(round(each.test_error * n), n).proportion_ci(method="wilson")
            spread = f"{interval.low:.2%} to {interval.high:.2%}"
            scores = [f"{each.test_error:.2%}", spread, f"{each.path.error[best]:.2%}"]
        ridge = f"{each.path.ridge / each.scale:.2g}{at_end}"
        rows.append([f"{each.family}, depth {each.depth}", each.kernel.upper(), *scores, ridge])
        if approximate:
            rows[-1].append(f"{each.off if each.left is None else each.left:.1e}")
    scored = ["test error", "95 % interval", "left-out error"] if data.classes else ["test loss", "left-out loss"]
    columns = ["network", "kernel", *scored, "ridge"]
    if approximate:
        columns.append("left of the trace" if settings.landmarks else "off the kernel by")
    best = min(found, key=score)
    least = (
        f"test error, {score(best):.2%},"
        if data.classes
        else f"test loss (squared error of a sample), {score(best):.4g},"
    )
    also = ", and their mirror images" if settings.flip else ""
    sentence = (
        f"{len(data.x)} samples of {data.name} to train on{also}, {n} to test: the least {least} is "
        f"that of the {best.kernel.upper()} of {best.family} at depth {best.depth}. Ridges, in units of the mean diagonal, were "
        f"chosen by {best.path.how}."
    )
    table = Table(columns, rows, screen=6)
    numbers = {
        "data": data.name,
        "n_train": len(data.x),
        "n_test": n,
        "kernels": [each.numbers() for each in found],
        "run": run,
    }
    return Report(
        "Regression with kernels of infinite networks", [Text(sentence), table, _picture(found)], numbers, run
    )


def _picture(found: Sequence[KernelScore]) -> Picture:
    from matplotlib.figure import Figure  # slow to import

    classes = all(each.test_error is not None for each in found)
    figure = Figure(figsize=(10, 3.6) if classes else (6, 3.6), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, 1 + classes))
    for each in found:
        label, ridge = f"{each.family}, depth {each.depth}, {each.kernel.upper()}", each.path.ridge / each.scale
        (line,) = axes[0].plot(each.path.ridges / each.scale, each.path.loss, "o-", ms=3, label=label)
        if classes:
            axes[1].plot(each.path.ridges / each.scale, each.path.error, "o-", ms=3, color=line.get_color())
        axes[-1].plot(ridge, score(each), "*", ms=11, color=line.get_color())
    titles = ["squared error of a sample left out", "share of wrong classes, left out"][: len(axes)]
    titles[-1] += " (star: test)"
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xscale="log", xlabel="ridge over mean diagonal", title=title)
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return Picture("Scores of ridges", "The ridge of least squared error is taken.", figure)


def score(each: KernelScore) -> float:
    """On the test samples: the share of wrong classes, or where there are none, the squared error."""
    return each.test_loss if each.test_error is None else each.test_error
