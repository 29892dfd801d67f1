"""launch.watch: processes that run different things, fail or die end all, with a sentence."""

import re
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked import ended
from key_value import Store, until

from launch import watch
from launch.processes import Cluster, places

HERE = Path(__file__).resolve().parent
CONFIG = HERE / "training_config.py"


# --- without processes: several watches over one store


@pytest.fixture
def processes(monkeypatch):
    """Starts watches of so many processes, and gives them with the exit codes they ended with."""
    monkeypatch.setattr(watch, "BEAT", 0.02)
    monkeypatch.setattr(watch.socket, "gethostname", lambda: "host")
    started: list[watch.Watch] = []

    def start(count: int, relays: Any = None) -> tuple[list[watch.Watch], dict[int, int], Store]:
        store, codes = Store(), {}
        for i in range(count):
            relay = (relays or {}).get(i)
            started.append(watch.Watch(store, i, count, relay, lambda code, i=i: codes.setdefault(i, code)))
        until(lambda: all(len(each.known) == count for each in started))
        return started, codes, store

    yield start
    for each in started:
        each._finished = True


def test_the_failure_of_one_ends_the_others_with_its_sentence(processes, capsys):
    watches, codes, _ = processes(3)
    watches[1].fail(OSError("the disk is gone."))
    until(lambda: len(codes) == 3)
    said = capsys.readouterr().err.splitlines()
    assert codes == {0: 1, 1: 1, 2: 1}
    assert said == ["error: process 1 of 3 on host failed: the disk is gone. This process ends with it."] * 2


def test_who_is_not_heard_of_is_dead(processes, capsys):
    watches, codes, _ = processes(2)
    watches[1]._finished = True  # its threads end: it beats no more
    until(lambda: codes)
    assert codes == {0: 1}
    assert "error: process 1 of 2 on host has not been heard of for" in capsys.readouterr().err


def test_who_has_finished_is_not_missed(processes):
    watches, codes, _ = processes(2)
    leaving = threading.Thread(target=watches[1].leave)
    leaving.start()
    time.sleep(1.0)  # 50 beats
    assert leaving.is_alive()  # it waits for the other
    watches[0].leave()
    leaving.join(10)
    time.sleep(0.2)
    assert not leaving.is_alive()
    assert not codes


def test_process_0_is_missed_when_its_relay_says_so_or_when_it_does_not_answer(processes, capsys):
    relay = SimpleNamespace(gone=threading.Event())
    _, codes, store = processes(2, {1: relay})
    relay.gone.set()
    until(lambda: 1 in codes)
    assert "process 0 of 2 on host has ended without a word" in capsys.readouterr().err
    _, codes, store = processes(2)
    store.down = True
    until(lambda: 1 in codes)
    assert "process 0 of 2 on host has not answered for" in capsys.readouterr().err


