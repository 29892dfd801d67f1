"""launch.train in this process: a run that is stopped and goes on is the run that was not; what it leaves behind."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from rich.console import Console

from launch import resume, train
from launch.experiment import Experiment, load
from train.checkpoints import find_flaw, info_of, load_model, steps_in
from train.records import read_records
from zoo.saved import from_json

HERE = Path(__file__).resolve().parent
SILENT = Console(quiet=True)


def prepared(folder: Path, source: Path = HERE / "training_config.py", **changes: Any) -> train.Run:
    folder.mkdir(exist_ok=True)
    config = load(source).get_config()
    for name, value in changes.items():
        config[name] = value
    return train.Run(Experiment(str(source), config, train.FUNCTIONS), folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert train.conduct(prepared(folder), SILENT)
    return folder


def equal(one: Path, other: Path) -> None:
    jax.tree.map(
        np.testing.assert_array_equal, load_model(one / "checkpoints")[1], load_model(other / "checkpoints")[1]
    )
    timeless = [[{k: v for k, v in line.items() if "seconds" not in k} for line in read_records(folder / "log.jsonl")]
                for folder in (one, other)]  # fmt: skip
    assert timeless[0] == timeless[1]
    assert [line["step"] for line in timeless[0]] == list(range(12))
    assert read_records(one / "test.jsonl") == read_records(other / "test.jsonl")


def test_a_run_that_is_stopped_and_continued_is_the_same_run(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for stop in (3, 6):  # at 6 it is evaluated too, once
        monkeypatch.setattr(train.Preemption, "at", lambda self, step, stop=stop: step == stop)
        assert not train.conduct(prepared(tmp_path), SILENT)
        assert steps_in(tmp_path / "checkpoints")[-1] == stop
    monkeypatch.undo()
    assert train.conduct(prepared(tmp_path), SILENT)
    equal(whole, tmp_path)
    assert train.conduct(prepared(tmp_path), SILENT)  # there is nothing left to do


def test_a_damaged_checkpoint_costs_the_steps_since_the_one_before(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    for step in (10, 12):
        file = max((tmp_path / f"checkpoints/{step}/model").rglob("*"), key=lambda f: f.stat().st_size * f.is_file())
        file.write_bytes(file.read_bytes()[:-7])
    with pytest.warns(UserWarning, match="damaged and not used"):
        assert train.conduct(prepared(tmp_path), SILENT)
    equal(whole, tmp_path)


def test_what_a_run_leaves_behind(whole: Path):
    assert steps_in(whole / "checkpoints") == [0, 1, 10, 12]
    lines = read_records(whole / "log.jsonl")
    assert {"loss", "accuracy", "gradient_norm", "update_norm", "parameter_norm", "learning_rate"} <= set(lines[0])
    assert [line["step"] for line in read_records(whole / "test.jsonl")] == [6, 12]
    assert lines[0]["learning_rate"] == 0.0
    assert lines[2]["learning_rate"] == pytest.approx(0.5)
    tests = read_records(whole / "test.jsonl")
    assert tests[1]["loss"] < tests[0]["loss"]
    assert "seconds_left" not in lines[0]
    step, model, info = load_model(whole / "checkpoints")
    net = from_json(info["definition"])
    assert (step, net) == (12, prepared(whole).program.net)
    assert net.apply(model, jnp.ones((2, 8, 8, 1))).shape == (2, 10)
    assert info["config"]["batch"] == 16


def test_an_ensemble_is_its_members(whole: Path, tmp_path: Path):
    assert train.conduct(prepared(tmp_path, members=3, seed=0), SILENT)
    members, alone = load_model(tmp_path / "checkpoints")[1], load_model(whole / "checkpoints")[1]
    # Batches are those of seed 0 here, of seed 1 there, so that only the first parameters are the same.
    assert [leaf.shape[0] for leaf in jax.tree.leaves(members)] == [3] * len(jax.tree.leaves(members))
    first, same = load_model(tmp_path / "checkpoints", 0)[1], load_model(whole / "checkpoints", 0)[1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1], b, rtol=1e-6), first, same)
    assert jax.tree.structure(members) == jax.tree.structure(alone)
    lines = read_records(tmp_path / "log.jsonl")
    np.testing.assert_allclose(np.mean(lines[3]["loss_members"]), lines[3]["loss"])
    assert len(read_records(tmp_path / "test.jsonl")[-1]["accuracy_members"]) == 3


OWN = """
import numpy as np

