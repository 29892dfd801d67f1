"""Repeats figures of papers, and says which of their claims hold.

    python3 -m launch.reproduce --list
    python3 -m launch.reproduce depthwise_transfer/fig1 [--size=small|paper] [--workdir=DIR] [--shard=i/n] [--config.FIELD=…]

small: minutes on two CPU cores, with handwritten digits. paper: the paper's own setting, where the data are on this machine.
A figure is a config in configs/papers/SOURCE: a study of launch.transfer with claims(outcome, …), or run(config, folder, console,
part) that returns arrays, with claims(arrays) and figures(arrays). Ends in report.html, report.json, arrays.npz, figure_*.png.
A claim holds only where 95 % intervals say so (train.evaluate.interval); what was found is in the list, in the files' headers.
"""

import ast
import html
import json
import sys
import time
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import config_flags
from rich.table import Table

import configs
from launch import common
from launch.transfer import part_of_grid
from limits.store import sealed, set_aside, unsealed
from train.evaluate import claim
from train.evaluate.page import page, picture, plain
from train.study.experiment import load
from train.study.study import conduct, study_of
from train.transfer import report as transfer_report
from train.transfer.cells import save_arrays
from zoo.messages import did_you_mean

_SIZES = ("small", "paper")
_THEORY = "Theory alone: no claims; what it says is tested in tests/limits."
_LIST = flags.DEFINE_boolean(
    "list", False, "Print every figure with the time it takes, the data it needs, and its status."
)
_SIZE = flags.DEFINE_enum("size", "small", _SIZES, "The setting: minutes on two cores, or the paper's.")


def papers() -> dict[str, Path]:
    """SOURCE/FIGURE → its config."""
    root = Path(next(iter(configs.__path__))) / "papers"
    files = (file for file in sorted(root.glob("*/*.py")) if "def get_config(" in file.read_text(encoding="utf-8"))
    return {f"{file.parent.name}/{file.stem}": file for file in files}


def folder_of(name: str, size: str) -> Path:
    """Where its results go by default."""
    return Path("runs") / "papers" / name / size


def describe(file: Path) -> tuple[str, str, str, str]:
    """(title, what the small setting takes, what the paper's needs, what the small one found), from the file's docstring."""
    lines = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").splitlines()
    small, _, rest = " ".join(lines[1:]).partition("paper:")
    paper, _, found = rest.partition("found:")
    small, paper, found = (part.strip().rstrip(".") for part in (small.partition("small:")[2], paper, found))
    return lines[0], small, paper, found


def status(name: str, size: str) -> str:
    """What an earlier run in the default folder found."""
    file = folder_of(name, size) / "report.json"
    if not file.exists():
        return "not run"
    try:
        document = json.loads(text := file.read_bytes())
        verdicts = [each["verdict"] for each in (unsealed(text) if "checksum" in document else document)["claims"]]
    except (ValueError, KeyError, TypeError) as error:
        set_aside(file, f"it cannot be read ({error})", then="The figure counts as not run.")
        return "not run"
    counts = {verdict: verdicts.count(verdict) for verdict in ("holds", "does not hold", "undecided")}
    return ", ".join(f"{verdict}: {count}" for verdict, count in counts.items() if count) or _THEORY


def listing() -> Table:
    """Every figure there is."""
    table = Table(title="Figures that can be repeated")
    for column in (
        "figure",
        "claim",
        "small: time and data",
        "paper: data",
        "found, small",
        "small here",
        "paper here",
    ):
        table.add_column(column, overflow="fold")
    for name, file in papers().items():
        table.add_row(name, *describe(file), status(name, "small"), status(name, "paper"))
    return table


