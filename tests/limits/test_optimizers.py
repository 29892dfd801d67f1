"""Feature learning under any Optax optimiser: in law networks of as many neurons, and one rule for both."""

import dataclasses
import functools
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from recurrent import Recurrent
from same_law import deviations, paths, values

from limits import Task, twin
from limits.fields import rules
from limits.fields.matrix import REVEALED, Matrix
from limits.fields.rules import Optimised
from limits.fields.sweep import CausalSweep
from limits.training import Training
from train import ensemble
from zoo import CNN, MLP, Parameterization, ResNet, ViT, scaled

X = np.random.default_rng(0).normal(size=(4, 5))
TASK = Task(X, [1.0, -1.0, 0.5, 0.2])
IMAGES = np.random.default_rng(0).normal(size=(3, 4, 4, 2))
PICTURES = Task(IMAGES, [1.0, -1.0, 0.5])
NET = MLP(64, 3, activation="tanh", parameterization="mup", w_std=1.3, b_std=0.2)
BLOCKS = ResNet(48, 4, activation="tanh", parameterization="mup", gamma=1.5)
IMAGE_NET = CNN(32, 2, parameterization="mup")
TOKENS = ViT(width=32, depth=1, patch=2, heads=2, mlp_ratio=2, parameterization="mup")


def matrices_only(params: Any) -> Any:
    return jax.tree.map(lambda a: a.ndim > 1, params)


def chain(net: Any) -> optax.GradientTransformation:
    """Clipping of raw gradients, at a threshold that goes as theirs do; decay of matrices; Nesterov; a schedule."""
    inner = optax.chain(
        optax.add_decayed_weights(0.3, mask=matrices_only),
        optax.sgd(optax.cosine_decay_schedule(0.3, 10), 0.9, nesterov=True),
    )
    return optax.chain(optax.clip_by_global_norm(0.5 / net.width**0.5), scaled(inner, net))


SMALL = MLP(32, 2, activation="tanh", parameterization="mup", w_std=1.3, b_std=0.2)
LAWS = {  # (network, task, what makes the optimiser)
    "muon of one layer": (SMALL, TASK, lambda net: scaled("muon", net, learning_rate=0.1, beta=0.9)),
    "muon": (NET, TASK, lambda net: scaled("muon", net, learning_rate=0.1, beta=0.9)),
    "adamw": (NET, TASK, lambda net: optax.adamw(0.05, weight_decay=0.5)),
    "chain": (NET, TASK, chain),
    "muon of blocks": (
        BLOCKS, TASK, lambda net: scaled("muon", net, learning_rate=0.1, weight_decay=1.0, adam_weight_decay=0.5)
    ),
    "lion of blocks": (BLOCKS, TASK, lambda net: optax.lion(0.02, weight_decay=0.2)),
    "muon of windows": (IMAGE_NET, PICTURES, lambda net: scaled("muon", net, IMAGES, learning_rate=0.1)),
    "rmsprop of windows": (IMAGE_NET, PICTURES, lambda net: optax.rmsprop(0.01)),
    "muon of tokens": (
        TOKENS, PICTURES, lambda net: scaled("muon", net, IMAGES, learning_rate=0.05, weight_decay=0.5)
    ),
    "adam of tokens": (TOKENS, PICTURES, lambda net: optax.adam(0.01)),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "muon of one layer" else pytest.mark.slow) for n in LAWS]
)
def test_samples_are_in_law_networks_of_that_width(name):
    net, task, make = LAWS[name]
    found = deviations(*values(net, task, None, "features", 1500 if net is not SMALL else 800, make(net), 4))
    assert np.abs(found).max() < 3.5  # of 40 such numbers, one in 50 runs by chance


