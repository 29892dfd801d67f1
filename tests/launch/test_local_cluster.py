"""launch.local_cluster and launch.distributed: processes that end together, and that meet."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import pytest
from clusters import run_cluster
from forked import ended

from launch import local_cluster
from launch.distributed import find, initialize
from launch.processes import Cluster, free_port, places

ROOT = Path(__file__).parents[2]
ME = "int(os.environ['LIMIT_ZOO_PROCESS'])"


STAY = "[time.sleep(0.05) for _ in range(1200)]"  # a minute; one long sleep misses a signal that comes as it begins


def python(code: str) -> list[str]:
    return [sys.executable, "-c", f"import os, signal, sys, time\n{code}"]


def cluster_program(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "launch.local_cluster", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- processes


def test_every_process_knows_its_place_and_its_output_is_kept_apart():
    code = f"print('I am', {ME}, 'of', os.environ['LIMIT_ZOO_PROCESSES'], os.environ['JAX_NUM_CPU_DEVICES'], os.environ['EXTRA'])"
    result = run_cluster(python(code), 3, 2, env={"EXTRA": "word"}, timeout=60)
    assert result == ([0, 0, 0], [f"I am {i} of 3 2 word\n" for i in range(3)], 0)


def test_the_first_failure_ends_the_others_after_the_grace(tmp_path):
    code = f"""
if {ME} == 1:
    while len(os.listdir({str(tmp_path)!r})) < 2:
        time.sleep(0.02)
    time.sleep(0.5)
    sys.exit(3)
signal.signal(signal.SIGTERM, (lambda *_: sys.exit(7)) if {ME} == 0 else signal.SIG_IGN)
open({str(tmp_path)!r} + '/' + str({ME}), 'w').close()
{STAY}
"""
    started = time.monotonic()
    result = run_cluster(python(code), 3, 1, timeout=50, grace=0.3)
    assert result.returncodes == [7, 3, -signal.SIGKILL]  # one obeys SIGTERM, one ignores it
    assert result.returncode == 3
    assert 1.1 < time.monotonic() - started < 20  # 0.5 s until the failure, two graces


def test_who_has_finished_does_not_end_the_others():
    result = run_cluster(python(f"time.sleep(0.8 * {ME}); print('done')"), 2, 1, timeout=60, grace=0.1)
    assert result == ([0, 0], ["done\n", "done\n"], 0)


def test_timeout_tells_who_still_ran_and_leaves_nothing_behind():
    code = f"""
import subprocess
if {ME} == 1:
    print("child", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, "of the slow one")
    time.sleep(60)
