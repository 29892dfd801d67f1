"""train_gpt in little: stopped and continued it is the same run; launch.sample reads it; the report has what others do."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console

from configs import train_gpt
from launch import sample, train
from train import beside, curves
from train.analysis.runs import TrainedRun
from train.checkpoints import load_model, steps_in
from train.data.text import packed
from train.preemption import Preemption
from train.records import Records, read_records
from train.study.experiment import Experiment
from train.writing import continued, tokens_of, write
from zoo import GPT

SILENT = Console(quiet=True)


def prepared(folder: Path, **changes: Any) -> Any:
    folder.mkdir(exist_ok=True)
    config = train_gpt.get_config()
    config.data.context = 16
    small = {
        "width": 16,
        "depth": 1,
        "steps": 6,
        "batch": 4,
        "warmup": 1,
        "evaluate_every": 0,
        "save_every": 3,
        "analysis": 0,
    }
    with config.ignore_type():
        config.update({**small, **changes})
    return train.prepare(Experiment(str(train_gpt.__file__), config, train.FUNCTIONS), folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt")
    assert train.conduct(prepared(folder, evaluate_every=6), SILENT)
    return folder


@pytest.mark.slow
def test_stopped_and_continued_it_is_the_same_run(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Preemption, "at", lambda self, step: step == 4)
    assert not train.conduct(prepared(tmp_path, evaluate_every=6), SILENT)
    assert steps_in(tmp_path / "checkpoints")[-1] == 4
    monkeypatch.undo()
    assert train.conduct(prepared(tmp_path, evaluate_every=6), SILENT)
    models = [load_model(folder / "checkpoints", 6)[1] for folder in (whole, tmp_path)]
    jax.tree.map(np.testing.assert_array_equal, *models)
    losses = [[line["loss"] for line in read_records(folder / "log.jsonl")] for folder in (whole, tmp_path)]
    assert losses[0] == losses[1]
    assert read_records(whole / "test.jsonl") == read_records(tmp_path / "test.jsonl")
    texts = [{f.name: f.read_text() for f in (folder / "samples").iterdir()} for folder in (whole, tmp_path)]
    assert texts[0]["6.txt"] == texts[1]["6.txt"] != texts[1]["4.txt"]
    found = json.loads(curves.documents(whole, "train_gpt", {})["report.json"])
    assert found["references"]["gzip"] == pytest.approx(2.5633, abs=1e-4)
    assert found["test_loss"] < 8.5  # bits


@pytest.mark.slow
def test_a_run_of_separate_documents_is_another_run(whole: Path, tmp_path: Path):
    assert train.conduct(prepared(tmp_path, evaluate_every=6, documents=True), SILENT)
    said = [TrainedRun.read(folder).definition().separator for folder in (whole, tmp_path)]
    assert said == [None, 0]
    assert read_records(whole / "test.jsonl")[-1]["loss"] != read_records(tmp_path / "test.jsonl")[-1]["loss"]


@pytest.mark.slow
def test_it_says_text_of_a_checkpoint(whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def said(*flags: str) -> str:
        monkeypatch.setattr(sys, "argv", ["sample", f"--workdir={whole}", "--nokeep_compiled", "--tokens=40", *flags])
        with pytest.raises(SystemExit) as end:
            sample.run()
        captured = capsys.readouterr()
        assert not end.value.code, captured.err
        return captured.out

    first = said("--prompt=def f")
    assert first.startswith("def f")
    assert said("--prompt=def f") == first != said("--prompt=def f", "--seed=1")
    assert said("--prompt=def f", "--step=3") != first
    assert said("--prompt=a", "--temperature=0", "--draws=2").count("\n\n") == 2


def test_the_report_has_what_others_do_and_samples_in_order(tmp_path: Path):
    (tmp_path / "samples").mkdir()
    (tmp_path / "references.json").write_text('{"gzip": 2.5}')
    for name in ("log.jsonl", "test.jsonl"):
        records = Records(tmp_path / name)
        records.write(0, {"loss": 3.0})
        records.close()
    for step in (10, 9):
        (tmp_path / "samples" / f"{step}.txt").write_text(f"<said at {step}>")
    documents = curves.documents(tmp_path, "some", {})
    assert json.loads(documents["report.json"])["references"] == {"gzip": 2.5}
    page = documents["report.html"]
    assert "test, gzip" in page
    assert page.index("&lt;said at 9&gt;") < page.index("&lt;said at 10&gt;")


OWN = """
def references(train, test, order=2):
    CALLS.append(order)
    return {"grams": len(test) / order}
