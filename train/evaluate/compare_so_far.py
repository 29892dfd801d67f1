"""What the ensembles of a comparison say that are finished, while others are trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from limits import Store, Task
from train.evaluate.compare import Curves, cells_of
from train.evaluate.compare_explored import losses
from train.evaluate.grid import recorded
from train.evaluate.report import Report, Table, Text


def so_far(
    families: dict[str, Any],
    widths: Sequence[int],
    depths: Sequence[int],
    task: Task,
    steps: int,
    learning_rate: float,
    members: int,
    init_members: int,
    seed: int,
    centred: bool,
    folder: Path,
    rich: Any,
    optimizer: Any,
) -> Report:
    """The arguments are those of `compare`, whose cells are read from the folder; there are no verdicts yet."""
    numbers = {"init": (init_members, 0, 0.0), "train": (members, steps, learning_rate)}
    groups, _ = cells_of(
        families, tuple(sorted(widths)), tuple(sorted(depths)), numbers, seed, centred, rich, optimizer
    )
    cells, store = [cell for group in groups.values() for cell in group], Store(folder)
    there = {cell: kept for cell in cells if (kept := store.get(cell.key(task))) is not None}
    curves = [Curves.of(cell, kept) for cell, kept in there.items() if cell.kind == "train"]
    rows = [(c.label, str(c.depth), str(c.width), f"{c.loss[-1]:.4g} ± {c.loss_sem[-1]:.1g}") for c in curves]
    parts = [
        Text(f"{len(there)} of {len(cells)} ensembles are finished."),
        *(
            [losses(curves, recorded(steps)), Table(("family", "depth", "width", "training loss"), rows)]
            if curves
            else []
        ),
    ]
    return Report(
        "Finite ensembles against their infinite-width twins", parts, {"finished": len(there), "of": len(cells)}
    )
