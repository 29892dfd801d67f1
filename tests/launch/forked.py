"""Programs in processes that are forked with everything imported, to be killed by the dozen: a second each, not ten."""

import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import jax

PROGRAMS = ("launch.train",)
_SERVER = multiprocessing.get_context("forkserver")  # it has no threads and no devices
_SERVER.set_forkserver_preload([*PROGRAMS, "orbax.checkpoint.v1", "tensorstore"])


def start(
    program: str, arguments: Sequence[str], variables: Mapping[str, str], settings: Mapping[str, Any], output: Path
) -> BaseProcess:
    """Begins a program of launch, with variables of the environment and settings of jax; what it prints goes to a file."""
    process = _SERVER.Process(
        target=_run, args=(program, list(arguments), dict(variables), dict(settings), str(output))
    )
    process.start()
    return process


def _run(program: str, arguments: list[str], variables: dict[str, str], settings: dict[str, Any], output: str) -> None:
    with open(output, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(variables)
    for name, value in settings.items():
        jax.config.update(name, value)
    sys.argv = [program, *arguments]
    importlib.import_module(program).run()
