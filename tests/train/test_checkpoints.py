"""What is kept, that it is what was saved, and that a damaged checkpoint is not used."""

import contextlib
import json
import random
import re
import shutil
import threading
import warnings
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from orbax.checkpoint import v1 as ocp

from limits.kept.store import DamagedError
from train import about
from train.checkpoints import Checkpoints, load_model, log_spaced, steps_in

MODEL = {
    "params": {"kernel": np.arange(4000.0, dtype="float32").reshape(40, 100), "inner": {"bias": np.ones(3, "float32")}}
}
TRAINING = {"step": np.asarray(0), "memory": optax.adam(0.1).init(MODEL["params"]), "average": None}


def state(step: int) -> tuple[Any, Any]:
    return jax.tree.map(lambda a: jnp.asarray(a + step), MODEL), jax.tree.map(lambda a: jnp.asarray(a) + step, TRAINING)


def abstract(tree: Any) -> Any:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=jnp.asarray(a).sharding), tree)


def saved(folder: Path, steps: Any = range(8), **options: Any) -> None:
    checkpoints = Checkpoints(folder, **{"keep": 2, "always": (0, 4), **options})
    for step in steps:
        checkpoints.save(step, *state(step))
    checkpoints.close()


@pytest.fixture(scope="module")
def six_and_seven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    saved(folder, steps=(6, 7))
    return folder


@pytest.fixture
def pair(six_and_seven: Path, tmp_path: Path) -> Path:
    """A folder with the checkpoints of steps 6 and 7."""
    return shutil.copytree(six_and_seven, tmp_path / "pair")


def latest(folder: Path) -> Any:
    checkpoints = Checkpoints(folder, 2, (0, 4))
    try:
        return checkpoints.latest(*(abstract(part) for part in state(0)))
    finally:
        checkpoints.close()


def biggest(folder: Path) -> Path:
    return max((file for file in folder.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)


def same(found: Any, step: int) -> None:
    model, training = state(step)
    jax.tree.map(np.testing.assert_array_equal, found, (step, model, training))
    assert jax.tree.structure(found[2]) == jax.tree.structure(training)


def test_the_latest_and_those_for_analysis_are_kept(tmp_path: Path):
    saved(tmp_path)
    assert steps_in(tmp_path) == [0, 4, 6, 7]
    same(latest(tmp_path), 7)


def test_steps_for_analysis_are_a_factor_apart():
    assert log_spaced(1000, 0) == ()
    assert log_spaced(1000, 1) == (0,)
    steps = np.array(log_spaced(1000, 8))
    assert (steps[0], steps[1], steps[-1]) == (0, 1, 1000)
    ratio = steps[2:] / steps[1:-1]
    np.testing.assert_allclose(ratio, 1000 ** (1 / 6), rtol=0.1)
    assert log_spaced(1, 5) == (0, 1)


def test_arrays_may_change_while_they_are_written(tmp_path: Path):
    change = jax.jit(lambda tree: jax.tree.map(lambda a: 2 * a + 1, tree), donate_argnums=0)
    model, training = state(0)
    checkpoints = Checkpoints(tmp_path, 10)
    for step in range(6):
        checkpoints.save(step, model, training)
        model = change(model)  # in the same memory
    checkpoints.close()
    for step in range(6):
        kernel = load_model(tmp_path, step)[1]["params"]["kernel"]
        np.testing.assert_array_equal(kernel, 2**step * (MODEL["params"]["kernel"] + 1) - 1)


# Where Orbax cannot read, it leaves coroutines behind, which may complain when they are collected.
QUIET = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")


@QUIET
@pytest.mark.parametrize(
    "damage",
    [
        "flipped",
        "sums missing",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("cut", "missing", "sums flipped", "exchanged")),
    ],
)
def test_a_damaged_checkpoint_is_left_for_the_one_before(pair: Path, damage: str):
    file = pair / "7/about/about.json" if "sums" in damage else biggest(pair / "7" / "model")
    content = bytearray(file.read_bytes())
    if "flipped" in damage:
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif "missing" in damage:
        file.unlink()
    elif damage == "exchanged":
        shutil.rmtree(pair / "7/model")
        shutil.copytree(pair / "6/model", pair / "7/model")
    else:
        file.write_bytes(content[:100])
    with pytest.raises(DamagedError, match=r"checkpoint of step 7 in .* cannot be used"):
        load_model(pair, 7)
    before = sorted(each.name for each in (pair / "7").rglob("*"))
    with pytest.warns(UserWarning, match=r"step 7 in .* is damaged and not used .* renamed to 7\.damaged-1"):
        found = latest(pair)
    same(found, 6)
    assert steps_in(pair) == [6]
    same(latest(pair), 6)
    assert sorted(each.name for each in (pair / "7.damaged-1").rglob("*")) == before