"""


def test_what_others_do_is_kept_while_function_and_data_are_the_same(tmp_path: Path):
    def begun(code: str = OWN, test: str = "1f", start: int = 0, **fields: int) -> list[int]:
        (tmp_path / "own.py").write_text(code)
        experiment = Experiment(str(tmp_path / "own.py"), fields, needed=())
        calls = vars(experiment.module)["CALLS"] = list[int]()
        run = SimpleNamespace(experiment=experiment, folder=tmp_path, source="ab", test="abcd", content={"test": test})
        assert beside.begin(run, start) == beside.kept_references(tmp_path) == {"grams": 4 / fields.get("order", 2)}
        return calls

    (tmp_path / "references.json").write_text('{"grams": 9.0}')  # of an earlier version, or another run
    assert begun() == [2]
    assert begun() == begun("# a remark\n" + OWN) == []
    assert begun(test="2a") == begun(OWN.replace("return", "grams = 1\n    return")) == [2]
    assert begun(order=4) == [4]
    (tmp_path / "samples").mkdir()
    for step in (0, 3, 6):
        (tmp_path / "samples" / f"{step}.txt").write_text(f"said at {step}")
    begun(start=3)
    assert beside.kept_samples(tmp_path) == {0: "said at 0", 3: "said at 3"}
    begun()
    assert beside.kept_samples(tmp_path) == {}


@pytest.mark.slow
def test_documents_of_a_window_are_told_apart_by_the_byte_between_them():
    config = train_gpt.get_config()
    config.data.context = 16
    window = packed([b"def f", b"x = 1"])[None, :-1].astype(int)
    found = {}
    with jax.enable_x64(True):
        for documents in (True, False):
            net: Any = train_gpt.make(16, 1, config.data, documents, {"scan": False})
            params = jax.jit(net.init)(jax.random.key(0), window)
            found[documents] = [np.asarray(jax.jit(net.apply)(params, part)[0]) for part in (window, window[:, 6:])]
    whole, second = found[True]
    np.testing.assert_allclose(whole[6:], second, atol=1e-11)
    np.testing.assert_allclose(whole[:6], found[False][0][:6], atol=1e-11)
    assert np.abs(found[False][0][6:] - second).max() > 0.1


@pytest.mark.slow
def test_bytes_of_a_prompt_that_are_no_text_are_read_as_they_are():
    assert tokens_of(os.fsdecode(b"h\xff\xc3\xa9"), 256).tolist() == [0, 104, 255, 195, 169]
    assert tokens_of("hé", 256).tolist() == [0, 104, 195, 169]
    with pytest.raises(ValueError, match="The prompt is no text: at 1 it has half a character"):
        tokens_of("h\ud800", 256)
    with pytest.raises(ValueError, match=r"a prompt is numbers .* got '\\udcff'"):
        tokens_of("\udcff", 7)
    for beyond in ("3000000000", "1 -99999999999999999999"):
        with pytest.raises(ValueError, match="a prompt is numbers from 0 to 6"):
            tokens_of(beyond, 7)
    net: Any = GPT(width=16, depth=1, vocabulary=256, context=8)
    params = jax.jit(net.init)(jax.random.key(0), jax.numpy.ones((1, 8), int))["params"]
    assert write(net, params, "hé\udcff", tokens=1)[0].startswith("hé�")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_text_beyond_the_context_has_no_padding(seed: int):
    net: Any = GPT(width=16, depth=1, vocabulary=7, context=8, padding=0)
    params = jax.jit(net.init)(jax.random.key(0), jax.numpy.ones((1, 8), int))["params"]
    found = continued(net, params, [1, 2], tokens=40, seed=seed)
    assert set(found[0]) == set(range(1, 7))


@pytest.mark.slow
def test_text_beyond_the_context_goes_on_from_its_latest_half():
    net: Any = GPT(width=16, depth=1, vocabulary=7, context=8)
    params = jax.jit(net.init)(jax.random.key(0), jax.numpy.ones((1, 8), int))["params"]
    whole = jax.jit(lambda tokens: net.apply({"params": params}, tokens).argmax(-1))
    seen = [1, 2, 3]
    while len(seen) < 16:
        kept = seen if len(seen) < 8 else seen[4 + 4 * ((len(seen) - 8) // 4) :]
        seen.append(int(whole(np.array([(kept + [0] * 8)[:8]]))[0, len(kept) - 1]))
    assert continued(net, params, [1, 2, 3], tokens=13, temperature=0.0)[0].tolist() == seen[3:]
