"""All sweeps of a transfer study: one for every setting and size."""

import dataclasses
import itertools
from typing import Any

import numpy as np

from train.transfer.cells import along
from train.transfer.shift import Transfer
from train.transfer.sweep import Sweep, loss_at


@dataclasses.dataclass(frozen=True)
class Outcome:
    """`sweeps`: {label: {(width, depth): sweep over `dial`}}, a label a setting; `limits`: {label: {depth: sweep}}.

    `settings`: of every label the value of each axis, and under "setting" the label without them; `absent`: why a label
    has no limit.
    """

    dial: str
    sweeps: dict[str, dict[tuple[float, int], Sweep]]
    limits: dict[str, dict[int, Sweep]] = dataclasses.field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    absent: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """The settings."""
        return list(self.sweeps)

    def series(self, label: str) -> list[Transfer]:
        """Sizes of this setting that differ in width alone or in depth alone."""
        return along(self.sweeps[label])

    def over(self, label: str, over: str) -> Transfer:
        """The first of them over width, or over depth."""
        found = [series for series in self.series(label) if series.over == over] if label in self.sweeps else []
        if not found:
            raise ValueError(f'There are no two sizes of "{label}" that differ in {over} alone.')
        return found[0]

    def best_values(self) -> list[tuple[str, str, str, str, str]]:
        """(setting, axis, size, best value with everything else tuned, loss there), for axes with more than one value."""
        rows = []
        axes = [
            axis
            for axis in dict.fromkeys(axis for each in self.settings.values() for axis in each)
            if axis != "setting"
        ]
        groups: dict[str, list[str]] = {}
        for label, setting in self.settings.items():
            groups.setdefault(setting["setting"], []).append(label)
        for axis, (group, labels) in itertools.product(axes, groups.items()):
            for width, depth in self.sweeps[labels[0]]:
                losses = [self.sweeps[label][width, depth].optimum().loss for label in labels]
                value = self.settings[labels[int(np.argmin(losses))]][axis]
                rows.append((group, axis, f"{width:g} × {depth}", str(value), f"{min(losses):.4g}"))
        return rows

    def best_label(self) -> str:
        """The setting whose largest sizes have the least loss at the smallest one's optimum."""

        def transferred(label: str) -> float:
            ends = [(series.sweeps[0], series.sweeps[-1]) for series in self.series(label)]
            ends = ends or [(sweep, sweep) for sweep in self.sweeps[label].values()]
            return max(loss_at(large.rates, large.losses.mean(1), small.optimum().log_rate) for small, large in ends)

        return min(self.labels, key=transferred)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that is drawn, for a file of arrays."""
        found = {}
        for label, sizes in self.sweeps.items():
            for (width, depth), sweep in sizes.items():
                found[f"{label}/{width:g}x{depth}/{self.dial}"] = sweep.rates
                found[f"{label}/{width:g}x{depth}/curves"] = sweep.curves
        for label, depths in self.limits.items():
            for depth, sweep in depths.items():
                found[f"{label}/limit x{depth}/curves"] = sweep.curves
        return found
