"""What is kept, that it is what was saved, and that a damaged checkpoint is not used."""

import re
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from train import checkpoints as module
from train.checkpoints import Checkpoints, find_flaw, load_model, log_spaced, steps_in

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
    assert sorted(file.stem for file in (tmp_path / "lists").iterdir()) == ["0", "4", "6", "7"]
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
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing", "cut, without a list"])
def test_a_damaged_checkpoint_is_left_for_the_one_before(tmp_path: Path, damage: str):
    saved(tmp_path)
    file = biggest(tmp_path / "7" / "model")
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 255
        file.write_bytes(content)
    elif damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content[:100])
    if "without" in damage:
        (tmp_path / "lists" / "7.json").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # Orbax leaves a coroutine behind where it cannot read
        with pytest.warns(UserWarning, match=r"The checkpoint of step 7 in .* is damaged and not used"):
            found = latest(tmp_path)
    same(found, 6)
    assert steps_in(tmp_path) == [0, 4, 6]


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
    with pytest.raises(FileNotFoundError, match="of step 5"):
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


def test_large_checkpoints_are_compared_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_CHECKED_BYTES", 10)
    saved(tmp_path, steps=(1,))
    file = biggest(tmp_path / "1" / "model")
    file.write_bytes(file.read_bytes()[:-1])
    assert find_flaw(tmp_path, 1).endswith("has changed")
