"""Whole runs through `analyse`: what is in the result, what is absent and why, and distances from the twin."""

import warnings
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Kernels, Provenance, Task, Trajectory
from train.analysis import PARTS, against_twin, analyse, drift, layer_kernels, limits_of, plots, sharpness
from train.analysis.runs import TrainedRun
from zoo import MLP, HeResNet, ViT
from zoo.saved import to_json

RNG = np.random.default_rng(0)
IMAGES, Y = RNG.normal(size=(8, 4, 4, 1)).astype(np.float32), RNG.normal(size=(6, 2)).astype(np.float32)
X, X_TEST = IMAGES[:6], IMAGES[6:]
TASK = Task(X, Y, X_TEST, np.zeros((2, 2)))
NET = MLP(8, 2, outputs=2, activation="relu", w_std=1.4)
RESNET = HeResNet(2, stages=(1,), outputs=2, stem="small")
VIT = ViT(4, 1, outputs=2, patch=2, heads=1)


def variables(net: Any, seed: int = 0) -> Any:
    """Random ones, without the compilation that `init` takes; variances are positive."""
    random, x = np.random.default_rng(seed), jnp.asarray(X[:1])
    shapes = jax.eval_shape(lambda key: net.init(key, x), jax.random.key(0))
    found = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), float), shapes)
    state = {name: jax.tree.map(jnp.abs, part) for name, part in found.items() if name != "params"}
    return {**found, **state}


def run(net: Any, seed: int = 0, steps: tuple[int, ...] = (0, 2)) -> Any:
    """Checkpoints in which the parameters drift away; read one at a time."""
    start, way = variables(net, seed), variables(net, seed + 100)
    for step in steps:
        yield step, jax.tree.map(lambda a, b, s=step: a + 0.01 * s * b, start, way)


def look(net: Any, seed: int = 0, steps: tuple[int, ...] = (0, 2), **options: Any) -> dict[str, Any]:
    return analyse(net, run(net, seed, steps), X, Y, test_inputs=X_TEST, **options)


@pytest.mark.parametrize(
    "net",
    [NET, pytest.param(RESNET, marks=pytest.mark.slow), pytest.param(VIT, marks=pytest.mark.slow)],
    ids=["mlp", "resnet", "vit"],
)
def test_everything_is_measured_of_every_architecture(net):
    found = look(net)
    sequences = {"positions", "attention"} - ({"attention"} if net is VIT else set())
    assert set(found) == {"steps", "batch_statistics", "absent", "outputs", *PARTS} - sequences
    assert set(found["absent"]) == sequences
    assert found["ntk"]["ntk"].shape == (2, 8, 8)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves({part: found[part] for part in PARTS[:3]}))
    for name in ("phi", "g"):
        assert found["alignment"][name]["cka"].shape == (2, 2)
        assert found["spectra"][name]["eigenvalues"].shape == (2, 2, 6)
    check_kernels(found)
    check_sharpness(found)
    check_linearisation(found)
    assert set(found["spectra"]["weights"]) < set(found["linearisation"]["parameters"])


def check_kernels(found: dict[str, Any]) -> None:
    assert [k.shape for k in found["kernels"]["phi"] + found["kernels"]["g"]] == [(2, 8, 8)] * 4
    for name in ("phi", "g"):
        moved = found["kernels"]["drift"][name]["relative"]
        assert not moved[:, 0].any()
        assert np.all(moved[:, 1] > 1e-4)


def check_sharpness(found: dict[str, Any]) -> None:
    top = found["sharpness"]["hessian"]
    assert np.all(top["eigenvalues"] > 0)
    assert np.all(top["residuals"] <= 2e-3 * top["eigenvalues"])


def check_linearisation(found: dict[str, Any]) -> None:
    near = found["linearisation"]["train"]
    assert near["relative"][0] == 0
    assert 0 < near["relative"][1] < 1


def test_a_vision_transformer_leaves_its_linearisation():
    found = look(VIT, parts=("linearisation",))
    check_linearisation(found)
    # Every parameter has moved by 0.02 of a standard normal one.
    moved = found["linearisation"]["parameters"]
    assert moved["all"]["moved"][1] == pytest.approx(0.02, rel=0.1)
    assert moved["positions.embedding"]["relative"][1] > 0.01


