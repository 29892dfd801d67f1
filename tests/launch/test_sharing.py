"""Results for others: what goes into an archive, and predictions from somebody else's numbers, with nothing executed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import ended

from limits.kept.store import DamagedError, npz_bytes
from train.evaluate.report import Table
from train.study.predicted import forecasts, of_numbers
from train.study.sharing import pack, unpack
from train.transfer import Outcome, Sweep
from train.transfer.cells import save_arrays
from train.transfer.numbers import Saved, numbers
from train.transfer.predicted_report import report as predicted_report
from train.transfer.prediction import measured, predict
from train.transfer.report import report, tables

X = np.arange(-4.0, 3.0)


def sweep(width: float, shift: float = 0.0, noise: float = 0.02) -> Sweep:
    """Of losses around e^(−1 + 4/width), which diverge at the largest value."""
    drawn = noise * np.random.default_rng(0 if np.isinf(width) else int(width)).normal(size=(len(X), 4))
    losses = np.exp(-1 + 4 / width + 0.2 * (X[:, None] + 1.5 - shift / width) ** 2 + drawn)
    losses[-1] = np.inf
    return Sweep(width, 2, 2.0**X, np.stack([np.full_like(losses, 5.0), *[losses] * 9], axis=-1))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A folder as launch.transfer leaves it, and what it found."""
    sizes = (16, 32, 64)
    outcome = Outcome(
        "learning_rate",
        {"a": {(n, 2): sweep(n) for n in sizes}, "b": {(n, 2): sweep(n, 9.0) for n in sizes}},
        {"a": {2: sweep(np.inf)}},
        {"a": {"setting": "a", "momentum": 0.5}, "b": {"setting": "b", "momentum": 0.9}},
        {"b": "it has none"},
        {"b": "it moves"},
    )
    folder = tmp_path_factory.mktemp("made")
    (folder / "cells").mkdir(parents=True)
    run: dict[str, Any] = {
        "config": {"target": {"width": 256}}, "config_file": "own.py", "code": {"functions": {"make": "f00"}}
    }  # fmt: skip
    report(outcome, run, "command").write(folder)
    save_arrays(folder / "arrays.npz", outcome.arrays())
    (folder / "config.json").write_text(json.dumps(run))
    (folder / "own.py").write_text("raise AssertionError('executed')")
    (folder / "cells/a.npz").write_bytes(npz_bytes({"x": np.zeros(3)}))
    return folder, outcome


@pytest.fixture
def theirs(made: tuple[Path, Outcome], tmp_path: Path) -> tuple[Path, Outcome]:
    """A copy of it, to be changed."""
    return shutil.copytree(made[0], tmp_path / "theirs"), made[1]


@pytest.mark.slow
def test_a_prediction_from_what_was_packed(theirs: Any, tmp_path: Path):
    folder, outcome = theirs
    pack(folder, tmp_path / "a.zip")
    listed = unpack(tmp_path / "a.zip", tmp_path / "here")
    assert listed["code"] == {"functions": {"make": "f00"}}
    saved = Saved.read(tmp_path / "here")
    assert saved.target == {"width": 256}
    assert (saved.outcome.settings, saved.outcome.absent) == (outcome.settings, outcome.absent)
    for (label, ours), (same, read) in zip(outcome.each(), saved.outcome.each(), strict=True):
        assert (label, ours.width, ours.depth) == (same, read.width, read.depth)
        np.testing.assert_array_equal(ours.curves, read.curves)
    a, b = of_numbers(saved, None, None, 0.9)
    known, _ = forecasts(outcome, (256, 2), 0.9)
    assert a.prediction is not None
    assert known.prediction is not None
    assert a.prediction.loss == known.prediction.loss
    assert a.prediction.size == (256, 2)
    assert b.refused == "it moves"
    with pytest.raises(ValueError, match="larger --width"):
        of_numbers(Saved(Outcome("learning_rate", {"a": {(16, 2): sweep(16)}}), {}, {}), None, None, 0.9)


