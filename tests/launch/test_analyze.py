"""launch.analyze reads what launch.train left, measures every member, keeps what is finished, and holds it against the twin."""

import dataclasses
import functools
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from launch import train
from limits import empirical_ntk, twin
from train import about, curves
from train.analysis import analyse, report
from train.analysis.runs import TrainedRun, analyse_all
from train.checkpoints import load_model
from train.evaluate.report import Report
from train.records import Records, read_records
from train.study import runs
from train.study.experiment import Experiment, load
from zoo import MLP
from zoo.saved import to_json

SILENT = Console(quiet=True)
NNX = """

class Net(nnx.Module):
    def __init__(self, width, rngs):
        self.first, self.last = nnx.Linear(64, width, rngs=rngs), nnx.Linear(width, 10, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.first(x.reshape(len(x), -1))))
"""
HOW = {"loss": "cross_entropy", "parts": ("kernels", "ntk")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("members")
    source = Path(__file__).with_name("training_config.py")
    config = load(source).get_config()
    config.members, config.evaluate_every = 2, 0
    assert train.conduct(train.prepare(Experiment(str(source), config, train.FUNCTIONS), place), SILENT)
    (place / "cells").mkdir()
    return place


@pytest.fixture(scope="module")
def found(folder: Path) -> tuple[list, Any, list]:
    jobs = runs.jobs_of([str(folder)])
    task = jobs[0].run.task(6, 3)
    return jobs, task, analyse_all(jobs, task, folder, HOW, SILENT)


def test_every_member_is_measured_at_every_checkpoint(folder: Path, found: Any):
    jobs, task, measured = found
    assert [job.member for job in jobs] == [0, 1]
    assert all(each["steps"].tolist() == [0, 1, 10, 12] for each in measured)
    net, variables = jobs[1].run.definition(), load_model(folder / "checkpoints", 12)[1]
    one = jax.tree.map(lambda a: a[1], variables)
    points = jnp.asarray(np.concatenate([task.x_train, task.x_test]), "float32")
    np.testing.assert_allclose(
        measured[1]["outputs"]["f_train"][-1], jax.jit(net.apply)(one, points[:6]), rtol=1e-4, atol=1e-6
    )
    direct = jax.jit(functools.partial(empirical_ntk, net.apply))(one, points)
    ratio = measured[1]["ntk"]["ntk"][-1] / direct  # the definition's learning-rate factors: one number in this family
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-3)


def test_points_are_those_of_training(found: Any):
    _, task, _ = found
    np.testing.assert_allclose((task.x_train**2).sum((1, 2, 3)), 64, rtol=1e-5)
    assert task.y_test.shape == (3, 10)


def test_finished_networks_are_not_measured_again(folder: Path, found: Any, monkeypatch: pytest.MonkeyPatch):
    jobs, task, measured = found
    monkeypatch.setattr("train.analysis.runs.analyse", lambda *_, **__: pytest.fail("measured again"))
    again = analyse_all(jobs, task, folder, HOW, SILENT)
    np.testing.assert_array_equal(again[0]["ntk"]["ntk"], measured[0]["ntk"]["ntk"])


def test_members_are_held_against_their_twin(found: Any):
    jobs, task, measured = found
    ((net, about, members),) = report.groups(jobs, measured)
    assert about == "MLP, width 16, depth 1"
    assert len(members) == 2
    compared = report.against(net, members, task, None, 0.0)
    kernels = twin(net).kernels(np.concatenate([task.x_train, task.x_test]))
    expected = np.linalg.norm(measured[0]["ntk"]["ntk"][0] - kernels.ntk) / np.linalg.norm(kernels.ntk)
    np.testing.assert_allclose(np.ravel(compared["kernels"]["ntk"]["each"])[0], expected, rtol=1e-5)
    rows = report.rows_of(about, compared)
    assert {row[2] for row in rows} >= {"nngp", "ntk"}
    assert rows[0][5] == "2 networks"
    pictures = report.pictures({job.label: each for job, each in zip(jobs, measured, strict=True)}, HOW["parts"], {})
    assert [title for title, _, _ in pictures] == ["Drift of kernels"]
    assert "averaged parameters (the field average)" in str(report.report(jobs, measured, [], HOW["parts"], {}))


