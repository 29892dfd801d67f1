"""Malformed values in every argument of every public function, in a process without the tests' type checks.

    python3 tests/malformed/battery.py [--part=quick|all] [PREFIX …]

Prints one line of JSON: how many calls were made, which were raw, and what lacks a valid call.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

from malformed.calls import calls, without_a_call
from malformed.judge import outcome
from malformed.values import VALUES

MEMORY = 3 * 2**30


def main() -> None:
    """Runs the calls whose name begins with a prefix."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # a call that takes more ends in a MemoryError
    jax.config.update("jax_disable_most_optimizations", True)  # no number is looked at
    prefixes = tuple(a for a in sys.argv[1:] if not a.startswith("--"))
    count, raw, seconds = 0, [], {}
    for call in calls():
        if prefixes and not call.name.startswith(prefixes):
            continue
        start = time.perf_counter()
        if wrong := outcome(call.run, "", None):
            raw.append(f"{call.name}: the valid call: {wrong}")
        for argument in call.arguments:
            for kind, value in VALUES.items():
                count += 1
                if wrong := outcome(lambda: call.run(**{argument: value}), argument, value):  # noqa: B023
                    raw.append(f"{call.name}({argument}={kind}): {wrong}")
                    if "--verbose" in sys.argv:
                        print(raw[-1], file=sys.stderr, flush=True)
            count += 1
            if wrong := outcome(lambda: call.run(**{f"{argument}x": 1}), f"{argument}x", None):  # noqa: B023
                raw.append(f"{call.name}({argument}x=1): {wrong}")
        seconds[call.name] = round(time.perf_counter() - start, 1)
        if "--verbose" in sys.argv:
            print(call.name, seconds[call.name], file=sys.stderr, flush=True)
    print(json.dumps({"calls": count, "raw": raw, "missing": without_a_call(), "seconds": seconds}))


if __name__ == "__main__":
    main()
