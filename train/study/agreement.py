"""Whether all processes run the same: config, code and versions, compared before the first step."""

import hashlib
import json
import platform
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from jax._src import distributed  # its store of keys works before any program runs on devices
from ml_collections import ConfigDict

from limits.kept.identity import version_of

_HOME = Path(__file__).resolve().parents[2]
_ROOMS = ("zoo", "limits", "train", "configs", "launch")
_PACKAGES = ("limit-zoo", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
_OPTIONS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable")
_PATIENCE = 600  # seconds
_rounds = 0


def what_runs(config_file: Path, config: Mapping[str, Any] | ConfigDict, **more: Any) -> dict[str, str]:
    """{what: its value as a word} of everything that decides what is computed.

    The fields of a config; hashes of its file, of own modules in that folder that are loaded, and of this package's files;
    versions; options of jax; and `more`.
    """
    fields = {name: _word(value) for name, value in config.items()}
    config_file = config_file.resolve()
    own = {"the config file": config_file} | {
        name: file for name, file in _loaded_below(config_file.parent).items() if file != config_file
    }
    package = {str(file.relative_to(_HOME)): file for room in _ROOMS for file in (_HOME / room).rglob("*.py")}
    code = {f"the code of {name}": _hash(file.read_bytes()) for name, file in {**package, **own}.items()}
    versions = {f"the version of {name}": version_of(name) for name in _PACKAGES}
    versions["the version of Python"] = platform.python_version()
    options = {name: str(getattr(jax.config, name)) for name in _OPTIONS}
    return {**fields, **options, **{name: _word(value) for name, value in more.items()}, **versions, **code}


def _loaded_below(folder: Path) -> dict[str, Path]:
    """The files of modules that lie in a folder, without installed ones and this package's."""
    found = {}
    for module in list(sys.modules.values()):
        file = Path(getattr(module, "__file__", None) or "/")
        ours = any(_HOME / room in file.parents for room in _ROOMS)
        if folder in file.parents and file.suffix == ".py" and "site-packages" not in file.parts and not ours:
            found[str(file.relative_to(folder))] = file
    return found


def _word(value: Any) -> str:
    """A value as JSON; objects, which are written as words, without their addresses."""
    plain = value.to_json_best_effort() if hasattr(value, "to_json_best_effort") else json.dumps(value, default=str)
    return re.sub(r" at 0x[0-9a-f]+", "", plain)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def differences(every: Mapping[int, Mapping[str, str]], hosts: Mapping[int, str]) -> list[str]:
    """A phrase for each thing that is not the same word on all processes.

    >>> differences({0: {"seed": "1"}, 1: {"seed": "2"}}, {0: "a", 1: "b"})
    ['seed is 1 on process 0 (a) and 2 on process 1 (b)']
    """
    found = []
    for name in dict.fromkeys(name for fields in every.values() for name in fields):
        holders: dict[str, list[int]] = {}
        for i, fields in every.items():
            holders.setdefault(fields.get(name, "absent"), []).append(i)
        if len(holders) > 1:
            found.append(f"{name} is " + " and ".join(f"{_short(w)} on {_who(p, hosts)}" for w, p in holders.items()))
    return found


def _short(word: str) -> str:
    return word if len(word) <= 100 else f"{word[:80]}… (hash {_hash(word.encode())[:6]})"


def _who(processes: list[int], hosts: Mapping[int, str]) -> str:
    if len(processes) == 1:
        return f"process {processes[0]} ({hosts[processes[0]]})"
    return f"processes {', '.join(map(str, processes[:6]))}{', …' if len(processes) > 6 else ''}"


def same_everywhere(fields: Mapping[str, str]) -> None:
    """Raises on all processes, with what differs, unless all call this with the same fields. Called by all at the same point."""
    global _rounds
    known = distributed.global_state
    if known.client is not None and known.num_processes > 1:
        _rounds += 1
        compare(known.client, f"limit-zoo/fields/{_rounds}/", known.process_id, known.num_processes, fields)


def compare(client: Any, place: str, process: int, processes: int, fields: Mapping[str, str]) -> None:
    """As `same_everywhere`, by what lies at a place in a store of keys."""

    def told(what: str, by: int) -> Any:
        return json.loads(client.blocking_key_value_get(f"{place}{what}/{by}", _PATIENCE * 1000))

    words = json.dumps(fields)
    client.key_value_set(f"{place}fields/{process}", words)
    client.key_value_set(f"{place}hash/{process}", json.dumps([socket.gethostname(), _hash(words.encode())]))
    hosts, hashes = zip(*(told("hash", i) for i in range(processes)), strict=True)
    if len(set(hashes)) == 1:
        return
    kinds = {each: told("fields", hashes.index(each)) for each in set(hashes)}  # the words only of those that differ
    found = differences({i: kinds[each] for i, each in enumerate(hashes)}, dict(enumerate(hosts)))
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    raise ValueError(
        f"The processes do not run the same: {'; '.join(found[:3])}{more}. Start all with the same command, config, code and "
        "versions."
    )