def test_only_what_the_house_wrote_is_packed(theirs: Any, tmp_path: Path):
    folder, _ = theirs
    (folder / "notes.txt").write_text("mine")
    (folder / "other.py").write_text("mine")
    (folder / ".lock").write_text("")
    (folder / "link.npz").symlink_to(folder / "arrays.npz")
    (folder / "linked").symlink_to(folder / "cells")
    (folder / "cells/cut.npz").write_bytes((folder / "cells/a.npz").read_bytes()[:-1])
    np.savez(folder / "foreign.npz", np.zeros(2))
    (folder / "checkpoints/3").mkdir(parents=True)
    (folder / "checkpoints/3/_METADATA").write_text("{}")
    kept, left = pack(folder, tmp_path / "a.zip")
    own = ["arrays.npz", "cells/a.npz", "config.json", "own.py", "report.html", "report.json"]
    assert kept == own
    strange = ["cells/cut.npz", "checkpoints/3/_METADATA", "foreign.npz", "link.npz", "notes.txt", "other.py"]
    assert left == strange
    assert pack(folder, tmp_path / "b.zip", checkpoints=True)[0] == sorted([*own, "checkpoints/3/_METADATA"])
    assert "cells/a.npz" not in pack(folder, tmp_path / "c.zip", cells=False)[0]
    with pytest.raises(FileExistsError, match="nothing is written over it"):
        pack(folder, tmp_path / "a.zip")
    with pytest.raises(ValueError, match="nothing to pack"):
        pack(folder / "checkpoints", tmp_path / "d.zip")


def _with(text: bytes, **fields: Any) -> bytes:
    return json.dumps(json.loads(text) | fields).encode()


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("report.json", lambda text: text.replace(b'"width": 32', b'"width": 33', 1), "do not belong together"),
        ("report.json", lambda text: text.replace(b'"dial"', b'"dail"'), "do not belong together"),
        ("report.json", lambda text: text.replace(b"0.25", b"0.26"), "are not those in report.json"),
        ("report.json", lambda text: text[:-9], "cannot be read"),
        ("report.json", lambda text: text.replace(b'"depth": 2', b'"depth": Infinity', 1), "do not belong together"),
        ("report.json", lambda text: text.replace(b'"depth": 2', b'"depth": 2.9', 1), "2.9 is no width or depth"),
        ("report.json", lambda text: _with(text, target={"width": -256, "depth": 2}), "-256 is no width or depth"),
        ("report.json", lambda text: text.replace(b'"width": 32', b'"width": 16', 1), "is there twice"),
        ("report.json", lambda text: _with(text, settings={"a": 3}), "the setting a is no table of fields"),
        ("report.json", lambda text: _with(text, sweeps=[]), "holds no sweeps"),
        ("report.json", lambda _: b"[]", "holds no sweeps"),
        ("arrays.npz", lambda data: data[:-3], "no checksum at its end"),
    ],
)
def test_numbers_that_do_not_fit(theirs: Any, name: str, change: Any, why: str):
    file = theirs[0] / name
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises((ValueError, DamagedError), match=why):
        Saved.read(file.parent)


def test_a_size_whose_seeds_are_all_the_same_is_said():
    """A LinAlgError."""
    sweeps: Any = {(n, 2): sweep(n) for n in (16, 32, 64)}
    sweeps[16, 2] = Sweep(16, 2, 2.0**X, np.ones_like(sweeps[16, 2].curves))
    with pytest.raises(ValueError, match="the same for all seeds, whose spread is the noise"):
        predict(sweeps, 256)


def test_numbers_name_every_sweep(theirs: Any):
    found = numbers(theirs[1], {})
    assert [(each["setting"], each["width"]) for each in found["sweeps"]][-1] == ("a", np.inf)
    (theirs[0] / "arrays.npz").unlink()
    with pytest.raises(ValueError, match=r"no arrays\.npz: it is no folder of a finished"):
        Saved.read(theirs[0])


