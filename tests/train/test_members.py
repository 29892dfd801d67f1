import collections
import contextlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest

from limits import Task, empirical_ntk
from limits.finite.observables import feature_kernels, gradient_kernels
from limits.kept.memory import memory_left
from limits.losses import point_loss
from limits.training import Training
from train.data import gaussian_teacher
from train.ensemble import chunk_size, ensemble, member_bytes, run_members
from train.members import Data, Dials, Steps, programs, slopes
from zoo import GPT, MLP, Parameterization, learning_rate_factors, parameterization

TASK = gaussian_teacher(4, 2, dim=3, seed=1)
NET = MLP(width=9, depth=2, activation="erf", w_std=1.3, b_std=0.4, parameterization="mup", gamma=0.7)
STEPS, RATE, CHUNK = 10, 0.3, 4


def run(net=NET, members=5, rate=RATE, chunk=CHUNK, kernels=("ntk",), seed=0, times=None, **options):
    """All members' f [members, time, n, outputs], and their kernels."""
    training = Training.of(TASK, STEPS, rate, **options)
    parts = list(run_members(net, TASK, training, members, times, seed, kernels, chunk=chunk))
    return [np.concatenate([part[name] for part in parts]) for name in ("f", *kernels)]


def test_members_do_not_depend_on_the_chunk_they_are_computed_in():
    (f, ntk), (in_pairs,) = run(), run(chunk=2, kernels=())
    assert (f.shape, ntk.shape) == ((5, 11, 6, 1), (5, 11, 6, 6))
    assert np.ptp(f[:, 0], axis=0).min() > 1e-3  # members differ
    np.testing.assert_allclose(in_pairs, f, atol=1e-5)  # float32, summed in another order: a few 1e-7 a step


def test_one_seed_is_one_ensemble_and_more_members_extend_it():
    f = run()[0]
    assert np.array_equal(f, run()[0])
    assert not np.array_equal(f, run(seed=1)[0])
    assert np.array_equal(run(members=2)[0], f[:2])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("momentum", "centred", "loss"), [(0.9, True, "mse"), (0.0, False, "mse"), (0.5, False, "cross_entropy")]
)
def test_training_is_the_loop_written_out(momentum, centred, loss):
    labels = np.eye(2)[[0, 1, 1, 0, 1, 0]]
    task = Task(TASK.x_train, labels[:4], TASK.x_test, labels[4:], loss=loss)
    net = NET.clone(outputs=2)
    dials, data, x = Dials.of(net), Data.of(task), jnp.asarray(TASK.x)
    random, shapes = np.random.default_rng(0), jax.eval_shape(net.init, jax.random.key(0), x)["params"]
    params = start = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), shapes)
    factors = learning_rate_factors(net, x)

    training = Training.of(task, STEPS, RATE, momentum, centred=centred)
    compiled, state = programs(net, task, training, (), None), training.optimiser(net, x, RATE).init(params)
    one, state, first = jax.tree.map(lambda leaf: leaf[None], ({"params": params}, state, {"params": start}))
    every = Steps.of(training, 4, 0, STEPS)
    found = compiled.advance(one, state, first, dials, data, every)[0]["params"]

    @jax.jit
    def step(params, velocity, offset):
        def objective(p):
            f = net.apply({"params": p}, x[:4]) - offset
            return jnp.sum((f - data.y) ** 2) / 8 if loss == "mse" else -jnp.sum(data.y * jax.nn.log_softmax(f)) / 4

        velocity = jax.tree.map(lambda v, g: momentum * v + g, velocity, jax.grad(objective)(params))
        return jax.tree.map(lambda p, v, factor: p - RATE * factor * v, params, velocity, factors), velocity

    velocity, offset = jax.tree.map(jnp.zeros_like, params), net.apply({"params": params}, x[:4]) if centred else 0.0
    for _ in range(STEPS):
        params, velocity = step(params, velocity, offset)
    assert max(float(jnp.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (params, start)), strict=True)) > 0.01
    for mine, theirs in zip(*map(jax.tree.leaves, (found, params)), strict=True):
        np.testing.assert_allclose(mine[0], theirs, rtol=1e-10, atol=1e-12)


