"""Programs in processes that are forked with everything imported: started and killed by the dozen, a second each, not ten."""

import atexit
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import jax

ROOT = Path(__file__).parents[2]
_SERVER = multiprocessing.get_context("forkserver")  # it has no threads and no devices
_SERVER.set_forkserver_preload(["launch.train", "launch.compare", "orbax.checkpoint.v1", "tensorstore"])


class Ended(NamedTuple):
    """How processes ended, and what each printed, standard output and errors together."""

    codes: list[int | None]
    outputs: list[str]


def start(
    program: str,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    settings: Mapping[str, Any],
    output: Path,
    folder: Path = ROOT,
) -> BaseProcess:
    """Begins a program of launch (or code, which has a space) in a folder, with variables of the environment and settings of
    jax; what it prints goes to a file."""
    process = _SERVER.Process(
        target=_run, args=(program, list(arguments), dict(variables), dict(settings), str(output), str(folder))
    )
    process.start()
    return process


def ended(
    program: str,
    *arguments: str,
    folder: Path = ROOT,
    places: Sequence[Mapping[str, str]] = ({},),
    timeout: float = 120,
) -> Ended:
    """Runs it to its end, as one process for each of `places`, variables of the environment."""
    with tempfile.TemporaryDirectory() as place:
        outputs = [Path(place) / str(i) for i in range(len(places))]
        running = [
            start(program, arguments, each, {}, output, folder) for each, output in zip(places, outputs, strict=True)
        ]
        for each in running:
            each.join(timeout)
            each.kill()
            each.join()
        return Ended([each.exitcode for each in running], [output.read_text() for output in outputs])


def _run(
    program: str, arguments: list[str], variables: dict[str, str], settings: dict[str, Any], output: str, folder: str
) -> None:
    with open(output, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(variables)
    os.chdir(folder)
    devices = int(variables.get("JAX_NUM_CPU_DEVICES", 1))
    for name, value in {"jax_platforms": "cpu", "jax_num_cpu_devices": devices, **settings}.items():
        jax.config.update(name, value)
    sys.argv = [program, *arguments]
    try:  # ends as a process does that was not forked
        if " " in program:
            exec(program, {"__name__": "__main__"})
        else:
            module = importlib.import_module(program)
            (module.run if hasattr(module, "run") else module.main)()
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
    finally:
        sys.stdout.flush()
        atexit._run_exitfuncs()