def test_batch_statistics_are_fixed_and_count():
    found = look(RESNET, parts=("kernels",))
    assert found["batch_statistics"]
    check_kernels(found)
    v, whole = variables(RESNET), found["kernels"]["phi"][0][0]
    other = {**v, "batch_stats": jax.tree.map(lambda a: 2 * a, v["batch_stats"])}
    # Samples do not mix: three of them have the kernel that they have among eight. (Repeated, so that nothing compiles.)
    few = layer_kernels(RESNET, v, IMAGES[[0, 1, 2, 0, 1, 2, 0, 1]])["phi"][0]
    np.testing.assert_allclose(few[:3, :3], whole[:3, :3], rtol=1e-4)
    assert drift(layer_kernels(RESNET, other, IMAGES)["phi"][0], whole)["relative"] > 0.05


def test_numbers_are_those_of_the_functions_and_of_numpy():
    found = look(NET, top=2)
    start, end = (v for _, v in run(NET))
    f = np.asarray(NET.apply(end, jnp.asarray(IMAGES)))
    np.testing.assert_allclose(
        np.concatenate([found["outputs"]["f_train"][1], found["outputs"]["f_test"][1]]), f, rtol=1e-4
    )
    assert found["outputs"]["loss"][1] == pytest.approx(np.sum((f[:6] - Y) ** 2) / 12, rel=1e-4)
    phi = [np.asarray(NET.apply(v, jnp.asarray(IMAGES), intermediates=True)[1]["phi"][1]) for v in (start, end)]
    kernels = [a @ a.T / 8 for a in phi]
    np.testing.assert_allclose(found["kernels"]["phi"][1], kernels, rtol=1e-4, atol=1e-5)
    relative = np.linalg.norm(kernels[1] - kernels[0]) / np.linalg.norm(kernels[0])
    assert found["kernels"]["drift"]["phi"]["relative"][1, 1] == pytest.approx(relative, rel=1e-3)
    values = np.linalg.eigvalsh(kernels[1][:6, :6])[::-1]
    np.testing.assert_allclose(found["spectra"]["phi"]["eigenvalues"][1, 1], values, atol=1e-4 * values[0])
    h, y = np.eye(6) - 1 / 6, Y @ Y.T
    a, b = h @ kernels[1][:6, :6] @ h, h @ y @ h
    cka = np.sum(a * b) / np.linalg.norm(a) / np.linalg.norm(b)
    assert found["alignment"]["phi"]["cka"][1, 1] == pytest.approx(cka, rel=1e-4)
    top = sharpness(NET, end, (jnp.asarray(X), jnp.asarray(Y)), top=2)
    np.testing.assert_allclose(found["sharpness"]["hessian"]["eigenvalues"][1], top.eigenvalues, rtol=1e-4)
    np.testing.assert_allclose(found["sharpness"]["preconditioned"]["eigenvalues"][1], top.eigenvalues, rtol=1e-4)
    from_elsewhere = look(NET, steps=(2,), parts=("kernels",), reference=start)
    assert from_elsewhere["kernels"]["drift"]["phi"]["relative"][1, 0] == pytest.approx(relative, rel=1e-3)
    assert set(from_elsewhere) == {"steps", "batch_statistics", "absent", "outputs", "kernels"}