def test_networks_of_other_trainings_are_not_taken_together_after_training(found: Any):
    jobs, _, measured = found

    def of(**fields: Any) -> runs.Job:
        run = dataclasses.replace(jobs[0].run, info={**jobs[0].run.info, "config": {**jobs[0].run.config, **fields}})
        return runs.Job(dataclasses.replace(run, label="_".join(map(str, fields.values()))), None)

    several = [of(learning_rate=0.5), of(seed=3), of(learning_rate=0.25)]
    each = [measured[0], measured[1], measured[0]]
    assert [len(members) for *_, members in report.groups(several, each)] == [3]
    assert [(about, len(members)) for _, about, members in report.groups(several, each, trained=True)] == [
        ("MLP, width 16, depth 1 (0.5, 3)", 2),
        ("MLP, width 16, depth 1 (0.25)", 1),
    ]
    code = {**(several[0].run.info.get("code") or {}), "functions": {"optimizer": "1f"}}
    other = dataclasses.replace(several[0].run, info={**several[0].run.info, "code": code})
    assert len(report.groups([several[0], runs.Job(other, None)], each[:2], trained=True)) == 2
    newer = {"functions": {"optimizer": "2e"}, "versions": {"zoo": 2}}  # of which words cannot be compared
    mended = dataclasses.replace(other, info={**other.info, "code": newer})
    assert len(report.groups([runs.Job(other, None), runs.Job(mended, None)], each[:2], trained=True)) == 1
    (said,) = report.at_other_rates(several, 0.5)
    assert said == "0.25 has learning_rate 0.25 in its config, and is held against the twin that is trained at 0.5."
    assert report.at_other_rates(several, None) == []


def test_networks_that_start_alike_count_once(found: Any):
    jobs, task, measured = found
    twice = report.against(jobs[0].run.definition(), [*measured, measured[1]], task, None, 0.0)
    assert len(twice["kernels"]["ntk"]["each"]) == 2


def test_without_a_checkpoint_of_the_start_there_is_nothing_to_compare_with_it(found: Any):
    jobs, task, measured = found
    later = [{**each, "steps": each["steps"] + 1} for each in measured]
    compared = report.against(jobs[0].run.definition(), later, task, None, 0.0)
    ((_, limit, _, distance, _, why),) = report.rows_of("MLP", compared)
    assert (limit, distance) == ("kernels", "absent")
    assert "the first checkpoint is of step 1" in why


OWN = """
import flax.linen as nn, numpy as np, optax
from ml_collections import ConfigDict
from train import losses
class Own(nn.Module):
    width: int
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(self.width)(x)))
def get_config():
    return ConfigDict({"name": "own", "width": 4, "depth": 1, "steps": 2, "learning_rate": 0.1, "analysis": 2})
def make(width, depth): return Own(width)
def optimizer(net, learning_rate): return optax.sgd(learning_rate)
def loss(f, y): return losses.cross_entropy(f, y)
def batches(start):
    for step in range(start, 100):
        rng = np.random.default_rng(step)
        yield rng.normal(size=(5, 2)).astype("float32"), rng.integers(3, size=5)
"""


def test_a_module_and_batches_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "strange_name.py").write_text(OWN)
    source = tmp_path / "strange_name.py"
    run = train.prepare(Experiment(str(source), load(source).get_config(), train.FUNCTIONS), tmp_path)
    assert train.conduct(run, SILENT)
    monkeypatch.delitem(sys.modules, "config_strange_name")
    source.rename(tmp_path.parent / source.name)  # a copy that lies in the run's folder would not be executed
    jobs = runs.jobs_of([str(tmp_path)])
    with pytest.raises(ValueError, match=r"config_strange_name:Own is not one of zoo's.*--config=FILE"):
        jobs[0].run.definition()
    with pytest.raises(ValueError, match=r"batches of its own.*--config=.*strange_name\.py, if you trust it"):
        runs.task_of(jobs, 6, 3, "cross_entropy")
    assert "config_strange_name" not in sys.modules
    configs = [str(tmp_path.parent / source.name)]
    jobs = runs.jobs_of([str(tmp_path)], configs)
    assert jobs[0].run.definition().width == 4
    task = runs.task_of(jobs, 6, 3, "cross_entropy", configs)
    drawn = [next(run.batches(step)) for step in (0, 1)]
    np.testing.assert_allclose(task.x, np.concatenate([x for x, _ in drawn])[:9])
    np.testing.assert_array_equal(task.y_test.argmax(1), drawn[1][1][1:4])
    with pytest.raises(ValueError, match="Was it trained by squared errors"):
        runs.task_of([dataclasses.replace(job, run=_regression(job.run)) for job in jobs], 6, 3, "cross_entropy")


