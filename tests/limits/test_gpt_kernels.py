"""Kernels between tokens, read off the code of GPT: against the recursion by hand, and wide networks."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import AbsentError, Task, twin
from train import ensemble
from zoo import GPT, learning_rate_factors

X = np.array([[1, 2, 3], [1, 3, 1]])
N, T = X.shape


def network(**options: Any) -> Any:
    fields: Any = {"width": 64, "depth": 2, "vocabulary": 5, "context": 4, "mlp_ratio": 2}
    return GPT(**(fields | options))


def flat(k: np.ndarray) -> np.ndarray:
    """[n, n, t, t] → [n t, n t]."""
    return k.transpose(0, 2, 1, 3).reshape(2 * (k.shape[0] * k.shape[2],))


def relu_pair(k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E φ φ′ and E φ̇ φ̇′ of relu (Cho & Saul, 2009)."""
    size = np.sqrt(np.outer(np.diag(k), np.diag(k)))
    angle = np.arccos(np.clip(k / size, -1, 1))
    return size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi), (np.pi - angle) / (2 * np.pi)


W, B, E = 1.4, 0.3, 0.8
RELU: Any = {"norm": None, "mlp": "relu", "w_std": W, "b_std": B, "embedding_std": E, "position_std": 0.6}


def recursion(depth: int, p: float) -> tuple[np.ndarray, np.ndarray]:
    """(NNGP, NTK) of so many blocks between all tokens."""
    tokens, at = X.ravel(), np.tile(np.arange(T), N)
    nngp = E**2 * (tokens[:, None] == tokens) + p**2 * (at[:, None] == at)
    ntk, mean = nngp.copy(), np.kron(np.eye(N), np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None])

    def layer(nngp: Any, ntk: Any) -> Any:
        return W**2 * nngp + B**2, W**2 * (nngp + ntk) + B**2

    for _ in range(depth):
        a = layer(*(mean @ part @ mean.T for part in layer(nngp, ntk)))
        nngp, ntk = nngp + a[0] / depth, ntk + a[1] / depth
        inner = layer(nngp, ntk)
        dual, slope = relu_pair(inner[0])
        a = layer(dual, slope * inner[1])
        nngp, ntk = nngp + a[0] / depth, ntk + a[1] / depth
    return W**2 * nngp, W**2 * (nngp + ntk)


@pytest.mark.parametrize(
    "options",
    [
        {"kv_heads": 2, "scan": False},
        *(pytest.param(each, marks=pytest.mark.slow) for each in ({}, {"positions": "rotary"})),
    ],
    ids=str,
)
def test_kernels_are_the_recursion_over_tokens(options):
    position_std, k = 0.0 if "positions" in options else 0.6, twin(network(**RELU, **options)).kernels(X)
    nngp, ntk = recursion(2, position_std)
    np.testing.assert_allclose(flat(k.nngp), nngp, rtol=1e-9)
    np.testing.assert_allclose(flat(k.ntk), ntk, rtol=1e-9)
    assert k.provenance["ntk"].kind == "exact"


@pytest.mark.slow
def test_kernels_of_infinitely_many_blocks_are_the_limit_of_the_recursion():
    k, depths = twin(network(**RELU), depth=math.inf).kernels(X), (400, 800, 1600)
    for name, a, b, c in zip(("nngp", "ntk"), *(recursion(depth, 0.6) for depth in depths), strict=True):
        first, second = 2 * b - a, 2 * c - b  # O(1/L) removed
        np.testing.assert_allclose(flat(getattr(k, name)), (4 * second - first) / 3, rtol=2e-6)  # O(1/L²) too
        assert np.abs(flat(getattr(k, name)) / a - 1).max() > 0.01


@pytest.mark.slow
def test_blocks_the_diagonal_and_pairs_are_of_one_kernel():
    limit, x = twin(network(depth=1, norm=None, mlp="relu")), np.array([[1, 2], [0, 2], [3, 3]])
    whole = limit.kernels(x)
    np.testing.assert_allclose(limit.kernels(x, block=1).ntk, whole.ntk, rtol=1e-12)
    np.testing.assert_allclose(limit.kernels(x[:1], x[1:]).nngp, whole.nngp[:1, 1:], rtol=1e-12)
    np.testing.assert_allclose(limit.kernels(x, diagonal=True).ntk, whole.ntk[range(3), range(3)], rtol=1e-12)
    one = limit.kernels(x[:, :1]).nngp
    np.testing.assert_allclose(one, whole.nngp[:, :, :1, :1], rtol=1e-12)  # a token sees none after it


@pytest.mark.parametrize(("form", "message"), [("ntk", "grows with the width"), ("mup", "stays where features learn")])
@pytest.mark.slow
def test_tied_weights_have_no_kernel_and_say_why(form, message):
    k = twin(network(depth=1, tied=True, parameterization=form)).kernels(X)
    with pytest.raises(AbsentError, match=f"the readout is the embedding's transpose.*{message}"):
        k.ntk  # noqa: B018


