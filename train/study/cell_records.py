"""The runs of a sweep for TensorBoard and Weights & Biases, as soon as they are kept."""

from typing import TYPE_CHECKING, Any

import numpy as np

from train.records import OTHERS
from train.transfer.kept import KeptRuns

if TYPE_CHECKING:
    from train.study.size import Size
    from train.study.study import Study

MOST = 50  # points of a curve


class CellRecords:
    """Where the config's `also` says. To TensorBoard goes the curve of every run over its steps, under
    SETTING/WIDTH × DEPTH/NAME VALUE/seed SEED; to Weights & Biases a row a run: setting, size, hyperparameters, seed, its loss.
    """

    def __init__(self, study: "Study") -> None:
        also = str(study.config.get("also", ""))
        self._study, self._rows = study, 0
        self._others = {each: OTHERS[each](study.folder, study.config.name) for each in also.split(",") if each}

    def write(self, cell: "Size", runs: KeptRuns | None) -> None:
        """The runs that were trained of a size; of its limit, nothing."""
        if runs is None or not self._others:
            return
        study = self._study
        losses = runs.losses
        for i in range(len(runs)):
            job = {name: float(values[i]) for name, values in runs.jobs.items()}
            setting = study.label(cell.label, {name: job[name] for name in study.traced})
            finished, seed = runs.curves[i][np.isfinite(runs.curves[i])], int(runs.seeds[i])
            if write := self._others.get("tensorboard"):
                dial = study.dial.replace("_", " ")
                tag = f"{setting}/{cell.width:g} × {cell.depth}/{dial} {job[study.dial]:g}/seed {seed}"
                for step in np.unique(np.linspace(0, len(finished) - 1, MOST).astype(int)) if len(finished) else ():
                    write(int(step), {tag: float(finished[step])})
            if write := self._others.get("wandb"):
                row: dict[str, Any] = {
                    "setting": setting,
                    "width": cell.width,
                    "depth": cell.depth,
                    **job,
                    "seed": seed,
                }
                write(self._rows, {**row, "loss": float(losses[i])})
            self._rows += 1