@pytest.mark.parametrize("count", [4, pytest.param(400, marks=pytest.mark.slow)])
@QUIET
def test_no_flipped_bit_is_loaded_unnoticed(tmp_path: Path, count: int):
    """What is loaded from a checkpoint with a flipped bit, in any of its files, is what was saved, or nothing."""
    saved(tmp_path / "whole", steps=(7,), info={"config": {"seed": 1}})
    files = [file for file in sorted((tmp_path / "whole/7").rglob("*")) if file.is_file()]
    draw, noticed = random.Random(0), 0
    for i in range(count):
        file = draw.choice(files) if i % 2 else max(files, key=lambda file: file.stat().st_size)
        content = bytearray(file.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        broken = shutil.copytree(tmp_path / "whole", tmp_path / "broken")
        (broken / file.relative_to(tmp_path / "whole")).write_bytes(content)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = latest(broken)
        if found is None:
            noticed += 1
            assert any("is damaged and not used" in str(each.message) for each in said)
            assert (broken / "7.damaged-1").exists()
        else:
            same(found, 7)
            with contextlib.suppress(DamagedError):  # it needs more of Orbax's files
                assert load_model(broken, 7)[2] == {"config": {"seed": 1}, "step": 7}
        shutil.rmtree(broken)
    assert noticed > count / 2


def test_a_checkpoint_is_verified_although_its_process_was_killed(tmp_path: Path):
    """The sums are there as soon as the checkpoint is: nothing is left to do at the next save, or at the end."""
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.save(1, *state(1))
    checkpoints.save(2, *state(2))  # waits for the first, and is on its way
    copy = shutil.copytree(tmp_path, tmp_path.parent / "killed", ignore=shutil.ignore_patterns("*tmp*"))
    checkpoints.close()
    file = biggest(copy / "1/model")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedError, match="cannot be used"):
        load_model(copy, 1)