EVERY_STEP = {  # network, what makes the optimiser
    "chain": (NET, chain),
    "muon": (NET, lambda net: scaled("muon", net, learning_rate=0.1, weight_decay=0.5)),
    "adamw": (NET, lambda net: optax.adamw(0.05, weight_decay=0.5)),
    "lion": (NET, lambda net: optax.lion(0.02)),
    "rmsprop": (NET, lambda net: optax.rmsprop(0.01)),
    "muon, recurrent": (Recurrent(48), lambda net: scaled("muon", net, X[:1], learning_rate=0.1)),
    "adam, recurrent": (Recurrent(48), lambda net: optax.adam(0.03)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_STEP)
def test_samples_are_in_law_networks_at_every_step(name):
    net, make = EVERY_STEP[name]
    task = Task(X, TASK.y_train, np.ones((1, 5)), [0.0])
    mine, theirs = paths(net, task, make(net), 1500, 6)
    z = (mine.mean(0) - theirs.mean(0)) / (np.hypot(mine.std(0), theirs.std(0)) / 1500**0.5)
    own = [np.std((a - a.mean(0)) ** 2, axis=0) / (2 * a.var(0) * 1500**0.5) for a in (mine, theirs)]
    spread = np.log(mine.std(0) / theirs.std(0)) / np.hypot(*own)
    # 18 means and 18 spreads, which go together from step to step: beyond 4 once in thousands of runs.
    assert np.abs(z).max() < 4
    assert np.abs(spread).max() < 4
    moved = mine.mean(0)[:, 0]
    assert np.ptp(moved) > 0.2 * moved.max()  # the law of what changes


def from_four(step: Any, **_: Any) -> Any:
    return step >= 4


KINDS = {  # whether hidden matrices are moved entry by entry
    "sgd": (optax.sgd(0.1), False),
    "momentum": (optax.sgd(0.1, 0.9, nesterov=True), False),
    "clipped": (optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1)), False),
    "decay": (optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1)), False),
    "several": (optax.MultiSteps(optax.sgd(0.1), 2), False),
    "muon": (scaled("muon", SMALL, learning_rate=0.1), False),
    "spectral": (scaled("muon", SMALL, learning_rate=0.1, preconditioning="spectral"), False),
    "rows": (scaled("muon", SMALL, learning_rate=0.1, preconditioning="aol"), True),
    "adam": (optax.adam(0.1), True),
    "lion": (optax.lion(0.1), True),
    "sign": (optax.sign_sgd(0.1), True),
    "clipped entries": (optax.chain(optax.clip(0.1), optax.sgd(0.1)), True),
    "centred": (optax.chain(optax.centralize(), optax.sgd(0.1)), True),
    "labels": (
        optax.multi_transform(
            {"sgd": optax.sgd(0.1), "adam": optax.adam(0.1)},
            lambda params: jax.tree.map(lambda a: "sgd" if a.ndim > 1 else "adam", params),
        ),
        False,
    ),
    "late": (optax.adam(optax.join_schedules([optax.constant_schedule(0.0), optax.constant_schedule(0.2)], [4])), True),
    "sums": (optax.MultiSteps(optax.adam(0.1), 5), True),
    "long sums": (optax.MultiSteps(optax.sgd(0.1), 5), False),
    "switch": (
        optax.chain(optax.conditionally_transform(optax.scale_by_adam(), from_four), optax.scale(-0.1)),
        True,
    ),
    "root mean square": (optax.chain(optax.clip_by_block_rms(0.1), optax.sgd(0.1)), True),
    "one moment a matrix": (
        optax.stateless(lambda g, _: jax.tree.map(lambda a: a / jnp.sqrt(jnp.mean(a**2) + 1e-12), g)),
        True,
    ),
    "average of steps": (optax.contrib.schedule_free_sgd(0.1, warmup_steps=3), False),  # the first leaves rounding
    "average of Adam's": (optax.contrib.schedule_free_adamw(0.1, warmup_steps=3, weight_decay=0.1), True),
    "hyperparameters": (optax.inject_hyperparams(optax.adam)(learning_rate=0.1), True),
}


