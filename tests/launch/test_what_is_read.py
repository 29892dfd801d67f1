"""What a study says is read by all who ask for it, or refused: axes of batches and losses, variants, scores, misspelt fields."""

import io
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict
from own_studies import studies_of
from rich.console import Console

from launch import common, compare, limit
from train.study.asked import unread
from train.study.experiment import Experiment, load
from train.study.grid import conduct
from train.transfer import Outcome
from zoo import MLP

OWN = """
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict
from zoo import MLP

def get_config():
    return ConfigDict({"name": "own", "widths": (8,), "depths": (1,), "values": (0.05,), "seeds": 2, "steps": 3, "batch": 4})

def make(width, depth):
    return MLP(width, depth, activation="tanh")

def optimizer(net, learning_rate, batch, share=1.0):
    return optax.sgd(learning_rate * share)

def loss(outputs, targets, share=1.0):
    return share * 0.5 * jnp.mean((outputs - targets) ** 2)

def batches(steps, batch):
    x = np.random.default_rng(0).normal(size=(steps, batch, 4))
    return [(each, np.tanh(each[:, :1])) for each in x]

def validation():
    x = np.random.default_rng(1).normal(size=(5, 4))
    return x, np.tanh(x[:, :1])

def score(outputs, targets):
    return jnp.mean(jnp.abs(outputs - targets)) - SHIFT
"""


@pytest.fixture
def own(tmp_path: Path) -> Any:
    return studies_of(tmp_path, OWN.replace("SHIFT", "0.0"))


def run(study: Any) -> Outcome:
    outcome = conduct(study, (0, 1), Console(quiet=True))
    assert outcome is not None
    return outcome


def curves(outcome: Outcome) -> list[np.ndarray]:
    return [sweep.losses for sweeps in outcome.sweeps.values() for sweep in sweeps.values()]


@pytest.mark.parametrize(("name", "values"), [("batch", (4, 16)), ("share", (0.5, 1.0))])
@pytest.mark.slow
def test_an_axis_reaches_all_who_ask_for_it(own, name, values):
    """As the same number in the config does: also batches and losses, not the optimiser alone."""
    both = curves(run(own(axes={name: values})))
    for found, value in zip(both, values, strict=True):
        (alone,) = curves(run(own(**{name: value})))
        np.testing.assert_allclose(found, alone, rtol=1e-6)
    assert np.abs(both[0] - both[1]).max() > 0.01 * np.abs(both[0]).max()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dial": "share"}, 'config.dial = "share" is asked for by loss too'),
        ({"variants": {"more": {"steps": 40}}}, "config.variants.more.steps: steps is the study.s own"),
        ({"variants": {"other": {"seed": 4}}}, "config.variants.other.seed"),
        ({"variants": {"a": {"shar": 0.5}}}, r"config.variants.a.shar is not read: .*own.py .*share"),
        ({"axes": {"seeds": (1, 2)}}, "config.axes.seeds"),
        ({"axes": {"learning_rate": (1, 2)}}, "learning_rate is the dial"),
        ({"limit": {"sample": 64}}, 'config.limit has no field sample. Did you mean "samples"'),
        ({"limit": {"samples": "64"}}, "config.limit.samples must be"),
        ({"limit": 64}, "config.limit must be"),
    ],
)
def test_what_would_not_be_read_is_refused(own, fields, message):
    with pytest.raises(ValueError, match=message):
        own(**fields)


def test_scores_that_have_no_ratios_are_refused(tmp_path):
    study = studies_of(tmp_path, OWN.replace("SHIFT", "9.0"))(scored="score")
    with pytest.raises(ValueError, match=r"score returned -.* must be above 0"):
        run(study)


ACCURACY = "return jnp.mean(jnp.sign(outputs) == jnp.sign(targets)) + 0.01"