def test_the_code_of_a_run_is_that_of_its_config(tmp_path: Path):
    places = [tmp_path / name for name in ("one", "other")]
    for place, function in zip(places, ("relu", "tanh"), strict=True):
        place.mkdir()
        (place / "own_code.py").write_text(OWN.replace("nn.relu", f"nn.{function}"))
    first, second = (str(place / "own_code.py") for place in places)
    run = train.prepare(Experiment(first, load(Path(first)).get_config(), train.FUNCTIONS), places[0])
    assert train.conduct(run, SILENT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runs.jobs_of([str(places[0])], [first])
    with pytest.raises(ValueError, match=r"own_code\.py are different files of one name.* analyse the runs apart"):
        runs.jobs_of([str(places[0])], [first, second])
    with pytest.warns(UserWarning, match=r"one was trained with another make than .*other/own_code\.py has"):
        runs.jobs_of([str(places[0])], [second])
    Path(second).write_text(OWN.replace("(5, 2)", "(6, 2)").replace("size=5", "size=6") + "# a remark\n")
    with pytest.warns(
        UserWarning, match=r"trained with another batches than .* a copy of its config, .*one/own_code\.py"
    ):
        runs.jobs_of([str(places[0])], [second])


def test_classes_that_no_point_has_are_those_of_the_module(tmp_path: Path):
    source = tmp_path / "fewer_classes.py"
    source.write_text(OWN.replace("rng.integers(3, size=5)", "rng.integers(2, size=5)"))
    config = load(source).get_config()
    assert train.conduct(train.prepare(Experiment(str(source), config, train.FUNCTIONS), tmp_path), SILENT)
    jobs = runs.jobs_of([str(tmp_path)], [str(source)])
    task = runs.task_of(jobs, 6, 3, "cross_entropy", [str(source)])
    assert (task.y_train.shape, task.y_test.shape) == ((6, 3), (3, 3))


REPEATED = """
def batches():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 2)).astype("float32"), rng.integers(3, size=5)
    while True: yield x, y
"""
HELD_OUT = """
def validation(): return np.full((7, 2), 0.5, "float32"), np.arange(7) % 3
"""


def test_points_to_test_on_are_no_training_points(tmp_path: Path):
    source = tmp_path / "own_points.py"
    source.write_text(OWN)
    info = {"config": load(source).get_config().to_dict(), "config_file": source.name}
    info |= {"definition": to_json(MLP(4, 1, outputs=3))}
    job = runs.Job(TrainedRun(tmp_path, info, (0,)), None)

    def looked_at(code: str) -> tuple[Any, str]:
        source.write_text(code)
        task = runs.task_of([job], 5, 3, "cross_entropy", [str(source)])
        return task, " ".join(runs.untested([job], task, 3, [str(source)]))

    further, said = looked_at(OWN)
    assert len(further.x_test) == 3
    assert "points to test on from further batches of training, and own_points.py defines no validation()" in said
    none, said = looked_at(OWN + REPEATED)
    assert len(none.x_train) == 5
    assert len(none.x_test) == len(none.y_test) == 0
    assert "no points to test on: further batches repeat training points" in said
    assert said in str(report.report([], [], [], [], {}, [said]))
    held_out, said = looked_at(OWN + REPEATED + HELD_OUT)
    assert not said
    assert (held_out.x_test == 0.5).all()
    np.testing.assert_array_equal(held_out.y_test, np.eye(3))


SHUFFLED = """
def batches(batch, seed):
    x = np.arange(40.0, dtype="float32").reshape(20, 2)
    while True:
        rows = np.random.default_rng(seed).permutation(20)[:batch]
        yield x[rows], rows % 3
"""


def test_runs_whose_batches_differ_in_seed_alone_have_the_points_of_the_first(tmp_path: Path):
    source = tmp_path / "own_seeds.py"
    source.write_text(OWN + SHUFFLED)
    about = {"config_file": source.name, "definition": to_json(MLP(4, 1, outputs=3))}

    def job(label: str, **fields: Any) -> runs.Job:
        config = {**load(source).get_config().to_dict(), "batch": 5, **fields}
        return runs.Job(TrainedRun(tmp_path, {**about, "config": config}, (0,), label=label), None)

    jobs, configs = [job("a", seed=0), job("b", seed=1, width=8)], [str(source)]
    task = runs.task_of(jobs, 5, 0, "cross_entropy", configs)
    np.testing.assert_array_equal(task.x, runs.task_of(jobs[:1], 5, 0, "cross_entropy", configs).x)
    (said,) = runs.untested(jobs, task, 0, configs)
    assert said.startswith("b is looked at on the points of a: their batches differ in the seed alone, 1 and 0.")
    overlapping = [job("a", seed=0, batch=12), job("b", seed=1, batch=12)]  # of 20, with the same targets
    (said,) = runs.untested(overlapping, runs.task_of(overlapping, 12, 0, "cross_entropy", configs), 0, configs)
    assert "labels" not in said
    other = [jobs[0], job("c", seed=1, batch=4)]
    with pytest.raises(
        ValueError, match=r"a and c .* \(their batches are given another batch and seed\).* seed alone are"
    ):
        runs.task_of(other, 5, 0, "cross_entropy", configs)


OWN_TEACHER = """
def batches(batch, seed, inputs):
    rng = np.random.default_rng(seed)
    teacher = rng.normal(size=2)
    while True:
        x = np.random.default_rng(7 + inputs * seed).normal(size=(batch, 2)).astype("float32")
        yield x, (x @ teacher > 0).astype(int)
"""


def test_runs_whose_seed_sets_the_targets_are_not_measured_on_those_of_the_first(tmp_path: Path):
    source = tmp_path / "own_teacher.py"
    source.write_text(OWN + OWN_TEACHER)
    about, configs = {"config_file": source.name, "definition": to_json(MLP(4, 1, outputs=3))}, [str(source)]

    def jobs(**fields: Any) -> list[runs.Job]:
        config = {**load(source).get_config().to_dict(), "batch": 12, **fields}
        return [
            runs.Job(TrainedRun(tmp_path, {**about, "config": {**config, "seed": seed}}, (0,), label=label), None)
            for seed, label in enumerate("ab")
        ]

    same = jobs(inputs=0)
    with pytest.raises(ValueError, match=r"a and b .* different data \(the seed of batches, 1 and 0, .* of 12 inputs"):
        runs.task_of(same, 12, 0, "cross_entropy", configs)
    other = jobs(inputs=1)
    task = runs.task_of(other, 12, 0, "cross_entropy", configs)
    (said,) = runs.untested(other, task, 0, configs)
    assert "where it sets the labels too" in said
    labels = np.eye(3)[[0, 1]]
    fewer = runs.Points(np.ones((2, 1)), labels[:, :2], np.ones((0, 1)), labels[:0, :2])  # of a sample without class 2
    assert runs._shared(fewer, runs.Points(np.ones((1, 1)), labels[1:], np.ones((0, 1)), labels[:0])) == (1, 0)


def test_parts_that_find_nothing_say_why(tmp_path: Path):
    (tmp_path / "own_parts.py").write_text(OWN)
    source = tmp_path / "own_parts.py"
    assert train.conduct(
        train.prepare(Experiment(str(source), load(source).get_config(), train.FUNCTIONS), tmp_path), SILENT
    )
    jobs = runs.jobs_of([str(tmp_path)], [str(source)])
    task, parts = runs.task_of(jobs, 6, 3, "cross_entropy", [str(source)]), ("kernels", "ntk", "positions")
    found = analyse_all(jobs, task, tmp_path, {"loss": "cross_entropy", "parts": parts}, SILENT)
    kernels, positions = report.nothing({"own": found[0]}, parts)
    assert kernels.startswith("kernels: nothing to show. Own has no argument `intermediates`")
    assert positions.startswith("positions: nothing to show. Outputs and targets are no classes")
    for chosen in (("kernels",), parts):
        text = str(report.report(jobs, found, [], chosen, {}))
        assert "kernels: nothing to show" in text
    assert [p.title for p in report.pictures({"own": found[0]}, parts, {})] == ["Drift of kernels"]
    measured = found[0] | {"ntk": {}}
    assert report.pictures({"own": measured}, parts, {}) == []


@pytest.mark.slow
def test_alignment_of_one_point_is_refused(folder: Path, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "launch.analyze", str(folder), "--points=1", f"--workdir={tmp_path}"],
        capture_output=True,
        text=True,
    )
    assert "--points=1: alignment compares samples, and 1 is too few; give 2 or more" in done.stderr


