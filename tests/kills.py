"""Programs that are killed at random moments and started again, until they have had their kills; then they may finish."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KILLS = int(os.environ.get("LIMIT_ZOO_KILLS", "6"))  # of each program
PER_FOLDER = 3


def _start(program: str, folder: Path) -> subprocess.Popen:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _finish(process: subprocess.Popen) -> str:
    """What it prints at its end: a word for its result."""
    assert process.stdout is not None
    word = process.communicate()[0].strip()  # closes the pipe
    assert process.returncode == 0
    assert word
    return word


def unequal_results(program: str, folder: Path, kills: int = KILLS, seed: int = 0) -> tuple[int, int, int]:
    """(kills that met the program at work, results, how many of them are not that of a run that nobody interrupted).

    The program gets a folder, prints "ready", works, and prints a word for its result.
    """
    rng, begin = random.Random(seed), _start(program, folder / "whole")
    started = time.monotonic()
    right = _finish(begin)
    length, done, results, unequal = time.monotonic() - started, 0, 0, 0
    while done < kills:
        place = folder / f"killed_{results}"
        for _ in range(PER_FOLDER):
            process = _start(program, place)
            time.sleep(rng.uniform(0, 0.8 * length))
            done += process.poll() is None
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        results += 1
        unequal += _finish(_start(program, place)) != right
        print(f"{done} kills within {length:.1f} s of work, {results} results, {unequal} unequal", flush=True)
    return done, results, unequal