def batches(start, batch):
    k = start
    while True:
        random = np.random.default_rng(k)
        yield random.normal(size=(batch, 5)).astype("float32"), np.eye(10, dtype="float32")[random.integers(10, size=batch)]
        k += 1
"""


def test_batches_of_ones_own_from_a_step_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = tmp_path / "own_config.py"
    source.write_text((HERE / "training_config.py").read_text().replace('"data": {"name": "digits", "test": "test", '
                      '"augment": ("crop",)},', "") + OWN)  # fmt: skip
    assert train.conduct(prepared(tmp_path / "whole", source), SILENT)
    monkeypatch.setattr(train.Preemption, "at", lambda self, step: step == 7)
    assert not train.conduct(prepared(tmp_path / "parts", source), SILENT)
    monkeypatch.undo()
    assert train.conduct(prepared(tmp_path / "parts", source), SILENT)
    jax.tree.map(
        np.testing.assert_array_equal, *(load_model(tmp_path / f / "checkpoints")[1] for f in ("whole", "parts"))
    )


def test_a_config_of_transfer_is_trained_and_goes_on_with_its_batches(tmp_path: Path):
    fields = ["width=16", "depth=2", "learning_rate=0.04", "steps=2"]
    run = prepared(tmp_path / "run", HERE / "language_model.py", **train.with_fields(ConfigDict(), fields))
    assert run.rates is None  # a number reaches the optimiser
    assert train.conduct(run, SILENT)
    assert [line["step"] for line in read_records(tmp_path / "run/log.jsonl")] == [0, 1]
    batches = load(HERE / "language_model.py").batches(12)
    fourth = [next(batches) for _ in range(4)][-1]
    jax.tree.map(np.testing.assert_array_equal, next(run.batches(3)), fourth)


@pytest.mark.parametrize(
    ("asks", "fields", "scheduled"),
    [
        ("", {}, False),
        ("", {"warmup": 2}, True),
        (", warmup", {"warmup": 2}, False),
        ("", {"schedule": "cosine"}, True),
    ],
)
def test_the_rate_is_a_schedule_unless_the_optimiser_makes_its_own(
    tmp_path: Path, asks: str, fields: dict, scheduled: bool
):
    code = f"""