def test_a_checkpoint_of_another_network_is_left_as_it_is(pair: Path):
    model, training = (abstract(part) for part in state(0))
    model["params"]["inner"]["bias"] = jax.ShapeDtypeStruct((4,), jnp.float32)
    checkpoints = Checkpoints(pair, 2)
    with pytest.raises(ValueError, match=r"another network or .*bias.* is float32\(3,\) there, float32\(4,\) here"):
        checkpoints.latest(model, training)
    checkpoints.close()
    same(latest(pair), 7)


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_read_now_is_left_as_it_is(pair: Path, monkeypatch: pytest.MonkeyPatch):
    for error in (MemoryError("2 GiB"), PermissionError(13, "no"), ValueError("UNAVAILABLE: storage")):

        def refuse(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(ocp, "load_checkpointables", refuse)
        with pytest.raises(OSError, match=r"checkpoint .*/7 cannot be read .*It is left as it is"):
            latest(pair)
        monkeypatch.undo()
    same(latest(pair), 7)


def test_checkpoints_of_earlier_versions_are_read(tmp_path: Path):
    """They have what they are of in Orbax's own file, and no sums."""
    checkpointer = ocp.training.Checkpointer(str(tmp_path))
    model, training = state(3)
    parts = {"model": model, "training": training}
    checkpointer.save_checkpointables_async(3, parts, force=True, custom_metadata={"seed": 1, "step": 3})
    checkpointer.close()
    same(latest(tmp_path), 3)
    assert load_model(tmp_path)[2] == {"seed": 1, "step": 3}


@QUIET
def test_sums_of_earlier_versions_are_read(tmp_path: Path):
    saved(tmp_path, steps=(3,))
    file = tmp_path / "3/about/about.json"
    info, arrays = about.read(tmp_path / "3")
    text = json.dumps({"info": info, "arrays": arrays})
    file.write_text(f'{{"crc32": {zlib.crc32(text.encode())}, "about": {text}}}')
    same(latest(tmp_path), 3)
    file.write_text(f'{{"crc32": {zlib.crc32(text.encode()) + 1}, "about": {text}}}')
    with pytest.raises(DamagedError, match=r"step 3 .* cannot be used .*about\.json is damaged"):
        load_model(tmp_path, 3)


def test_a_folder_may_be_given_relative_to_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    saved(Path("run"))
    same(latest(Path("run")), 7)
    assert load_model("run")[0] == 7


def test_without_any_checkpoint_there_is_none(tmp_path: Path):
    assert latest(tmp_path / "new") is None
    with pytest.raises(FileNotFoundError, match="no whole checkpoint"):
        load_model(tmp_path / "new")


def test_a_model_is_read_with_nothing_but_its_folder(tmp_path: Path):
    saved(tmp_path, info={"definition": {"class": "zoo.mlp:MLP"}})
    step, model, info = load_model(tmp_path)
    assert (step, info) == (7, {"definition": {"class": "zoo.mlp:MLP"}, "step": 7})
    jax.tree.map(np.testing.assert_array_equal, model, state(7)[0])
    jax.tree.map(np.testing.assert_array_equal, load_model(tmp_path, 4)[1], state(4)[0])
    with pytest.raises(
        FileNotFoundError, match=r"no whole checkpoint of step 5 in .*\. There are those of step 0, 4, 6, 7\.$"
    ):
        load_model(tmp_path, 5)


def test_no_room_is_a_sentence_and_the_last_good_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.save(1, *state(1))
    checkpoints.wait()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints._checkpointer, "save_checkpointables_async", full)
    with pytest.raises(
        OSError, match=re.escape(f"no room for a checkpoint in {tmp_path}. The last good one is of step 1")
    ):
        checkpoints.save(2, *state(2))
    monkeypatch.undo()
    checkpoints.close()
    same(latest(tmp_path), 1)


@pytest.mark.parametrize("by", ["nothing", "a file"])
def test_a_folder_that_is_taken_away_is_said(tmp_path: Path, by: str):
    """A new folder in its place would have only the later checkpoints."""
    checkpoints = Checkpoints(tmp_path / "run", 2)
    (tmp_path / "run").rename(tmp_path / "moved")
    if by == "a file":
        (tmp_path / "run").write_text("")
    with pytest.raises(
        OSError, match=r"run was moved, removed or replaced while the run .*: put it back, and the same"
    ):
        checkpoints.save(1, *state(1))
    assert not (tmp_path / "run").is_dir()
    checkpoints.close()


@pytest.mark.parametrize("name", ["mine [final]", "a*b", "what?", "a\\b"])
def test_a_folder_whose_path_orbax_takes_for_a_pattern_is_refused(tmp_path: Path, name: str):
    """Checkpoints in "mine [final]" were without arrays, and a finished run was lost."""
    with pytest.raises(ValueError, match="in its path, which Orbax reads as a pattern"):
        Checkpoints(tmp_path / name)
    assert not (tmp_path / name).exists()
    for other in ("a[b ü %s", "c[d/e]f"):  # no pattern of a folder's name
        saved(tmp_path / other, steps=(1,))
        assert load_model(tmp_path / other)[0] == 1


@pytest.mark.parametrize("name", ["a\\b", "a**", "mine [final]"])
def test_a_run_is_read_where_it_was_moved_below_what_orbax_takes_for_a_pattern(pair: Path, name: str):
    there = load_model(pair)
    place = shutil.move(pair, pair.parent / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = load_model(place)
    assert found[0] == there[0] == 7
    assert jax.tree.all(jax.tree.map(np.array_equal, found[1], there[1]))


def test_what_cannot_be_saved_leaves_no_thread_that_waits_for_ever(tmp_path: Path):
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="empty"):
        Checkpoints(tmp_path).save(0, MODEL, {})
    writers = [t for t in set(threading.enumerate()) - before if "_target_setting_result" in t.name]  # Orbax's
    assert writers
    for writer in writers:
        threading.Thread.join(writer, 10)  # their own raises
        assert not writer.is_alive()