LATE = ("late", "sums", "long sums", "switch", "root mean square", "one moment a matrix")
QUICK = ("decay", "muon", "rows", "adam", "labels", "average of steps", *LATE)


@pytest.mark.filterwarnings("ignore:scaled. this optimiser compares the norm")  # of "clipped"
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in KINDS])
def test_what_a_rule_does_to_matrices_is_found_by_trying_it(name):
    optimizer, by_entry = KINDS[name]
    training = Training.of(TASK, 6, None, optimizer=optimizer, net=SMALL)
    rule = Optimised(SMALL, training, jax.ShapeDtypeStruct(X.shape, "float32"))
    assert rule.dense == ({("hidden_2", "kernel")} if by_entry else frozenset())


@pytest.mark.parametrize(("name", "means"), [("root mean square", True), ("adam", False)])
def test_of_means_over_entries_the_order_of_the_width_is_not_known(name, means):
    training = Training.of(TASK, 6, None, optimizer=KINDS[name][0], net=SMALL)
    with pytest.raises(ValueError, match=r"means over all entries of hidden_2.kernel") if means else nullcontext():
        rules.check_means(SMALL, training, X)


@pytest.mark.slow
def test_gradient_descent_by_optax_is_that_of_the_short_forms():
    settings: Any = {"samples": 64, "replicas": 2, "dtype": np.float64}
    plain = twin(NET).rich(TASK, 5, 0.3, momentum=0.9, weight_decay=0.1, **settings)
    # Decay comes after the velocity, and both go through the factors of the definition.
    optimizer = optax.chain(optax.trace(0.9), optax.add_decayed_weights(0.1), optax.scale_by_learning_rate(0.3))
    other = twin(NET).rich(TASK, 5, optimizer=optimizer, **settings)
    np.testing.assert_allclose(other.f_train, plain.f_train, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(other.ntk, plain.ntk, rtol=1e-8)
    mine = ensemble(NET, TASK, 4, 5, 0.3, momentum=0.9, weight_decay=0.1, kernels=())
    theirs = ensemble(NET, TASK, 4, 5, optimizer=optimizer, kernels=())
    np.testing.assert_allclose(theirs.f_train, mine.f_train, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_trajectories_do_not_depend_on_the_form_or_on_where_the_optimiser_was_scaled(optimizer):
    """Nor on being scaled before: the same object serves every width."""
    runs = []
    settings: Any = {"samples": 32, "replicas": 2, "dtype": np.float64, "kernels": ()}
    for a in (0.5, 0.0, 0.3):
        net = BLOCKS.clone(parameterization=Parameterization.family(a, 0.5))
        options = {} if optimizer == "muon" else {"eps": 1e-2}
        elsewhere = scaled(optimizer, net.clone(width=480), learning_rate=0.05, **options)
        runs.append(twin(net).rich(TASK, 4, optimizer=elsewhere, **settings).f_train)
    runs.append(
        twin(BLOCKS)
        .rich(TASK, 4, optimizer=scaled(optimizer, BLOCKS.clone(width=32), learning_rate=0.05, **options), **settings)
        .f_train
    )
    for run in runs[1:]:
        np.testing.assert_allclose(run, runs[0], rtol=1e-7, atol=1e-9)
    if optimizer == "adam":
        without = twin(BLOCKS).rich(TASK, 4, 0.05, optimizer="adam", **settings).f_train
        assert np.abs(without - runs[0]).max() > 1e-3  # ε counts


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_bases_that_grow_keep_what_the_optimiser_remembers(optimizer):
    x, y = jnp.asarray(X, "float32"), jnp.asarray(TASK.y_train, "float32")
    training = Training.of(TASK, 7, 0.05, centred=True, optimizer=optimizer, net=NET)
    ends = []
    for steps in (7, None):  # room for all of them, or for a few
        sweep = CausalSweep(NET.clone(width=256), training, x.shape, 4, "float32", steps=steps)
        state = sweep.begin(jax.random.key(0), x)
        for t in range(7):
            state, _ = sweep.step(state, x, y, np.arange(4), jax.random.fold_in(jax.random.key(1), t), 1.0)
        ends.append((sweep.measure(state, x, jax.random.key(2), ())["f"], sweep.first_room))
    assert ends[1][1] < ends[0][1]
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("known", [17, 9, 24])  # room: 12, 18, 24
def test_steps_on_the_part_of_a_block_that_is_known_are_steps_on_all_of_it(known, monkeypatch):
    net = NET.clone(depth=2)
    optimizer = scaled("muon", net, learning_rate=0.1, weight_decay=0.5)
    rng, points = np.random.default_rng(0), jax.ShapeDtypeStruct(X.shape, "float32")
    rule = Optimised(net, Training.of(TASK, 1, None, optimizer=optimizer, net=net), points)
    params: Any = jax.jit(net.init)(jax.random.key(0), jnp.asarray(X))["params"]
    slopes = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), a.dtype), params)
    for tree in (params, slopes):
        del tree["hidden_2"]["kernel"]

    def matrix() -> Matrix:
        fresh, count = Matrix.fresh(64, 64, 24, 1.3, "float32"), jnp.float32(known)
        squares = [np.pad(rng.normal(size=(known, known)), (0, 24 - known)) for _ in range(2)]
        trained, gradient = (jnp.asarray(a, "float32") for a in squares)
        return dataclasses.replace(fresh, trained=trained, gradient=gradient, known_in=count - 1, known_out=count)

    met = {"hidden_2": {"kernel": matrix()}}
    ends = []
    for large in (8, 1000):
        monkeypatch.setattr(rules, "_LARGE", large)

        @jax.jit
        def step(kept: Any, params: Any, now: Any) -> Any:
            again = {
                name: {"kernel": dataclasses.replace(now[name]["kernel"], gradient=m["kernel"].gradient)}
                for name, m in met.items()
            }
            return rule.step(kept, params, slopes, again, 0.1)

        kept, now, moving = rule.start({"params": params, REVEALED: met}), met, params
        for _ in range(4):
            moving, now, kept = step(kept, moving, now)
        ends.append((moving, now, kept))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *ends)
    moved = ends[0][1]["hidden_2"]["kernel"].trained - met["hidden_2"]["kernel"].trained
    assert np.abs(moved).max() > 0.05
    assert np.linalg.matrix_rank(moved) == known