"""
    with Cluster(python(code), 2, 1) as cluster:
        until(lambda: "child" in cluster.outputs[1])
        with pytest.raises(TimeoutError) as error:
            cluster.wait(timeout=0.5)
    assert "still ran: [1].\n[1] child" in str(error.value)
    until(lambda: not alive(int(str(error.value).split("child ")[1].split()[0])), seconds=10)


def test_a_test_can_kill_one_by_its_handle():
    with Cluster(python("print('up'); time.sleep(60)"), 2, 1, grace=0.1) as cluster:
        until(lambda: all(cluster.outputs))
        cluster.processes[1].kill()
        result = cluster.wait(timeout=30)
    assert result.returncodes == [-signal.SIGTERM, -signal.SIGKILL]
    assert result.returncode == -signal.SIGKILL


# --- the program


def test_the_program_passes_signals_on_and_prefixes_lines():
    code = f"signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(42))); print('up'); {STAY}"
    program = cluster_program("--processes=2", "--devices=1", "--", *python(code))
    assert program.stdout
    assert {program.stdout.readline(), program.stdout.readline()} == {"[0] up\n", "[1] up\n"}
    program.send_signal(signal.SIGTERM)
    rest, errors = program.communicate(timeout=30)
    assert sorted(rest.splitlines()) == ["[0] saved", "[1] saved"], errors
    assert program.returncode == 42


@pytest.fixture
def here(monkeypatch, capfd):
    """A function: (exit code, output, errors) of the program in this process."""

    def run(*arguments: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["local_cluster", *arguments])
        with pytest.raises(SystemExit) as end:
            local_cluster.run()
        return end.value.code, *capfd.readouterr()

    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield run
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_the_program_ends_with_the_code_of_a_shell_after_a_signal(here):
    assert here("--processes=1", "--", *python("os.kill(os.getpid(), signal.SIGKILL)"))[0] == 128 + 9


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_comes_during_the_start_is_passed_on(here, monkeypatch, name):
    class Slow(Cluster):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            os.kill(os.getpid(), getattr(signal, name))
            super().__init__(*arguments, **options)
            until(lambda: all(self.outputs))

    monkeypatch.setattr(local_cluster, "Cluster", Slow)
    code = f"signal.signal(signal.{name}, lambda *_: sys.exit(42)); print('up'); {STAY}"
    assert here("--processes=2", "--devices=1", "--", *python(code))[0] == 42


def test_dry_run_prints_lines_that_a_shell_runs(here):
    code = f"sys.stdout.write(str({ME}) + ' a b ' + os.environ['JAX_NUM_CPU_DEVICES'] + chr(10))"
    _, lines, _ = here("--processes=2", "--devices=3", "--dry_run", "--", *python(code))
    assert lines.count("LIMIT_ZOO_COORDINATOR=127.0.0.1:") == 2
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True, timeout=30)
    assert sorted(done.stdout.splitlines()) == ["0 a b 3", "1 a b 3"]


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        ((), "give one after --", 2),
        (("--processes=0", "--", "true"), "must be at least 1; got 0 and 4", 1),
        (("--", "no-such-program"), "no-such-program", 1),
    ],
)
def test_mistakes_are_answered_with_a_sentence(here, arguments, sentence, code):
    ended, _, errors = here(*arguments)
    assert (ended, "Traceback" in errors) == (code, False)
    assert sentence in errors


# --- where a process belongs

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
}
OWN = {"LIMIT_ZOO_COORDINATOR": "10.0.0.1:99", "LIMIT_ZOO_PROCESSES": "4", "LIMIT_ZOO_PROCESS": "3"}
MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}
GKE = {"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "1", "KUBERNETES_SERVICE_HOST": "x", "JOB_COMPLETION_INDEX": "1"}


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, None),
        (OWN, ("LIMIT_ZOO_COORDINATOR", 3, 4)),
        ({**OWN, **SLURM}, ("LIMIT_ZOO_COORDINATOR", 3, 4)),
        (SLURM, ("Slurm", 1, 2)),
        ({**SLURM, "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, None),
        ({name: SLURM[name] for name in SLURM if name != "SLURM_STEP_NODELIST"}, None),  # outside srun
        ({**MPI, "OMPI_MCA_orte_hnp_uri": "1.0;tcp://h:1"}, ("Open MPI", 2, 3)),
        (GKE, ("TPU_WORKER_HOSTNAMES", 1, 2)),
        ({**GKE, "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"}, ("TPU_WORKER_HOSTNAMES", 3, 4)),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "1", "JAX_PLATFORMS": "cpu"}, None),
        ({"KUBERNETES_SERVICE_HOST": "x"}, None),  # a pod that is not of an indexed job
    ],
)
def test_the_environment_tells_where_a_process_belongs(environ, place):
    found = find(environ)
    assert (found and found[:3]) == place


def test_what_jax_knows_is_left_to_jax():
    own, slurm = find(OWN), find(SLURM)
    assert own is not None
    assert slurm is not None
    assert slurm.arguments == {}
    assert own.arguments["num_processes"] == 4
    assert "coordinator_bind_address" not in own.arguments  # other hosts must reach it


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({**OWN, "LIMIT_ZOO_PROCESS": "4"}, "LIMIT_ZOO_PROCESS=4"),
        ({**OWN, "LIMIT_ZOO_COORDINATOR": "10.0.0.1"}, "must be HOST:PORT"),
        ({"LIMIT_ZOO_PROCESS": "0"}, "LIMIT_ZOO_COORDINATOR=None"),
        (MPI, r"does not tell where process 0 is.*mpirun"),
        ({"KUBERNETES_SERVICE_HOST": "x", "JOB_COMPLETION_INDEX": "1"}, r"pod 1 of an indexed job.*jax\[k8s\]"),
    ],
)
def test_half_an_answer_is_an_error_rather_than_a_run_alone(environ, sentence):
    with pytest.raises(ValueError, match=sentence):
        find(environ)


def test_a_wrong_mode_names_the_choices():
    with pytest.raises(ValueError, match='one of auto, on, off; got "maybe"'):
        initialize("maybe")


# --- processes that meet

MEET = """
from launch.distributed import initialize
initialize("auto", 60)
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
print("gathered", multihost_utils.process_allgather(jnp.array(10 + jax.process_index())).tolist(), flush=True)
"""
# A notice of preemption reaches a single process only as a cluster of one.
NOTICE = """
import os, signal, time
from launch.distributed import initialize
initialize("on", 60)
from jax.experimental.multihost_utils import reached_preemption_sync_point
os.kill(os.getpid(), signal.SIGTERM)
for step in range(1000):
    if reached_preemption_sync_point(step):
        print("noticed", flush=True)
        break
    time.sleep(0.02)
