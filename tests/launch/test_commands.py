"""The programs as a user starts them: each in a process of its own."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from forked import ended
from ml_collections import ConfigDict

from launch import common, overrides
from launch.compare import task_of
from launch.limit import summary, work_of
from limits import Trajectory, predict, twin
from train.data import gaussian_teacher, xor_mixture
from train.study.experiment import load
from zoo import MLP

ROOT = Path(__file__).parents[2]
SMALL = [
    "--config.widths=(8,16,32)", "--config.depths=(1,)", "--config.members=8", "--config.init_members=8",
    "--config.steps=2", "--config.task.n_train=6", "--config.task.n_test=4",
]  # fmt: skip


def launch(*arguments, folder=ROOT, module=None):
    command = (
        [sys.executable, "-m", f"launch.{module}"] if module else [str(Path(sys.executable).with_name("limit-zoo"))]
    )
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
def test_compare_from_any_folder(tmp_path):
    done = launch("compare", "--config=mlp", "--workdir=out", *SMALL, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Finite ensembles against their infinite-width twins" in done.stdout
    document = json.loads((tmp_path / "out/report.json").read_text())
    assert document["run"]["config"]["widths"] == [8, 16, 32]
    assert document["run"]["versions"]["jax"]
    assert (tmp_path / "out/report.html").stat().st_size > 10_000
    assert json.loads((tmp_path / "out/config.json").read_text())["seed"] == 0
    assert "is held against its limit at 1." in " ".join(done.stdout.split())  # its rich.depths are (2,)


OWN = """
import flax.linen as nn
import jax.numpy as jnp
from ml_collections import ConfigDict
from zoo import Dense, parameterization


class Gated(nn.Module):
    width: int
    parameterization: str = "ntk"

    @nn.compact
    def __call__(self, x):
        p, n = parameterization(self.parameterization), self.width
        h = Dense(n, "input", n, p, name="one")(x) * jnp.tanh(Dense(n, "input", n, p, name="two")(x))
        return Dense(1, "readout", n, p, name="out")(h) / p.output_scale(n, 1.0)


def get_config():
    task = {"name": "sphere", "n_train": 3, "n_test": 2, "dim": 3}
    sizes = {"widths": (16, 32, 64), "depths": (1,), "members": 16, "init_members": 16}
    how = {"steps": 3, "learning_rate": 0.1, "centred": True, "seed": 0, "task": task}
    return ConfigDict({"name": "gated", **sizes, **how, "variants": {form: {"form": form} for form in ("ntk", "mup")}})


def make(width, depth, form):
    return Gated(width, form)
