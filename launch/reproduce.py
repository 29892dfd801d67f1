"""Repeats figures of papers, and says which of their claims hold.

    python3 -m launch.reproduce --list
    python3 -m launch.reproduce depthwise_transfer/fig1 [--size=small|paper] [--workdir=DIR] [--shard=i/n] [--config.FIELD=…]

small: minutes on two CPU cores, with handwritten digits. paper: the paper's own setting, where the data are on this machine.
A figure is a config in configs/papers/SOURCE: a study of launch.transfer with claims(outcome, …), or run(config, folder, console,
part) that returns arrays, with claims(arrays) and figures(arrays). Ends in report.html, report.json, arrays.npz, figure_*.png.
A claim holds only where 95 % intervals say so (train.evaluate.interval); what was found is in the list, in the files' headers.
"""

import shlex
import sys
import time
from pathlib import Path

from absl import flags

import configs
from launch import common, shards
from train.study.experiment import overrides
from train.study.figure import SIZES, Figure, figures_in, listing
from zoo.messages import did_you_mean

FIGURES = figures_in(Path(next(iter(configs.__path__))) / "papers")
_LIST = flags.DEFINE_boolean(
    "list", False, "Print every figure with the time it takes, the data it needs, and its status."
)
_SIZE = flags.DEFINE_enum("size", "small", SIZES, "The setting: minutes on two cores, or the paper's.")


def main() -> None:
    """Runs one figure."""
    started, config, screen = time.time(), common.config(), common.console()
    figure = Figure(Path(common.config_file().partition(":")[0]))
    own = figure.module.get_config(_SIZE.value)
    changed = sorted(name for name in config if config[name] != own.get(name))
    if "size" in changed:
        raise ValueError(
            f"config.size says which setting the fields are of: give --size={config.size} for those of that one."
        )
    folder = common.workdir(f"papers/{figure.name}/{config.size}")
    words = ["python3", "-m", "launch.reproduce", figure.name, f"--size={config.size}", *overrides(sys.argv[1:])]
    run = common.provenance(config) | {"command": shlex.join(words), "changed": changed}
    common.keep_config(folder, run)
    title, small, paper, _ = figure.about
    screen.print(f"{title}\nsmall: {small}; paper: {paper}. Now: {config.size}, into {folder}.", highlight=False)
    found = figure.repeat(config, folder, screen, shards.part())
    if found is None:
        return
    run["seconds"] = round(time.time() - started, 1)
    figure.report(found, run).print(screen)
    for file in figure.write(found, run, folder):
        screen.print(f"wrote {file}", highlight=False)
    screen.print(f"{time.time() - started:.0f} s", highlight=False)


def _is_value(before: list[str]) -> bool:
    """Whether the next argument is the value of the flag before it."""
    flag = before[-1] if before else ""
    return flag in ("--size", "--workdir", "--shard", "--only") or (flag.startswith("--config.") and "=" not in flag)


def run() -> None:
    """Entry point: the figure's name becomes its config."""
    arguments = sys.argv[1:]
    if "--list" in arguments:
        common.console().print(listing(FIGURES))
        return
    names = [a for i, a in enumerate(arguments) if not a.startswith("-") and not _is_value(arguments[:i])]
    if not {"-h", "--help"} & set(arguments):
        if len(names) != 1 or names[0] not in FIGURES:
            hint = did_you_mean(names[0], FIGURES) if names else f"One of {', '.join(FIGURES)}."
            raise SystemExit(f"error: name one figure, such as depthwise_transfer/fig1; --list shows them. {hint}")
        words = " ".join(arguments).replace("=", " ").split()
        size = words[words.index("--size") + 1] if "--size" in words[:-1] else "small"
        if size not in SIZES:
            raise SystemExit(f'error: --size must be small or paper, got "{size}".')
        rest = [a for a in arguments if a != names[0]]
        sys.argv = [sys.argv[0], f"--config={FIGURES[names[0]].file}:{size}", *rest]
    common.start(main, __doc__)


if __name__ == "__main__":
    run()
