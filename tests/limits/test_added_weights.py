"""Weights to which others are added before signals meet them train as the same function with every product by itself."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, twin
from zoo import in_parameterization

RANDOM = np.random.default_rng(0)
TASK = Task(RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(3, 1)), RANDOM.normal(size=(1, 4)), np.zeros((1, 1)))
LAYERS = 2


class LowRank(nn.Module):
    """A change of low rank of every layer of a loop, W + A B / 2; beside it W − Wᵀ and W + 1."""

    width: int
    added: bool = True

    @nn.compact
    def __call__(self, x):
        n, normal = self.width, nn.initializers.lecun_normal(batch_axis=0)
        h = nn.Dense(n, use_bias=False)(x)
        shapes = {"w": (LAYERS, n, n), "a": (LAYERS, n, 2), "b": (LAYERS, 2, n)}
        starts = {"w": normal, "a": nn.initializers.zeros, "b": nn.initializers.normal(1.0)}
        stacks = {name: self.param(name, starts[name], shape) for name, shape in shapes.items()}

        def layer(h: Any, each: Any) -> Any:
            w, a, b = (each[name] for name in "wab")
            return h + jnp.tanh(h @ (w - a @ b / 2) if self.added else h @ w - (h @ a) @ b / 2), None

        h = jax.lax.scan(layer, h, stacks)[0]
        v = self.param("v", nn.initializers.lecun_normal(), (n, n))
        h = h @ (v - v.T + jnp.eye(n)) if self.added else h @ v - h @ v.T + h
        return nn.Dense(1, use_bias=False)(jnp.tanh(h))


@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("muon", marks=pytest.mark.slow)])
def test_weights_that_are_added_up_train_as_products_that_are(optimizer):
    """They were refused: "add" of its entries."""
    runs = [
        twin(in_parameterization(LowRank(32, added), "mup")).rich(
            TASK, 2, 0.1, optimizer=optimizer, samples=32, replicas=2, kernels=()
        )
        for added in (True, False)
    ]
    np.testing.assert_allclose(runs[0].f_train, runs[1].f_train, rtol=1e-4, atol=1e-6)
    assert np.abs(runs[0].f_train[-1]).max() > 0.01


class Summed(nn.Module):
    """Weights less their means over inputs, over outputs or over all; the sum of two, and the mean of several side by side."""

    width: int
    kind: str
    summed: bool = True

    @nn.compact
    def __call__(self, x):
        n, normal, ones = self.width, nn.initializers.lecun_normal(), jnp.ones(self.width)
        h = jnp.tanh(nn.Dense(n)(x))
        w, v = (self.param(name, normal, (n, n)) for name in "wv")
        several = self.param("several", nn.initializers.lecun_normal(batch_axis=0), (3, n, n))
        if self.kind == "inputs":
            mean = ones if self.summed else ones @ w / n  # what is met first is drawn first
            h = h @ (w - w.mean(0, keepdims=True)) if self.summed else h @ w - jnp.outer(h.sum(1), mean)
        if self.kind == "outputs":
            mean = ones if self.summed else w @ ones / n
            h = h @ (w - w.mean(1, keepdims=True)) if self.summed else h @ w - (h @ mean)[:, None]
        if self.kind == "all":
            mean = 0.0 if self.summed else (ones @ w).sum() / n**2
            h = h @ (w - w.mean()) if self.summed else h @ w - h.sum(1, keepdims=True) * mean
        if self.kind == "two":
            h = h @ jnp.stack([w, v]).sum(0) if self.summed else h @ w + h @ v
        if self.kind == "several":
            h = h @ (w + several.mean(0)) if self.summed else h @ w + sum(h @ each for each in several) / 3
        if self.kind == "loop":
            total = jax.lax.scan(lambda carry, each: (carry + each, None), jnp.zeros((n, n)), several)[0]
            h = h @ total if self.summed else sum(h @ each for each in several)
        return nn.Dense(1)(jnp.tanh(h))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["all", "two", "inputs", "outputs", "several", "loop"])
def test_sums_over_weights_train_as_products_with_ones(kind):
    """They were refused: "reduce_sum", or "stack", of its entries; of a sum in a loop, a loop over inputs or outputs."""
    runs = [
        twin(in_parameterization(Summed(32, kind, summed), "mup")).rich(
            TASK, 2, 0.3, samples=32, replicas=2, kernels=()
        )
        for summed in (True, False)
    ]
    np.testing.assert_allclose(runs[0].f_train, runs[1].f_train, rtol=1e-4, atol=1e-6)
    assert np.abs(runs[0].f_train[-1]).max() > 0.01


class Masked(nn.Module):
    """Weights of which half are left out."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(self.width)(x))
        w = self.param("w", nn.initializers.lecun_normal(), (self.width, self.width))
        return nn.Dense(1)(jnp.tanh(h @ (w * (jnp.arange(self.width**2).reshape(w.shape) % 2))))


class EveryTap(nn.Module):
    """A convolution's kernel, and one matrix that is added to each of its taps."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(self.width)(x[..., None]))
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (2, self.width, self.width))
        w = self.param("w", nn.initializers.lecun_normal(), (self.width, self.width))
        shape = ("NWC", "WIO", "NWC")
        h = jax.lax.conv_general_dilated(h, kernel + w[None], (2,), "VALID", dimension_numbers=shape)
        return nn.Dense(1)(jnp.tanh(h).mean(1))


@pytest.mark.parametrize(("net", "names"), [(Masked(32), "w"), (EveryTap(32), "kernel, w")])
def test_other_sums_of_entries_are_refused_with_the_reason(net, names):
    """Of a matrix that is added to every tap all taps but one were left out."""
    with pytest.raises(ValueError, match=f"the weights {names}, whose inputs and outputs grow with the width"):
        twin(in_parameterization(net, "mup")).rich(TASK, 1, 0.1, samples=32, kernels=())


def test_weights_of_the_network_itself_that_are_met_too_often_are_named():
    with pytest.raises(ValueError, match=r"^[vw]\S* has met as many independent vectors as it has samples, 8,"):
        twin(in_parameterization(LowRank(32), "mup")).rich(TASK, 4, 0.1, samples=8, kernels=())
