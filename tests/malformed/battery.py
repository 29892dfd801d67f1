"""Malformed values in every argument of every public function, and in every field of the configs; no type checks of tests.

    python3 tests/malformed/battery.py [--quick] [--verbose] [PREFIX …]

Prints one line of JSON: how many calls were made, which ended raw, which public functions have no valid call to change.
--quick: what needs no compilation.
"""

import contextlib
import functools
import io
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from malformed import config_fields as configs
from malformed.calls import SLOW, calls, without_a_call
from malformed.judge import outcome
from malformed.values import VALUES

MEMORY = 3 * 2**30
ALIKE = ("_rich", "_full", "config.cnn", "config.resnet", "config.vit")  # read as config.mlp is


def attempts() -> Iterator[tuple[str, Callable[[], Any], str, Any]]:
    """(what, the call, its argument, the value) of every valid call and of every malformed one."""
    for call in calls():
        yield call.name, call.run, "", None
        for argument in call.arguments:
            for kind, value in VALUES.items():
                yield (
                    f"{call.name}({argument}={kind})",
                    functools.partial(call.run, **{argument: value}),
                    argument,
                    value,
                )
            wrong = f"{argument}x"
            yield f"{call.name}({wrong}=1)", functools.partial(call.run, **{wrong: 1}), wrong, None
    for name, (read, file) in configs.readers().items():
        yield f"config.{name}", functools.partial(configured, read, file), "", None
        for field in configs.fields(configs.load(file).get_config()):
            for kind, value in VALUES.items():
                last = field.split(".")[-1]
                yield (
                    f"config.{name}({field}={kind})",
                    functools.partial(configured, read, file, field, value),
                    last,
                    value,
                )


def configured(read: Callable, file: Path, field: str = "", value: Any = None) -> None:
    """Reads the config with that in its field."""
    read(file, configs.changed(file, field, value) if field else configs.load(file).get_config())


def main() -> None:
    """Runs those whose name begins with a prefix."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # a call that takes more ends in a MemoryError
    jax.config.update("jax_disable_most_optimizations", True)  # no number is looked at
    flags = {a for a in sys.argv[1:] if a.startswith("--")}
    prefixes = tuple(a for a in sys.argv[1:] if a not in flags)
    count, raw, seconds, before = 0, [], {}, ""
    for what, run, argument, value in attempts():
        slow = what.startswith((*SLOW, "config.evidence(variants"))
        slow |= what.partition("(")[0].endswith(ALIKE)
        if (prefixes and not what.startswith(prefixes)) or ("--quick" in flags and slow):
            continue
        owner = what.partition("(")[0]
        if owner != before:
            jax.clear_caches()  # thousands of programs would not fit
        start, before = time.process_time(), owner
        with contextlib.redirect_stdout(io.StringIO()):
            wrong = outcome(run, argument, value)
        count += 1
        seconds[owner] = seconds.get(owner, 0.0) + time.process_time() - start
        if wrong:
            raw.append(f"{what}: {wrong}")
            if "--verbose" in flags:
                print(raw[-1], file=sys.stderr, flush=True)
    slowest = {name: round(s, 1) for name, s in sorted(seconds.items(), key=lambda item: -item[1])[:15]}
    print(json.dumps({"calls": count, "raw": raw, "missing": without_a_call(), "seconds": slowest}))


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as here,
        contextlib.chdir(here),
    ):  # some calls are taken, and keep what they found
        main()
