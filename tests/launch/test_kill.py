"""Processes of launch.train that are killed and started again end where those end that were left alone.

LIMIT_ZOO_KILLS=40 sets how often the slow tests kill.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from clusters import run_cluster
from forked import start

from launch.exit_codes import PREEMPTED
from launch.processes import places
from train.checkpoints import load_model
from train.records import read_records

HERE = Path(__file__).resolve().parent
STEPS, EVERY = 600, 50
KILLS = int(os.environ.get("LIMIT_ZOO_KILLS", "20"))


def command(folder: Path) -> list[str]:
    config = HERE / "training_config.py"
    changes = {"steps": STEPS, "save_every": EVERY, "sharding": "fsdp", "width": 64, "batch": 16, "evaluate_every": 0}
    return [sys.executable, "-m", "launch.train", f"--config={config}", f"--workdir={folder}", "--distributed=on",
            *(f"--config.{name}={value}" for name, value in changes.items())]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run_forked(folder, 2) == [0, 0], (folder.parent / "output").read_text()
    return folder


def equal(one: Path, other: Path) -> None:
    jax.tree.map(
        np.testing.assert_array_equal, load_model(one / "checkpoints")[1], load_model(other / "checkpoints")[1]
    )
    a, b = (read_records(folder / "log.jsonl") for folder in (one, other))
    assert [line["step"] for line in a] == list(range(STEPS))
    assert [(line["step"], line["loss"]) for line in a] == [(line["step"], line["loss"]) for line in b]


@pytest.mark.slow
@pytest.mark.parametrize("preempted", [False, True])
def test_killed_and_continued(whole: Path, tmp_path: Path, preempted: bool):
    run = tmp_path / "run"
    shutil.copytree(whole.parent / "compiled", tmp_path / "compiled")
    if preempted:
        codes = run_forked(run, 2, (signal.SIGTERM, 12, 0.0))
        assert codes == [PREEMPTED, PREEMPTED], (tmp_path / "output").read_text()
        assert (tmp_path / "output").read_text().count("preempted and saved") == 1
    assert run_forked(run, 2, (signal.SIGKILL, 2 if preempted else 12, 0.0)) != [0, 0]
    assert 0 < len(read_records(run / "log.jsonl")) < STEPS
    assert run_forked(run, 2) == [0, 0], (tmp_path / "output").read_text()
    equal(whole, run)


def run_forked(folder: Path, processes: int, kill: tuple[int, int, float] | None = None) -> list[int | None]:
    """The exit codes of the same run in forked processes. kill: (signal, lines of the log, seconds) to send it to one of them
    so many lines and seconds on."""
    settings = {"jax_enable_compilation_cache": True, "jax_compilation_cache_dir": str(folder.parent / "compiled"),
                "jax_persistent_cache_min_compile_time_secs": 0, "jax_persistent_cache_min_entry_size_bytes": -1}  # fmt: skip
    log, output = folder / "log.jsonl", folder.parent / "output"
    had = len(log.read_text().splitlines()) if log.exists() else 0
    together = places(processes, 4 // processes)
    running = [start("launch.train", command(folder)[3:], place, settings, output) for place in together]
    if kill is not None:
        until = time.monotonic() + 240
        while all(each.is_alive() for each in running) and time.monotonic() < until:
            now = len(log.read_text().splitlines()) if log.exists() else 0
            if now < had or now >= had + kill[1]:
                break
            time.sleep(0.002)
        time.sleep(kill[2])
        victim = random.Random(kill[1]).choice(running)
        if victim.is_alive():
            os.kill(victim.pid or 0, kill[0])
        if kill[0] == signal.SIGKILL:
            for each in running:  # the others wait for it in vain
                each.join(1.0)
                each.kill()
    for each in running:
        each.join(240)
        each.kill()
    return [each.exitcode for each in running]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_killed_at_random_moments_and_continued(processes: int, tmp_path: Path):
    """Also while a checkpoint is written, and at the end; whenever the end is reached, it is the end of the whole run."""
    whole, run, draw, killed, ends = tmp_path / "whole", tmp_path / "run", random.Random(processes), 0, 0
    assert run_forked(whole, processes) == [0] * processes, (tmp_path / "output").read_text()
    while killed < KILLS:
        number = draw.choice([signal.SIGTERM, signal.SIGKILL, signal.SIGKILL])
        codes = run_forked(run, processes, (number, draw.randrange(1, 30), draw.choice([0.0, draw.uniform(0, 0.5)])))
        killed += codes != [0] * processes
        if codes == [0] * processes:
            equal(whole, run)
            ends += 1
            shutil.rmtree(run)
        with (tmp_path / "output").open("a") as file:
            print(f"{killed} kills, {ends} ends, {codes}", file=file)
    assert run_forked(run, processes) == [0] * processes, (tmp_path / "output").read_text()
    equal(whole, run)
    print(f"{processes} processes: {killed} kills, {ends + 1} ends, none unequal")


@pytest.mark.slow
def test_two_processes_leave_a_checkpoint_that_only_one_of_them_finds_damaged(whole: Path, tmp_path: Path):
    """Started as a user does, by launch.local_cluster's own processes."""
    run = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(run / f"checkpoints/{STEPS}")
    before = f"checkpoints/{STEPS - EVERY}"
    for file in (run / before / "model/ocdbt.process_1").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:50])
    result = run_cluster(command(run), 2, 2, timeout=300)
    assert result.returncode == 0, result.outputs
    assert f"step {STEPS - EVERY}" in result.outputs[0]
    assert "damaged and not used" in result.outputs[0]
    assert (run / f"{before}.damaged-1").is_dir()
    equal(whole, run)


@pytest.mark.slow
def test_half_of_the_processes_continue_the_same_data(whole: Path, tmp_path: Path):
    run = tmp_path / "run"
    assert run_forked(run, 2, (signal.SIGTERM, 25, 0.0)) == [PREEMPTED, PREEMPTED]
    assert run_forked(run, 1) == [0]  # the same four devices
    a, b = (read_records(folder / "log.jsonl") for folder in (whole, run))
    np.testing.assert_allclose([line["loss"] for line in a], [line["loss"] for line in b], rtol=1e-5)
    assert json.loads((run / "config.json").read_text())["device"]["count"] == 4