@pytest.mark.parametrize(("returned", "said"), [(ACCURACY, True), (ACCURACY.replace("==", "!="), False)])
def test_scores_that_rise_with_training_are_said(tmp_path, returned, said):
    code = OWN.replace("return jnp.mean(jnp.abs(outputs - targets)) - SHIFT", returned)
    study = studies_of(tmp_path, code)(scored="score", steps=40, values=(1e-4, 1e-3, 0.1), share=4.0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        outcome = run(study)
    told = [str(each.message) for each in found if "before training" in str(each.message)]
    assert len(told) == said
    assert outcome.labels == ["own"]
    for each in told:
        assert "own.py: the run of least training loss has score" in each


@pytest.mark.parametrize(
    ("what", "instead", "message"),
    [
        (
            "return jnp.mean(jnp.abs(outputs - targets))",
            "return 0 * outputs[0]",
            r"score.* float32 of shape \(1,\): take its mean",
        ),
        ("return x, np.tanh(x[:, :1])", "return x", r"validation returned an array .* must be \(inputs, targets\)"),
    ],
)
def test_what_is_scored_is_looked_at(tmp_path, what, instead, message):
    code = OWN.replace(" - SHIFT", "")
    with pytest.raises(ValueError, match=message):
        run(studies_of(tmp_path, code.replace(what, instead))(scored="score"))
    for name in ("seeds", "steps"):
        with pytest.raises(ValueError, match=f"has no {name}"):
            studies_of(tmp_path, code.replace(f'"{name}": {2 if name == "seeds" else 3}', '"seed": 0'))()


def test_misspelt_fields_are_named(own, tmp_path):
    assert unread(own(axis={"batch": (1, 2)}, batch=8)) == ["axis"]
    (tmp_path / "plain.py").write_text("def make(width, depth, slope):\n    return None\n")
    config = {"name": "a", "widths": (8,), "optimiser": "adam", "slope": 1.0}
    assert compare.unread(config, str(tmp_path / "plain.py")) == ["optimiser"]
    assert limit.unread(config, str(tmp_path / "plain.py")) == ["optimiser"]
    assert limit.unread(config | {"regression": {}}, str(tmp_path / "plain.py")) == ["optimiser"]


@pytest.mark.parametrize(
    ("what", "instead", "message"),
    [
        (
            'return MLP(width, depth, activation="tanh")',
            "return 3",
            "make returned 3; make.* a model with init and apply",
        ),
        (
            "return optax.sgd(learning_rate * share)",
            "return 'sgd'",
            "optimizer returned 'sgd'; .* an Optax transformation",
        ),
        ("jnp.mean((outputs - targets) ** 2)", "(outputs - targets) ** 2", r"float32 of shape \(4, 1\): take its mean"),
        (
            "make(width, depth)",
            "make(width, *, depth)",
            r"make must take 2 arguments by position; it is make\(width, \*, depth\)",
        ),
        (
            "optax.sgd(learning_rate * share)",
            "optax.sgd(learning_rate if learning_rate > 0 else 1)",
            "all values of learning_rate, but Python code",
        ),
    ],
)
def test_what_functions_return_is_looked_at(tmp_path, what, instead, message):
    with pytest.raises(ValueError, match=message):
        run(studies_of(tmp_path, OWN.replace("SHIFT", "0.0").replace(what, instead))())


def test_an_optimiser_that_has_its_rate_where_the_network_comes_is_told_so(tmp_path):
    (tmp_path / "own.py").write_text("def optimizer(learning_rate, decay=0.0):\n    return learning_rate\n")
    config = {"learning_rate": 0.1}
    with pytest.raises(
        ValueError, match=r"\(here learning_rate\) is for the network.*def optimizer\(net, learning_rate, decay\)"
    ):
        Experiment(str(tmp_path / "own.py"), config, ()).call("optimizer", MLP(4, 1))
    (tmp_path / "other.py").write_text("def optimizer(net, learning_rate):\n    return net.width * learning_rate\n")
    named = Experiment(str(tmp_path / "other.py"), config | {"net": "mlp"}, ())
    assert named.bound("optimizer", 1)(MLP(4, 1)) == pytest.approx(0.4)
    numbered = Experiment(str(tmp_path / "other.py"), config | {"net": 2}, ())  # which `make` may ask for
    assert numbered.bound("optimizer", 1)(MLP(4, 1)) == pytest.approx(0.4)


def test_first_arguments_with_each_others_names_are_no_secret(tmp_path):
    """They go by their place: make(depth, width) gave a network of as many layers as the width says."""
    (tmp_path / "own.py").write_text("def make(depth, width):\n    return None\n")
    with pytest.raises(
        ValueError, match=r"make\(depth, width\) has its first arguments turned.*make\(width, depth, …\)"
    ):
        Experiment(str(tmp_path / "own.py"), {}, ("make",))
    (tmp_path / "loss.py").write_text("def loss(y_true, y_pred):\n    return 0.0\n")
    with pytest.warns(
        UserWarning, match=r"loss\(y_true, y_pred\) has its first arguments turned.*loss\(outputs, targets\)"
    ):
        Experiment(str(tmp_path / "loss.py"), {}, ("loss",))


def test_what_is_no_python_file_is_said_with_one_full_stop(tmp_path):
    (tmp_path / "own.txt").write_text(OWN)
    with pytest.raises(SystemExit, match=r"own\.txt is not a Python file: give one whose name ends in \.py\. --debug"):
        common._settings(str(tmp_path / "own.txt"), "")


CLASSES = (
    OWN.replace("MLP(width, depth,", "MLP(width, depth, outputs=3,")
    .replace("share * 0.5 * jnp.mean((outputs - targets) ** 2)", "cross_entropy(outputs, targets).mean()")
    .replace("np.tanh(each[:, :1])", "(each[:, 0] > 0).astype(int) - SHIFT")
    .replace(
        "import optax",
        "import optax\nfrom optax.losses import softmax_cross_entropy_with_integer_labels as cross_entropy",
    )
)


@pytest.mark.parametrize(("shift", "scored"), [(1, "training"), (0, "validation")])
def test_labels_that_have_no_output_are_refused(tmp_path, shift, scored):
    code = CLASSES.replace("SHIFT", str(shift)).replace("return x, np.tanh(x[:, :1])", "return x, np.arange(5) - 1")
    what = "batches gives labels from -1 to 0" if shift else "validation gives labels from -1 to 3"
    with pytest.raises(
        ValueError, match=f"own.py: {what}, the network has 3 outputs, and the loss takes -1 for class 2"
    ):
        run(studies_of(tmp_path, code)(scored=scored))
    assert run(studies_of(tmp_path, CLASSES.replace("SHIFT", "0"))()).labels == ["own"]


@pytest.mark.parametrize("targets", ["np.tanh(x[:, 0])", "np.tanh(x[:, :2])"])
def test_validation_has_targets_like_batches(tmp_path, targets):
    code = OWN.replace("SHIFT", "0").replace("return x, np.tanh(x[:, :1])", f"return x, {targets}")
    with pytest.raises(ValueError, match=r"validation gives targets of shape \[5.*\], and batches of \[4, 1\]"):
        run(studies_of(tmp_path, code)(scored="validation"))
    said = r"The score spreads outputs of shape \(5, 1\) and targets of shape \(5,\)"
    if "0" in targets:
        with pytest.warns(UserWarning, match=said):
            run(
                studies_of(tmp_path, code.replace("outputs - targets)) - 0", "outputs - targets[None]))"))(
                    scored="score"
                )
            )


@pytest.mark.parametrize(
    ("own", "instead"),
    [
        ("MLP(width, depth,", "MLP(width + int(jnp.ceil(jnp.sqrt(4.0))) - 2, depth,"),  # it cannot be traced
        ("return x, np.arange(5) % 3", "return x, np.eye(3)[np.arange(5) % 3]"),  # the loss takes both
    ],
)
def test_what_a_loss_or_a_model_of_ones_own_can_do_is_not_refused(tmp_path, own, instead):
    code = CLASSES.replace("SHIFT", "0").replace("return x, np.tanh(x[:, :1])", "return x, np.arange(5) % 3")
    both = "(cross_entropy(outputs, targets) if targets.ndim == 1 else optax.softmax_cross_entropy(outputs, targets))"
    code = code.replace("cross_entropy(outputs, targets)", both, 1).replace(own, instead)
    assert run(studies_of(tmp_path, code)(scored="validation")).labels == ["own"]


@pytest.mark.parametrize(
    ("compared", "kept", "said"), [((1, 2, 4), (2, 4), False), ((1, 2), (2,), True), ((1,), (1,), True)]
)
def test_depths_of_the_limit_follow_those_that_are_compared(compared, kept, said):
    screen = Console(record=True, width=200, file=io.StringIO())
    config = ConfigDict({"rich": {"samples": 64, "depths": (2, 4)}, "depths": compared})
    assert compare.of_learning(config, screen) == {"samples": 64, "depths": kept}
    assert ("config.rich.depths = (2, 4) has" in screen.export_text()) == said
    assert compare.of_learning(ConfigDict({"rich": {}, "depths": compared}), screen) is None


@pytest.mark.parametrize("where", ["top", "function"])
def test_a_module_beside_a_config_is_the_one_that_it_takes(tmp_path, monkeypatch, where):
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"helper_{where}"
    top, inside = (f"import json, {name}.inner", "    ")[:: 1 if where == "top" else -1]
    code = f"{top}\ndef make():\n    {inside}\n    return {name}.NUMBER\n"
    for folder in ("one", "other"):
        (tmp_path / folder / name).mkdir(parents=True)
        (tmp_path / folder / "own.py").write_text(code)
        (tmp_path / folder / "json.py").write_text("")  # not meant
        (tmp_path / folder / name / "__init__.py").write_text(f"NUMBER = {folder!r}")
        (tmp_path / folder / name / "inner.py").write_text("")
    assert load(tmp_path / "one" / "own.py").make() == "one"
    with pytest.raises(ValueError, match=f"imports {name}, which is there twice: .*other.*, beside it, and .*one"):
        load(tmp_path / "other" / "own.py")
    for file in ("own.py", f"{name}/__init__.py"):
        (tmp_path / "other" / file).rename(tmp_path / "other" / f"{file}.kept")
        (tmp_path / "other" / file).write_bytes((tmp_path / "one" / file).read_bytes())
    assert load(tmp_path / "other" / "own.py").make() == "one"  # a copy
    (tmp_path / "other" / "own.py").write_text(f"if __name__ == '__main__':\n    import {name}\n")
    (tmp_path / "other" / name / "__init__.py").write_text("NUMBER = 3")
    load(tmp_path / "other" / "own.py")
    for file in ("own.py", f"{name}/__init__.py"):
        (tmp_path / "other" / f"{file}.kept").rename(tmp_path / "other" / file)
    (tmp_path / "other" / name).rename(tmp_path / "other" / f"{name}_2")
    (tmp_path / "other" / "own.py").write_text(code.replace(name, f"{name}_2"))
    assert load(tmp_path / "other" / "own.py").make() == "other"