def test_reports_say_which_loss_of_a_size_they_have():
    """The mean at the best value of the grid, and the floor of the fitted valley, which are not the same number."""
    outcome = Outcome("learning_rate", {"a": {(n, 2): sweep(n, noise=0.3) for n in (16, 32, 64)}}, {}, {}, {}, {})
    (table,) = tables(outcome)
    best = [row[table.columns.index("mean loss, best on the grid")] for row in table.rows]
    assert best == [f"{each.losses.mean(1).min():.4g}" for each in outcome.sweeps["a"].values()]
    shown = predicted_report(outcome, forecasts(outcome, (256, 2), 0.9), {}, "")
    held = next(part for part in shown.parts if isinstance(part, Table) and "largest measured" in part.title)
    floor = held.rows[0][held.columns.index("measured (floor of the valley)")]
    fitted = np.exp(measured(outcome.sweeps["a"][64, 2], 0.9)[0].value)
    assert float(floor) == pytest.approx(fitted, rel=0.02)  # two thousand draws of a floor known to 15 %: 0.4 %
    assert abs(float(best[-1]) / fitted - 1) > 0.05


@pytest.mark.slow
def test_the_programs(theirs: Any, tmp_path: Path):
    def launch(*words: str) -> Any:
        how: Any = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False, "timeout": 300}
        return subprocess.run([str(Path(sys.executable).with_name("limit-zoo")), *words], **how)

    done = launch("pack", "theirs")
    assert done.returncode == 0, done.stderr
    assert "6 files" in done.stdout
    done = launch("unpack", "theirs.zip", "here")
    assert done.returncode == 0, done.stderr
    done = launch("predict", "--workdir=here", "--width=512")
    assert done.returncode == 0, done.stderr
    assert "512 × 2" in done.stdout
    assert json.loads((tmp_path / "here/predicted.json").read_text())["predictions"][0]["width"] == 512
    for words, why in (
        (("pack", "theirs"), "nothing is written over it"),
        (("pack",), "Name one folder"),
        (("unpack", "theirs.zip", "here"), "nothing is written over it"),
        (("unpack", "theirs.zip", "new", "--largest=1000"), "--largest takes more"),
        (("predict", "--workdir=tmp", "--width=512"), "no folder of a finished"),
    ):
        done = launch(*words)
        assert done.returncode == 1
        assert why in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_modules_beside_the_config_that_are_not_packed_are_said(theirs: Any, tmp_path: Path):
    """An archive whose config imports them could not be gone on from, without a word."""
    folder, _ = theirs
    imports = "import json, numpy.linalg\nfrom mine.parts import f\nfrom zoo import MLP\ndef make():\n    import other_of_mine\n"
    (folder / "own.py").write_text(imports)
    (tmp_path / "other_of_mine.py").write_text("raise AssertionError('executed')")
    (code,), (said,) = ended("launch.pack", "theirs", folder=tmp_path)
    assert code == 0, said
    assert "own.py imports mine, other_of_mine, which the archive does not have" in said
    (folder / "own.py").write_text("import json, flax.linen\n")
    (code,), (said,) = ended("launch.pack", "theirs", "--archive=b.zip", folder=tmp_path)
    assert code == 0, said
    assert "imports" not in said


def test_a_file_in_the_place_of_a_folder_is_said(theirs: Any, tmp_path: Path):
    (tmp_path / "file").write_text("")
    pack(theirs[0], tmp_path / "a.zip")
    for inside in ("file/x", "file/x/y"):
        with pytest.raises(FileExistsError, match="file is a file, and no folder can be made in it: name another"):
            unpack(tmp_path / "a.zip", tmp_path / inside)


def test_a_config_of_any_name_goes_into_an_archive_that_its_name_fits(theirs: Any, tmp_path: Path):
    """One whose name no archive can have is left out, and named: packing ended with a word about an entry of the archive."""
    folder, run = theirs[0], json.loads((theirs[0] / "config.json").read_text())
    for name, fits in (("anna's config #2 [100%].py", True), ("what?.py", False)):
        (folder / name).write_text("")
        (folder / "config.json").write_text(json.dumps({**run, "config_file": name}))
        kept, left = pack(folder, tmp_path / f"{fits}.zip")
        assert (name in kept, name in left) == (fits, not fits)
        unpack(tmp_path / f"{fits}.zip", tmp_path / f"here {fits}")
