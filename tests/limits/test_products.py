"""Every product of float32 numbers in `limits` and `ensemble` is one of float32, whatever the device takes for its default."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import primitives

from limits import TangentOperator, Task, empirical_ntk, linearize, random_features, twin
from limits.finite.sampled_kernels import sampled_kernels
from train import ensemble
from zoo import CNN, GPT, MLP, HeResNet, ResNet, ViT, scaled

X = np.random.default_rng(0).normal(size=(5, 7)).astype("float32")
IMAGES = np.random.default_rng(1).normal(size=(3, 6, 6, 2)).astype("float32")
TASK = Task(X[:3], X[:3, :1], X[3:], X[3:, :1])
MUP, NTK = ({"depth": 2, "parameterization": p} for p in ("mup", "ntk"))


@pytest.fixture
def seen(monkeypatch) -> Iterator[list[str]]:
    """The precisions of the products of float32 that are traced meanwhile."""
    found = list[str]()
    _operator()  # not among what is looked at

    def watched(bind: Callable, *factors: Any, **how: Any) -> Any:
        if all(getattr(factor, "dtype", None) == np.float32 for factor in factors):
            found.append(str(how["precision"]))
        return bind(*factors, **how)

    for primitive in (primitives.dot_general_p, primitives.conv_general_dilated_p):
        monkeypatch.setattr(primitive, "bind", functools.partial(watched, primitive.bind))
    jax.clear_caches()
    yield found
    jax.clear_caches()


@functools.cache
def _forward() -> tuple[Callable, Any]:
    net = MLP(18, **NTK)
    return net.apply, net.init(jax.random.key(0), jnp.asarray(X))


@functools.cache
def _operator() -> TangentOperator:
    return TangentOperator(*_forward(), X)


def _rich(optimizer: str | None = None, **how: Any) -> Any:
    net = MLP(width=18, activation="tanh", **MUP)
    given = {"optimizer": scaled(optimizer, net, learning_rate=0.01)} if optimizer else {"learning_rate": 0.1}
    return twin(net).rich(TASK, 2, **given, samples=18, replicas=2, progress=False, **how)


DOORS = {
    "kernels": lambda: twin(MLP(8, **NTK)).kernels(X, dtype=np.float32),
    "kernels by a series": lambda: twin(MLP(8, activation="gelu", **NTK)).kernels(X, X + 1, dtype=np.float32),
    "kernels of images": lambda: twin(CNN(8, readout="average", **NTK)).kernels(IMAGES, dtype=np.float32),
    "kernels of residual images": lambda: twin(ResNet(8, form="conv", **NTK)).kernels(IMAGES, dtype=np.float32),
    "kernels of attention": lambda: twin(ViT(8, patch=3, logits="1/d", **NTK)).kernels(IMAGES, dtype=np.float32),
    "kernels of random logits": lambda: twin(ViT(8, patch=3, logits="1/sqrt(d)", heads="grow", **NTK)).kernels(
        IMAGES, dtype=np.float32, samples=64
    ),
    "a kernel function": lambda: twin(MLP(8, activation="gelu", **NTK)).kernel_function()(jnp.asarray(X)),
    "its gradient": lambda: jax.grad(lambda x: twin(MLP(8, **NTK)).kernel_function()(x).ntk.sum())(jnp.asarray(X)),
    "rich": _rich,
    "rich under Adam": lambda: _rich("adam"),
    "rich under Muon": lambda: _rich("muon"),
    "rich at a width": lambda: _rich(width=24),
    "ensemble": lambda: ensemble(MLP(18, **MUP), TASK, 2, 2, 0.1),
    "empirical_ntk": lambda: empirical_ntk(*_forward(), X),
    "its tiles": lambda: empirical_ntk(*_forward(), X, block=2),
    "products with it": lambda: _operator() @ np.ones((5, 1)),
    "linearize": lambda: jax.jit(linearize(*_forward()))(_forward()[1], X),
    "random features": lambda: random_features(twin(MLP(18, **NTK)), X, 2, kernel="ntk"),
    "drawn kernels": lambda: sampled_kernels(MLP(8, **NTK), X, lambda k: k, 2, 0),
    "batch normalisation": lambda: twin(HeResNet(8, stages=(1, 1), norm="batch", parameterization="ntk")).kernels(
        IMAGES, members=2
    ),
    "tokens": lambda: ensemble(
        GPT(8, 1, vocabulary=5, context=4, heads=2, parameterization="mup"),
        Task(np.ones((2, 4), int), np.ones((2, 4), int), loss="cross_entropy", classes=5),
        2, 1, 0.1,
    ),
}  # fmt: skip


RARELY = {"tokens", "products with it", "rich under Muon",
          "kernels by a series", "kernels of residual images", "kernels of random logits", "its gradient", "rich under Adam",
          "rich at a width", "its tiles", "linearize", "drawn kernels", "batch normalisation"}  # fmt: skip


@pytest.mark.parametrize(
    "door", [pytest.param(door, marks=[pytest.mark.slow] if door in RARELY else []) for door in DOORS]
)
@pytest.mark.slow
def test_products_are_full(door: str, seen: list[str]) -> None:
    """JAX's own default, None, is TF32 on a GPU and bfloat16 on a TPU."""
    try:
        DOORS[door]()
    finally:
        print({name: seen.count(name) for name in {*seen}})
    assert seen, "no product of float32 was met: this case tests nothing"
    assert all("HIGHEST" in each for each in seen)


def test_what_the_caller_chose_is_left(seen: list[str]) -> None:
    """The setting of JAX is the caller's."""
    with jax.default_matmul_precision("tensorfloat32"):
        DOORS["empirical_ntk"]()
    assert seen
    assert any("HIGH" in each and "HIGHEST" not in each for each in seen)
