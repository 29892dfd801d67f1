"""Feature learning against the theory's own equations: deep linear networks, and the reaction term."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, twin
from limits.fields import matrix as engine
from limits.fields import network, sweeps
from limits.fields.sweeps import compiled_sweep
from train import ensemble
from zoo import MLP


def deep_linear(x: np.ndarray, y: np.ndarray, rate: float, gamma: float, steps: int) -> dict[str, Any]:
    """Two hidden linear layers by the closed equations of kernels H, G and responses A, B, for all times at once.

        C = A^(l−1) + (η/P) Δ H^(l−1),  D = B^(l) + (η/P) G^(l+1) Δ,  R = (1 − γ² C D)⁻¹,  Q = (1 − γ² D C)⁻¹,
        H^(l) = R [H^(l−1) + γ² C G^(l+1) Cᵀ] Rᵀ,  G^(l) = Q [G^(l+1) + γ² D H^(l−1) Dᵀ] Qᵀ,  A^(l) = R C,  B^(l−1) = Q D,
        f = R H^(1) Dᵀ Qᵀ + R C G^(3) Qᵀ at equal times of the last layer.

    Causal: every sweep over the equations makes one more step right.
    """
    p, t = len(x), steps + 1
    before = np.tril(np.ones((t, t)), -1)  # s < t
    one, zero = np.ones((t, t)), np.zeros((p * t, t))  # index (point, time)
    h = [np.kron(x @ x.T / x.shape[1], one), np.zeros((p * t, p * t)), np.zeros((p * t, p * t))]
    g, f = [None, np.zeros((t, t)), np.zeros((t, t)), one], np.zeros((p, t))
    a, b = [zero, zero, zero], [None, zero.T, zero.T]
    for _ in range(3 * t):
        delta = y[:, None] - f
        for l in (1, 2):
            history = (h[l - 1].reshape(p, t, p, t) * before[None, :, None]).transpose(0, 1, 2, 3)
            c = a[l - 1] + rate / p * np.einsum("atbs,bs->ats", history, delta).reshape(p * t, t)
            d = b[l] + rate / p * np.einsum("ts,bs->tbs", g[l + 1] * before, delta).reshape(t, p * t)
            r, q = np.linalg.inv(np.eye(p * t) - gamma**2 * c @ d), np.linalg.inv(np.eye(t) - gamma**2 * d @ c)
            if l == 2:
                whole = r @ h[1] @ d.T @ q.T + r @ c @ g[3] @ q.T
                f = np.einsum("att->at", whole.reshape(p, t, t))
            h[l] = r @ (h[l - 1] + gamma**2 * c @ g[l + 1] @ c.T) @ r.T
            g[l] = q @ (g[l + 1] + gamma**2 * d @ h[l - 1] @ d.T) @ q.T
            a[l], b[l - 1] = r @ c, q @ d
    answers = {"forward": gamma * a[1] @ g[2], "back": gamma * b[1] @ h[1]}  # of the matrix between the layers
    return {"f": f.T, "h": [part.reshape(p, t, p, t).transpose(1, 3, 0, 2) for part in h[1:]], "g": g[1:3]} | answers


def test_deep_linear_networks_follow_the_closed_equations():
    rng = np.random.default_rng(0)
    x, y, rate, gamma, steps = rng.normal(size=(2, 3)), np.array([1.0, -0.7]), 1.0, 1.5, 6
    closed = deep_linear(x, y, rate, gamma, steps)
    net = MLP(8, 2, activation="linear", parameterization="mup", gamma=gamma)
    run = twin(net).rich(Task(x, y), steps, rate, times=range(steps + 1), record=("two_time", "responses"))
    np.testing.assert_allclose(run.f_train[:, :, 0], closed["f"], atol=1e-9)
    for l in (0, 1):
        np.testing.assert_allclose(run.observed["phi_two_time"][l], closed["h"][l], rtol=1e-8, atol=1e-9)
        gradients = run.observed["g_two_time"][l]
        np.testing.assert_allclose(gradients, closed["g"][l][:, :, None, None] * np.ones((2, 2)), rtol=1e-8, atol=1e-9)
    assert abs(run.phi[1][-1] - run.phi[1][0]).max() > 0.1
    # Here many A give the same Σ_s A(t, s) g(s): what is unique is its overlap with every g, and that of B φ with every φ.
    (a,), (b,) = run.observed["responses_a"], run.observed["responses_b"]
    forward = np.einsum("tsij,suj->itu", a, closed["g"][1][:, :, None] * np.ones(2)).reshape(2 * (steps + 1), -1)
    np.testing.assert_allclose(forward, closed["forward"], rtol=1e-7, atol=1e-8)
    back = np.einsum("tsij,sujk->tiku", b, closed["h"][0])
    np.testing.assert_allclose(back[:, 0].reshape(steps + 1, -1), closed["back"], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(back[:, 1], back[:, 0], rtol=1e-7, atol=1e-8)
    assert abs(forward).max() > 0.1 < abs(back).max()


@pytest.mark.slow
def test_steps_of_a_linear_network_add_few_directions_and_where_room_ends_there_is_more(monkeypatch):
    """As many points as the closed equations can take: the room for all of them at every step is never asked for."""
    rng, tried, in_room = np.random.default_rng(2), [], sweeps._in_room
    x, y, steps = rng.normal(size=(7, 8)), rng.normal(size=7), 11
    closed = deep_linear(x, y, 0.25, 1.0, steps)
    net = MLP(8, 2, activation="linear", parameterization="mup")
    monkeypatch.setattr(sweeps, "_FEW_COORDINATES", 0)
    monkeypatch.setattr(sweeps, "_LINEAR_STEPS", 0)
    monkeypatch.setattr(sweeps, "_in_room", lambda *args: tried.append(args[-1]) or in_room(*args))
    run = twin(net).rich(Task(x, y), steps, 0.25, times=[0, steps], kernels=())
    assert run.provenance["f_train"].kind == "exact"
    np.testing.assert_allclose(run.f_train[:, :, 0], closed["f"][[0, steps]], atol=1e-9)
    assert len(tried) > 1
    assert tried[-1] < 7 * steps


@pytest.mark.slow
@pytest.mark.parametrize("steps", [100, 300])
def test_linear_networks_stay_exact_for_hundreds_of_steps(steps):
    """Three hidden layers, 20 points: with room for every point at every step this took more coordinates than there are."""
    rng = np.random.default_rng(0)
    task = Task(rng.normal(size=(20, 5)), rng.normal(size=20), rng.normal(size=(1, 5)), [0.0])
    how: dict[str, Any] = {"steps": steps, "learning_rate": 0.2, "times": [0, steps], "kernels": ("phi",)}
    exact = twin(MLP(8, 3, activation="linear", parameterization="mup")).rich(task, **how)
    assert exact.provenance["phi"].kind == "exact"
    sampled = twin(MLP(8, 3, activation=identity, parameterization="mup")).rich(task, samples=1024, replicas=8, **how)
    for right, found, error in ((getattr(exact, n)[-1], getattr(sampled, n)[-1], getattr(sampled, f"{n}_sem")[-1])
                                for n in ("f_train", "f_test")):  # fmt: skip
        # 5 standard errors of 8 sweeps, and a bias of O(1/1024)
        assert np.all(np.abs(right - found) < 5 * error + 0.005 * np.abs(right).max())


def identity(x):
    """A linear activation that is not recognised as one: its networks are sampled."""
    return x


def first_responses(task: Task, w: float, gamma: float, rate: float) -> np.ndarray:
    """A(1, 0) = w² <∂φ(h¹(1))/∂r(0)>, with h¹(1) = h¹(0) + γ η/P Σ w² Φ⁰ y φ'(h¹(0)) r(0): two tanh layers."""
    rng, count = np.random.default_rng(0), 10**6

    def slope(h: np.ndarray) -> np.ndarray:
        return 1 - np.tanh(h) ** 2

    phi0 = w**2 * task.x @ task.x.T / task.x.shape[1]
    h1 = rng.multivariate_normal(np.zeros(2), phi0, count)
    h2 = rng.multivariate_normal(np.zeros(2), w**2 * np.tanh(h1).T @ np.tanh(h1) / count, count)
    g2 = w * slope(h2) * rng.normal(size=(count, 1))
    r = rng.multivariate_normal(np.zeros(2), w**2 * g2.T @ g2 / count, count)
    move = gamma * rate / 2 * phi0 * task.y_train[:, 0]
    after = h1 + (slope(h1) * r) @ move.T
    return w**2 * move * (slope(after).T @ slope(h1) / count)


