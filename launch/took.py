"""What a report says of seconds, device and versions: of a rerun that computes nothing, what it said before."""

import re
import time
from pathlib import Path
from typing import Any

from train.evaluate.report import numbers_in

_SAID = ("seconds", "code", "versions", "device", "processor", "command")


def earlier(file: Any) -> dict[str, Any]:
    """What a report (report.json) says of the run that it is of; nothing where it cannot be read."""
    document = numbers_in(file)
    run = document.get("run", document)  # analyses have theirs beside what they found
    return run if isinstance(run, dict) else {}


def said(run: dict[str, Any]) -> dict[str, Any]:
    """Of a run what is no news of one that computes nothing."""
    return {name: run[name] for name in _SAID if name in run}


_HOW = re.compile(
    r"--(config|workdir|(no)?(debug|live|keep_compiled)(=|$)|live_port)"
)  # a program runs, not what it computes


def _asked(command: str) -> set[str]:
    """What flags other than the config's and the folder ask for, as a part or a budget of a study.

    >>> _asked("python3 -m launch.transfer --config=a --workdir=b --only=mup --nolive --debug")
    {'--only=mup'}
    """
    return {word for word in command.split() if word.startswith("--") and not _HOW.match(word)}


class Took:
    """Looks, before and after a program's work, at the files in which it keeps what it has computed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     took = Took(Path(folder), started=time.time())
    ...     took.of({"command": "again"})["command"]
    'again'
    """

    def __init__(self, folder: Path, started: float, kept: str = "cells") -> None:
        self.folder, self.started, self._kept = folder, started, folder / kept
        self._before = self._files()

    def _files(self) -> dict[str, tuple[int, int]]:
        found = {}
        for file in self._kept.rglob("*.np[yz]"):
            about = file.stat()
            found[str(file)] = about.st_mtime_ns, about.st_ino
        return found

    def of(self, run: dict[str, Any]) -> dict[str, Any]:
        """With the seconds since the start; or with what the report before says, if it is of the same and nothing is new.

        Of what was interrupted they are those of its last session, and "earlier" says so.
        """
        run, before = {**run, "seconds": round(time.time() - self.started, 1)}, earlier(self.folder / "report.json")
        same = "config" if "config" in run else "command"
        alike = bool(self._before and before) and before.get(same) == run[same]
        alike = alike and _asked(before.get("command", "")) == _asked(run.get("command", ""))
        now = self._files()
        if alike and now == self._before:
            return {**run, **said(before)}
        there = sum(now.get(file) == about for file, about in self._before.items())
        sentence = f"{there} of {len(now)} kept files were there before this session, of which the seconds are"
        return run | {"earlier": sentence} if there else run