def repeat(path: str, config: Any, folder: Path, screen: Any, part: tuple[int, int] = (0, 1)) -> Any:
    """(claims, pictures); None where other parts of the grid are not there yet."""
    module = load(Path(path.partition(":")[0]))
    if not hasattr(module, "make"):
        arrays = module.run(config, folder, screen, part)
        if arrays is None:
            screen.print("This part is finished; others are not: run any part again for the report.")
            return None
        save_arrays(folder / "arrays.npz", arrays)
        return module.claims(arrays), module.figures(arrays)
    study = study_of(path, config, folder)
    outcome = conduct(study, part, screen)
    if outcome is None:
        return None
    for label in outcome.labels:
        for series in outcome.series(label):
            screen.print(f"\n{label}", style="bold")
            screen.print(series)
    return study.call("claims", outcome), transfer_report.figures(outcome)


def write(title: str, found: tuple, run: dict[str, Any], folder: Path) -> list[Path]:
    """The report, its numbers, and every picture as a file of its own."""
    claims, pictures = found
    verdicts = claim.as_html(claims) if claims else f"<p>{_THEORY}</p>"
    body = f"<h1>{html.escape(title)}</h1>{verdicts}{''.join(picture(*each) for each in pictures)}"
    whole = page(title, f"{body}<h2>What was run</h2><pre>{html.escape(json.dumps(run, indent=2))}</pre>")
    rows = [{"claim": c.text, "verdict": c.verdict, "figures": c.figures} for c in claims]
    numbers = sealed(plain({"run": run, "title": title, "claims": rows}))
    files = [common.write_whole(folder / "report.html", whole), common.write_whole(folder / "report.json", numbers)]
    for number, (_, _, figure) in enumerate(pictures, start=1):
        files.append(folder / f"figure_{number}.png")
        figure.savefig(files[-1], dpi=150)
    return files


def main() -> None:
    """Runs one figure."""
    started, config, screen = time.time(), common.config(), common.console()
    path = config_flags.get_config_filename(flags.FLAGS["config"])
    file = Path(path.partition(":")[0])
    name = f"{file.parent.name}/{file.stem}"
    folder = common.workdir(f"papers/{name}/{config.size}")
    run = common.provenance(config) | {"command": f"python3 -m launch.reproduce {name} --size={config.size}"}
    (folder / "config.json").write_text(json.dumps(run, indent=2) + "\n")
    title, small, paper, _ = describe(file)
    screen.print(f"{title}\nsmall: {small}; paper: {paper}. Now: {config.size}, into {folder}.", highlight=False)
    found = repeat(path, config, folder, screen, part_of_grid())
    if found is None:
        return
    run["seconds"] = round(time.time() - started, 1)
    screen.print(claim.as_table(found[0], title))
    for file in write(title, found, run, folder):
        screen.print(f"wrote {file}", highlight=False)
    screen.print(f"{time.time() - started:.0f} s", highlight=False)


def _is_value(before: list[str]) -> bool:
    """Whether the next argument is the value of the flag before it."""
    return bool(before) and before[-1] in ("--size", "--workdir", "--shard", "--only")


def run() -> None:
    """Entry point: the figure's name becomes its config."""
    arguments = sys.argv[1:]
    if "--list" in arguments:
        common.console().print(listing())
        return
    names = [a for i, a in enumerate(arguments) if not a.startswith("-") and not _is_value(arguments[:i])]
    if not {"-h", "--help"} & set(arguments):
        known = papers()
        if len(names) != 1 or names[0] not in known:
            hint = did_you_mean(names[0], known) if names else f"One of {', '.join(known)}."
            raise SystemExit(f"error: name one figure, such as depthwise_transfer/fig1; --list shows them. {hint}")
        words = " ".join(arguments).replace("=", " ").split()
        size = words[words.index("--size") + 1] if "--size" in words[:-1] else "small"
        if size not in _SIZES:
            raise SystemExit(f'error: --size must be small or paper, got "{size}".')
        rest = [a for a in arguments if a != names[0]]
        sys.argv = [sys.argv[0], f"--config={known[names[0]]}:{size}", *rest]
    common.start(main, __doc__)


if __name__ == "__main__":
    run()
