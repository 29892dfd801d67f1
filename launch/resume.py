"""Whether a run may go on in a folder: only as the run that it is."""

import fcntl
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Fields that change nothing in what is learned, or not by more than rounding.
FREE = {"mesh", "sharding", "evaluate_every", "save_every", "keep", "analysis", "also", "profile", "steps", "name"}


def check_same(
    folder: Any,
    then: Mapping[str, Any] | None,
    now: Mapping[str, Any],
    defaults: Mapping[str, Any],
    same_rates: Callable[[int, int], bool],
) -> None:
    """Raises unless a checkpoint (its `info`; None: there is none) is of the run that is to go on (`now`).

    `same_rates(steps, done)`: whether a run of so many steps has the same learning rates until `done`.
    """
    if then is None:
        return
    old, new = ({**_plain(defaults), **_plain(each.get("config", now["config"]))} for each in (then, now))
    words = [f"{name}={_word(old, name)}, not {_word(new, name)}" for name in sorted({*old, *new} - FREE)
             if old.get(name) != new.get(name)]  # fmt: skip
    definitions = [each.get("definition", {"absent": ""}) for each in (then, now)]
    if not words and not any("absent" in each for each in definitions) and definitions[0] != definitions[1]:
        words = ["another definition, or other fields of it"]
    done = then["step"]
    if not words and new["steps"] < done:
        words = [f"{done} steps done, more than {new['steps']}"]
    if not words and not same_rates(old["steps"], done):
        words = [f"steps={old['steps']}, not {new['steps']}, and its learning rates depend on that"]
    if words:
        raise ValueError(
            f"{folder} holds a run with {'; '.join(words)}. Choose another folder with --workdir, or remove this one to "
            "begin anew."
        )


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back: tuples are lists; objects, which are written as words, without their addresses."""
    return json.loads(re.sub(r" at 0x[0-9a-f]+", "", json.dumps(config)))


def _word(config: Mapping[str, Any], name: str) -> str:
    return json.dumps(config[name]) if name in config else "none"


def lock(folder: Any) -> Any:
    """Keeps other processes out of a folder on this machine's disks, as long as this one lives and holds what is returned."""
    if "://" in str(folder):
        return None
    file = (Path(folder) / ".lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise OSError(f"Another process is writing to {folder}: wait for it, or choose another --workdir.") from None
    except OSError:  # a file system without locks
        pass
    return file
