"""Figures of papers: what their files share, and how one is repeated and reported (configs/papers/README.md)."""

import ast
import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict
from rich.progress import track

from limits.kept.identity import identity, numerics
from limits.kept.store import Store, set_aside, unsealed
from train.evaluate.drawing import COLOURS, panels
from train.evaluate.finding import Finding, count
from train.evaluate.interval import Interval, every, exact, jackknife, mean, median, power
from train.evaluate.report import Picture, Report, Table, Text
from train.study.experiment import Experiment, load
from train.study.grid import conduct
from train.study.same_data import check_data
from train.study.study import study_of
from train.transfer.cells import save_arrays
from train.transfer.report import figures as drawings_of_sweeps
from train.transfer.report import tables

if TYPE_CHECKING:
    import matplotlib.figure

__all__ = [  # what the files of figures use, and who runs them
    "COLOURS", "SIZES", "Figure", "Finding", "Interval", "Settings", "cells", "every", "exact", "figures_in", "jackknife",
    "listing", "mean", "median", "panels", "power",
]  # fmt: skip
SIZES = ("small", "paper")
_CONFIG = re.compile(r"^(def )?get_config\b", re.MULTILINE)
_THEORY = "Theory alone: no claims; what it says is tested in tests/limits."
_COLUMNS = ("figure", "claim", "small: time and data", "paper: data", "found, small", "small here", "paper here")

