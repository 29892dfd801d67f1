"""Whether a run may go on in a folder: only as the run that it is."""

import fcntl
import inspect
import json
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from limits.kept.identity import identity, version, version_of
from limits.kept.store import open_inside

# Fields that change nothing in what is learned, or not by more than rounding.
FREE = {"mesh", "sharding", "evaluate_every", "save_every", "keep", "analysis", "also", "profile", "steps", "name"}


def check_same(
    folder: Any,
    then: Mapping[str, Any] | None,
    now: Mapping[str, Any],
    defaults: Mapping[str, Any],
    depends_on_steps: Callable[[int, int], str],
    accept: bool = False,
) -> None:
    """Raises unless a checkpoint (its `info`; None: there is none) is of the run that is to go on (`now`).

    `depends_on_steps(steps, done)`: what of the first `done` steps is another in a run of so many steps. accept: other code,
    versions and data are taken for the same.
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
    if not words and (what := depends_on_steps(old["steps"], done)):
        words = [f"steps={old['steps']}, not {new['steps']}, and its {what} depend on that"]
    if words:
        raise ValueError(
            f"{folder} holds a run with {'; '.join(words)}. Choose another folder with --workdir, or remove this one to "
            "begin anew."
        )
    if not accept and (words := _other_code(then.get("code"), now.get("code")) + _other_data(then, now)):
        raise ValueError(
            f"{folder} holds a run with {'; '.join(words)}. Undo the change, choose another folder with --workdir, or, if the "
            "results do not depend on it, say --accept_changes."
        )


def code_of(functions: Mapping[str, Callable[..., Any]]) -> dict[str, dict[str, str]]:
    """A word for the content of each function, and the versions of what they may use."""
    versions = {"limit-zoo": version(), "python": platform.python_version()}
    versions |= {name: version_of(name) for name in ("jax", "flax", "optax", "numpy")}
    return {"functions": {name: _content(function) for name, function in functions.items()}, "versions": versions}


def _content(function: Callable[..., Any]) -> str:
    try:
        return identity(function)
    except TypeError:  # it uses what has no content, such as an open file
        return identity(inspect.getsource(function))


def _other_code(then: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[str]:
    """What differs, in words."""
    if now is None or then == now:
        return []
    if then is None:
        return ["the code of an earlier version of limit-zoo"]
    versions = [f"{name} {old}, not {now['versions'].get(name)}" for name, old in then["versions"].items()
                if old != now["versions"].get(name)]  # fmt: skip
    if then["versions"]["limit-zoo"] != now["versions"]["limit-zoo"]:  # every function's word holds it
        return versions[:1]
    names = sorted({*then["functions"], *now["functions"]})
    changed = [name for name in names if then["functions"].get(name) != now["functions"].get(name)]
    why = f"; {'; '.join(versions)}" if versions else ""
    return [f"another {', '.join(changed)} (the code, or what it uses, has changed{why})"] if changed else []


def _other_data(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Which data, of those that both know, are others than they were: a text by its word; samples by {kind of device: word}."""
    old, new = (each.get("content", {}) for each in (then, now))
    words = []
    for name in old:
        if isinstance(old[name], str):
            if old[name] != new.get(name, old[name]):
                words.append(f"another text in data.{name} (its files have changed)")
        elif any(word != new.get(name, {}).get(kind, word) for kind, word in old[name].items()):
            own = {"batches": "another first batch", "validation": "other samples from validation()"}
            what = own.get(name, f"other samples in data.{name}")
            words.append(f"{what} (the code that makes them, or what it reads, has changed)")
    return words


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back: tuples are lists; objects, which are written as words, without their addresses."""
    return json.loads(re.sub(r" at 0x[0-9a-f]+", "", json.dumps(config)))


def _word(config: Mapping[str, Any], name: str) -> str:
    return json.dumps(config[name]) if name in config else "none"


def lock(folder: Any) -> Any:
    """Keeps other processes out of a folder on this machine's disks, as long as this one lives and holds what is returned."""
    if "://" in str(folder):
        return None
    file = open_inside(Path(folder) / ".lock")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise OSError(f"Another process is writing to {folder}: wait for it, or choose another --workdir.") from None
    except OSError:  # a file system without locks
        pass
    return file