@pytest.mark.slow
def test_muon_makes_no_matrix_of_samples_by_samples():
    samples = 4096
    net, x, y = NET.clone(width=samples), jnp.asarray(X, "float32"), jnp.zeros((4, 1))
    training = Training.of(TASK, 1, 0.1, centred=True, optimizer="muon", net=NET)
    sweep, key = CausalSweep(net, training, x.shape, 4, "float32", steps=1), jax.random.key(0)
    state = jax.eval_shape(sweep._start, key, x)
    used: Any = jax.jit(sweep._step).lower(state, x, y, np.arange(4), key, 1.0).compile().memory_analysis()
    assert used.temp_size_in_bytes + used.output_size_in_bytes < 4 * samples**2


def test_epsilon_is_beside_gradients_of_order_one():
    """The first step of Adam is −Γ/(|Γ| + ε), with Γ = N^(3/2) γ₀ ∂L/∂W of hidden weights and N γ₀ ∂L/∂w of all others.

    But for the readout's bias, whose gradient is that of the output: √N γ₀ ∂L/∂b.
    """
    net, epsilon = NET.clone(gamma=2.0), 0.3
    with jax.enable_x64(True):
        x, y = jnp.asarray(X), jnp.asarray(TASK.y_train)
        params: Any = jax.jit(net.init)(jax.random.key(0), x)["params"]
        slopes = jax.jit(jax.grad(lambda p: jnp.sum((jnp.asarray(net.apply({"params": p}, x)) - y) ** 2)))(params)

        def first(eps: float) -> Any:
            tx = scaled(optax.adam(0.1, eps=eps), net)
            return jax.jit(tx.update)(slopes, tx.init(params), params)[0]

        def check(path: Any, g: Any, small: Any, none: Any) -> None:
            hidden = path[0].key in ("hidden_2", "hidden_3") and path[-1].key == "kernel"
            last = [key.key for key in path] == ["readout", "bias"]
            size = np.abs(g) * net.gamma * net.width ** (1.5 if hidden else 0.5 if last else 1.0)
            assert 0.01 < np.median(size) < 100  # of order one, so that ε counts
            np.testing.assert_allclose(small / none, size / (size + epsilon), rtol=1e-6)

        jax.tree_util.tree_map_with_path(check, slopes, first(epsilon), first(0.0))


