"""The fields of a config of launch.train: defaults, and what they may be."""

from collections.abc import Mapping
from typing import Any

DEFAULTS = {
    "seed": 0, "schedule": "constant", "warmup": 0, "members": 0, "mesh": {}, "sharding": "replicate", "accumulate": 1,
    "average": 0.0, "evaluate_every": 0, "save_every": 0, "keep": 3, "analysis": 0, "also": "", "profile": (0, 0),
}  # fmt: skip
NEEDED = ("name", "width", "depth", "steps", "learning_rate")
_LEAST = {"steps": 1, "batch": 1, "accumulate": 1, "keep": 1, "seed": 0, "warmup": 0, "members": 0, "evaluate_every": 0,
          "save_every": 0, "analysis": 0}  # fmt: skip


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
    for name, least in _LEAST.items():
        value = fields.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    if not isinstance(fields.get("average", 0.0), int | float) or not 0 <= fields.get("average", 0.0) < 1:
        raise ValueError(f"average, the decay of averaged parameters, must lie in [0, 1); got {fields['average']!r}.")
    profile = fields.get("profile", (0, 0))
    if not isinstance(profile, list | tuple) or len(profile) != 2:
        raise ValueError(f"profile must be (first step, number of steps); got {profile!r}.")
    wrong = set(str(fields.get("also", "")).split(",")) - {"", "tensorboard", "wandb"}
    if wrong:
        raise ValueError(f'also takes "tensorboard", "wandb", or both with a comma; got "{fields["also"]}".')
    return {**DEFAULTS, **fields}


def unused(fields: Mapping[str, Any], asked_for: set[str]) -> list[str]:
    """Fields that neither the trainer nor a function of the config (`asked_for`: their arguments) reads.

    >>> unused({"width": 8, "membrs": 3, "smoothing": 0.1}, {"smoothing"})
    ['membrs']
    """
    return sorted(set(fields) - {*DEFAULTS, *NEEDED, "batch", "data"} - asked_for)