"""


@pytest.mark.slow
def test_compare_takes_a_network_of_ones_own(tmp_path):
    (tmp_path / "gated.py").write_text(OWN)
    done = launch("compare", "--config=gated.py", "--workdir=out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    verdicts = json.loads((tmp_path / "out/report.json").read_text())["verdicts"]
    assert {v["label"] for v in verdicts} == {"mup, ntk", "ntk", "mup"}  # fields of a config are sorted
    assert {v["observable"] for v in verdicts} == {"nngp", "ntk", "f", "ntk_end"}
    # Sixteen members know little; what they know is near.
    assert all(v["relative_error"] < 4 * v["relative_sem"] for v in verdicts if v["label"] != "mup")


@pytest.mark.slow
def test_compare_posteriors(tmp_path):
    smaller = [
        "--config.widths=(16,32)",
        "--config.depths=(1,)",
        "--config.task.n_train=4",
        "--config.posterior.steps=400",
    ]
    done = launch("compare", "--config=posterior", "--workdir=out", *smaller, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Sampled posteriors against their theory" in done.stdout
    document = json.loads((tmp_path / "out/report.json").read_text())
    assert [row["quantity"] for row in document["agreements"]] == ["C^(1)", "predictions"] * 2
    assert (tmp_path / "out/report.html").stat().st_size > 10_000
    done = launch("compare", "--config=posterior", "--config.depths=(1,2)", folder=tmp_path)
    assert "one family at one depth" in done.stderr


@pytest.mark.slow
def test_limit_by_path(tmp_path):
    done = launch("--config=configs/mlp.py", f"--workdir={tmp_path}", "--config.depths=(1,)", module="limit")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "limit.json").read_text())
    assert {record["family"] for record in document["limits"]} == {"ntk", "mup"}
    config = load(ROOT / "configs/mlp.py").get_config()
    net = MLP(512, 1, activation="relu", w_std=2**0.5, b_std=0.0, parameterization="ntk")
    run = twin(net).lazy(task_of(config), config.steps, config.learning_rate, centred=True)
    np.testing.assert_allclose(Trajectory.load(tmp_path / "limit_ntk_depth1").loss, run.loss, rtol=1e-9)


@pytest.mark.slow
def test_limit_of_positions_is_refused(tmp_path):
    (code,), (said,) = ended("launch.limit", "--config=gpt", f"--workdir={tmp_path}")
    assert code == 1
    assert "config.task has targets of" in said


@pytest.mark.slow
def test_limit_of_what_has_no_kernel_regime(tmp_path):
    small = ("--config.task.n_train=6", "--config.task.n_test=2", "--config.depths=(1,)", "--config.optimizer=muon")
    (code,), (said,) = ended("launch.limit", "--config=mlp", f"--workdir={tmp_path}", *small)
    assert code == 0, said
    assert "lazy: " in said
    assert [each["lazy loss, step 12"] for each in json.loads((tmp_path / "limit.json").read_text())["limits"]] == 2 * [
        "absent"
    ]


def test_what_a_config_of_regression_lacks_is_named(tmp_path):
    fields = {"data": {"name": "digits"}, "regression": {"noise": 0.1}, "widths": (8,), "depths": (1,), "gamma": 1.0}
    (tmp_path / "nets.py").write_text("")
    with pytest.raises(ValueError, match="Kernels of which networks"):
        work_of(ConfigDict(fields), str(tmp_path / "nets.py"), tmp_path)
    with pytest.raises(ValueError, match=r"config\.name must be a word, got None"):
        common.workdir(None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--config=mpl"], 'Did you mean "mlp"'),
        (["compare", "--config=mlp", "--config.widht=3"], 'Did you mean "widths"'),
        (["comapre"], 'Did you mean "compare"'),
        (["compare", "--config=mlp", "--config.activations=('rleu',)"], 'Did you mean "relu"'),
        (["compare", "--config=mlp", "--config.task.n_tran=3"], 'Did you mean "n_train"'),
        (["compare"], "Give a config"),
        (["compare", "--config=mlp", "config.steps=3"], 'error: "config.steps=3" is not a flag'),
        (["train", "--config=training:mlp", "config.steps=3"], 'error: "config.steps=3" is not a flag'),
        (
            ["transfer", "--config=transfer_width", "--config.values=(1,)", "--config.values=(2,)"],
            "values is given twice",
        ),
        (["compare", "--config=mlp", "--config.widths=(0,8)"], "config.widths must be"),
        (["compare", "--config=mlp", "--config.rich.samples=0"], "error: config.rich.samples must be"),
        (["compare", "--config=mlp", "--workdir=/proc/nowhere"], "choose another with --workdir"),
        (["transfer", "--config=transfer_width", "--precision=1"], "give --budget too"),
        (["limit", "--config=mlp", "--shard=0/2"], "leave out --shard"),
        (["pack", ".", "--archive=nowhere/a.zip"], "There is no folder nowhere"),
    ],
)
def test_a_mistake_gets_one_sentence(arguments, message, tmp_path):
    (code,), (said,) = ended("launch.cli", *arguments, folder=tmp_path)
    assert code != 0
    assert message in said
    assert "Traceback" not in said


def test_a_shadowing_file_is_named(tmp_path):
    (tmp_path / "train.py").write_text("raise RuntimeError('not ours')\n")
    done = subprocess.run(
        [sys.executable, "-m", "launch.compare", "--config=mlp"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    assert str(tmp_path / "train.py") in done.stderr
    assert "limit-zoo COMMAND" in done.stderr
    done = launch("compare", "--config=mlp", "--workdir=out", "--config.widths=(0,8)", folder=tmp_path)
    assert "config.widths must be a sequence" in done.stderr  # our own train.py was found


def test_bench_says_what_it_can_time():
    assert "bench times one of all, kernels, architectures" in ended("launch.cli", "bench", "trian").outputs[0]


def test_help_names_every_command():
    for name in ("compare", "limit", "bench"):
        assert f"  {name}" in ended("launch.cli", "--help").outputs[0]
    (code,), (said,) = ended("launch.cli", "compare", "--help")
    assert code == 0
    for words in ("--config.FIELD=VALUE", "--workdir", "mlp_full", "interrupted"):
        assert words in said


@pytest.mark.slow
def test_help_ends_in_order_where_nobody_reads_it():
    """As in `--help | head`: the reader has gone."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as gone:
        command = [sys.executable, "-c", "from launch import common; common.start(print, 'about')", "--help"]
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