def test_another_run_of_the_size_compiles_nothing():
    look(NET)
    compiled = []

    def listen(event: str, *_: Any, **__: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        other = look(NET, seed=5, steps=(0, 1, 7))
        assert not compiled
        jax.jit(lambda x: x + 1)(0.0)
        assert compiled  # the listener listens
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(other["steps"]) == 3


class Own(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(2)(jnp.tanh(nn.Dense(5)(x.reshape(len(x), -1))))


def own_function(w: Any, x: Any) -> Any:
    return jnp.tanh(x.reshape(len(x), -1) @ w)


@pytest.mark.parametrize("net", [Own(), own_function], ids=["module", "function"])
def test_without_a_definition_what_needs_none_is_measured(net):
    weights = jnp.asarray(RNG.normal(size=(16, 2)), float)
    checkpoints = [(0, weights), (3, 1.1 * weights)] if net is own_function else run(net)
    found = analyse(net, checkpoints, X, Y, test_inputs=X_TEST)
    assert set(found["absent"]) == {"phi", "g", "nngp", "preconditioned", "positions", "attention"}
    who = "A function" if net is own_function else "Own"
    assert found["absent"]["phi"].startswith(f"{who} {'does not show' if net is own_function else 'has no argument'}")
    assert found["absent"]["preconditioned"].startswith(f"{who} has no fields `width` and `parameterization`")
    assert found["kernels"] == {"drift": {}}
    assert list(found["alignment"]) == ["ntk"]
    assert list(found["sharpness"]) == ["hessian"]
    assert found["ntk"]["drift"]["ntk"]["relative"][1] > 0.01
    assert found["linearisation"]["test"]["relative"][1] > 0
    limits = limits_of(Own(), TASK, [0, 2], 0.1)
    assert limits["kernels"].detail.startswith("twin: Own is a plain module")
    assert against_twin([found], limits["kernels"])["ntk"] == {"absent": limits["kernels"].detail}


def test_outputs_without_an_axis_of_outputs_have_no_tangent_kernel():
    def tokens(w: Any, x: Any) -> Any:
        return x.reshape(len(x), 4, 4) @ w

    found = analyse(tokens, [(0, jnp.ones((4, 3)))], X, np.ones((6, 4, 3)), parts=("ntk", "sharpness"))
    assert found["absent"]["ntk"].endswith("these have the shape (6, 4, 3).")
    assert found["sharpness"]["hessian"]["eigenvalues"].shape == (1, 1)


def test_distances_from_the_twin():
    steps = [0, 2]
    members = [look(NET, seed, parts=("kernels", "ntk")) for seed in (0, 1, 2)]
    found = limits_of(NET, TASK, steps, 0.1)
    assert isinstance(found["kernels"], Kernels)
    assert isinstance(found["lazy"], Trajectory)
    assert isinstance(found["rich"], Provenance)
    assert "features stay where they are" in against_twin(members, found["rich"])["phi"]["absent"]
    compared = against_twin(members, found["lazy"])
    assert compared["phi"]["mean"].shape == (2, 2)
    assert compared["phi"]["each"].shape == (3, 2, 2)
    limit = found["lazy"].ntk[1]
    each = np.array([np.linalg.norm(m["ntk"]["ntk"][1] - limit) for m in members]) / np.linalg.norm(limit)
    np.testing.assert_allclose(compared["ntk"]["mean"][1], each.mean(), rtol=1e-6)
    np.testing.assert_allclose(compared["ntk"]["sem"][1], each.std(ddof=1) / 3**0.5, rtol=1e-6)
    at_start = against_twin(members[:1], found["kernels"])
    assert set(at_start) == {"nngp", "ntk"}
    np.testing.assert_allclose(at_start["ntk"]["mean"][0], each_at(members[0], found["kernels"]), rtol=1e-6)
    assert np.isnan(at_start["ntk"]["sem"]).all()
    assert np.isnan(compared["f_train"]["mean"][0])  # the limit's mean is zero at the start
    variance = found["lazy"].f_train_cov[1]
    size = np.linalg.norm(found["lazy"].f_train[1])
    np.testing.assert_allclose(compared["f_train"]["spread"][1], np.sqrt(2 * np.trace(variance)) / size, rtol=1e-6)
    left_out = against_twin([{**members[0], "ntk": {}}], found["lazy"])
    assert "belongs to a part that was left out" in left_out["ntk"]["absent"]
    with pytest.raises(ValueError, match="the limit was recorded at"):
        against_twin([look(NET, steps=(0, 1), parts=())], found["lazy"])
    assert len(plots.distances(compared, steps).axes) == 6
    with pytest.raises(ValueError, match="Nothing to draw: nngp: rich"):
        plots.distances(against_twin(members, Provenance("absent", "rich")), steps)


def each_at(member: Any, limit: Any) -> float:
    return float(np.linalg.norm(member["ntk"]["ntk"][0] - limit.ntk) / np.linalg.norm(limit.ntk))


def test_where_batches_are_normalised_only_test_outputs_have_a_limit_to_compare_with():
    member = {"steps": [0], "batch_statistics": True, "absent": {}, "outputs": {"f_test": np.ones((1, 2, 1))}}
    limit = Trajectory(np.arange(1), f_test=np.full((1, 2, 1), 2.0), ntk=np.ones((1, 2, 2)))
    found = against_twin([member], limit)
    assert found["f_test"]["mean"] == pytest.approx([0.5])
    assert "inference mode, with running averages" in found["ntk"]["absent"]


def test_pictures_have_a_curve_a_run():
    runs = {f"seed {seed}": look(NET, seed) for seed in (0, 1)}
    kernels = 6  # last features, Φ and G of two layers, tangent kernel
    for draw, panels, lines in (
        (plots.drift, 2 * kernels, 2), (plots.alignment, 2 * kernels, 2), (plots.spectra, kernels, 4),
        (plots.weights, 3, 6), (plots.linearisation, 2, 4),
    ):  # fmt: skip
        axes = [axis for axis in draw(runs).axes if axis.get_visible()]
        assert (len(axes), len(axes[0].lines)) == (panels, lines), draw
    axis = plots.sharpness(runs, {"seed 0": 3.0, "seed 1": 4.0}).axes[0]
    assert [np.asarray(line.get_ydata())[0] for line in axis.lines[1::2]] == [3.0, 4.0]
    found = runs["seed 0"]["sharpness"]["preconditioned"]["eigenvalues"][:, 0]
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), found)
    with pytest.raises(ValueError, match="analyse them with the parts that measure them"):
        plots.drift({"a": look(NET, parts=())})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": (2, 2)}, "must be in the order of their steps; 2 came after 2"),
        ({"steps": ()}, "there are no checkpoints"),
        ({"parts": ("ntk", "drift")}, r"parts must be .*kernels.*ntk.* got .*drift"),
        ({"loss": "l2", "parts": ()}, 'loss must be one of "mse", "cross_entropy", or a function; got .l2'),
        ({"chunk": 0, "parts": ()}, "chunk must be an integer of at least 1, got 0"),
    ],
)
def test_messages(options, message):
    with pytest.raises(ValueError, match=message):
        look(NET, **options)