def test_a_run_is_data(folder: Path, tmp_path: Path):
    """A definition in a checkpoint that names a function, and a config beside it that would do something, are not called."""
    run = shutil.copytree(folder, tmp_path / "run")
    info, arrays = about.read(run / "checkpoints/0")
    assert arrays is not None
    evil = {**info, "definition": {"class": "os:system", "fields": {"command": f"touch {tmp_path}/done"}}}
    for step in (0, 1, 10, 12):
        text = about.written({**evil, "step": step}, arrays)
        (run / f"checkpoints/{step}/about/about.json").write_text(text)
    (run / "training_config.py").write_text(f"open({str(tmp_path / 'done')!r}, 'w')")
    jobs = runs.jobs_of([str(run)])
    jobs[0].run.task(6, 3)
    with pytest.raises(ValueError, match="os:system is not one of zoo's"):
        analyse_all(jobs, jobs[0].run.task(6, 3), run, HOW, SILENT)
    assert not (tmp_path / "done").exists()


@pytest.mark.slow
def test_what_cannot_be_rebuilt_says_what_can_be_done(tmp_path: Path):
    code = (
        (Path(__file__).parent / "training_config.py")
        .read_text()
        .replace("import optax", "import optax\nfrom flax import nnx")
    )
    layer = "in_parameterization(Net, 'mup', width=width)"
    code = code.replace('MLP(width, depth, outputs=10, parameterization="mup")', layer).replace(
        "MLP,", "in_parameterization,"
    )
    code += NNX
    (tmp_path / "own.py").write_text(code)
    config = load(tmp_path / "own.py").get_config()
    config.update({"steps": 1, "warmup": 0, "evaluate_every": 0, "average": 0.0})
    run = train.prepare(Experiment(str(tmp_path / "own.py"), config, train.FUNCTIONS), tmp_path)
    assert train.conduct(run, SILENT)
    with pytest.raises(
        ValueError,
        match=r"cannot be rebuilt .* NNX modules .* trust it: --config=\S*own\.py is .* In Python, .*\(net, .*nts\(\), ",
    ):
        runs.jobs_of([str(tmp_path)])
    several = TrainedRun(tmp_path, {"members": 3}, (1,))
    with pytest.raises(ValueError, match=r"checkpoints\(0\), .* 0 or another of its 3 members"):
        several.check_definition()
    jobs = runs.jobs_of([str(tmp_path)], [str(tmp_path / "own.py")])
    assert jobs[0].run.definition() == run.program.net
    found = analyse_all(jobs, jobs[0].run.task(6, 3), tmp_path, {"parts": ("ntk",)}, SILENT)
    ((net, about, (member,)),) = report.groups(jobs, found)
    assert about.startswith("Net, width 16")
    assert member["ntk"]["ntk"].shape == (2, 9, 9)
    assert "absent" in report.report(jobs, [member], [(net, about, {})], HOW["parts"], {}).documents()["report.json"]
    (tmp_path / "own.py").write_text(code.replace(layer, "type('Pair', (), {'init': None, 'apply': None})"))
    with pytest.raises(ValueError, match=r"what make of .*own\.py returns must be .* zoo\.in_parameterization\); got"):
        runs.jobs_of([str(tmp_path)], [str(tmp_path / "own.py")])
    net, read = run.program.net, TrainedRun.read(str(tmp_path)).checkpoints()
    assert analyse(net, read, np.ones((2, 8, 8, 1)), np.eye(10)[:2], parts=("ntk",))["ntk"]["ntk"].shape == (2, 2, 2)


