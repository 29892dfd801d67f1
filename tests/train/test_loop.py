"""In which order things happen between steps, what is written down, and what ends a run."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rich.console import Console

from train import curves
from train.loop import Clock, Loop, check_evaluated, check_finite, one_by_one
from train.losses import cross_entropy, mse
from train.progress import add_parts, parts_bar
from train.records import Records, read_records
from train.schedules import make_schedule
from train.step import Numbers


def looped(events: list, **options: Any) -> Loop:
    def step(state: Any, batch: Any) -> Any:
        events.append(("step", state))
        return state + 1, Numbers(np.array([float(batch)]), ("loss",))

    def batches() -> Any:
        for k in range(100):
            events.append(("batch", k))
            yield k

    common: dict[str, Any] = {
        "write": lambda k, numbers: events.append(("write", k, numbers["loss"])),
        "evaluate": lambda k, state: events.append(("evaluate", k, state)),
        "save": lambda k, state: events.append(("save", k, state)),
    }
    return Loop(options.pop("advance", one_by_one(step, batches())), 0, 4, **{**common, **options})


def test_the_order_is_evaluate_save_batch_step_and_numbers_come_a_step_later():
    events: list = []
    state, finished = looped(events, evaluate_every=2, saves_at=lambda k: k == 2).run(0)
    assert (state, finished) == (4, True)
    assert events == [
        ("batch", 0), ("step", 0), ("batch", 1), ("step", 1), ("write", 0, 0.0),
        ("evaluate", 2, 2), ("write", 1, 1.0), ("save", 2, 2),  # what the checkpoint follows is on disk before it
        ("batch", 2), ("step", 2), ("batch", 3), ("step", 3), ("write", 2, 2.0), ("write", 3, 3.0),
        ("evaluate", 4, 4), ("save", 4, 4),
    ]  # fmt: skip


def several_at_once(events: list, losses: list[float]) -> Any:
    def advance(state: Any, k: int, most: int) -> Any:
        events.append(("steps", k, most))
        return state + most, Numbers(np.array([[loss] for loss in [*losses[k : k + most], 7.0]]), ("loss",)), most

    return advance


def test_several_steps_at_once_end_where_something_is_due():
    events: list = []
    options = {"evaluate_every": 5, "saves_at": lambda k: k in (0, 7), "at_once": 4, "steps": 10}
    loop = looped(events, advance=several_at_once(events, [float(k) for k in range(10)]))
    for name, value in options.items():
        setattr(loop, name, value)
    assert loop.run(0) == (10, True)
    assert [event for event in events if event[0] != "write"] == [
        ("save", 0, 0), ("steps", 0, 4), ("steps", 4, 1), ("evaluate", 5, 5), ("steps", 5, 2), ("save", 7, 7),
        ("steps", 7, 3), ("evaluate", 10, 10), ("save", 10, 10),
    ]  # fmt: skip
    assert [event[1:] for event in events if event[0] == "write"] == [(k, float(k)) for k in range(10)]
    assert events.index(("write", 6, 6.0)) < events.index(("save", 7, 7))


def test_a_preemption_saves_and_stops_before_the_next_batch():
    events: list = []
    state, finished = looped(events, stopped=lambda k: k == 1).run(0)
    assert (state, finished) == (1, False)
    assert events == [("batch", 0), ("step", 0), ("write", 0, 0.0), ("save", 1, 1)]


def test_a_number_that_is_not_finite_is_named_with_its_step_and_member():
    with pytest.raises(FloatingPointError, match="gradient norm is not finite at step 7"):
        check_finite(7, Numbers(np.array([1.0, np.inf]), ("loss", "gradient_norm")))
    with pytest.raises(FloatingPointError, match=r"loss of 2 of 3 members \(the first: 1\) is not finite at step 0"):
        check_finite(0, Numbers(np.array([[1.0], [np.nan], [np.inf]]), ("loss",)))
    events: list = []
    losses = [1.0, float("nan"), 1.0, 1.0]
    for at_once in (1, 4):
        with pytest.raises(FloatingPointError, match="at step 1"):
            looped(events, advance=several_at_once(events, losses), at_once=at_once).run(0)
        assert [event for event in events if event[0] == "write"] == [("write", 0, 1.0)]
        events.clear()


def test_a_test_set_that_is_not_finite_is_named():
    check_evaluated(3, {"loss": np.array(1.0)})
    with pytest.raises(
        FloatingPointError, match=r"test accuracy is not finite at step 3\. .*test data that are not finite"
    ):
        check_evaluated(3, {"loss": np.array(1.0), "accuracy": np.array(np.nan)})
    with pytest.raises(FloatingPointError, match=r"test loss of 1 of 2 members \(the first: 1\)"):
        check_evaluated(3, {"loss": np.array([1.0, np.inf])})


def test_a_bar_goes_on_from_what_was_there_and_tells_the_time_left():
    at = [0.0]
    bar = parts_bar(Console(quiet=True))
    bar.get_time = lambda: at[0]
    add_parts(bar, "cells", total=10.0, done=6.0)
    (task,) = bar.tasks
    assert task.percentage == 60
    assert task.time_remaining is None
    at[0] = 7200.0  # longer than rich remembers by itself
    bar.advance(task.id, 1.0)
    assert task.time_remaining == 3 * 7200
    at[0] += 3600.0
    bar.advance(task.id, 2.0)
    assert task.time_remaining == 3600


def test_time_left_is_without_the_first_step_and_without_pauses():
    at = [0.0]
    clock = Clock(10, 20, now=lambda: at[0])
    assert clock.numbers() == {}
    at[0] = 100.0  # compilation
    clock.step(10)
    assert clock.numbers() == {}
    at[0] += 2.0
    clock.step(11)
    with clock.paused():
        at[0] += 50.0  # evaluation
    at[0] += 4.0
    clock.step(12)
    assert clock.numbers() == {"seconds_a_step": 3.0, "seconds_left": 21.0}


def test_lines_of_a_run_that_got_further_are_taken_away(tmp_path: Path):
    file = tmp_path / "log.jsonl"
    first = Records(file)
    for k in range(5):
        first.write(k, {"loss": 0.1 * k, "bad": float("nan"), "each": [1.0, float("inf")]})
    first.close()
    with file.open("a") as cut:
        cut.write('{"step": 5, "lo')  # the process ended here
    again = Records(file, start=3)
    again.write(3, {"loss": 7.0})
    again.close()
    lines = read_records(file)
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert lines[3]["loss"] == 7.0
    assert lines[0]["bad"] is None
    assert lines[0]["each"] == [1.0, None]
    assert all(json.dumps(line) for line in lines)


@pytest.mark.parametrize("by", ["nothing", "another"])
def test_a_log_that_is_taken_away_is_written_again(tmp_path: Path, by: str):
    records = Records(tmp_path / "log.jsonl")
    records.write(0, {"loss": 1.0})
    (tmp_path / "log.jsonl").unlink()
    if by == "another":
        (tmp_path / "log.jsonl").write_text("edited")
    records.write(1, {"loss": 2.0})
    with pytest.warns(
        UserWarning, match=r"log\.jsonl was removed or replaced while the run was writing to it:.* written again"
    ):
        records.flush()
    records.write(2, {"loss": 3.0})
    records.close()
    assert [line["step"] for line in read_records(tmp_path / "log.jsonl")] == [0, 1, 2]
    assert (tmp_path / "log.jsonl.damaged-1").exists() == (by == "another")


def test_a_run_whose_folder_is_moved_says_so(tmp_path: Path):
    (tmp_path / "run").mkdir()
    records = Records(tmp_path / "run/log.jsonl")
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(OSError, match="run was moved or removed while the run was writing to it: with --workdir=DIR"):
        records.close()


def test_a_loss_that_is_zero_throughout_has_a_picture(tmp_path: Path):
    records = Records(tmp_path / "log.jsonl")
    for step in range(3):
        records.write(step, {"loss": 0.0, "gradient_norm": 0.5})
    records.close()
    loss, norm = curves.figure({"own": tmp_path}).axes
    assert (loss.get_yscale(), norm.get_yscale()) == ("linear", "log")


def test_schedules_at_their_corners():
    def rates(name: str, **options: Any) -> Any:
        schedule: Any = make_schedule(name, 2.0, steps=100, **options)
        return [float(schedule(k)) for k in (0, 5, 10, 40, 100)]

    np.testing.assert_allclose(rates("constant"), 2.0)
    np.testing.assert_allclose(rates("linear", end=0.5), [2.0, 1.95, 1.9, 1.6, 1.0], rtol=1e-6)
    np.testing.assert_allclose(rates("linear", warmup=10), [0.0, 1.0, 2.0, 2 * 60 / 90, 0.0], rtol=1e-6)
    cosine = [0.0, 1.0, 2.0, 1 + np.cos(np.pi / 3), 0.0]
    np.testing.assert_allclose(rates("cosine", warmup=10), cosine, rtol=1e-6, atol=1e-7)
    roots = [0.0, 1.0, 2.0, 1.0, 2 * 0.1**0.5]
    np.testing.assert_allclose(rates("inverse_sqrt", warmup=10), roots, rtol=1e-6)
    with pytest.raises(ValueError, match="warm-up of 100 steps must be shorter than the 100 steps"):
        rates("linear", warmup=100)
    with pytest.raises(ValueError, match="cosine"):
        rates("cosin")


def test_losses_against_their_formulas():
    random = np.random.default_rng(0)
    f, labels = jnp.asarray(3 * random.normal(size=(5, 4))), random.integers(4, size=5)
    log_p = np.asarray(f) - np.log(np.exp(np.asarray(f)).sum(1, keepdims=True))
    smooth = 0.9 * np.eye(4)[labels] + 0.1 / 4
    z = np.log(np.exp(np.asarray(f)).sum(1)) ** 2
    expected = (-(smooth * log_p).sum(1) + 0.01 * z).mean()
    loss = jax.jit(lambda f, y: cross_entropy(f, y, 0.1, 0.01))
    np.testing.assert_allclose(loss(f, jnp.asarray(np.eye(4)[labels])), expected, rtol=1e-5)
    np.testing.assert_allclose(loss(f, jnp.asarray(labels)), expected, rtol=1e-5)
    plain = jax.jit(optax.softmax_cross_entropy_with_integer_labels)(f, jnp.asarray(labels)).mean()
    np.testing.assert_allclose(jax.jit(cross_entropy)(f, jnp.asarray(labels)), plain, rtol=1e-6)
    np.testing.assert_allclose(mse(f, jnp.zeros_like(f)), 0.5 * (np.asarray(f) ** 2).sum() / 5, rtol=1e-5)
    assert jax.eval_shape(jax.grad(lambda f: cross_entropy(f, jnp.asarray(labels))), f).shape == f.shape


def test_where_files_cannot_grow_the_whole_log_is_written_before_every_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("train.records._remote", lambda file: True)  # as on gs://
    file = tmp_path / "log.jsonl"
    first = Records(file)
    first.write(0, {"loss": 1.0})
    assert not file.exists()
    first.flush()
    first.write(1, {"loss": 0.5})
    assert [line["step"] for line in read_records(file)] == [0]
    again = Records(file, start=1)  # the first process ended without a word
    again.write(1, {"loss": 0.25})
    again.close()
    assert [(line["step"], line["loss"]) for line in read_records(file)] == [(0, 1.0), (1, 0.25)]
