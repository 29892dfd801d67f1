"""launch/tpu_vm.sh: what it would run, and what it does with a gcloud that only plays."""

import os
import shlex
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from fakes import make_tool, run

from launch import exit_codes

ROOT = Path(__file__).parents[2]
TPU, SLURM = (ROOT / "launch" / name for name in ("tpu_vm.sh", "slurm.sh"))
PLACE = ("--name=vit", "--zone=us-east5-a")
TRAIN = ("python", "-m", "launch.train", "--config.note=it's a $test", "--workdir=gs://bucket/vit")


def dry(tools: Path, *arguments) -> list[list[str]]:
    """The commands that a dry run prints, as a shell reads them."""
    done = run(tools, TPU, arguments[0], "--dry_run", *PLACE, *arguments[1:])
    assert done.returncode == 0, done.stderr
    assert not (tools / "calls").exists(), "a dry run must not call gcloud"
    return commands(tools, done.stdout)


def commands(tools: Path, script: str) -> list[list[str]]:
    """Runs the printed lines with tools that only record themselves."""
    folder = tools / "echo"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    for name in ("gcloud", "tar", "mkdir"):
        make_tool(folder, name, 'printf "%s\\0" "${0##*/}" "$@" > "${0%/*}/../$(date +%s%N)"\n')
    done = run(folder, "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    return [file.read_text().split("\0")[:-1] for file in sorted(folder.iterdir()) if file.is_file()]


def calls(tools: Path) -> list[list[str]]:
    return [file.read_text().split("\0")[:-1] for file in sorted((tools / "calls").iterdir())]


def kinds(found: list[list[str]]) -> list[str]:
    """Only what is done: create, describe, ssh, scp, delete."""
    return [call[4] for call in found if call[:3] == ["gcloud", "compute", "tpus"]]


# --- tpu_vm.sh --dry_run


def test_create_asks_for_a_queued_resource(tools):
    create, describe = dry(tools, "create", "--type=v6e-16", "--project=p")
    assert create[:6] == ["gcloud", "compute", "tpus", "queued-resources", "create", "vit"]
    flags = {"--node-id=vit", "--zone=us-east5-a", "--project=p", "--accelerator-type=v6e-16", "--async", "--quiet"}
    assert set(create[6:]) == flags | {"--runtime-version=v2-alpha-tpuv6e"}
    assert describe[3:6] == ["queued-resources", "describe", "vit"]
    assert "--format=value(state.state)" in describe


def test_spot_runtime_and_other_flags_are_passed_on(tools):
    create = dry(tools, "create", "--type=v4-32", "--spot", "--runtime=mine", "--create_flag=--labels=a=b c")[0]
    assert {"--spot", "--runtime-version=mine", "--labels=a=b c"} <= set(create)
    assert not {"--spot"} & set(dry(tools, "create", "--type=v4-32")[0])


def test_setup_warms_up_every_worker_before_all(tools):
    *warm, pack, copy, install = dry(tools, "setup", "--workers=3", "--ssh_flag=--internal-ip", "--python=3.12")
    assert [[word for word in call if word.startswith("--worker")] for call in warm] == [
        [f"--worker={i}"] for i in range(3)
    ]
    assert pack[0] == "tar"
    assert pack[pack.index("-C") + 1] == str(ROOT)
    assert Path(pack[pack.index("-T") + 1]).parent == Path(pack[pack.index("-czf") + 1]).parent
    assert copy[4] == "scp"
    assert copy[6] == "vit:limit-zoo.tar.gz"
    assert all("--internal-ip" in call for call in (*warm, copy, install))
    assert all("--worker=all" in call for call in (copy, install))
    script = next(word for word in install if word.startswith("--command="))
    assert "uv venv --quiet --allow-existing --python=3.12 .venv" in script
    assert '-e ".[tpu]"' in script
    describe = dry(tools, "setup")[0]
    assert "--format=value(networkEndpoints.len())" in describe


def test_run_quotes_the_command_and_detaches_it(tools):
    (start,) = dry(tools, "run", "--", *TRAIN)
    assert "--worker=all" in start
    script = next(word for word in start if word.startswith("--command="))
    line = next(line for line in script.splitlines() if line.startswith("nohup setsid"))
    assert shlex.split(line)[4 : 4 + len(TRAIN)] == list(TRAIN)
    assert line.endswith("< /dev/null > /dev/null 2>&1 &")


@pytest.mark.parametrize(
    ("arguments", "worker", "part"),
    [
        (("logs",), "all", "tail -n 50 ~"),
        (("logs", "--follow"), "0", "tail -n 50 -F ~"),
        (("logs", "--worker=3", "--lines=7"), "3", "tail -n 7 ~"),
        (("stop",), "all", "kill -TERM"),
        (("status",), "all", "exit code"),
    ],
)
def test_the_other_subcommands(tools, arguments, worker, part):
    call = dry(tools, *arguments)[-1]
    assert call[4] == "ssh"
    assert f"--worker={worker}" in call
    assert part in next(word for word in call if word.startswith("--command="))


def test_delete_takes_the_nodes_too(tools):
    (call,) = dry(tools, "delete")
    assert call[3:6] == ["queued-resources", "delete", "vit"]
    assert {"--force", "--quiet"} <= set(call)


def test_retry_is_the_others_in_their_order(tools):
    found = dry(tools, "retry", "--type=v5p-32", "--spot", "--workers=1", "--", *TRAIN)
    assert kinds(found) == ["create", "describe", "ssh", "scp", "ssh", "ssh", "ssh", "ssh", "delete"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("crate", *PLACE), 'there is no subcommand "crate": create, setup,'),
        (("create", "--name=vit"), "--name=NAME and --zone=ZONE are needed"),
        (("create", *PLACE), "--type=TYPE is needed"),
        (("create", *PLACE, "--type=tpu7x-16"), "by GKE: launch/gke.yaml"),
        (("run", *PLACE), "the command is missing"),
        (("run", *PLACE, "--", "--config=configs/training.py:vit"), "what follows -- is a command"),
        (("status", *PLACE, "--zome=x"), 'unknown argument "--zome=x"'),
        (("retry", *PLACE, "--type=v4-8", "--attempts=0", "--", "true"), 'whole numbers from 1; got "0"'),
        (("create", *PLACE, "--type=v4-8", "--poll=soon"), 'number of seconds; got "soon"'),
        ((), "usage: launch/tpu_vm.sh"),
    ],
)
def test_mistakes_are_a_sentence(tools, arguments, sentence):
    done = run(tools, TPU, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not (tools / "calls").exists()


def test_without_gcloud_it_says_so(tools):
    (tools / "bin/gcloud").unlink()
    (tools / "few").mkdir()
    for name in ("bash", "env", "sed", "dirname"):
        (tools / "few" / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run(
        [TPU, "delete", *PLACE], env={"PATH": str(tools / "few")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 127
    assert "there is no gcloud" in done.stderr


@pytest.mark.parametrize("script", [TPU, SLURM])
def test_help_tells_the_contract(tools, script):
    done = run(tools, script, "--help")
    assert done.returncode == 0
    assert str(exit_codes.PREEMPTED) in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 130


# --- tpu_vm.sh, run


def training(tools: Path, *codes: int) -> tuple[str, ...]:
    """A program that ends with one code after the other, and keeps its arguments in a file."""
    (tools / "codes").write_text("".join(f"{code}\n" for code in codes))
    make_tool(tools, "trainer", f"""
        echo training "$*"
        code=$(head -n 1 {tools}/codes) && sed -i 1d {tools}/codes
        exit "$code"
    """)  # fmt: skip
    return (str(tools / "bin/trainer"), "it's a $test", "--workdir=gs://bucket/x")


def retry(tools: Path, *command, flags=()):
    return run(tools, TPU, "retry", *PLACE, "--type=v4-16", "--poll=0.05", *flags, "--", *command)


def test_retry_makes_a_new_tpu_after_a_preemption_until_the_end(tools):
    done = retry(tools, *training(tools, exit_codes.PREEMPTED, exit_codes.FINISHED), flags=("--spot",))
    assert done.returncode == 0, done.stderr
    found = kinds(calls(tools))
    assert (found.count("create"), found.count("delete")) == (2, 2)
    assert found[-1] == "delete"
    assert "preempted (attempt 1 of 100)" in done.stderr
    assert (tools / "codes").read_text() == ""  # both runs took place
    for attempt in (1, 2):
        log = (tools / f"runs/vit-logs/{attempt}/0.log").read_text()
        assert log == "training it's a $test --workdir=gs://bucket/x\n"
    assert "pip install" in (tools / "home/uv").read_text()


def test_retry_does_not_repeat_an_error_and_keeps_its_code(tools):
    done = retry(tools, *training(tools, 7, 0))
    assert done.returncode == 7
    found = kinds(calls(tools))
    assert (found.count("create"), found.count("delete")) == (1, 1)
    assert "an error, exit code 7; not tried again" in done.stderr
    assert (tools / "runs/vit-logs/1/0.log").is_file()


def test_retry_gives_up_after_so_many_attempts(tools):
    done = retry(tools, *training(tools, 42, 42, 42), flags=("--attempts=2",))
    assert done.returncode == exit_codes.PREEMPTED
    assert kinds(calls(tools)).count("create") == 2


@pytest.mark.slow
def test_a_tpu_that_is_taken_away_counts_as_preempted(tools):
    """While it is waited for, in its setup, twice while it runs: nobody tells an exit code then."""
    (tools / "states").write_text("PROVISIONING\nSUSPENDED\nACTIVE\nSUSPENDING\nACTIVE\n")
    make_tool(tools, "trainer", f"""
        echo >> {tools}/runs_begun
        case $(wc -l < {tools}/runs_begun) in
          1) printf 'SUSPENDING\\nACTIVE\\n' > {tools}/states; exec sleep 30 ;;
          2) echo PREEMPTED > {tools}/node; exec sleep 30 ;;
        esac
    """)  # fmt: skip
    done = retry(tools, str(tools / "bin/trainer"), "--workdir=gs://b")
    assert done.returncode == 0, done.stderr
    found = kinds(calls(tools))
    assert (found.count("create"), found.count("delete")) == (5, 5)
    assert "preempted (attempt 4 of 100)" in done.stderr


@pytest.mark.slow
def test_workers_that_stay_out_of_reach_are_an_error(tools):
    """A TPU that is there, as far as one can see, is not replaced for ever."""
    make_tool(tools, "trainer", f"echo CREATING > {tools}/node; exec sleep 30")
    done = retry(tools, str(tools / "bin/trainer"))
    assert done.returncode == 255
    assert "could not be reached, 10 times in a row" in done.stderr
    assert kinds(calls(tools)).count("delete") == 1


@pytest.mark.parametrize(
    ("report", "code"),
    [
        ("a: exit code 134\nb: exit code 42", 42),  # jax ends a process whose peers have left
        pytest.param("a: exit code 0\nb: exit code 9\nc: exit code 3", 9, marks=pytest.mark.slow),
        pytest.param(*("a: exit code 9\nb: running", 9), marks=pytest.mark.slow),
        ("a: lost\nb: running", 42),
        pytest.param("a: running\nb: nothing started", 1, marks=pytest.mark.slow),
    ],
)
def test_what_several_workers_tell_is_one_verdict(tools, report, code):
    (tools / "report").write_text(report + "\n")
    assert retry(tools, *training(tools, 0), flags=("--attempts=1",)).returncode == code


def test_an_interrupted_retry_names_what_is_left_behind(tools):
    (tools / "states").write_text("WAITING_FOR_RESOURCES\n")
    environ = {**os.environ, "PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
    command = [TPU, "retry", *PLACE, "--type=v4-8", "--poll=0.05", "--", "true"]
    with subprocess.Popen(command, cwd=tools, env=environ, text=True, stderr=subprocess.PIPE) as program:
        assert program.stderr
        while "WAITING" not in program.stderr.readline():
            assert program.poll() is None
        program.terminate()
        assert "interrupted. vit may still be there, and cost" in program.stderr.read()
    assert program.returncode == 130


def test_a_request_that_is_refused_deletes_nothing(tools):
    """A TPU of this name may be somebody's."""
    (tools / "create_fails").write_text("5")
    done = retry(tools, *training(tools, 0))
    assert done.returncode == 5
    assert kinds(calls(tools)) == ["create"]


def test_a_request_that_failed_later_is_an_error(tools):
    (tools / "states").write_text("ACCEPTED\nFAILED\n")
    done = retry(tools, *training(tools, 0))
    assert done.returncode == 1
    assert "the request for vit failed" in done.stderr
    assert kinds(calls(tools)).count("delete") == 1


def test_a_tpu_that_stays_and_costs_is_pointed_at(tools):
    (tools / "delete_fails").touch()
    done = retry(tools, *training(tools, 42, 0))
    assert done.returncode == 1
    assert "could not be deleted, and costs" in done.stderr
    assert kinds(calls(tools)).count("create") == 1


def test_a_run_is_watched_and_stopped_from_outside(tools):
    """run, status, a second run refused, logs, stop: on the worker's side too."""
    run(tools, TPU, "create", *PLACE, "--type=v4-8", "--poll=0.05")
    make_tool(
        tools, "trainer", "trap 'echo saved; exit 42' TERM\necho step $1\nfor _ in {1..300}; do sleep 0.1; done\n"
    )

    def act(*arguments):
        return run(tools, TPU, arguments[0], *PLACE, *arguments[1:])

    assert "nothing started" in act("status").stdout
    started = act("run", "--", tools / "bin/trainer", "1")
    assert started.returncode == 0
    assert "without --workdir=gs://" in started.stderr
    assert act("status").stdout.splitlines()[-1].endswith(": running")
    again = act("run", "--", "true")
    assert again.returncode == 3
    assert "goes on already" in again.stderr
    assert act("stop").returncode == 0
    end = time.monotonic() + 20
    while not (status := act("status").stdout.splitlines()[-1]).endswith(": exit code 42"):
        assert time.monotonic() < end, status
    assert [line.split("] ")[1] for line in act("logs").stdout.splitlines()] == ["step 1", "saved"]


@pytest.mark.slow
def test_another_process_with_the_number_is_not_the_run(tools):
    """As after a restart of the machine: it is not taken for running, and not stopped."""
    run(tools, TPU, "create", *PLACE, "--type=v4-8", "--poll=0.05")
    state = tools / "home/limit-zoo-run"
    state.mkdir()
    with subprocess.Popen(["sleep", "60"]) as other:
        ticks = Path(f"/proc/{other.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (state / "pid").write_text(f"{other.pid} {boot} {ticks}\n")
        assert run(tools, TPU, "status", *PLACE).stdout.splitlines()[-1].endswith(": running")
        for stale in (f"{other.pid}", "", f"{other.pid} another-boot {ticks}", f"{other.pid} {boot} 1"):
            (state / "pid").write_text(f"{stale}\n")
            assert run(tools, TPU, "status", *PLACE).stdout.splitlines()[-1].endswith(": lost"), stale
        stopped = run(tools, TPU, "stop", *PLACE)
        assert (stopped.returncode, "nothing runs" in stopped.stderr) == (1, True)
        assert run(tools, TPU, "run", *PLACE, "--", "true").returncode == 0  # it stands in no run's way
        assert other.poll() is None
        other.kill()


@pytest.fixture
def checkout(tools):
    """A checkout of its own, of which git knows some files, and a gcloud that keeps what is sent."""
    root = tools / "checkout"
    (root / "launch").mkdir(parents=True)
    for file in (TPU, ROOT / "launch/exit_codes.py"):
        shutil.copy(file, root / "launch")
    (root / "a name.py").write_text("as committed")
    (root / "taken away.py").write_text("")
    git = ["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)
    (root / "a name.py").write_text("as it is now")
    (root / "taken away.py").unlink()
    (root / "secret.env").write_text("a password")
    (tools / "bin/tar").unlink()
    make_tool(tools, "gcloud", f"""
        for word in "$@"; do case $word in /*.tar.gz)
          stat -c '%a %n' "$(dirname "$word")" "$word" >> {tools}/places
          cp "$word" {tools}/sent.tar.gz
          if [ -f {tools}/scp_fails ]; then exit 5; fi
          if [ -f {tools}/scp_hangs ]; then sleep 20; fi
        esac; done
    """)  # fmt: skip
    return root


def test_setup_sends_what_git_knows_from_a_private_place_and_leaves_nothing(tools, checkout):
    setup = [checkout / "launch/tpu_vm.sh", "setup", *PLACE, "--workers=1"]
    assert run(tools, *setup).returncode == 0
    with tarfile.open(tools / "sent.tar.gz") as sent:
        assert sorted(sent.getnames()) == ["a name.py", "launch/exit_codes.py", "launch/tpu_vm.sh"]
        member = sent.extractfile("a name.py")
        assert member
        assert member.read() == b"as it is now"
    (tools / "scp_fails").touch()
    assert run(tools, *setup).returncode == 5
    (tools / "scp_fails").unlink()
    (tools / "scp_hangs").touch()
    environ = {**os.environ, "PATH": f"{tools / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(tools)}
    listening = ["env", "--default-signal=INT", *setup]  # in the background a shell has its children ignore it
    with subprocess.Popen(listening, cwd=tools, env=environ, stderr=-3, start_new_session=True) as program:
        while len((tools / "places").read_text().splitlines()) < 6:
            assert program.poll() is None
            time.sleep(0.05)
        os.killpg(program.pid, signal.SIGINT)
    assert program.returncode != 0
    folders = [line.split(" ", 1) for line in (tools / "places").read_text().splitlines()[::2]]
    assert [mode for mode, _ in folders] == ["700"] * 3
    assert len({name for _, name in folders}) == 3  # no name can be foreseen
    assert not [name for _, name in folders if Path(name).exists()]


def test_a_dry_run_of_setup_packs_the_same(tools, checkout):
    lines = run(tools, checkout / "launch/tpu_vm.sh", "setup", "--dry_run", *PLACE, "--workers=1").stdout.splitlines()
    (checkout / "taken away.py").touch()
    script = "\n".join(
        lines[: next(i for i, line in enumerate(lines) if "install" in line or ("ssh" in line and i > 1))]
    )
    assert run(tools, "bash", "-ec", script).returncode == 0
    with tarfile.open(tools / "sent.tar.gz") as sent:
        assert "secret.env" not in sent.getnames()
        assert "launch/tpu_vm.sh" in sent.getnames()
    assert not list(tools.glob("limit-zoo.*"))


def test_what_a_shutdown_sends_does_not_lose_the_exit_code(tools):
    """SIGTERM to the shell around the program as well."""
    run(tools, TPU, "create", *PLACE, "--type=v4-8", "--poll=0.05")
    make_tool(tools, "trainer", "trap 'exit 42' TERM\nfor _ in {1..300}; do sleep 0.1; done\n")
    run(tools, TPU, "run", *PLACE, "--", tools / "bin/trainer")
    state = tools / "home/limit-zoo-run"
    os.killpg(os.getpgid(int((state / "pid").read_text().split()[0])), signal.SIGTERM)
    end = time.monotonic() + 20
    while not (state / "exit_code").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert (state / "exit_code").read_text().strip() == "42"


def test_a_worker_that_is_not_set_up_says_so(tools):
    run(tools, TPU, "create", *PLACE, "--type=v4-8", "--poll=0.05")
    shutil.rmtree(tools / "home/limit-zoo")
    done = run(tools, TPU, "run", *PLACE, "--", *TRAIN)
    assert done.returncode == 4
    assert "is not set up: launch/tpu_vm.sh setup first" in done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", [TPU, SLURM], ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(script):
    done = subprocess.run(["shellcheck", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