@pytest.mark.slow
def test_rescaled_modules_of_nnx_are_functions(tmp_path: Path):
    code = (Path(__file__).parent / "training_config.py").read_text().replace("import optax", "import jax, optax")
    layer = "Rescaled.of(Net, jax.numpy.zeros((1, 8, 8, 1)), {'width': 8}, {'width': width})"
    code = code.replace('MLP(width, depth, outputs=10, parameterization="mup")', layer).replace("MLP,", "Rescaled,")
    (tmp_path / "own.py").write_text(code + "\nfrom flax import nnx\n" + NNX)
    config = load(tmp_path / "own.py").get_config()
    config.update({"steps": 1, "warmup": 0, "evaluate_every": 0, "average": 0.0})
    run = train.prepare(Experiment(str(tmp_path / "own.py"), config, train.FUNCTIONS), tmp_path)
    assert train.conduct(run, SILENT)
    jobs = runs.jobs_of([str(tmp_path)], [str(tmp_path / "own.py")])
    found = analyse_all(jobs, jobs[0].run.task(6, 3), tmp_path, {"parts": ("ntk",)}, SILENT)
    assert found[0]["ntk"]["ntk"].shape == (2, 9, 9)
    ((net, _, members),) = report.groups(jobs, found)
    assert "must be a Flax Linen module" in str(report.against(net, members, jobs[0].run.task(6, 3), 0.1, 0.0)["lazy"])


