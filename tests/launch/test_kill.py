"""Two processes of launch.train that are killed and started again end where those end that were left alone."""

import json
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from launch.exit_codes import PREEMPTED
from launch.local_cluster import run_cluster, start_cluster
from train.checkpoints import load_model
from train.records import read_records

HERE = Path(__file__).resolve().parent
STEPS = 60
CACHE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


def cache(folder: Path) -> dict[str, str]:
    """Programs are compiled once for all runs."""
    return {"JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"), **CACHE}


def command(folder: Path) -> list[str]:
    config = HERE / "training_config.py"
    changes = {"steps": STEPS, "save_every": 10, "sharding": "fsdp", "width": 64, "batch": 16, "evaluate_every": 0}
    return [sys.executable, "-m", "launch.train", f"--config={config}", f"--workdir={folder}", "--distributed=on",
            *(f"--config.{name}={value}" for name, value in changes.items())]  # fmt: skip


def train(folder: Path, processes: int = 2) -> None:
    result = run_cluster(command(folder), processes, 4 // processes, cache(folder), timeout=300)
    assert result.returncode == 0, result.outputs


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    train(folder)
    return folder


def equal(one: Path, other: Path) -> None:
    jax.tree.map(
        np.testing.assert_array_equal, load_model(one / "checkpoints")[1], load_model(other / "checkpoints")[1]
    )
    a, b = (read_records(folder / "log.jsonl") for folder in (one, other))
    assert [line["step"] for line in a] == list(range(STEPS))
    assert [(line["step"], line["loss"]) for line in a] == [(line["step"], line["loss"]) for line in b]


def killed(folder: Path, number: int, after: int) -> None:
    """Starts two processes, sends the signal to one of them when the log has so many lines more, and waits for both."""
    log = folder / "log.jsonl"
    had = len(log.read_text().splitlines()) if log.exists() else 0
    with start_cluster(command(folder), 2, 2, cache(folder), grace=5.0) as cluster:
        until = time.monotonic() + 240
        while cluster.processes[0].poll() is None and time.monotonic() < until:
            now = len(log.read_text().splitlines()) if log.exists() else 0
            if now < had or now >= had + after:
                break
            time.sleep(0.005)
        cluster.processes[random.Random(after).randrange(2)].send_signal(number)
        result = cluster.wait(timeout=240)
    if number == signal.SIGTERM and result.returncode:
        assert set(result.returncodes) == {PREEMPTED}, result.outputs
        assert all("preempted and saved" in text for text in result.outputs[:1])


def test_killed_twice_and_continued(whole: Path, tmp_path: Path):
    for number, after in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        killed(tmp_path, number, after)
        assert len(read_records(tmp_path / "log.jsonl")) < STEPS
    train(tmp_path)
    equal(whole, tmp_path)


@pytest.mark.slow
def test_killed_at_random_moments_and_continued(whole: Path, tmp_path: Path):
    draw = random.Random(0)
    for i in range(20):
        killed(tmp_path, draw.choice([signal.SIGTERM, signal.SIGKILL]), after=draw.randrange(1, 12))
        if len(read_records(tmp_path / "log.jsonl")) == STEPS:
            shutil.rmtree(tmp_path / "checkpoints")  # the end was reached: once more from the start
            (tmp_path / "log.jsonl").unlink()
        assert i < 20
    train(tmp_path)
    equal(whole, tmp_path)


@pytest.mark.slow
def test_half_of_the_processes_continue_the_same_data(whole: Path, tmp_path: Path):
    killed(tmp_path, signal.SIGTERM, after=25)
    train(tmp_path, processes=1)  # the same four devices
    a, b = (read_records(folder / "log.jsonl") for folder in (whole, tmp_path))
    np.testing.assert_allclose([line["loss"] for line in a], [line["loss"] for line in b], rtol=1e-5)
    assert json.loads((tmp_path / "config.json").read_text())["device"]["count"] == 4
