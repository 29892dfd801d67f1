"""What the benchmark keeps and says. Nothing is timed here."""

import json

import jax
import jax.numpy as jnp
import pytest
from absl import flags
from absl.testing import flagsaver

from launch import bench, bench_sections
from launch.bench_rows import Timing, changes, document, read, slower, table, verdict
from launch.bench_sections import SECTIONS, Options, rows
from launch.bench_step import products
from limits.kept.store import sealed
from zoo import ViT

MACHINE = {"device": {"kind": "cpu"}, "processor": {"cores": 2}}


@pytest.fixture(autouse=True)
def parsed():
    with flagsaver.flagsaver():
        flags.FLAGS.mark_as_parsed()
        yield


def changed(now, then, yardsticks=(1.0, 1.0), same=True):
    row = lambda values: Timing("what", "case", *values)  # noqa: E731
    return changes([row(now)], [row(then)], yardsticks, same).rows[0]


def test_a_row_that_became_slower_is_seen_and_one_within_its_rounds_is_not():
    assert changed(((2.4, 2.6, 2.5),), ((2.0, 2.1, 1.9),))[-1] == "slower"
    assert (
        changed(((2.2, 2.6, 2.5),), ((2.0, 2.1, 1.9),))[-1] == ""
    )  # its fastest round is within a tenth of the slowest before
    assert changed(((1.0,),), ((2.0,),))[4:] == ("0.50", "1, 1", "faster")


def test_the_other_side_takes_out_the_machine():
    """On a machine of half the speed both sides take twice as long."""
    assert changed(((2.0,), "loop", (4.0,)), ((1.0,), "loop", (2.0,)))[4:] == ("1.00", "1, 1", "")
    assert changed(((2.0,), "loop", (2.0,)), ((1.0,), "loop", (2.0,)), same=False)[-1] == "slower"
    assert changed(((2.0,),), ((1.0,),), yardsticks=(0.5, 1.0))[4:] == ("1.00", "1, 1", "")
    assert changed(((2.0,),), ((1.0,),), same=False)[-1] == "another machine"


def test_a_file_of_a_run_is_read_back_and_a_changed_one_refused(tmp_path):
    found = [
        Timing("kernels", "relu", (0.5, 0.25), "neural-tangents", (1.0, 2.0), "a note"),
        Timing("start", "x", (), note="none"),
    ]
    file = tmp_path / "run.json"
    file.write_text(document(found, MACHINE, 0.1))
    then, about = read(file)
    assert then == found
    assert about["device"] == {"kind": "cpu"}
    assert about["yardstick"] == 0.1
    file.write_text(file.read_text().replace("0.25", "0.26"))
    with pytest.raises(ValueError, match=f"{file}.*checksum"):
        read(file)
    for other in ("{}", "[1]", sealed({"rows": []}), sealed({"rows": [1], "yardstick": 0.1}), "\0"):
        file.write_text(other)
        with (
            flagsaver.flagsaver(against=str(file)),
            pytest.raises(ValueError, match=r"is no file that launch\.bench wrote"),
        ):
            bench.main()


def test_what_was_not_compared_is_said():
    here, there = Timing("train", "now", (1.0,)), Timing("train", "then", (1.0,))
    judged = lambda now, then, same=True: verdict(now, then, changes(now, then, (1.0, 1.0), same), "FILE")  # noqa: E731
    assert judged([here], [there]) == "No row in common with FILE: nothing was compared. Not in it: now."
    assert judged([here, there], [there]) == "Nothing is slower. Not in it: now."
    assert judged([here], [here], same=False).endswith("another side: nothing was compared.")
    assert judged([here], [here]) == "Nothing is slower."


def test_both_sides_must_have_computed_the_same():
    job = {"what": "kernels", "activation": "relu"}
    runs = lambda theirs: {"ours": [{"seconds": 1.0, "sum": 2.0}], "theirs": [{"seconds": 3.0, "sum": theirs}]}  # noqa: E731
    (row,) = rows(job, "neural-tangents", runs(2.0))
    assert row.ratio == 3.0
    assert row.case == "relu"
    with pytest.raises(ValueError, match=r"disagree, 2\.0 and 2\.1"):
        list(rows(job, "neural-tangents", runs(2.1)))


