"""launch.train with batches of a config's own, and what it is evaluated on beside them."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from test_train import SILENT, prepared

from launch import train
from train import losses
from train.checkpoints import load_model
from train.data.own import as_now
from train.records import read_records
from train.study.experiment import load


@pytest.mark.parametrize("start", ["", ", start"])
@pytest.mark.parametrize("depend", [False, True])
def test_batches_that_depend_on_the_number_of_steps(tmp_path: Path, start: str, depend: bool):
    """More steps are refused where the first ones' batches would be others, and only there."""
    code = f"""
import numpy as np, optax
from ml_collections import ConfigDict
from zoo import MLP
def get_config(): return ConfigDict({{"name": "own", "width": 4, "depth": 1, "steps": 4, "learning_rate": 0.1}})
def make(width, depth): return MLP(width, depth)
def optimizer(net, learning_rate): return optax.sgd(learning_rate)
def loss(f, y): return ((f - y) ** 2).mean()
def batches(steps{start}):
    order = np.random.default_rng(0).permutation(steps) if {depend} else np.arange(steps)
    for i in order[{start[2:] or 0}:]:
        yield np.full((2, 3), i / 10), np.ones((2, 1))
"""
    (tmp_path / "own.py").write_text(code)
    run = prepared(tmp_path / "run", tmp_path / "own.py", steps=4)
    assert run.depends_on_steps(4, 4) == ""
    longer = prepared(tmp_path / "run", tmp_path / "own.py", steps=9)
    assert longer.depends_on_steps(4, 3) == ("batches" if depend else "")


def test_what_own_batches_do_not_allow(tmp_path: Path):
    code = """
import numpy as np, optax
from ml_collections import ConfigDict
from zoo import MLP
def get_config(): return ConfigDict({"name": "own", "width": 4, "depth": 1, "steps": 4, "learning_rate": 0.1})
def make(width, depth): return MLP(width, depth)
def optimizer(net, learning_rate): return optax.sgd(learning_rate)
def loss(f, y): return ((f - y) ** 2).mean()
def batches(): yield np.ones((2, 3)), np.ones((2, 1))
"""
    (tmp_path / "own.py").write_text(code)
    with pytest.raises(ValueError, match=r"evaluate_every=2, and there are no test data: define validation\(\)"):
        prepared(tmp_path / "run", tmp_path / "own.py", evaluate_every=2)
    with pytest.raises(ValueError, match="accumulate=3: a batch of 2 does not divide"):
        prepared(tmp_path / "run", tmp_path / "own.py", accumulate=3)
    (tmp_path / "own.py").write_text(
        code.replace("np.ones((2, 3))", "np.full((2, 3), 1_700_000_000_000)")
    )  # milliseconds
    with pytest.raises(ValueError, match=r"gives inputs that are whole numbers from 17\d+ to 17\d+, and JAX has int32"):
        prepared(tmp_path / "run", tmp_path / "own.py")
    (tmp_path / "own.py").write_text(code.replace("np.ones((2, 3))", "1j * np.ones((2, 3))"))
    with pytest.raises(ValueError, match=r"gives inputs that are an array of complex128; they must be"):
        prepared(tmp_path / "run", tmp_path / "own.py")


OWN_TEST_DATA = """
import numpy as np, optax
from ml_collections import ConfigDict
from zoo import MLP
def get_config():
    return ConfigDict({"name": "own", "width": 4, "depth": 1, "steps": 4, "learning_rate": 0.1, "evaluate_every": 2, "held": 5})
def make(width, depth): return MLP(width, depth)
def optimizer(net, learning_rate): return optax.sgd(learning_rate)
def loss(f, y): return ((f - y["of"]) ** 2 * y["weight"]).mean()
def drawn(seed, n):
    x = np.random.default_rng(seed).normal(size=(n, 3)).astype("float32")
    return x, {"of": x[:, :1], "weight": 1 + np.arange(n, dtype="float32")[:, None]}
def batches():
    while True: yield drawn(0, 2)
def validation(held): return drawn(1, held)
"""


def test_own_batches_are_evaluated_on_what_validation_returns(tmp_path: Path):
    own = tmp_path / "own.py"
    own.write_text(OWN_TEST_DATA)
    run = prepared(tmp_path / "run", own)
    assert train.conduct(run, SILENT)
    net, module = run.program.net, load(own)
    x, y = module.validation(5)  # in batches of two, the last of which is filled up
    expected = module.loss(net.apply(load_model(tmp_path / "run" / "checkpoints")[1], jnp.asarray(x)), y)
    at_end = read_records(tmp_path / "run" / "test.jsonl")[-1]
    assert at_end["step"] == 4
    np.testing.assert_allclose(at_end["loss"], expected, rtol=1e-5)

    own.write_text(OWN_TEST_DATA.replace("drawn(1, held)", "drawn(2, held)"))
    with pytest.raises(ValueError, match=r"other samples from validation\(\)"):
        train.check_folder(prepared(tmp_path / "run", own))
    own.write_text(OWN_TEST_DATA.replace("drawn(1, held)", "(drawn(1, held)[0], tuple(drawn(1, held)[1].values()))"))
    with pytest.raises(ValueError, match=r"gives targets \('…', '…'\), and batches \{'of': '…', 'weight': '…'\}"):
        prepared(tmp_path / "trees", own)
    own.write_text(OWN_TEST_DATA.replace("drawn(1, held)", "(np.ones((5, 4)), drawn(1, held)[1])"))
    with pytest.raises(
        ValueError, match=r"validation gives samples of shapes \[\(4,\), \(1,\), \(1,\)\], and batches \[\(3,\)"
    ):
        prepared(tmp_path / "other", own)


