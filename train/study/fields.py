"""The fields of a config of launch.train: defaults, and what they may be."""

from collections.abc import Mapping
from typing import Any

from train.mesh import AXES
from train.records import ALSO
from zoo import checks
from zoo.messages import did_you_mean

DEFAULTS = {
    "seed": 0, "schedule": "constant", "warmup": 0, "members": 0, "mesh": {}, "sharding": "replicate", "accumulate": 1,
    "average": 0.0, "evaluate_every": 0, "save_every": 0, "keep": 3, "analysis": 0, "also": "", "profile": (0, 0),
}  # fmt: skip
NEEDED = ("name", "width", "depth", "steps", "learning_rate")
CHECKS = {
    "name": checks.word, "width": checks.count(), "depth": checks.count(), "steps": checks.count(), "batch": checks.count(),
    "learning_rate": checks.number(0), "weight_decay": checks.number(0), "seed": checks.count(0, 2**32 - 1),
    "schedule": checks.word, "warmup": checks.count(0), "members": checks.count(0), "mesh": checks.table,
    "accumulate": checks.count(), "average": checks.number(0, 1), "evaluate_every": checks.count(0),
    "save_every": checks.count(0), "keep": checks.count(), "analysis": checks.count(0), "data": checks.table,
    "profile": checks.Check("(first step, number of steps)", lambda v: len(v) == 2 and all(map(checks.count(0).holds, v))),
    "also": ALSO, "sharding": checks.word | checks.several(checks.Check("(pattern, rule)", lambda v: len(v) == 2)),
}  # fmt: skip


def checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with the defaults.

    >>> checked({"name": "a", "width": 8, "depth": 1, "steps": 3, "learning_rate": 0.1, "batch": 2})["keep"]
    3
    """
    missing = [name for name in NEEDED if name not in fields]
    missing += ["batch"] if "data" in fields and "batch" not in fields else []
    if missing:
        raise ValueError(
            f"The config lacks {', '.join(missing)}: give each in the file, or as --set={missing[0]}=VALUE."
        )
    for name, check in CHECKS.items():
        if name in fields:
            check(name, fields[name])
    if fields.get("data") and not checks.word.holds(fields["data"].get("name")):
        raise ValueError(
            f"data must have a name, as in {{'name': 'digits'}}; got {checks.shown(dict(fields['data']))}."
        )
    for part in ("train", "test"):
        if (split := fields.get("data", {}).get(part)) is not None:
            checks.word(f"data.{part}", split)
    checks.flag("data.on_device", fields.get("data", {}).get("on_device"))
    for axis in fields.get("mesh", {}):
        if axis not in AXES:
            raise ValueError(f'mesh has no axis "{axis}". {did_you_mean(str(axis), AXES)}')
    return {**DEFAULTS, **fields}


def unused(fields: Mapping[str, Any], asked_for: set[str]) -> list[str]:
    """Fields that neither the trainer nor a function of the config (`asked_for`: their arguments) reads.

    >>> unused({"width": 8, "membrs": 3, "smoothing": 0.1}, {"smoothing"})
    ['membrs']
    """
    return sorted(set(fields) - {*DEFAULTS, *NEEDED, "batch", "data"} - asked_for)
