"""What is plausibly mistaken ends in a sentence that names the argument, in a process as users have it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BATTERY = Path(__file__).parent / "malformed" / "battery.py"


def battery(*prefixes):
    """The counts of tests/malformed/battery.py, which runs without the type checks of the tests."""
    command = [sys.executable, str(BATTERY), *prefixes]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"}, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def held(found, least):
    print(f"{found['calls']} malformed calls, {len(found['raw'])} raw:", *found["raw"], sep="\n  ")
    assert found["calls"] >= least
    assert found["raw"] == []
    assert found["missing"] == []


def test_malformed_calls_of_what_answers_at_once():
    held(battery("--quick"), least=1500)


@pytest.mark.slow
def test_malformed_calls_of_every_public_function():
    held(battery(), least=5000)