def test_what_moves_entry_by_entry_says_its_memory_first(capsys):
    for optimizer in ("adam", "sgd"):
        with pytest.raises(ValueError, match="even number of samples"):  # what is said comes before anything is run
            twin(NET).rich(TASK, 1, 0.01, optimizer=optimizer, samples=2049, order=2)
        said = "optimizer: 2 matrices of 2049 samples move entry by entry: 96.1 MiB"  # 2 · 3 · 4 bytes · 2049²
        assert (said in capsys.readouterr().err) == (optimizer == "adam")


@pytest.mark.slow
def test_roles_that_are_not_trained_stay_on_both_sides():
    options: Any = {"optimizer": optax.adamw(0.1, weight_decay=0.5), "trained": ("readout",)}
    run = twin(NET).rich(TASK, 3, samples=256, replicas=4, **options)
    np.testing.assert_allclose(run.phi[-1][-1], run.phi[-1][0], rtol=1e-3, atol=1e-3)
    assert run.loss[-1] < run.loss[0]
    finite = ensemble(NET.clone(width=256), TASK, 32, 3, centred=True, **options)
    np.testing.assert_allclose(finite.phi[-1][-1], finite.phi[-1][0], rtol=1e-5, atol=1e-5)
    assert abs(finite.loss[-1] - run.loss[-1]) < 0.05


def by_signs(updates: Any, params: Any) -> Any:
    return jax.tree.map(lambda g, w: g + 0.3 * jnp.sign(w), updates, params)


@pytest.mark.parametrize(
    ("optimizer", "rate", "error", "why"),
    [
        pytest.param(optax.lamb(0.1), None, ValueError, "size of the weights themselves", marks=pytest.mark.slow),
        pytest.param(optax.lars(0.1), None, ValueError, "size of the weights themselves", marks=pytest.mark.slow),
        (optax.lars(optax.linear_schedule(0.0, 0.1, 3)), None, ValueError, "size of the weights themselves"),
        pytest.param(
            optax.lamb(optax.linear_schedule(0.0, 0.1, 3)),
            None,
            ValueError,
            "size of the weights themselves",
            marks=pytest.mark.slow,
        ),
        (
            optax.chain(optax.stateless(by_signs), optax.sgd(0.1)),
            None,
            ValueError,
            "decay by signs do. otherwise than in proportion",
        ),
        (
            optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.1)),
            None,
            ValueError,
            "decay by signs do. otherwise than in proportion",
        ),
        pytest.param(
            optax.chain(optax.adaptive_grad_clip(0.1), optax.sgd(0.1)),
            None,
            ValueError,
            "size of the weights themselves",
            marks=pytest.mark.slow,
        ),
        pytest.param(optax.adafactor(0.1), None, ValueError, "size of the weights themselves", marks=pytest.mark.slow),
        (optax.polyak_sgd(), None, ValueError, "needs the value of the loss"),
        pytest.param(optax.lbfgs(), None, ValueError, "needs the value of the loss", marks=pytest.mark.slow),
        (optax.contrib.sophia(0.1), None, ValueError, r"the loss as a function \(sophia\)"),
        (optax.adam(0.1, eps=0.0), None, ValueError, "where a gradient is 0 .* Give it an ε"),
        (optax.contrib.muon(0.1), None, ValueError, 'Say scaled\\("muon"'),
        (optax.adam(0.1), 0.1, TypeError, "leave learning_rate out"),
        ("adam", None, TypeError, "needs a learning_rate"),
        ("adm", 0.1, ValueError, 'Did you mean "adam"'),
        (None, None, TypeError, "learning_rate is missing"),
    ],
)
def test_what_cannot_be_is_refused(optimizer, rate, error, why):
    with pytest.raises(error, match=why):
        twin(SMALL).rich(TASK, 1, rate, optimizer=optimizer, samples=16, replicas=2)


