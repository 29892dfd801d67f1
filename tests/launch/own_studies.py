"""Studies of a config on disk, for tests of launch.transfer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from train.study.study import Study, study_of


def studies_of(place: Path, code: str) -> Callable[..., Study]:
    """(folder, code, changed fields) → the study of that file."""
    file = place / "own.py"
    file.write_text(code)

    def study(folder: str = "out", code: str = code, **fields: Any) -> Study:
        file.write_text(code)
        space: dict[str, Any] = {}
        exec(compile(code, "own", "exec"), space)
        config = space["get_config"]()
        config.update(fields)
        (place / folder / "cells").mkdir(parents=True, exist_ok=True)
        return study_of(str(file), config, place / folder)

    return study