Drawn = Sequence[tuple[str, str, "matplotlib.figure.Figure"]]  # (title, how to read it, figure)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The get_config of a figure: the fields of its small setting, and those that the paper's has otherwise.

    >>> get_config = Settings("fig1", {"width": 10, "members": 4}, {"members": 100})
    >>> get_config("paper").members, get_config.but("figA1", {"width": 20})("paper").width
    (100, 20)
    """

    name: str
    small: Mapping[str, Any]
    paper: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, size: str = "small") -> ConfigDict:
        """All fields in one of the two."""
        if size not in SIZES:
            raise ValueError(f'{self.name}: size must be "small" or "paper", got "{size}".')
        fields = {**self.small, **(self.paper if size == "paper" else {})}
        return ConfigDict({"name": self.name, "size": size, "seed": 0, **fields})

    def but(self, name: str, small: Mapping[str, Any], paper: Mapping[str, Any] | None = None) -> "Settings":
        """Those of another figure, which differs in these fields."""
        return Settings(name, {**self.small, **small}, {**self.paper, **small, **(paper or {})})


def cells(
    measure: Callable[..., np.ndarray], data: Any, config: ConfigDict, folder: Path, screen: Any, part: tuple[int, int]
) -> dict[tuple[int, int], np.ndarray] | None:
    """measure(config, data, width, depth) at all (width, depth) of a config, each kept as soon as it is there, for these data.

    None where those of other parts of the grid are missing.
    """
    sizes = [(width, depth) for depth in config.depths for width in config.widths]
    fixed = {name: value for name, value in config.items() if name not in ("widths", "depths")}
    store, word = Store(folder / "cells"), identity(fixed, measure, data, numerics())
    names = {(width, depth): f"width_{width}_depth_{depth}_{word}" for width, depth in sizes}
    held = {size: store.get(name) for size, name in names.items()}
    for size in track(sizes[part[0] :: part[1]], "ensembles", console=screen):
        if held[size] is None:
            held[size] = measure(config, data, *size)
            store.put(names[size], held[size])
    return None if any(each is None for each in held.values()) else held


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of a paper, read from its file: a config with claims.

    With make, optimizer, loss and batches it is a study of sweeps, and has claims(outcome, …); otherwise run(…) gives arrays, and
    there are claims(arrays) and figures(arrays). Without claims it is theory alone, and TESTED names the test of that.
    """

    file: Path

    @property
    def name(self) -> str:
        """SOURCE/FIGURE."""
        return f"{self.file.parent.name}/{self.file.stem}"

    @functools.cached_property
    def about(self) -> tuple[str, str, str, str]:
        """(title, what the small setting takes, what the paper's needs, what the small one found), from the file's docstring."""
        lines = (ast.get_docstring(ast.parse(self.file.read_text(encoding="utf-8"))) or "").splitlines()
        small, _, rest = " ".join(lines[1:]).partition("paper:")
        paper, _, found = rest.partition("found:")
        small, paper, found = (part.strip().rstrip(".") for part in (small.partition("small:")[2], paper, found))
        return lines[0], small, paper, found

    @functools.cached_property
    def module(self) -> ModuleType:
        """Its file, executed."""
        return load(self.file)

    @property
    def of_sweeps(self) -> bool:
        """Whether it is a study of sweeps."""
        return hasattr(self.module, "make")

    @property
    def has_claims(self) -> bool:
        """Whether it is more than theory."""
        return hasattr(self.module, "claims")

    def folder(self, size: str) -> Path:
        """Where its results go by default."""
        return Path("runs") / "papers" / self.name / size

    def status(self, size: str) -> str:
        """What an earlier run in the default folder found."""
        file = self.folder(size) / "report.json"
        if not file.exists():
            return "not run"
        try:
            document = json.loads(text := file.read_bytes())
            document = unsealed(text) if "checksum" in document else document
            verdicts, changed = [each["verdict"] for each in document["claims"]], document.get("run", {}).get("changed")
        except (ValueError, KeyError, TypeError) as error:
            set_aside(file, f"it cannot be read ({error})", then="The figure counts as not run.")
            return "not run"
        return (count(verdicts) or _THEORY) + (f" (with another {', '.join(changed)})" if changed else "")

    def judge(self, config: ConfigDict, measured: Any) -> list[Finding]:
        """What is found of its claims in arrays, or in an outcome of sweeps."""
        if not self.has_claims:
            return []
        return list(Experiment(str(self.file), config, ()).call("claims", measured))

    def repeat(
        self, config: ConfigDict, folder: Path, screen: Any, part: tuple[int, int] = (0, 1)
    ) -> tuple[list[Finding], Drawn] | None:
        """(what was found, drawings); None where other parts of the grid are not there yet."""
        if self.of_sweeps:
            study = study_of(f"{self.file}:{config.size}", config, folder)
            check_data(study)
            outcome = conduct(study, part, screen)
            if outcome is None:
                return None
            Report(self.about[0], tables(outcome), {}).print(screen)
            return self.judge(config, outcome), drawings_of_sweeps(outcome)
        given = {"config": config, "folder": folder, "screen": screen, "part": part}
        arrays = Experiment(str(self.file), config, ()).call("run", **given)
        if arrays is None:
            screen.print("This part is finished; others are not: run any part again for the report.")
            return None
        save_arrays(folder / "arrays.npz", arrays)
        return self.judge(config, arrays), self.module.figures(arrays)

    def report(self, found: tuple[list[Finding], Drawn], run: dict[str, Any]) -> Report:
        """The verdicts, the drawings and what was run."""
        findings, drawings = found
        verdicts = Table.of(findings) if findings else Text(_THEORY)
        rows = [{"claim": each.sentence, "verdict": each.verdict, "figures": each.figures} for each in findings]
        numbers = {"run": run, "title": self.about[0], "claims": rows}
        parts = [verdicts, *(Picture(*each) for each in drawings)]
        return Report(self.about[0], parts, numbers, run, checksum=True)

    def write(self, found: tuple[list[Finding], Drawn], run: dict[str, Any], folder: Path) -> list[Path]:
        """The report, its numbers, and every drawing as a file of its own; `run`: what was run."""
        files = self.report(found, run).write(folder)
        for number, (_, _, drawing) in enumerate(found[1], start=1):
            files.append(folder / f"figure_{number}.png")
            drawing.savefig(files[-1], dpi=150)
        return files


def figures_in(root: Path) -> dict[str, Figure]:
    """SOURCE/FIGURE → each figure in the folders of `root`: the files with a get_config."""
    files = (file for file in sorted(root.glob("*/*.py")) if _CONFIG.search(file.read_text(encoding="utf-8")))
    return {figure.name: figure for figure in map(Figure, files)}


def listing(figures: Mapping[str, Figure]) -> Table:
    """All of them, with what they take and what was found."""
    rows = [(name, *figure.about, *map(figure.status, SIZES)) for name, figure in figures.items()]
    return Table(_COLUMNS, rows, title="Figures that can be repeated")