@pytest.mark.parametrize(
    ("optimizer", "why"),
    [
        (
            optax.lookahead(optax.sgd(0.1), 5, 0.5),
            r"gradients and parameters alone .* a second set of parameters \(lookahead\)",
        ),
        (optax.contrib.reduce_on_plateau(), "needs the value of the loss"),
        (optax.masked(optax.sgd(0.1), {"nothing": True}), "Masks and labels must be trees .* hidden_1"),
        (optax.multi_transform({"a": optax.sgd(0.1)}, {"nothing": "a"}), "Masks and labels must be trees"),
        (optax.multi_transform({"a": optax.sgd(0.1)}, lambda p: jax.tree.map(lambda _: "b", p)), "without a rule"),
    ],
)
def test_optimisers_that_do_not_fit_are_refused_alike(optimizer, why):
    lazy = twin(SMALL.clone(parameterization="ntk")).lazy
    limits = (functools.partial(twin(SMALL).rich, samples=16, replicas=2), lazy)
    for run in (*limits, lambda task, *a, **k: ensemble(SMALL, task, 2, *a, **k)):
        with pytest.raises(ValueError, match=why):
            run(TASK, 1, optimizer=optimizer)


@pytest.mark.parametrize(
    ("observe", "why"),
    [
        (lambda net, variables, x: "words", "observe must return numbers .* 'words'"),
        pytest.param(lambda net, variables, x: None, "observe must return numbers .* None", marks=pytest.mark.slow),
        pytest.param(lambda net: 1.0, r"observe\(net, variables, x\)", marks=pytest.mark.slow),
        pytest.param(
            lambda net, variables, x: variables["params"]["hidden_0"],
            "'hidden_0', and there is no .* hidden_1.kernel",
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.slow
def test_what_is_observed_must_be_numbers(observe, why):
    for run in (lambda: twin(SMALL).rich(TASK, 1, 0.1, samples=16, replicas=2, observe=observe),
                lambda: ensemble(SMALL, TASK, 2, 1, 0.1, observe=observe)):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            run()


def test_short_forms_belong_to_gradient_descent():
    for run in (twin(NET).rich, lambda *a, **k: ensemble(NET, a[0], 2, *a[1:], **k)):
        with pytest.raises(TypeError, match="give them to the optimizer"):
            run(TASK, 1, optimizer=optax.adam(0.1), momentum=0.9)


def test_steps_that_decay_to_roundings_of_the_weights_are_linear_in_gradients():
    training = Training.of(TASK, 300, None, optimizer=optax.sgd(optax.exponential_decay(0.1, 1, 0.9)), net=SMALL)
    assert not rules.moved_by_entry(SMALL, training, X)


@pytest.mark.slow
@pytest.mark.parametrize(("begins", "by_entry"), [(600, True), (5000, False)])
def test_what_begins_after_the_steps_that_are_tried_is_tried_for_longer(begins, by_entry):
    late = optax.MultiSteps(optax.adam(0.1), begins).gradient_transformation()
    training = Training.of(TASK, 1300, None, optimizer=late, net=SMALL)
    assert bool(rules.moved_by_entry(SMALL, training, X)) == by_entry