import numpy as np, optax
from ml_collections import ConfigDict
from zoo import MLP
def get_config(): return ConfigDict({{"name": "own", "width": 4, "depth": 1, "steps": 4, "learning_rate": 0.1}})
def make(width, depth): return MLP(width, depth)
def optimizer(net, learning_rate{asks}): return optax.sgd(learning_rate)
def loss(f, y): return ((f - y) ** 2).mean()
def batches(): yield np.ones((2, 3)), np.ones((2, 1))
"""
    (tmp_path / "own.py").write_text(code)
    run = prepared(tmp_path / "run", tmp_path / "own.py", **fields)
    assert (run.rates is not None) == scheduled


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"width": 8}, r"holds a run with width=16, not 8\. Choose another folder with --workdir"),
        ({"seed": 2, "members": 3}, "members=0, not 3; seed=1, not 2"),
        ({"steps": 24}, "steps=12, not 24, and its learning rates depend on that"),
        ({"steps": 6}, "12 steps done, more than 6"),
    ],
)
def test_a_folder_with_another_run_is_refused(whole: Path, changes: dict, sentence: str):
    assert load(HERE / "training_config.py").get_config().width == 16
    prepared(whole, save_every=2, keep=9, sharding="fsdp").check_folder()
    with pytest.raises(ValueError, match=sentence):
        prepared(whole, **changes).check_folder()


def test_more_steps_at_a_constant_rate_go_on(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path / "run")
    for info in (tmp_path / "run").glob("checkpoints/*/_CHECKPOINT_METADATA"):
        info.write_text(info.read_text().replace('"cosine"', '"constant"'))
    prepared(tmp_path / "run", schedule="constant", steps=24).check_folder()


def test_another_activation_is_another_run(whole: Path, tmp_path: Path):
    source = (HERE / "training_config.py").read_text()
    (tmp_path / "training_config.py").write_text(
        source.replace("MLP(width, depth,", 'MLP(activation="tanh", width=width, depth=depth,')
    )
    with pytest.raises(ValueError, match="holds a run with another definition"):
        prepared(whole, tmp_path / "training_config.py").check_folder()


def test_objects_in_a_config_are_the_same_wherever_they_lie():
    def info(value: Any) -> dict:
        config = json.loads(ConfigDict({"steps": 3, "phi": value}).to_json_best_effort())
        return {"config": config, "definition": {"absent": ""}, "step": 2}

    one, same = object(), object()
    assert info(one) != info(same)
    resume.check_same("runs/a", info(one), info(same), {}, lambda steps, done: True)
    with pytest.raises(ValueError, match=r"runs/a holds a run with phi=.*object.*, not .*function abs"):
        resume.check_same("runs/a", info(one), info(abs), {}, lambda steps, done: True)


def test_whole_checkpoints_of_another_network_are_not_taken_away(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path / "run")
    before = steps_in(tmp_path / "run/checkpoints")
    with pytest.raises(ValueError, match="is whole, but of another network or optimiser"):
        train.conduct(prepared(tmp_path / "run", width=8), SILENT)
    assert steps_in(tmp_path / "run/checkpoints") == before


def test_a_broken_list_is_a_damaged_checkpoint(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path / "run")
    places = tmp_path / "run/checkpoints"
    (places / "lists/12.json").write_text("{")
    assert "is broken" in find_flaw(places, 12)
    before = steps_in(places)[-2]
    assert (info_of(places) or {})["step"] == before
    (places / f"lists/{before}.json").unlink()
    (places / str(before) / "_CHECKPOINT_METADATA").unlink()
    assert (info_of(places) or {})["step"] == steps_in(places)[-3]


def test_two_processes_do_not_write_to_one_folder(tmp_path: Path):
    held = resume.lock(tmp_path)
    with pytest.raises(OSError, match="Another process is writing to"):
        resume.lock(tmp_path)
    held.close()
    resume.lock(tmp_path).close()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1; got 0"),
        ({"keep": 0}, "keep must be a whole number of at least 1; got 0"),
        ({"members": 2.5}, "members must be a whole number"),
        ({"accumulate": 0}, "accumulate must be"),
        ({"seed": -1}, "seed must be"),
        ({"average": 1.5}, "average, the decay"),
        ({"profile": 5}, "profile must be"),
        ({"evaluate_every": 5, "data": {"name": "digits"}}, "there are no test data"),
    ],
)
def test_fields_that_can_not_be_are_named(tmp_path: Path, changes: dict, sentence: str):
    fields = load(HERE / "training_config.py").get_config()
    fields.lock()
    config = train.with_fields(fields, [f"{name}={value!r}" for name, value in changes.items()])
    with pytest.raises(ValueError, match=sentence):
        train.Run(Experiment(str(HERE / "training_config.py"), config, train.FUNCTIONS), tmp_path)


def test_what_is_wrong_with_a_config_is_said(tmp_path: Path):
    with pytest.raises(ValueError, match="A batch of 2000 cannot be drawn from the 1437 samples"):
        train.conduct(prepared(tmp_path, batch=2000), SILENT)
    with pytest.raises(ValueError, match=r"needs a field `data`, or a function batches\(start\)"):
        prepared(tmp_path, data={})
    with pytest.raises(ValueError, match="warm-up of 50 steps"):
        prepared(tmp_path, warmup=50)
    with pytest.raises(FloatingPointError, match=r"not finite at step \d+"):
        train.conduct(prepared(tmp_path / "lost", learning_rate=1e25, schedule="constant"), SILENT)
    assert json.loads((tmp_path / "lost/log.jsonl").read_text().splitlines()[0])["step"] == 0