def test_point_losses():
    f, y = jnp.array([[1.0, 2.0], [0.0, -1.0]]), jnp.array([[0.0, 1.0], [0.0, 1.0]])
    assert point_loss("mse")(f, y) == 0.5 * (2 + 4) / 2
    expected = (np.log(1 + np.exp(-1)) + np.log(1 + np.exp(1))) / 2
    assert point_loss("cross_entropy")(f, y) == pytest.approx(expected, rel=1e-6)


def test_centred_outputs_have_the_start_subtracted():
    plain, centred = run()[0], run(centred=True, kernels=())[0]
    assert not np.any(centred[:, 0])
    # The loss is another one as well: subtracting f(0) afterwards would not do.
    assert np.abs(centred[:, -1] - (plain[:, -1] - plain[:, 0])).max() > 1e-2
    late = run(centred=True, kernels=(), times=[5, 10])[0]  # the start is subtracted where it is not recorded
    np.testing.assert_allclose(late, centred[:, [5, 10]], atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_field_kernels_of_one_network():
    x, random = jnp.asarray(TASK.x), np.random.default_rng(0)
    shapes = jax.eval_shape(NET.init, jax.random.key(0), x)["params"]
    normal = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), shapes)
    seen = {}
    for form in ("mup", "ntk", Parameterization.family(a=0.0, d=0.5)):
        net = NET.clone(parameterization=form)
        std = 9.0 ** (-parameterization(form).b / 2)
        params = jax.tree.map(lambda leaf, std=std: leaf * std, normal)

        def kernels(params, net=net):
            rates = learning_rate_factors(net, x)
            ntk = empirical_ntk(lambda p, x: net.apply({"params": p}, x), params, x, rates=rates)
            phi = feature_kernels(net.apply({"params": params}, x, intermediates=True)[1]["phi"])
            return phi, gradient_kernels(net, slopes(net, params, x)), ntk

        seen[form] = jax.jit(kernels, compiler_options={"xla_backend_optimization_level": 0})(params)
    features, gradients, ntk = seen["mup"]
    layers = zip((x @ x.T / 3, *features), (*gradients, jnp.ones((6, 6))), strict=True)
    np.testing.assert_allclose(ntk, sum(g * (1.3**2 * phi + 0.4**2) for phi, g in layers), rtol=1e-10)
    for other in seen.values():  # one network, in three forms
        for mine, theirs in zip(jax.tree.leaves(other), jax.tree.leaves(seen["mup"]), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10)
    h = (
        1.3 / 3**0.5 * TASK.x @ np.asarray(normal["hidden_1"]["kernel"])
        + 0.4 * np.asarray(normal["hidden_1"]["bias"])[None]
    )
    np.testing.assert_allclose(features[0], jax.lax.erf(h) @ jax.lax.erf(h).T / 9, rtol=1e-10)


def test_sweeps_do_not_compile_again():
    forms = ("ntk", "standard", Parameterization.family(a=0.3, d=0.5))
    variants = [NET.clone(gamma=0.2), *(NET.clone(parameterization=form) for form in forms)]
    run()
    compiled = []

    def listen(event, *_, **__):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        results = [run(net)[0] for net in variants] + [run(rate=0.01)[0], run(seed=7)[0]]
        assert not compiled
        jax.jit(lambda x: x + 1)(0.0)
        assert compiled  # the listener listens
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len({f.tobytes() for f in results}) == len(results)


def test_diverging_members_are_named():
    message = (
        r"[1-4] of 4 members had infinite or NaN outputs at step \d+ \(first: member \d\): the learning rate 1e\+30"
    )
    with pytest.raises(FloatingPointError, match=message):
        run(rate=1e30)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_outputs_that_do_not_fit_the_targets_are_not_broadcast(loss):
    task = Task(np.eye(3), np.eye(3)[:, :1] + 1 if loss == "mse" else np.ones((3, 1)), loss=loss)
    with pytest.raises(ValueError, match=r"network has 2 outputs and the task 1 targets a sample \(y_train \(3, 1\)\)"):
        ensemble(MLP(4, 1, outputs=2), task, 2, 3, 0.1)


