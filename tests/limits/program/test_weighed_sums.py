"""Σ_i h_i v_i written as a sum of products by entry: the readout that h @ v is, in kernels, training and `rich`."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, twin
from train import ensemble
from zoo import in_parameterization
from zoo.starts import starts

X: Any = np.random.default_rng(0).normal(size=(3, 4))
TASK = Task(X[:2], [1.0, -1.0], X[2:], [0.0])


@pytest.fixture(autouse=True)
def ranks_may_differ():
    """As users write it."""
    with jax.numpy_rank_promotion("allow"):
        yield


class Summing(nn.Module):
    """A hidden layer, or two, and what is made of its features with a parameter v."""

    width: int
    end: Any
    shape: tuple[Any, ...] = ("w",)
    power: float = -0.5
    hidden: Any = None

    @nn.compact
    def __call__(self, x: Any) -> Any:
        n = self.width
        h = nn.tanh(nn.Dense(n, kernel_init=nn.initializers.normal(0.7))(x))
        w = self.param("w", nn.initializers.normal(n**-0.5), (n, n))
        h = nn.tanh(h @ w if self.hidden is None else self.hidden(h, w))
        shape = [n if size == "w" else size for size in self.shape]
        return self.end(h, self.param("v", nn.initializers.normal(n**self.power), shape))


PRODUCT = lambda h, v: h @ v  # noqa: E731
SUMS = {
    "sum": lambda h, v: (h * v).sum(-1),
    "of one axis more": lambda h, v: jnp.sum(v[None] * h, -1, keepdims=True),
    "of a list": lambda h, v: sum([(2 * h * v / 4).sum(-1), (h * -v * -0.5).sum(-1)]),
    "einsum": lambda h, v: jnp.einsum("bn,n->b", h, v),
}
DIVIDED = {
    "over √N": lambda h, v: (h * v).sum(-1) / len(v) ** 0.5,
    "terms over √N": lambda h, v: (h * v / len(v) ** 0.5).sum(-1),
    "signals over √N": lambda h, v: (h / len(v) ** 0.5 * v).sum(-1),
    "mean": lambda h, v: jnp.mean(h * v, -1) * len(v) ** 0.5,
}


def both(end: Any, other: Any, form: str = "mup", power: float = -0.5, **options: Any) -> list[Any]:
    return [in_parameterization(Summing(32, each, power=power, **options), form) for each in (end, other)]


def same_kernels(one: Any, other: Any) -> None:
    a, b = (twin(net).kernels(X) for net in (one, other))
    np.testing.assert_allclose(a.nngp, b.nngp, rtol=1e-12)
    np.testing.assert_allclose(a.ntk, b.ntk, rtol=1e-12)
    assert a.provenance["ntk"].kind == b.provenance["ntk"].kind == "exact"


def slow(*names: str) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("form", ["ntk", "mup"])
@pytest.mark.parametrize(
    "name", ["sum", "mean", *slow(*(name for name in {**SUMS, **DIVIDED} if name not in ("sum", "mean")))]
)
def test_a_sum_of_products_has_the_kernels_and_rates_of_a_product(name: str, form: str):
    power = 0.0 if name in DIVIDED else -0.5
    over = (lambda h, v: h @ v / len(v) ** 0.5) if name in DIVIDED else PRODUCT
    one, other = both({**SUMS, **DIVIDED}[name], over, form, power)
    same_kernels(one, other)
    a, b = (starts(net, X)["v"] for net in (one, other))
    assert (a.role, a.power, a.by_hand.power) == (b.role, b.power, b.by_hand.power)
    assert (a.role, a.power) == ("readout", -0.5)


@pytest.mark.parametrize("name", ["mean", *slow("sum", "of one axis more", "over √N")])
def test_a_sum_of_products_trains_as_a_product(name: str):
    """The finite ones with the same seeds, and so the infinite ones, whose draws are the same."""
    power = 0.0 if name in DIVIDED else -0.5
    over = (lambda h, v: h @ v[:, None] / len(v) ** 0.5) if name in DIVIDED else lambda h, v: h @ v[:, None]
    end = {**SUMS, **DIVIDED}[name]
    nets = both(lambda h, v: end(h, v).reshape(-1, 1), over, "mup", power)
    how: Any = {"steps": 3, "learning_rate": 0.2, "times": [0, 3], "kernels": ("ntk", "features")}
    for runs in (
        [ensemble(net, TASK, 2, **how) for net in nets],
        [twin(net).rich(TASK, samples=16, replicas=2, **how) for net in nets],
    ):
        for of in ("f_test", "loss", "ntk", "features"):
            np.testing.assert_allclose(getattr(runs[0], of), getattr(runs[1], of), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["mean", *slow("sum")])
def test_a_sum_of_products_has_the_kernel_regime_of_a_product(name: str):
    power = 0.0 if name == "mean" else -0.5
    over = (lambda h, v: h @ v[:, None] / len(v) ** 0.5) if name == "mean" else lambda h, v: h @ v[:, None]
    nets = both(lambda h, v: {**SUMS, **DIVIDED}[name](h, v)[:, None], over, "ntk", power)
    runs = [twin(net).lazy(TASK, steps=20, learning_rate=0.2) for net in nets]
    for of in ("f_test", "f_test_cov", "loss", "ntk"):
        np.testing.assert_allclose(getattr(runs[0], of), getattr(runs[1], of), rtol=1e-9, atol=1e-12)


def test_outputs_without_an_axis_are_asked_for_one():
    net = in_parameterization(Summing(32, SUMS["sum"]), "mup")
    for run in (twin(net).lazy, twin(net).rich):
        with pytest.raises(ValueError, match=r"it returns \[1\]. Give its one output an axis, f\[:, None\]."):
            run(TASK, steps=3, learning_rate=0.2)
    with pytest.raises(ValueError, match=r"it returns shape \(1,\). Give its one output an axis, f\[:, None\]."):
        twin(net).kernels(X, samples=16, replicas=2)


MATRICES = {
    "columns": (("w", 3), lambda h, v: (h[..., None] * v).sum(-2), PRODUCT),
    "rows": ((3, "w"), lambda h, v: (h[:, None] * v).sum(-1), lambda h, v: h @ v.T),
    "of positions": (("w",), lambda h, v: (jnp.stack([h, 2 * h], 1) * v).sum((1, 2)), lambda h, v: 3 * h @ v),
}


@pytest.mark.parametrize("name", MATRICES)
def test_sums_along_several_axes_have_the_kernels_of_products(name: str):
    shape, end, other = MATRICES[name]
    same_kernels(*both(end, other, shape=shape))


@pytest.mark.slow
def test_drawn_kernels_of_a_sum_of_products_are_those_of_a_product():
    kernels = [
        twin(net).kernels(X, samples=32, replicas=2)
        for net in both(SUMS["of one axis more"], lambda h, v: h @ v[:, None])
    ]
    for of in ("nngp", "ntk"):
        np.testing.assert_allclose(getattr(kernels[0], of), getattr(kernels[1], of), rtol=1e-5)


def test_hidden_matrices_that_are_summed_over_have_the_kernels_of_products():
    nets = [
        in_parameterization(Summing(32, PRODUCT, hidden=hidden), "ntk")
        for hidden in (lambda h, w: (h[:, None] * w).sum(-1), lambda h, w: h @ w.T)
    ]
    same_kernels(*nets)


def test_readouts_that_are_multiplied_neuron_by_neuron_have_no_features():
    """Of h @ (v c) they are h c, of which h alone was said; the sum of h v over neurons, times a number at either side, has h."""
    how: Any = {"steps": 1, "learning_rate": 0.2, "times": [0], "kernels": ("features",), "progress": False}
    masked = Summing(16, lambda h, v: h @ (v * (jnp.arange(len(v)) % 2.0)[:, None]), shape=("w", 1))
    with pytest.raises(ValueError, match=r"no product of .* has weights of role readout"):
        ensemble(in_parameterization(masked, "mup"), TASK, 2, **how)
    ends = [lambda h, v: (2.0 * (h * v)).sum(-1, keepdims=True), lambda h, v: ((h * v) * 2.0).sum(-1, keepdims=True)]
    found = [ensemble(in_parameterization(Summing(16, end), "mup"), TASK, 2, **how).features for end in ends]
    np.testing.assert_allclose(*found, rtol=1e-6)