# --- in this process: what `start` reads before any program runs


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("config.steps=3", '"config.steps=3" is not a flag, and nothing else is expected here: --config.steps=3?'),
        ("—workdir=x", "nothing else is expected here: --workdir=x?"),
        ("steps=3", "flags are written --NAME=VALUE"),
        ("mlp", "flags are written --NAME=VALUE"),
    ],
)
def test_a_stray_word_is_a_mistake(word, said):
    assert said in common._stray(word)


@pytest.mark.parametrize("given", [("(1.0,)", "(2.0, 3.0)"), ("4.0", "(2.0,)"), ("(2.0,)", "4.0")])
def test_a_list_that_is_given_twice_would_be_joined(given):
    settings = ConfigDict({"values": (0.5,), "steps": 3, "word": ""})
    once = ["--config=x", "--config.values=(1.0, 2.0)", "--config.steps=3", "--config.steps=4", "--config.word=(1, 2)"]
    overrides.check(once, settings)
    overrides.check(["--config.values=1.0", "--config.values=2.0"], settings)  # one by one
    twice = [f"--config.values={given[0]}", "--config.values", given[1]]
    with pytest.raises(SystemExit, match=r"--config\.values is given twice, as .* and as .*: give one list"):
        overrides.check(twice, settings)


def test_fields_that_are_none_take_a_value_of_any_kind():
    settings = ConfigDict(
        {"norm": None, "causal": None, "sizes": None, "steps": 3, "inside": {"path": None, "left": None}}
    )
    given = [
        "--config=x",
        "--config.norm=batch",
        "--config.steps=4",
        "--config.causal=False",
        "--config.inside.path",
        "a b",
    ]
    assert overrides.fill([*given, "--config.sizes=(1, 2)"], settings) == ["--config=x", "--config.steps=4"]
    inside = {"path": "a b", "left": None}
    assert settings.to_dict() == {"norm": "batch", "causal": False, "sizes": (1, 2), "steps": 3, "inside": inside}


def test_options_of_data_and_task_may_be_given_where_the_file_lacks_them():
    settings = ConfigDict({"data": {"name": "digits", "train": "train"}, "steps": 3, "rich": {"steps": 2}}).lock()
    given = ["--config.data.path=own.npz", "--config.data.size", "64", "--config.steps=4"]
    overrides.check(given, settings)
    assert overrides.fill(given, settings) == ["--config.steps=4"]
    assert settings.data.to_dict() == {"name": "digits", "train": "train", "path": "own.npz", "size": 64}
    settings = ConfigDict({"data": {"name": "text"}}).lock()
    assert not overrides.fill(
        ["--config.data.path", "3", "--config.data.pattern=None", "--config.data.stride=3"], settings
    )
    assert (settings.data.path, settings.data.pattern, settings.data.stride) == (
        "3",
        "None",
        3,
    )  # names of files are words
    of_own = SimpleNamespace(__name__="own", batches=lambda data, seed: None)
    of_own.batches.__module__ = "own"
    assert overrides.options(of_own) == ("task",)  # nobody else refuses what `batches` does not know
    with pytest.raises(SystemExit, match=r'no field "config\.data\.chunk"'):
        overrides.check(["--config.data.chunk=1"], settings, overrides.options(of_own))
    for other in ("--config.rich.path=1", "--config.path=1", "--config.task.path=1", "--config.data.size.more=1"):
        with pytest.raises(SystemExit, match="the config has no field"):
            overrides.check([other], settings)


COUNTING = """
from pathlib import Path
from ml_collections import ConfigDict

with (Path(__file__).parent / "executed").open("a") as file:
    file.write("once\\n")

def get_config():
    return ConfigDict({"name": "counted", "depth": 1})

def make(width, depth): pass
def optimizer(net, learning_rate): pass
def loss(outputs, targets): pass
"""


def test_a_config_is_executed_once_a_start(tmp_path):
    (tmp_path / "counting.py").write_text(COUNTING)
    words = ("--config=counting.py", "--config.depth=2", "--distributed=off")
    (said,) = ended("launch.train", *words, folder=tmp_path).outputs
    assert "The config lacks width, steps, learning_rate" in said  # what comes after the functions are found
    assert (tmp_path / "executed").read_text() == "once\n"


