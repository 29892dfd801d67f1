"""launch.train in this process: a run that is stopped and goes on is the run that was not; what it leaves behind."""

import json
import random
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from rich.console import Console

from launch import common, train
from train import about
from train.analysis import report
from train.analysis.runs import analyse_all
from train.checkpoints import info_of, load_model, steps_in
from train.data import tokens
from train.data.normalise import normalisation
from train.preemption import Preemption
from train.records import Records, read_records
from train.run import Run
from train.study import resume, runs
from train.study.experiment import Experiment, load
from zoo.saved import from_json

HERE = Path(__file__).resolve().parent
SILENT = Console(quiet=True)


def prepared(folder: Path, source: Path = HERE / "training_config.py", **changes: Any) -> Run:
    folder.mkdir(exist_ok=True)
    config = load(source).get_config()
    for name, value in changes.items():
        config[name] = value
    return train.prepare(Experiment(str(source), config, train.FUNCTIONS), folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert train.conduct(prepared(folder), SILENT)
    return folder


@pytest.mark.slow
def test_a_rerun_of_a_finished_run_says_what_it_took(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    now: dict[str, Any] = {"device": "one", "command": "first", "config": {"steps": 12}}
    monkeypatch.setattr(common, "provenance", lambda *_: dict(now))
    train.report(prepared(tmp_path), SILENT, time.time() - 1000)
    now |= {"device": "two", "command": "again"}
    shorter = '{"run": {"config": {"steps": 6}, "seconds": 3, "device": "one"}}'  # of the run before it was made longer
    for text in ("", "{", "[]", '{"run": 3}', shorter):  # the report that is there; ones that say nothing of this run
        if text:
            (tmp_path / "report.json").write_text(text)
        assert train.conduct_and_report(prepared(tmp_path), SILENT, None, time.time() - 600)
        found = json.loads((tmp_path / "report.json").read_text())["run"]
        assert (found["device"], found["command"]) == (("two", "again") if text else ("one", "first"))
        assert (found["seconds"] > 999) != bool(text)
        assert found["seconds"] < 600 or not text  # of training, not of looking whether there is any left


def equal(one: Path, other: Path) -> None:
    jax.tree.map(
        np.testing.assert_array_equal, load_model(one / "checkpoints")[1], load_model(other / "checkpoints")[1]
    )
    timeless = [[{k: v for k, v in line.items() if "seconds" not in k} for line in read_records(folder / "log.jsonl")]
                for folder in (one, other)]  # fmt: skip
    assert timeless[0] == timeless[1]
    assert [line["step"] for line in timeless[0]] == list(range(12))
    assert read_records(one / "test.jsonl") == read_records(other / "test.jsonl")


@pytest.mark.parametrize("stop", [pytest.param(3, marks=pytest.mark.slow), 6])  # at 6 it is evaluated too, once
def test_a_run_that_is_stopped_and_continued_is_the_same_run(
    stop: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Preemption, "at", lambda self, step: step >= stop)  # not asked at every step
    first = prepared(tmp_path)
    first.started -= 1000
    assert not train.conduct(first, SILENT)
    assert stop <= steps_in(tmp_path / "checkpoints")[-1] < stop + 3
    monkeypatch.undo()
    assert train.conduct_and_report(prepared(tmp_path), SILENT, None, time.time() - 50)
    equal(whole, tmp_path)
    assert 1050 < json.loads((tmp_path / "report.json").read_text())["run"]["seconds"] < 1500  # of both sessions
    assert train.conduct(prepared(tmp_path), SILENT)  # there is nothing left to do


# Orbax leaves a pending read behind where a load fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_damaged_checkpoint_costs_the_steps_since_the_one_before(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    for step in (10, 12):
        file = max((tmp_path / f"checkpoints/{step}/model").rglob("*"), key=lambda f: f.stat().st_size * f.is_file())
        file.write_bytes(file.read_bytes()[:400])
    with pytest.warns(UserWarning, match="damaged and not used"):
        assert train.conduct(prepared(tmp_path), SILENT)
    equal(whole, tmp_path)


@pytest.mark.parametrize("members", [0, 2])
@pytest.mark.slow
def test_what_is_read_of_a_checkpoint_has_the_test_loss_that_was_reported(tmp_path: Path, members: int):
    run = prepared(tmp_path, members=members, average=0.95, schedule="constant")
    assert train.conduct(run, SILENT)
    x, y = run.test.read(np.arange(len(run.test)))
    inputs, said = jnp.asarray(normalisation(run.test.normalise)(x)), read_records(tmp_path / "test.jsonl")[-1]
    losses = {}
    for averaged in (True, False):
        model = load_model(tmp_path / "checkpoints", averaged=averaged)[1]
        each = [jax.tree.map(lambda a, i=i: a[i], model) for i in range(members)] or [model]
        losses[averaged] = [float(run.experiment.call("loss", run.program.net.apply(one, inputs), y)) for one in each]
    np.testing.assert_allclose(losses[True], said.get("loss_members", [said["loss"]]), rtol=1e-5)
    assert np.min(np.abs(np.divide(losses[False], losses[True]) - 1)) > 1e-4


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


@pytest.mark.slow
def test_samples_that_stay_on_the_host_give_the_same_run(whole: Path, tmp_path: Path):
    data = prepared(tmp_path).data
    assert prepared(tmp_path).from_memory
    run = prepared(tmp_path, data={**data, "on_device": False})
    assert not run.from_memory
    assert train.conduct(run, SILENT)
    for file in ("log.jsonl", "test.jsonl"):
        one, other = ([line["loss"] for line in read_records(folder / file)] for folder in (whole, tmp_path))
        np.testing.assert_allclose(one, other, rtol=1e-4)
    with pytest.raises(ValueError, match="data="):  # bit by bit it is another
        train.check_folder(prepared(tmp_path))


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


@pytest.mark.slow
def test_batches_of_ones_own_from_a_step_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = tmp_path / "own_config.py"
    source.write_text((HERE / "training_config.py").read_text().replace('"data": {"name": "digits", "test": "test", '
                      '"augment": ("crop",)},', "") + OWN)  # fmt: skip
    how = {"evaluate_every": 0}
    assert train.conduct(prepared(tmp_path / "whole", source, **how), SILENT)
    monkeypatch.setattr(Preemption, "at", lambda self, step: step == 7)
    assert not train.conduct(prepared(tmp_path / "parts", source, **how), SILENT)
    monkeypatch.undo()
    assert train.conduct(prepared(tmp_path / "parts", source, **how), SILENT)
    jax.tree.map(
        np.testing.assert_array_equal, *(load_model(tmp_path / f / "checkpoints")[1] for f in ("whole", "parts"))
    )


@pytest.mark.slow
def test_a_config_of_transfer_is_trained_and_goes_on_with_its_batches(tmp_path: Path):
    fields = ["width=16", "depth=2", "learning_rate=0.04", "steps=2"]
    run = prepared(tmp_path / "run", HERE / "language_model.py", **train.with_fields(ConfigDict(), fields))
    assert run.rates is None  # a number reaches the optimiser
    assert train.conduct(run, SILENT)
    assert [line["step"] for line in read_records(tmp_path / "run/log.jsonl")] == [0, 1]
    batches = load(HERE / "language_model.py").batches(12)
    fourth = [next(batches) for _ in range(4)][-1]
    jax.tree.map(np.testing.assert_array_equal, next(run.batches(3)), fourth)
    looked_into(tmp_path / "run", str(HERE / "language_model.py"))


def looked_into(folder: Path, config: str) -> None:
    """What launch.analyze finds in a language model, whose targets are whole numbers."""
    jobs = runs.jobs_of([str(folder)], [config])
    points = runs.task_of(jobs, 3, 2, "cross_entropy", [config])
    (folder / "cells").mkdir(exist_ok=True)
    how = {"loss": "cross_entropy", "parts": ("spectra", "positions")}
    (found,) = analyse_all(jobs, points, folder, how, SILENT)
    assert list(found["outputs"]) == ["loss"]
    assert found["positions"]["train"].shape[1:] == found["positions"]["test"].shape[1:] == (12,)
    np.testing.assert_allclose(found["positions"]["train"].mean(1), found["outputs"]["loss"], rtol=1e-5)
    assert "blocks.mix.kernel[1]" in found["spectra"]["weights"]
    compared = report.against(jobs[0].run.definition(), [found], points, None, 0.0)
    assert "absent" in compared["kernels"]


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
    train.check_folder(prepared(whole, save_every=2, keep=9, sharding="fsdp"))
    with pytest.raises(ValueError, match=sentence):
        train.check_folder(prepared(whole, **changes))


def test_more_steps_at_a_constant_rate_go_on(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path / "run")
    for place in (tmp_path / "run/checkpoints").glob("[0-9]*"):
        info, arrays = about.read(place)
        assert arrays is not None
        info["config"]["schedule"] = "constant"
        (place / "about/about.json").write_text(about.written(info, arrays))
    train.check_folder(prepared(tmp_path / "run", schedule="constant", steps=24))


def test_another_activation_is_another_run(whole: Path, tmp_path: Path):
    source = (HERE / "training_config.py").read_text()
    (tmp_path / "training_config.py").write_text(
        source.replace("MLP(width, depth,", 'MLP(activation="tanh", width=width, depth=depth,')
    )
    with pytest.raises(ValueError, match="holds a run with another definition"):
        train.check_folder(prepared(whole, tmp_path / "training_config.py"))


def test_objects_in_a_config_are_the_same_wherever_they_lie():
    def info(value: Any) -> dict:
        config = json.loads(ConfigDict({"steps": 3, "phi": value}).to_json_best_effort())
        return {"config": config, "definition": {"absent": ""}, "step": 2}

    one, same = object(), object()
    assert info(one) != info(same)
    resume.check_same("runs/a", info(one), info(same), {}, lambda steps, done: "")
    with pytest.raises(ValueError, match=r"runs/a holds a run with phi=.*object.*, not .*function abs"):
        resume.check_same("runs/a", info(one), info(abs), {}, lambda steps, done: "")


def test_a_text_that_has_changed_is_another_run(tmp_path: Path):
    def info() -> dict:
        stream = tokens.windows("text", np.frombuffer((tmp_path / "a").read_bytes(), np.uint8), 4, None, once=False)
        return {"config": {"steps": 3}, "content": {"train": stream.content}, "step": 2, "definition": {"absent": ""}}

    (tmp_path / "a").write_bytes(b"abcdefgh")
    before = info()
    resume.check_same("runs/a", before, info(), {}, lambda steps, done: "")
    (tmp_path / "a").write_bytes(b"abcdefgi")
    with pytest.raises(ValueError, match=r"runs/a holds a run with another text in data\.train"):
        resume.check_same("runs/a", before, info(), {}, lambda steps, done: "")
    resume.check_same("runs/a", before, info(), {}, lambda steps, done: "", accept=True)
    resume.check_same("runs/a", before, {**info(), "content": {}}, {}, lambda steps, done: "")


def test_whole_checkpoints_of_another_network_are_not_taken_away(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path / "run")
    before = steps_in(tmp_path / "run/checkpoints")
    with pytest.raises(ValueError, match=r"is whole, but of another network or optimiser .*float32\(.*16.* there, .*8"):
        train.conduct(prepared(tmp_path / "run", width=8), SILENT)
    assert steps_in(tmp_path / "run/checkpoints") == before


def test_what_a_checkpoint_is_of_is_read_from_one_that_says_it(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path / "run")
    places = tmp_path / "run/checkpoints"
    for step, text in ((12, "{"), (10, "")):
        assert (info_of(places) or {})["step"] == step
        (places / f"{step}/about/about.json").write_text(text)
    assert (info_of(places) or {})["step"] == 1


CHANGES = {
    "loss": ("return losses.cross_entropy(outputs, targets)", "return 2 * losses.cross_entropy(outputs, targets)"),
    "optimizer": ("momentum=0.9", "momentum=0.8"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_of_other_code_is_refused(whole: Path, tmp_path: Path, name: str):
    source = tmp_path / "training_config.py"
    source.write_text("# Moved, with a comment.\n\n" + (HERE / "training_config.py").read_text())
    train.check_folder(prepared(whole, source))
    source.write_text(source.read_text().replace(*CHANGES[name]))
    changed = prepared(whole, source)
    with pytest.raises(ValueError, match=rf"holds a run with another {name} \(the code.* --accept_changes"):
        train.check_folder(changed)
    train.check_folder(changed, accept=True)


def test_a_run_of_another_version_is_refused(whole: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("limits.kept.identity.RESULTS", 1000)
    with pytest.raises(ValueError, match=r"holds a run with limit-zoo .*, not .*\+results1000\. Undo the change"):
        train.check_folder(prepared(whole))


def test_other_batches_are_another_run(tmp_path: Path):
    source = tmp_path / "own_config.py"
    code = (HERE / "training_config.py").read_text().replace('"data": {"name": "digits", "test": "test", "augment": '
           '("crop",)},', "").replace('"evaluate_every": 6', '"evaluate_every": 0') + OWN  # fmt: skip
    source.write_text(code)
    assert train.conduct(prepared(tmp_path / "run", source, steps=1, warmup=0), SILENT)
    train.check_folder(prepared(tmp_path / "run", source, steps=1, warmup=0))
    source.write_text(code.replace("size=(batch, 5)", "2.0, size=(batch, 5)"))
    with pytest.raises(ValueError, match="holds a run with another batches"):
        train.check_folder(prepared(tmp_path / "run", source, steps=1, warmup=0))


@pytest.mark.slow
def test_a_run_without_any_whole_checkpoint_begins_anew_beside_the_old_one(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    for step in (0, 1, 10, 12):
        (tmp_path / f"checkpoints/{step}/about/about.json").write_text("{")
    with pytest.warns(UserWarning, match="damaged and not used"):
        assert train.conduct(prepared(tmp_path), SILENT)
    equal(whole, tmp_path)
    assert (tmp_path / "log.jsonl.damaged-1").read_text() == (whole / "log.jsonl").read_text()
    assert (tmp_path / "checkpoints/12.damaged-1").is_dir()


@pytest.mark.parametrize(
    "damage", ["changed", *(pytest.param(d, marks=pytest.mark.slow) for d in ("cut", "removed")), "last ones removed"]
)
def test_a_damaged_log_is_said_and_kept(whole: Path, tmp_path: Path, damage: str):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "checkpoints/12")
    log = tmp_path / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    lines[4] = {"changed": lines[4].replace(": 4", ": 5", 1), "cut": lines[4][:20] + "\n", "removed": ""}.get(
        damage, lines[4]
    )
    log.write_text("".join(lines[: 9 if "last" in damage else None]))
    had = log.read_text()
    with pytest.warns(
        UserWarning, match=r"log\.jsonl is damaged: of 10 lines before step 10, 9 .* renamed to log\.jsonl\.da"
    ):
        assert train.conduct(prepared(tmp_path), SILENT)
    assert (tmp_path / "log.jsonl.damaged-1").read_text() == had
    lost = 9 if "last" in damage else 4
    found = [(line["step"], line["loss"]) for line in read_records(log)]
    assert found == [(line["step"], line["loss"]) for line in read_records(whole / "log.jsonl") if line["step"] != lost]
    jax.tree.map(np.testing.assert_array_equal, *(load_model(place / "checkpoints")[1] for place in (whole, tmp_path)))


def test_no_flipped_bit_of_a_log_goes_unnoticed(whole: Path, tmp_path: Path):
    """Read again, it is what it was, or that is said; taken up at a checkpoint, the same."""
    content, draw, log = (whole / "log.jsonl").read_bytes(), random.Random(0), tmp_path / "log.jsonl"
    mark, right = about.read(whole / "checkpoints/12")[0]["logs"]["log.jsonl"], read_records(whole / "log.jsonl")
    for _ in range(400):
        flipped = bytearray(content)
        flipped[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        log.write_bytes(flipped)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = read_records(log)
        assert found == right or any("is damaged, and read without line" in str(each.message) for each in said)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            Records(log, 12, mark=mark).close()
        assert read_records(log) == right or any("log.jsonl is damaged: of 12" in str(each.message) for each in said)


def test_logs_of_earlier_versions_are_read(tmp_path: Path):
    (tmp_path / "log.jsonl").write_text('{"step": 0, "loss": 1.5}\n{"step": 1, "loss": 1.25}\n{"step": 2, "lo')
    assert [line["loss"] for line in read_records(tmp_path / "log.jsonl")] == [1.5, 1.25]


def test_nothing_is_written_through_links(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    run = tmp_path / "run"
    run.mkdir()
    for name in ("log.jsonl", ".lock"):
        (run / name).symlink_to(tmp_path / "elsewhere" / name)
    with pytest.raises(ValueError, match="lock is a symbolic link"):
        resume.lock(run)
    records = Records(run / "log.jsonl")
    records.write(0, {"loss": 1.0})
    records.close()
    common.write_whole(run / "log.jsonl", "again")
    assert not any((tmp_path / "elsewhere").iterdir())
    assert not (run / "log.jsonl").is_symlink()


def test_two_processes_do_not_write_to_one_folder(tmp_path: Path):
    held = resume.lock(tmp_path)
    with pytest.raises(OSError, match="Another process is writing to"):
        resume.lock(tmp_path)
    held.close()
    resume.lock(tmp_path).close()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"keep": 0}, "keep must be an integer of at least 1, got 0"),
        ({"members": 2.5}, "members must be an integer of at least 0"),
        ({"accumulate": 0}, "accumulate must be"),
        ({"seed": -1}, "seed must be"),
        ({"average": 1.5}, "average must be a finite number ≥ 0 and < 1"),
        ({"profile": 5}, "profile must be"),
        ({"evaluate_every": 5, "data": {"name": "digits"}}, "there are no test data"),
        ({"data": {"name": "digits", "on_device": "yes"}}, "data.on_device must be True or False"),
    ],
)
def test_fields_that_can_not_be_are_named(tmp_path: Path, changes: dict, sentence: str):
    fields = load(HERE / "training_config.py").get_config()
    fields.lock()
    config = train.with_fields(fields, [f"{name}={value!r}" for name, value in changes.items()])
    with pytest.raises(ValueError, match=sentence):
        train.prepare(Experiment(str(HERE / "training_config.py"), config, train.FUNCTIONS), tmp_path)


def test_what_is_wrong_with_a_config_is_said(tmp_path: Path):
    with pytest.raises(ValueError, match="A batch of 2000 cannot be drawn from the 1437 samples"):
        train.conduct(prepared(tmp_path, batch=2000), SILENT)
    with pytest.raises(ValueError, match=r"needs a field `data`, or a function batches\(start\)"):
        prepared(tmp_path, data={})
    with pytest.raises(ValueError, match=r"data\.on_device: under --pmap batches are made on the host"):
        train.prepare(
            prepared(tmp_path, data={"name": "digits", "on_device": True}, evaluate_every=0).experiment, tmp_path, True
        )
    with pytest.raises(ValueError, match="warm-up of 50 steps"):
        prepared(tmp_path, warmup=50)
    with pytest.raises(FloatingPointError, match=r"not finite at step \d+"):
        train.conduct(prepared(tmp_path / "lost", learning_rate=1e25, schedule="constant"), SILENT)
    assert json.loads((tmp_path / "lost/log.jsonl").read_text().splitlines()[0])["step"] == 0