@pytest.mark.slow
def test_response_functions_are_the_averaged_derivatives():
    w, gamma, rate = 1.4, 2.0, 0.8
    net = MLP(8, 2, activation="tanh", w_std=w, parameterization="mup", gamma=gamma)
    how: dict[str, Any] = {"samples": 2048, "replicas": 8, "record": ("fields", "responses"), "dtype": np.float64}
    run = twin(net).rich(TASK, 2, rate, kernels=(), **how)
    (a,), (b,) = run.observed["responses_a"], run.observed["responses_b"]
    (a_sem,), (b_sem,) = run.responses_a_sem, run.responses_b_sem
    assert max(a_sem.max(), b_sem.max()) < 0.05
    assert np.all(np.abs(a[1, 0] - first_responses(TASK, w, gamma, rate)) < 4 * a_sem[1, 0])
    # B at equal times: w² <φ''(h) z> for the same input, nothing between two inputs; here φ''(h) z = −2 tanh(h) g.
    h, g = run.observed["h"][1], run.observed["g_fields"][1]
    reaction = -2 * w**2 * np.mean(np.tanh(h) * g, axis=-1)
    for t in (0, 1, 2):
        assert np.all(np.abs(b[t, t] - np.diag(reaction[t])) < 4 * b_sem[t, t] + 4 * w**2 / 1000**0.5)
    assert np.all(np.abs(np.diagonal(b[1, 1])) > 10 * np.diagonal(b_sem[1, 1]))
    later = np.triu_indices(3, 1)
    assert not np.any(b[later])
    assert not np.any(a[later])
    assert not np.any(a[np.arange(3), np.arange(3)])