def test_a_run_whose_validation_is_drawn_anew_goes_on(tmp_path: Path):
    own = tmp_path / "own.py"
    own.write_text(OWN_TEST_DATA.replace("drawn(1, held)", "drawn(None, held)"))
    assert train.conduct(prepared(tmp_path / "run", own), SILENT)
    assert load_model(tmp_path / "run")[0] == load_model(tmp_path / "run" / "checkpoints")[0] == 4
    train.check_folder(prepared(tmp_path / "run", own))  # or an error: no change of the code changes the samples


@pytest.mark.parametrize("given", [np.asarray, memoryview, jax.device_put])
def test_a_batch_is_taken_as_it_is(given: Callable):
    """JAX on a CPU takes over memory of NumPy that begins at a multiple of 64 bytes."""
    memory = np.zeros(64 + 32, np.float32)
    begin = -memory.ctypes.data % 64 // 4
    buffer = memory[begin : begin + 32]
    kept = as_now(given(buffer))
    buffer[:] = 1
    assert not np.asarray(kept).any()


def test_own_batches_may_come_in_the_same_memory(tmp_path: Path):
    """As loaders give them that fill one array again: a step that is still computed would read the next one's numbers."""
    code = OWN_TEST_DATA.replace(
        "while True: yield drawn(0, 2)", "(x, _), y = drawn(0, 2), np.ones((2, 1), 'float32')\n    ..."
    )
    code = code.replace(
        "    ...", "    for k in range(4):\n        x += 1\n        yield x, {'of': k * y, 'weight': y}"
    )
    (tmp_path / "own.py").write_text(code)
    batches = prepared(tmp_path / "run", tmp_path / "own.py").batches(0)
    inputs, targets = zip(*(next(batches) for _ in range(4)), strict=True)
    np.testing.assert_allclose(inputs[3] - inputs[0], 3, rtol=1e-6)
    assert [y["of"][0, 0] for y in targets] == [0, 1, 2, 3]


@pytest.mark.slow
def test_an_optimiser_that_waits_for_several_batches_has_another_schedule(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    """Its fourth step takes the second of the rates, not the fourth, which the log had. Of one batch a step it is the same."""
    code = OWN_TEST_DATA.replace('"evaluate_every": 2', '"schedule": "cosine"')
    for several, members in (("1", 2), ("2", 0), ("2", 2), ("lambda step: 1 + (step > 0)", 0)):
        wrapped = f"optax.chain(optax.MultiSteps(optax.adam(learning_rate), {several}))"
        (tmp_path / "own.py").write_text(code.replace("optax.sgd(learning_rate)", wrapped))
        folder = tmp_path / f"{len(several)}{several[0]}{members}"
        assert train.conduct(prepared(folder, tmp_path / "own.py", members=members), Console())
        waits = several != "1"
        assert ("takes one step for several batches" in " ".join(capsys.readouterr().out.split())) == waits
        assert any("learning_rate" in line for line in read_records(folder / "log.jsonl")) != waits


WHOLE_NUMBERS = """
import flax.linen as nn, numpy as np, optax
from ml_collections import ConfigDict
from train import losses
def get_config():
    return ConfigDict({"name": "own", "width": 4, "depth": 1, "steps": 1, "learning_rate": 0.1, "evaluate_every": 1})
class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.Embed(7, 4)(x) if KIND == "int64" else x[..., None] / 64.0 - 2)
def make(width, depth): return Network()
def optimizer(net, learning_rate): return optax.sgd(learning_rate)
def loss(f, y): return losses.cross_entropy(f, y)
def drawn(seed, n):
    x = np.random.default_rng(seed).integers(7 if KIND == "int64" else 256, size=(n, 5)).astype(KIND)
    return x, (x > x.max() / 2).astype("int32")
def batches():
    while True: yield drawn(0, 4)
def validation(): return drawn(1, 6)
"""


@pytest.mark.parametrize("kind", ["uint8", "int64"])
@pytest.mark.slow
def test_the_inputs_of_validation_are_evaluated_as_they_come(tmp_path: Path, kind: str):
    own = tmp_path / "own.py"
    own.write_text(f"KIND = {kind!r}\n" + WHOLE_NUMBERS)
    run = prepared(tmp_path / "run", own)
    assert train.conduct(run, SILENT)
    x, y = load(own).validation()
    expected = losses.cross_entropy(run.program.net.apply(load_model(tmp_path / "run/checkpoints")[1], x), y)
    np.testing.assert_allclose(read_records(tmp_path / "run/test.jsonl")[-1]["loss"], expected, rtol=1e-5)


@pytest.mark.parametrize(("late", "members"), [("batches", 0), ("batches", 2), ("validation", 0)])
def test_classes_that_the_network_does_not_have_are_said(tmp_path: Path, late: str, members: int):
    own = tmp_path / "own.py"
    code = WHOLE_NUMBERS.replace("yield drawn(0, 4)", "yield late(2) if LATE == 'batches' else drawn(0, 4)")
    code = code.replace("return drawn(1, 6)", "return late(6) if LATE == 'validation' else drawn(1, 6)")
    more = "\ndef late(n): return drawn(0, n)[0], drawn(0, n)[1] * 7\n"
    own.write_text(f"KIND, LATE = 'uint8', {late!r}\n{code}{more}")
    said = (
        rf"not finite at step .*own\.py: {late} gives targets from 0 to 7, and the network has 3 outputs: classes are"
    )
    with pytest.raises(FloatingPointError, match=said):
        train.conduct(prepared(tmp_path / "run", own, members=members), SILENT)