def test_limit_without_training(tmp_path):
    small = ("--config.task.n_train=20", "--config.task.n_test=10")
    (code,), (said,) = ended("launch.limit", "--config=evidence", f"--workdir={tmp_path}", *small)
    assert code == 0, said
    assert (tmp_path / "evidence.png").exists()
    assert json.loads((tmp_path / "config.json").read_text())["config"]["name"] == "evidence"
    assert len(json.loads((tmp_path / "limit.json").read_text())["limits"]) == 36


@pytest.mark.parametrize(("task", "score"), [(gaussian_teacher(8, 6), "loss"), (xor_mixture(8, 6), "error")])
def test_real_targets_have_no_share_of_wrong_signs(task, score):
    net, n = MLP(8, 1, activation="erf"), len(task.y_train)
    numbers, _ = summary(net, task, {"steps": 0}, 1e-3)
    k = twin(net).kernels(task.x).ntk
    f = k[n:, :n] @ np.linalg.solve(k[:n, :n] + 1e-3 * np.trace(k[:n, :n]) / n * np.eye(n), task.y_train)
    wrong = predict.error_rate(f, task.y_test)
    assert numbers[f"NTK test {score}"] == pytest.approx(wrong if score == "error" else np.mean((f - task.y_test) ** 2))
    assert {name for name in numbers if " test " in name} == {f"NNGP test {score}", f"NTK test {score}"}


def test_inputs_that_recur_leave_a_kernel_without_a_condition():
    """Rounding made numbers such as -6.8e16 of it."""
    task = gaussian_teacher(8, 6)
    twice = dataclasses.replace(task, x_train=np.tile(task.x_train, (2, 1)), y_train=np.tile(task.y_train, (2, 1)))
    net = MLP(8, 1, activation="relu")
    eigenvalues = np.linalg.eigvalsh(twin(net).kernels(task.x_train).ntk)
    once = eigenvalues[-1] / eigenvalues[0]
    assert summary(net, task, {"steps": 0}, 1e-3)[0]["NTK condition"] == pytest.approx(once, rel=1e-6)
    assert summary(net, twice, {"steps": 0}, 1e-3)[0]["NTK condition"] == np.inf


@pytest.mark.slow
def test_fields_of_regression_that_a_config_leaves_out_may_be_named(tmp_path):
    (tmp_path / "few.py").write_text(
        "from ml_collections import ConfigDict\n"
        "def get_config():\n"
        '    return ConfigDict({"name": "few", "widths": (8,), "depths": (1,), "gamma": 1.0, "regression": {},\n'
        '                       "data": {"name": "digits"},\n'
        '                       "variants": {"MLP": {"architecture": "mlp", "activation": "relu"}}})\n'
    )
    sizes = ("--config.regression.n_train=20", "--config.regression.n_test=10", "--config.regression.ridges=(0.1,)")
    config = f"--config={tmp_path}/few.py"
    (code,), (said,) = ended("launch.limit", config, f"--workdir={tmp_path}/out", *sizes)
    assert code == 0, said
    assert json.loads((tmp_path / "out/report.json").read_text())["n_train"] == 20
    _, (said,) = ended("launch.limit", config, "--config.regression.n_trian=20")
    assert 'no field "n_trian". Did you mean "n_train"?' in said


def test_the_commands_as_a_module():
    done = launch("trian", module="cli")
    assert 'unknown command "trian". Did you mean "train"?' in done.stderr


@pytest.mark.slow
def test_limit_of_a_whole_data_set_in_two_shares(tmp_path):
    for part in (0, 1):
        sizes = ("--config.regression.n_train=24", "--config.regression.n_test=12", "--config.regression.block=8")
        done = launch("--config=kernels_large", f"--workdir={tmp_path}", *sizes, f"--shard={part}/2", module="limit")
        assert done.returncode == 0, done.stderr
        assert ("of other shares, are not" in " ".join(done.stdout.split())) == (part == 0)
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["run"]["versions"]["jax"]
    assert document["run"]["seconds"] > 0
    assert [each["kernel"] for each in document["kernels"]] == ["nngp", "ntk"] * 3
    assert json.loads((tmp_path / "config.json").read_text())["config"]["regression"]["n_train"] == 24