def finite_kernels(net: Any, networks: int, x: np.ndarray = X) -> dict[str, np.ndarray]:
    """[networks, n t, n t] of wide networks: features, and tangent kernels of the first output."""
    rates, count = learning_rate_factors(net, jax.ShapeDtypeStruct(x.shape, "int32")), x.size

    def one(key: Any) -> Any:
        params = net.init(key, jnp.asarray(x))["params"]
        outputs = lambda params: net.apply({"params": params}, jnp.asarray(x), intermediates=True)  # noqa: E731
        _, pull, inside = jax.vjp(lambda p: (outputs(p)[0][..., 0].ravel(), outputs(p)[1]), params, has_aux=True)
        slopes = jax.lax.map(lambda e: pull(e)[0], jnp.eye(count))
        parts = zip(jax.tree.leaves(slopes), jax.tree.leaves(rates), strict=True)
        features = inside["features"].reshape(count, -1)
        rows = [(rate, g.reshape(count, -1)) for g, rate in parts]
        return {"nngp": features @ features.T / net.width, "ntk": sum(rate * g @ g.T for rate, g in rows)}

    run = jax.jit(one)
    found = [jax.tree.map(np.asarray, run(jax.random.key(i))) for i in range(networks)]
    return {name: np.stack([each[name] for each in found]).astype(float) for name in ("nngp", "ntk")}


def check_against_networks(
    net: Any, networks: int, most: float, x: np.ndarray = X, counts: Any = True, **drawn: Any
) -> None:
    """By projections on all, on the diagonal and on the first sequence, in standard errors of both; of tokens that count."""
    k, (n, t) = twin(net.clone(width=64)).kernels(x, **drawn), x.shape
    both = np.outer(*2 * (np.broadcast_to(counts, x.shape).ravel(),))
    for name, finite in finite_kernels(net, networks, x).items():
        for on in (np.ones((n * t, n * t)), np.eye(n * t), np.kron(np.diag(np.arange(n) == 0), np.ones((t, t)))):
            of = on * both
            seen = np.sum(finite * of, axis=(1, 2))
            error = np.hypot(
                seen.std(ddof=1) / networks**0.5, np.sum(flat(getattr(k, f"{name}_sem")) * of) / (of.sum() ** 0.5)
            )
            assert error < 0.03 * seen.mean()
            assert abs(seen.mean() - np.sum(flat(getattr(k, name)) * of)) < most * error, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"kv_heads": 2, "b_std": 0.3}, {"norm": "rms", "mlp": "swiglu", "mlp_ratio": 3, "parameterization": "mup"},
     {"positions": "rotary", "norm": "rms", "mlp": "relu2"}, {"qk_norm": True, "norm": "rms", "positions": None},
     {"norm": None, "mlp": "gelu_tanh"}, {"heads": "grow", "embedding_std": 0.5, "position_std": 0.7}],
    ids=str,
)  # fmt: skip
def test_wide_networks_have_the_kernels_of_the_twin(options):
    check_against_networks(network(**{"width": 1024} | options), 12, 4.0)  # t with 11 degrees of freedom, 6 numbers


@pytest.mark.slow
def test_drawn_kernels_are_those_of_wide_networks():
    net = network(width=256, logits="1/sqrt(d)", heads="grow", head_dim=8, depth=1)
    check_against_networks(net, 48, 4.0, samples=512, replicas=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tied": True}, "the readout is the embedding's transpose"),
        ({"logits": "1/sqrt(d)"}, "attention of a fixed number of heads stays random where logits do .scaled by 1/√d"),
        ({"head_dim": 8}, "stays random where logits do .heads of 8"),
    ],
)
def test_training_without_a_limit_says_why(options, message):
    task = Task(X, X, loss="cross_entropy", classes=5)
    for form, train in (
        ("ntk", lambda limit: limit.lazy(task, 1, 0.1)),
        ("mup", lambda limit: limit.rich(task, 1, 0.1)),
    ):
        with pytest.raises(AbsentError, match=f"GPT: .*{message}"):
            train(twin(network(parameterization=form, **options)))


def test_tokens_beyond_the_vocabulary_are_refused():
    net = network(parameterization="mup")
    away = Task(X + 50, X, loss="cross_entropy", classes=5)
    for call in (
        lambda: twin(net).kernels(X + 50),
        lambda: twin(net).kernels(X - 10),
        lambda: twin(net).rich(away, 1, 0.1),
        lambda: ensemble(net, away, 2, 1, 0.1),
    ):
        with pytest.raises(ValueError, match="tokens go from"):
            call()


@pytest.mark.slow
def test_a_kernel_function_reads_what_kernels_read():
    """Rotary positions make no difference where logits vanish."""
    net, tokens = GPT(width=16, depth=1, vocabulary=6, context=4, positions="rotary"), np.array([[0, 3, 1], [2, 2, 5]])
    limit = twin(net)
    np.testing.assert_allclose(limit.kernel_function()(tokens).ntk, limit.kernels(tokens).ntk, rtol=1e-5)
