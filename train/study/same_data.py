"""Whether the data of a study are those that its kept runs were trained on: a name of a file says nothing of what is in it."""

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from limits.kept.store import DamagedError, locked, sealed, unsealed, write_whole
from train.data.content import some_rows, word_of
from train.study.size import Size

if TYPE_CHECKING:
    from train.study.study import Study

_FIRST = 4  # batches
_ROWS = 1024  # of an array, at most
_NUMBERS = 2**20  # of these rows, about, at most
_SUMS = 4  # of an array, with random weights: numbers that change places change them
_ROUNDED = 1e-4  # of the size of an array: what another device or processor rounds otherwise is less


def check_data(study: "Study") -> None:
    """Raises where runs are kept whose batches, validation samples or task were others; writes down what they are now.

    Of batches the first few are looked at, of one seed, and of large arrays some rows. Data that are not the same when they are
    made twice tell nothing, and what cannot be made is named by whoever trains with it.
    """
    file = study.folder / "cells" / "data.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.with_name(".data.lock"), f"{file}"):
        _check(study, file)


def _check(study: "Study", file: Path) -> None:
    found = kept = _read(file)
    for variant, label, fields in study.variants():
        code, of_limit = (
            study.file(Size(variant, label, fields, width, 1)).stem.rpartition("_")[2] for width in (1, math.inf)
        )
        now, then = _prints(study, fields), kept.get(code, {})
        other = [name for name in now if name in then and not alike(now[name], then[name])]
        there = any(any(file.parent.glob(f"*_{each}.npz")) for each in (code, of_limit))
        if other and there:
            raise ValueError(
                f"{study.folder} holds runs with other data: {' and '.join(other)} of {study.experiment.path.name} returned "
                "other numbers then, as files, settings or modules that are read have changed. The report would be a mixture of "
                "both: undo the change, choose another folder with --workdir, or delete the cells of this one."
            )
        found = {**found, code: {**then, **now} if there else now}
    if found != kept:
        write_whole(file, sealed(found).encode())


def prints(values: Any) -> list[Any]:
    """Of every array in a tree its shape with a word for whole numbers, or some sums for others; of large ones, of some rows."""
    found = []
    for each in map(np.atleast_1d, map(np.asarray, jax.tree.leaves(values))):
        most = min(_ROWS, max(1, _NUMBERS * len(each) // max(each.size, 1)))
        rows = some_rows(each, most)
        if each.dtype.kind in "biu":
            found.append([[*each.shape], word_of(rows)])
        else:
            flat, draw = rows.astype(float).ravel(), np.random.default_rng(0)
            sums = [float(draw.normal(size=flat.size) @ flat) for _ in range(_SUMS)]
            found.append([[*each.shape], float(np.linalg.norm(flat)), *sums])
    return found


def alike(one: list[Any], other: list[Any]) -> bool:
    """Whether these are `prints` of the same arrays, but for roundings.

    >>> x = np.arange(6.0)
    >>> [alike(prints(x), prints(other)) for other in (x * (1 + 1e-7), x[::-1], x + 1e-3, x[:5], x.astype(int))]
    [True, False, False, False, False]
    """
    if [(a[0], len(a)) for a in one] != [(b[0], len(b)) for b in other]:
        return False
    pairs = [(a[1:], b[1:]) for a, b in zip(one, other, strict=True)]
    return all(
        a == b
        if len(a) == 1
        else all(math.isclose(c, d, rel_tol=0, abs_tol=_ROUNDED * a[0]) for c, d in zip(a, b, strict=True))
        for a, b in pairs
    )


def _prints(study: "Study", fields: dict[str, Any]) -> dict[str, list[Any]]:
    """Of what a setting's functions return, those that are asked and that return the same when they are asked again."""
    asked = {"batches": True, "validation": study.scored != "training", "task": study.config.get("limit") is not None}
    found = {}
    for name in (name for name, is_asked in asked.items() if is_asked and study.experiment.has(name)):
        try:
            one, again = (prints(_made(study, name, fields)) for _ in range(2))
        except Exception:  # of a user's function
            continue
        if alike(one, again):
            found[name] = one
    return found


def _made(study: "Study", name: str, fields: dict[str, Any]) -> Any:
    if name == "batches":
        return list(itertools.islice(iter(study.call(name, **{**fields, "seed": study.first})), _FIRST))
    found = study.call(name, **fields)
    return [found.x_train, found.y_train] if name == "task" else found


def _read(file: Path) -> dict[str, Any]:
    try:
        return unsealed(file.read_bytes())
    except (FileNotFoundError, DamagedError):
        return {}