def test_names_of_runs_are_words_in_a_page():
    page = Report("<script>a</script>", [], {}).html()
    assert "<h1>&lt;script&gt;a&lt;/script&gt;</h1>" in page
    assert "<script>" not in page


def test_checkpoints_that_a_run_deletes_meanwhile_are_left_out(folder: Path, tmp_path: Path):
    """Of a run that goes on: it keeps the latest, and to look at the ones before takes longer."""
    run = TrainedRun.read(shutil.copytree(folder, tmp_path / "run"))
    shutil.rmtree(tmp_path / "run/checkpoints" / str(run.steps[0]))
    with pytest.warns(
        UserWarning, match=f"checkpoint of step {run.steps[0]} in .* was deleted meanwhile. It is left out"
    ):
        assert [step for step, _ in run.checkpoints(0)] == [*run.steps[1:]]


def test_a_damaged_checkpoint_is_left_out(folder: Path, tmp_path: Path):
    run = shutil.copytree(folder, tmp_path / "run")
    for step, name in ((1, "about/about.json"), (10, "model/_METADATA")):
        file = run / f"checkpoints/{step}" / name
        file.write_bytes(file.read_bytes()[:-9])
    with pytest.warns(UserWarning, match="checkpoint of step 1 in .* is damaged and left out"):
        ((job, _),) = [runs.jobs_of([str(run)])]
    with pytest.warns(UserWarning, match="checkpoint of step 10 in .* It is left out"):
        assert [step for step, _ in job.run.checkpoints(0)] == [0, 12]


def _regression(run: TrainedRun) -> TrainedRun:
    data = {"data": {"name": "sphere", "train": "train", "n_train": 8, "n_test": 4, "dim": 3}}
    return dataclasses.replace(run, info={**run.info, "config": {**run.config, **data}})


def test_runs_on_other_data_are_not_measured_on_one(folder: Path):
    job, _ = runs.jobs_of([str(folder)])
    moved = {**job.run.config, "data": {**job.run.config["data"], "train": "test"}}
    other = dataclasses.replace(job.run, info={**job.run.info, "config": moved}, label="other")
    with pytest.raises(ValueError, match=r"and other were trained on different data: analyse them apart"):
        runs.task_of([job, runs.Job(other, 0)], 6, 3, "cross_entropy")


def test_a_folder_without_checkpoints_is_said(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="holds no checkpoints"):
        TrainedRun.read(tmp_path)
    with pytest.raises(ValueError, match="Name at least one run"):
        runs.jobs_of([])


def test_runs_in_folders_of_one_name_are_told_apart_and_laid_on_each_other(folder: Path, tmp_path: Path):
    others = [shutil.copytree(folder, tmp_path / name / folder.name) for name in ("a", "b")]
    log = others[1] / "log.jsonl"
    lines = read_records(log)
    lines[5]["loss"] += 0.25
    records = Records(log)
    for line in lines:
        records.write(line.pop("step"), line)
    records.close()
    jobs = runs.jobs_of([str(each) for each in (folder, *others, folder)])
    assert len({job.label for job in jobs}) == len(jobs) == 6
    said = curves.differences({job.run.name: job.run.place for job in jobs})
    assert len(said) == 2
    assert "equal in every bit (12 steps)" in said[0]
    assert "differ by at most 0.25, at step 5" in said[1]
