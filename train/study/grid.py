"""The whole grid of a study: all of its sizes, each kept as soon as it is finished."""

import math
from typing import Any

from rich.markup import escape

from train.progress import add_parts, parts_bar
from train.study.cell_records import CellRecords
from train.study.outcomes import outcome_of
from train.study.study import Study
from train.transfer import Outcome
from train.transfer.cells import save_arrays


def absent_limits(study: Study) -> dict[str, str]:
    """Why settings have no limit, where limits are asked for."""
    if study.config.get("limit") is None:
        return {}
    return {label: why for _, label, fields in study.variants() if (why := study.no_limit(fields))}


def conduct(study: Study, part: tuple[int, int], screen: Any) -> Outcome | None:
    """Trains those of this part's cells that are not kept yet; the outcome where all cells are there."""
    absent = absent_limits(study)
    cells = [cell for cell in study.cells() if not (math.isinf(cell.width) and cell.label in absent)]
    mine = sorted(cells, key=lambda cell: cell.cost, reverse=True)[part[0] :: part[1]]
    todo = [(cell, count) for cell in mine if (count := study.missing(cell))]
    if len(todo) < len(mine):
        screen.print(f"{len(mine) - len(todo)} of {len(mine)} sizes were already there: continuing from them.")
    runs = len(study.wanted(cells[0])[1])
    if parts := [count for _, count in todo if count < runs]:
        screen.print(f"Of {len(parts)} more, {sum(parts)} of {len(parts) * runs} runs are missing, and trained.")
    records = CellRecords(study)
    with parts_bar(screen) as bar:
        whole, left = sum(cell.cost for cell in mine), sum(cell.cost * count / runs for cell, count in todo)
        task = add_parts(bar, "sizes", whole, whole - left)
        for cell, _ in reversed(todo):
            bar.update(task, description=escape(f"{cell.label} {cell.width:g} × {cell.depth}".strip()))
            trained = study.complete(cell, lambda done, cell=cell: bar.advance(task, cell.cost * done / runs))
            records.write(cell, trained)
    found = {cell.key: sweeps for cell in cells if (sweeps := study.sweeps(cell)) is not None}
    if gone := sum(cell.key not in found for cell in mine):
        raise FileNotFoundError(
            f"{gone} of the {len(mine)} sizes that were finished are no longer in {study.folder}: it was moved, removed or "
            "replaced meanwhile. Put it back, and the same command continues from what is kept."
        )
    if len(found) < len(cells):
        screen.print(
            f"Part {part[0]} of {part[1]} is finished; {len(found)} of {len(cells)} sizes are there. The "
            "report is written by whoever finds all of them: run any part again."
        )
        return None
    outcome = outcome_of(study, found, absent)
    save_arrays(study.folder / "arrays.npz", outcome.arrays())
    return outcome