def test_what_does_not_fit_together_is_named():
    with pytest.raises(ValueError, match="6 inputs and 5 targets"):
        analyse(NET, run(NET), X, Y[:5])
    broken = jax.tree.map(lambda a: a * jnp.inf, variables(NET))
    with pytest.raises(
        FloatingPointError, match="16 of 16 outputs at step 4 are infinite or NaN: this run has diverged"
    ):
        analyse(NET, [(4, broken)], X, Y, test_inputs=X_TEST)
    with pytest.raises(ValueError, match=r"which must be .*lazy.*rich.* got .*rick"):
        limits_of(NET, TASK, [0], 0.1, which=("rick",))


def test_whole_numbers_say_classes():
    """Of one label a sample and of one a position, as language models have: the same as with zeros and ones."""

    def tokens(w: Any, x: Any) -> Any:
        return jax.nn.one_hot(x, 5) @ w

    x, labels = RNG.integers(5, size=(2, 6, 3))
    w = jnp.asarray(RNG.normal(size=(5, 4)), float)
    labels = labels % 4
    how: dict[str, Any] = {"loss": "cross_entropy", "parts": ("sharpness", "spectra")}
    whole, ones = (analyse(tokens, [(0, w)], x, y, **how) for y in (labels, np.eye(4, dtype="float32")[labels]))
    assert whole["outputs"]["loss"] == ones["outputs"]["loss"]
    np.testing.assert_allclose(
        whole["sharpness"]["hessian"]["eigenvalues"], ones["sharpness"]["hessian"]["eigenvalues"], rtol=1e-5
    )

    def flat(w: Any, x: Any) -> Any:
        return x @ w

    a, b = (
        analyse(flat, [(0, w)], np.eye(5, dtype="float32"), y, loss="cross_entropy", parts=("alignment",))
        for y in (labels.ravel()[:5], np.eye(4, dtype="float32")[labels.ravel()[:5]])
    )
    np.testing.assert_array_equal(a["alignment"]["ntk"]["cka"], b["alignment"]["ntk"]["cka"])
    with pytest.raises(ValueError, match="targets name classes from 0 to 9, and the network has 4 outputs"):
        analyse(tokens, [(0, w)], x, np.arange(18).reshape(6, 3) % 10, **how)


def test_points_of_a_file_that_is_sorted_by_class_are_said(tmp_path: Path):
    y = np.repeat(np.arange(3), 20)
    np.savez(tmp_path / "own.npz", x_train=np.ones((60, 2)), y_train=y, x_test=np.ones((60, 2)), y_test=y[::-1] * 0)
    config = {"data": {"name": "arrays", "path": str(tmp_path / "own.npz")}, "width": 4, "depth": 1}
    run = TrainedRun(tmp_path, {"config": config, "definition": to_json(MLP(4, 1, outputs=3))}, (0,), label="a")
    with pytest.warns(
        UserWarning, match=r"a: data\.train: the first 20 samples, which are taken, lack 2 of 3 classes .1, 2."
    ):
        run.task(20, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.task(60, 0)
