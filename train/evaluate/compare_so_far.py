"""What the ensembles of a comparison say that are finished, while others are trained."""

from pathlib import Path

from limits import Store
from train.evaluate.compare import Curves, Design, cells_of
from train.evaluate.compare_explored import losses
from train.evaluate.compare_report import TITLE
from train.evaluate.grid import recorded
from train.evaluate.report import Part, Report, Table, Text


def so_far(design: Design, folder: Path) -> Report:
    """Of the cells that `compare` has kept in the folder; there are no verdicts yet."""
    groups, _ = cells_of(design)
    cells, store = [cell for group in groups.values() for cell in group], Store(folder)
    there = {cell: kept for cell in cells if (kept := store.get(cell.key(design.task))) is not None}
    curves = [Curves.of(cell, kept) for cell, kept in there.items() if cell.kind == "train"]
    rows = [(c.label, str(c.depth), str(c.width), f"{c.loss[-1]:.4g} ± {c.loss_sem[-1]:.1g}") for c in curves]
    parts: list[Part] = [Text(f"{len(there)} of {len(cells)} ensembles are finished.")]
    if curves:
        columns = ("family", "depth", "width", "training loss")
        parts += [losses(curves, recorded(design.steps)), Table(columns, rows)]
    return Report(TITLE, parts, {"finished": len(there), "of": len(cells)})
