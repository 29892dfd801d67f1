"""launch/slurm.sh with an srun and scontrol that only play, and launch/gke.yaml."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from fakes import make_tool, run

from launch import exit_codes

ROOT = Path(__file__).parents[2]
SLURM, GKE = ROOT / "launch/slurm.sh", ROOT / "launch/gke.yaml"
TRAIN = ("python", "-m", "launch.train", "--config.note=it's a $test", "--workdir=gs://bucket/vit")


# --- slurm.sh


@pytest.fixture
def slurm(tools):
    make_tool(tools, "srun", f'printf "%s\\0" "$@" > {tools}/srun\nexit "$(cat {tools}/code)"\n')
    make_tool(tools, "scontrol", f'echo "$@" > {tools}/scontrol\n')

    def job(code, *command, **environment):
        (tools / "code").write_text(str(code))
        return run(tools, SLURM, *command, SLURM_SUBMIT_DIR=str(ROOT), SLURM_JOB_ID="99", **environment)

    return job


def test_slurm_puts_a_preempted_job_back_into_the_queue(slurm, tools):
    done = slurm(exit_codes.PREEMPTED, *TRAIN)
    assert done.returncode == exit_codes.PREEMPTED
    assert (tools / "scontrol").read_text() == "requeue 99\n"
    assert (tools / "srun").read_text().split("\0")[:-1] == ["--kill-on-bad-exit=0", *TRAIN]


@pytest.mark.parametrize(
    ("code", "environment"), [(0, {}), (7, {}), (42, {"SLURM_RESTART_COUNT": "3", "MAX_RESTARTS": "3"})]
)
def test_slurm_leaves_any_other_job_alone(slurm, tools, code, environment):
    assert slurm(code, *TRAIN, **environment).returncode == code
    assert not (tools / "scontrol").exists()


def test_slurm_numbers_the_runs_of_an_array(slurm, tools):
    slurm(0, "train", "--seed=%a", "--workdir=/x/run %a", SLURM_ARRAY_TASK_ID="3")
    assert (tools / "srun").read_text().split("\0")[1:-1] == ["train", "--seed=3", "--workdir=/x/run 3"]


@pytest.mark.parametrize(
    ("word", "becomes"),
    [
        ("%a", "3"),
        ("--workdir=/x/%a_b-%a", "--workdir=/x/3_b-3"),
        ("--name=50%accuracy", "--name=50%accuracy"),
        ("100%", "100%"),
        ("%%%%", "%%%%"),
        ("x%20y%a0%aB", "x%20y%a0%aB"),
        ("%j %b %A", "%j %b %A"),
        ("--note=%%a is %a", "--note=%a is 3"),
        ("two\nlines %a\n", "two\nlines 3\n"),
        ("", ""),
    ],
)
def test_slurm_leaves_other_percent_signs_of_an_array_alone(slurm, tools, word, becomes):
    slurm(0, "train", word, SLURM_ARRAY_TASK_ID="3")
    assert (tools / "srun").read_text().split("\0")[1:-1] == ["train", becomes]


def test_slurm_by_hand(tools):
    printed = run(tools, SLURM, "--dry_run", *TRAIN)
    submit, _, step, _, requeue = printed.stdout.splitlines()
    assert shlex.split(submit) == ["sbatch", "launch/slurm.sh", *TRAIN]
    assert shlex.split(step) == ["srun", "--kill-on-bad-exit=0", *TRAIN]
    assert requeue == 'scontrol requeue "$SLURM_JOB_ID"'
    for arguments, sentence in (((), "the command is missing"), (TRAIN, "this is for sbatch")):
        done = run(tools, SLURM, *arguments)
        assert done.returncode == 2
        assert sentence in done.stderr


def test_slurm_asks_for_the_signal_that_training_waits_for():
    lines = re.findall(r"^#SBATCH (.*)$", SLURM.read_text(), flags=re.M)
    assert {"--requeue", "--signal=TERM@120", "--open-mode=append"} <= set(lines)


# --- gke.yaml


def test_gke_knows_the_same_exit_code_and_starts_the_same_program():
    document = yaml.safe_load(GKE.read_text())
    assert document["kind"] == "JobSet"
    job = document["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["parallelism"] == job["completions"]
    on_codes = job["podFailurePolicy"]["rules"][0]["onExitCodes"]
    container = job["template"]["spec"]["containers"][0]
    assert on_codes["values"] == [exit_codes.PREEMPTED]
    assert on_codes["containerName"] == container["name"]
    assert container["command"] == ["python", "-m", "launch.train"]
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # podFailurePolicy requires it
