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
        interval = scipy.stats.binomtest(round(each.test_error * n), n).proportion_ci(method="wilson")
        rows.append([
            f"{each.family}, depth {each.depth}", each.kernel.upper(), f"{each.test_error:.2%}",
            f"{interval.low:.2%} to {interval.high:.2%}", f"{each.path.error[best]:.2%}",
            f"{each.path.ridge / each.scale:.2g}{at_end}",
        ])  # fmt: skip
        if approximate:
            rows[-1].append(f"{each.off if each.left is None else each.left:.1e}")
    columns = ["network", "kernel", "test error", "95 % interval", "left-out error", "ridge"]
    if approximate:
        columns.append("left of the trace" if settings.landmarks else "off the kernel by")
    best = min(found, key=lambda each: each.test_error)
    also = ", and their mirror images" if settings.flip else ""
    sentence = (
        f"{len(data.x)} samples of {data.name} to train on{also}, {n} to test: the least test error, {best.test_error:.2%}, is "
        f"that of the {best.kernel.upper()} of {best.family} at depth {best.depth}. Ridges, in units of the mean diagonal, were "
        f"chosen by {best.path.how}."
    )
    table = Table(columns, rows, screen=6)
    numbers = {"data": data.name, "n_train": len(data.x), "n_test": n, "kernels": [each.numbers() for each in found]}
    return Report(
        "Regression with kernels of infinite networks", [Text(sentence), table, _picture(found)], numbers, run
    )


def _picture(found: Sequence[KernelScore]) -> Picture:
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    loss, error = figure.subplots(1, 2)
    for each in found:
        label = f"{each.family}, depth {each.depth}, {each.kernel.upper()}"
        (line,) = loss.plot(each.path.ridges / each.scale, each.path.loss, "o-", ms=3, label=label)
        error.plot(each.path.ridges / each.scale, each.path.error, "o-", ms=3, color=line.get_color())
        error.plot(each.path.ridge / each.scale, each.test_error, "*", ms=11, color=line.get_color())
    loss.set(xscale="log", xlabel="ridge over mean diagonal", title="squared error of a sample left out")
    error.set(xscale="log", xlabel="ridge over mean diagonal", title="share of wrong classes, left out (star: test)")
    for axis in (loss, error):
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*loss.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return Picture("Scores of ridges", "The ridge of least squared error is taken.", figure)