"""


def test_two_processes_meet():
    codes, outputs = ended(MEET, places=places(2, 2))
    assert codes == [0, 0], outputs
    for i, output in enumerate(outputs):
        joining, joined, gathered = [line for line in output.splitlines() if line.startswith(("process", "gathered"))]
        assert joining.startswith(f"process {i} of 2 on ")
        assert joining.endswith("joining the others (LIMIT_ZOO_COORDINATOR), for at most 60 s")
        assert joined.startswith(f"process {i} of 2 on ")
        assert joined.endswith(", devices 2 here, 4 in all (cpu)")
        assert gathered == "gathered [10, 11]"


WHOLE = """
from launch.distributed import initialize
initialize("off")
print("one", end=" ")
os.write(1, b"line of a library\\n")
print("line", "of ours")
"""


def test_a_line_is_written_whole():
    """As Gloo's lines come: past Python, on the same descriptor, while one of ours is being printed."""
    done = subprocess.run(
        python(WHOLE), cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, text=True, capture_output=True, check=True
    )
    assert done.stdout.splitlines()[1:] == ["line of a library", "one line of ours"]


def test_who_waits_in_vain_says_so_and_ends():
    """Process 0 without process 1, and process 1 without process 0."""
    alone = "from launch.distributed import initialize\ninitialize('auto', 1)\nprint('went on')"
    two, started = [places(2, 1)[i] for i in range(2)], time.monotonic()  # of two clusters
    codes, outputs = ended(alone, places=two, timeout=60)
    assert codes == [1, 1], outputs
    for i, output in enumerate(outputs):
        assert f"error: process {i} of 2 on " in output
        assert "waited 1 s for the others, and not all came" in output
        assert "--initialization_timeout" in output
        assert "went on" not in output
    assert time.monotonic() - started < 40


def test_a_single_process_that_insists_is_told_of_a_preemption():
    codes, (output,) = ended(NOTICE, timeout=60)
    assert codes == [0], output
    assert output.startswith("process 0 of 1 on ")
    assert output.endswith("noticed\n")


@pytest.fixture
def first_of_two(monkeypatch):
    """This process is told to be the first of two."""
    port = free_port()
    for name, value in (("COORDINATOR", f"127.0.0.1:{port}"), ("PROCESSES", "2"), ("PROCESS", "0")):
        monkeypatch.setenv(f"LIMIT_ZOO_{name}", value)
    return port


def test_a_port_that_is_taken_is_a_sentence(first_of_two):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first_of_two))
        taken.listen()
        with pytest.raises(ConnectionError, match=f"cannot open port {first_of_two} .*another program has it"):
            initialize("auto", 30)


def test_what_jax_cannot_find_out_is_a_sentence(first_of_two, monkeypatch):
    def fail(**arguments):
        assert arguments["initialization_timeout"] > 30  # ours comes first: jax's is a crash
        raise RuntimeError("no metadata server.")

    monkeypatch.setattr("jax.distributed.initialize", fail)
    with pytest.raises(
        ConnectionError, match=r"process 0 of 2 on .* \(LIMIT_ZOO_COORDINATOR\): no metadata server. Was the"
    ):
        initialize("auto", 30)


def test_off_and_auto_leave_a_process_alone(first_of_two, monkeypatch, capsys):
    initialize("off")
    monkeypatch.delenv("LIMIT_ZOO_COORDINATOR")
    monkeypatch.delenv("LIMIT_ZOO_PROCESSES")
    monkeypatch.delenv("LIMIT_ZOO_PROCESS")
    initialize("auto")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("process 0 of 1 on ") for line in lines)
    assert not jax.distributed.is_initialized()