@pytest.mark.slow
def test_one_network_says_nothing_of_covariances():
    found = ensemble(NET, TASK, 1, 2, 0.1, kernels=())
    for part in ("f_train_cov", "f_test_cov", "f_train_cov_sem", "f_test_cov_sem", "f_test_sem"):
        assert np.isnan(getattr(found, part)).all(), part


def test_no_members_is_an_error():
    with pytest.raises(ValueError, match="members must be at least 1, got 0"):
        ensemble(NET, TASK, 0, 1, 0.1)


@contextlib.contextmanager
def free_memory(monkeypatch, size):
    memory = collections.namedtuple("memory", "available")
    with monkeypatch.context() as patch:
        patch.setattr(psutil, "virtual_memory", lambda: memory(size))
        yield


def test_on_accelerators_their_memory_counts(monkeypatch):
    """Two of them, of which one is busy; where they do not say how much they have, that of the host."""
    stats = {"bytes_limit": 1000, "bytes_in_use": 0}
    devices = [
        types.SimpleNamespace(memory_stats=lambda: stats),
        types.SimpleNamespace(memory_stats=lambda: stats | {"bytes_in_use": 400}),
    ]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    with free_memory(monkeypatch, 77):
        assert memory_left() == 77
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        assert memory_left() == 1600
        devices[0] = types.SimpleNamespace(memory_stats=lambda: None)
        assert memory_left() == 77


def test_chunks_fit_half_of_the_free_memory(monkeypatch):
    need = member_bytes(NET, TASK, 11, ("ntk",))
    assert need > 4 * 4 * (9 * 3 + 9 * 9 + 9)  # four copies of the weights in float32
    for members, free, expected in ((100, 20 * need, 10), (128, 1e12, 64), (100, 1e12, 50), (5, 1e12, 5)):
        with free_memory(monkeypatch, int(free)):
            assert chunk_size(NET, TASK, members, 11, ("ntk",)) == expected
    with (
        free_memory(monkeypatch, need),
        pytest.raises(
            MemoryError, match=r"One member needs about .* GiB are free: use fewer points \(now 6\), fewer rec"
        ),
    ):
        ensemble(NET, TASK, 3, STEPS, RATE)


def test_members_that_are_tied_gpts_are_the_network_itself():
    net = GPT(8, 1, vocabulary=4, context=3, heads=2, tied=True, norm=None, mlp="relu", parameterization="mup")
    x = jnp.array([[1, 2, 3]])
    variables = jax.jit(net.init)(jax.random.key(0), x)
    f = jax.jit(lambda dials: dials.on(net).apply(variables, x))(Dials.of(net))  # as `programs` does
    np.testing.assert_allclose(f, jax.jit(net.apply)(variables, x), rtol=1e-5)


@pytest.mark.parametrize(("size", "targets", "said"), [(1e4, 1.0, True), (1e4, 1e4, False), (1.0, 1.0, False)])
def test_outputs_that_float32_rounds_beside_their_targets_are_warned_of(size, targets, said):
    """Such networks after 200 steps, against the same in float64, are off by .04 of .92 that they learn (6e-6 at size 1).

    Where f(0) is not subtracted they learn as much as it is.
    """
    x = size * np.random.default_rng(0).normal(size=(3, 4))
    task = Task(x, targets * np.array([1.0, -1.0, 0.5]))
    net = MLP(16, 2, activation="relu", w_std=1.2, b_std=0.3)
    with (
        pytest.warns(UserWarning, match="few digits are right. Divide the inputs") if said else contextlib.nullcontext()
    ):
        ensemble(net, task, 2, 1, 0.1 / size**2, centred=True, kernels=())
    ensemble(net, task, 2, 1, 0.1 / size**2, kernels=())