def test_an_error_of_jax_waits_for_who_is_at_fault(processes, capsys):
    """A process that dies breaks the collectives of the others, whose own words for it name nobody."""
    watches, codes, _ = processes(2)
    watches[1]._finished = True
    watches[0].await_verdict(OSError("the disk is full."))
    assert not codes
    watches[0].await_verdict(ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer"))
    assert codes == {0: 1}
    assert "process 1 of 2" in capsys.readouterr().err


# --- with processes

TOGETHER = """
import os, sys
from launch import common, distributed, watch
from train.study.agreement import same_everywhere
distributed.initialize("auto", 60)
import jax
me = jax.process_index()
same_everywhere({"seed": "0"})
for name in ("learning_rate", "seed", "weight_decay", "width", "steps"):
    try:
        same_everywhere({name: str(me), "same": "x"})
    except ValueError as error:
        print(f"refused: {error}", flush=True)
if me == 1:
    raise OSError("the data are gone.")
import time
time.sleep(60)
"""


def test_two_processes_compare_what_they_run_and_end_together():
    started = time.monotonic()
    codes, outputs = ended(TOGETHER, places=places(2, 1))
    assert time.monotonic() - started < 60
    assert codes == [1, 1]
    for output in outputs:
        for name in ("learning_rate", "seed", "weight_decay", "width", "steps"):
            assert re.search(rf"refused: .* same: {name} is 0 on process 0 \(.*\) and 1 on process 1 \(", output)
        assert "Check failure stack trace" not in output
    assert "error: process 1 of 2 on" in outputs[0]
    assert "failed: the data are gone. This process ends with it." in outputs[0]
    assert outputs[0].count("error:") == 1
    assert "OSError: the data are gone." in outputs[1]


def train_differently(folder: Path, *changes: str, config: Path = CONFIG, other: Path | None = None, host: int = 1):
    """Two processes of launch.train, the second (or the first, host=0) with these changes, or with another config."""
    common = [f"--workdir={folder}", "--config.steps=2000", "--config.evaluate_every=0"]
    words = [[f"--config={config}", *common], [f"--config={other or config}", *common, *changes]][:: 2 * host - 1]
    code = (
        f"import os, sys, runpy; sys.argv = ['launch.train', *({words!r})[int(os.environ['LIMIT_ZOO_PROCESS'])]]; "
        "runpy.run_module('launch.train', run_name='__main__')"
    )
    return Cluster([sys.executable, "-c", code], 2, 1, grace=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("--config.learning_rate=0.25", "learning_rate is 0.5 on process 0"),
        ("--config.seed=3", "seed is 1 on process 0"),
        ("--config.width=32", "width is 16 on process 0"),
        ("--config.steps=30", "steps is 2000 on process 0"),
        ("--config.average=0.5", "average is 0.9 on process 0"),
        ("--set=weight_decay=0.1", "weight_decay is absent on process 0"),
        ("--workdir=elsewhere", "workdir is"),
    ],
)
def test_training_refuses_processes_that_differ(tmp_path, monkeypatch, change, field):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[1]))
    started = time.monotonic()
    with train_differently(tmp_path / "run", change) as cluster:
        result = cluster.wait(100)
    assert time.monotonic() - started < 60
    assert 0 not in result.returncodes
    assert all(f"error: The processes do not run the same: {field}" in output for output in result.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["--config.stepz=30", "--stepz=30", "--config.steps=many"])
@pytest.mark.parametrize("host", [0, 1])
def test_a_process_that_ends_before_it_joins_ends_the_other(tmp_path, wrong, host):
    started = time.monotonic()
    with train_differently(tmp_path / "run", wrong, host=host) as cluster:
        result = cluster.wait(100)
    assert time.monotonic() - started < 60
    assert result.returncodes == [1, 1]
    assert "stepz" in result.outputs[host] or "many" in result.outputs[host]
    assert re.search(
        rf"error: process {host} of 2 on .* failed: .* This process ends with it", result.outputs[1 - host]
    )


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_while_it_trains_ends_the_other(tmp_path, victim, number):
    log = tmp_path / "log.jsonl"
    with train_differently(tmp_path) as cluster:
        until(lambda: log.exists() and log.read_text().count("\n") > 3, 90)
        cluster.processes[victim].send_signal(number)
        started = time.monotonic()
        until(lambda: cluster.processes[1 - victim].poll() is not None, 60)
        assert time.monotonic() - started < 60
        assert cluster.processes[1 - victim].returncode == 1
        cluster.kill()
        lines = [line for line in cluster.outputs[1 - victim].splitlines() if "error" in line]
    assert len(lines) == 1, lines
    assert re.match(
        rf"error: process {victim} of 2 on .*(ended without a word|not been heard of|not answered)", lines[0]
    )


@pytest.mark.slow
def test_code_that_differs_and_a_failure_on_one_host(tmp_path):
    config = tmp_path / "own_config.py"
    body = CONFIG.read_text().replace('"data": {"name": "digits", "test": "test", "augment": ("crop",)},', "")
    config.write_text(body + """
import jax, numpy as np

def batches(start):
    for k in range(start, 100000):
        if k == 20 and jax.process_index() == 1:
            raise OSError("the disk with the data is gone.")
        yield np.ones((16, 8), "float32"), np.eye(10, dtype="float32")[np.arange(16) % 10]
""")  # fmt: skip
    with train_differently(tmp_path / "run", config=config) as cluster:
        result = cluster.wait(100)
    assert result.returncodes == [1, 1]
    assert "failed: the disk with the data is gone. This process ends with it." in result.outputs[0]
    assert "error: the disk with the data is gone." in result.outputs[1]
    (tmp_path / "other").mkdir()
    other = tmp_path / "other/own_config.py"
    other.write_text(config.read_text().replace("momentum=0.9", "momentum=0.8"))
    with train_differently(tmp_path / "run", config=config, other=other) as cluster:
        result = cluster.wait(100)
    assert 0 not in result.returncodes
    assert all("not run the same: the code of the config file is" in output for output in result.outputs)