def without_reaction_in_the_step() -> Any:
    """`multiply`, but what the backward pass reveals forgets the directions that the same forward pass revealed."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def product(tolerance: float, a: Any, matrix: Any, key: Any) -> Any:
        return engine._forward(tolerance, a, matrix, key)[0]

    def forward(tolerance: float, a: Any, matrix: Any, key: Any) -> Any:
        out, kept = engine._forward(tolerance, a, matrix, key)
        return out, (*kept, matrix.known_in)

    def backward(tolerance: float, kept: Any, cotangents: Any) -> Any:
        c, key, known = kept
        _, matrix = cotangents
        old = (jnp.arange(matrix.v.shape[0]) < known)[:, None]
        forgetful = engine.dataclasses.replace(matrix, y=jnp.where(old, matrix.y, 0))
        back, after, nothing = engine._backward(tolerance, (c, key), (cotangents[0], forgetful))
        return back, engine.dataclasses.replace(after, y=matrix.y), nothing

    product.defvjp(forward, backward)
    return lambda a, matrix, key, tolerance: product(tolerance, a, matrix, key)


TASK = Task(np.random.default_rng(2).normal(size=(2, 4)), [1.0, -1.0])
HOW: dict[str, Any] = {"steps": 8, "learning_rate": 0.25, "times": [0, 8]}


def gradients(net: MLP, samples: int, replicas: int) -> np.ndarray:
    run = twin(net).rich(TASK, samples=samples, replicas=replicas, kernels=("phi", "g"), **HOW)
    return run.g[0]


def forgetful_gradients(monkeypatch: Any, net: MLP, samples: int, replicas: int) -> np.ndarray:
    compiled_sweep.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(network, "multiply", without_reaction_in_the_step())
        found = gradients(net, samples, replicas)
    compiled_sweep.cache_clear()
    return found


@pytest.mark.slow
def test_without_the_reaction_to_the_same_step_the_first_gradient_kernel_is_off_by_a_third(monkeypatch):
    """The term <φ''(h) z> of the theory: nothing else moves G¹ by so much."""
    net = MLP(8, 2, activation="tanh", w_std=1.4, parameterization="mup", gamma=2.0)
    right, wrong = gradients(net, 512, 3), forgetful_gradients(monkeypatch, net, 512, 3)
    assert np.linalg.norm(wrong[0] - right[0]) < 1e-6  # no reaction at the start
    assert np.linalg.norm(wrong[-1] - right[-1]) > 0.2 * np.linalg.norm(right[-1])  # one sweep varies by 5 %


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_first_gradient_kernel_against_finite_networks(activation, monkeypatch):
    """For relu φ'' is a delta function, which no automatic derivative sees and revealed matrices do not need."""
    net = MLP(1024, 2, activation=activation, w_std=1.4, parameterization="mup", gamma=2.0)
    finite = ensemble(net, TASK, 128, centred=True, kernels=("g",), **HOW)
    run = twin(net).rich(TASK, samples=2048, replicas=48, kernels=("phi", "g"), **HOW)
    wrong = forgetful_gradients(monkeypatch, net, 2048, 8)[-1]
    away, error = finite.g[0][-1] - run.g[0][-1], np.hypot(finite.g_sem[0][-1], run.g_sem[0][-1])
    size = np.linalg.norm(run.g[0][-1])
    assert np.linalg.norm(error) < 0.02 * size
    # Three numbers, each within 3.5 errors: by chance not so once in 700 runs. Networks are off by O(1/1024).
    assert np.all(np.abs(away) < 3.5 * error + 0.005 * size)
    assert np.linalg.norm(finite.g[0][-1] - wrong) > 5 * np.linalg.norm(error)