def test_an_iterated_fixed_point_is_held_against_at_equal_standard_error():
    """Half the error takes four times as long."""
    runs = {"ours": [{"seconds": 1.0, "standard error": 0.01}], "theirs": [{"seconds": 3.0, "standard error": 0.02}]}
    (row,) = rows({"what": "fixed_point"}, "the other", runs)
    assert row.others == (12.0,)


def test_every_section_can_be_chosen_and_all_of_them_once():
    with flagsaver.flagsaver(what=["all"]):
        assert bench.chosen() == list(SECTIONS)
    with flagsaver.flagsaver(what=["start", "kernels"]):
        assert bench.chosen() == ["kernels", "start"]


def test_a_run_is_kept_and_held_against_an_earlier_one(tmp_path, monkeypatch, capsys):
    took = iter((1.0, 2.0))

    def section(options):
        assert options == Options(None, None, 2)
        yield Timing("start", "a command", (next(took),) * options.rounds)

    monkeypatch.setattr(bench, "machine", lambda: {**MACHINE, "device": {"kind": "cpu", "product": 0.1}})
    monkeypatch.setitem(SECTIONS, "start", section)
    with flagsaver.flagsaver(what=["start"], rounds=2, workdir=str(tmp_path)):
        bench.main()
        (first,) = tmp_path.glob("start_*.json")
        assert json.loads(first.read_text())["rows"][0]["seconds"] == [1.0, 1.0]
        earlier = first.rename(tmp_path / "earlier.json")
        with flagsaver.flagsaver(against=str(earlier)):
            monkeypatch.setattr(bench.common, "NAMED", ["start"])
            bench.main()
    said = capsys.readouterr().out
    assert "Slower: a command." in said
    assert "a command | 2 s" in said


def test_the_table_has_a_ratio_or_says_that_there_is_none():
    rows = [Timing("a", "b", (2.0,), "c", (4.0,)), Timing("a", "d", (0.001,)), Timing("accelerator", "e", ())]
    found = [each[2:5] for each in table("t", rows).rows]
    assert found == [["2 s", "4 s c", "2×"], ["1 ms", "–", "–"], ["–", "–", "–"]]
    assert slower(changes([], [], (1, 1), True)) == []


def test_products_of_a_step_are_counted_through_loops_and_compiled_functions():
    def run(x):
        y, _ = jax.lax.scan(lambda y, _: (jax.jit(jnp.dot)(y, x), None), x, length=3)
        return y @ x

    (product, times), *_ = products(jax.make_jaxpr(run)(jnp.ones((2, 2)))).items()
    assert times + sum(list(products(jax.make_jaxpr(run)(jnp.ones((2, 2)))).values())[1:]) == 4
    assert product[2][0][0] == (2, 2)


def test_products_of_a_vision_transformer_have_its_operations():
    """2 per weight and token of every matrix, and 4 t² d per block and image of attention."""
    net, images, tokens = ViT(width=8, depth=2, patch=2, heads=2, outputs=3, mlp_ratio=4), 5, 4
    x = jnp.zeros((images, 4, 4, 1))
    params = jax.eval_shape(net.init, jax.random.key(0), x)
    closed = jax.make_jaxpr(net.apply)(params, x)
    operations = 0
    for (_, settings, arrays), times in products(closed).items():
        ((contracted, _), _), (left, _), (right, _) = dict(settings)["dimension_numbers"], *arrays
        inner = 1
        for axis in contracted:
            inner *= left[axis]
        ((_, other), (_, batch)) = dict(settings)["dimension_numbers"]
        free = [n for axis, n in enumerate(right) if axis not in (*other, *batch)]
        size = 1
        for n in (*left, *free):
            size *= n
        operations += 2 * size * times
    weights = 4 * 8 + 2 * (4 * 8 * 8 + 2 * 8 * 32)
    assert operations == 2 * images * tokens * weights + 2 * images * 8 * 3 + 2 * 4 * tokens**2 * 8 * images


@pytest.mark.parametrize("section", ["fields", "transfer"])
def test_what_only_this_environment_measures_has_both_sides_without_an_oracle(section, monkeypatch):
    found = {"seconds": 1.0, "standard error": 0.1} if section == "fields" else {"seconds": 1.0}
    monkeypatch.setattr(bench_sections, "in_process", lambda python, job: found)
    assert all(row.others for row in SECTIONS[section](Options(rounds=1)))
