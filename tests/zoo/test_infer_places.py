"""Roles and factors of parameters that names and shapes alone would place wrongly."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from zoo import Rescaled, factors, in_parameterization, infer_roles, scaled
from zoo.infer import IN_CODE

DEPTHS: dict[str, Any] = {"base": {"width": 8, "depth": 2}, "target": {"width": 8, "depth": 8}}
TOKENS = jnp.ones((1, 5, 3))


class Mixer(nn.Module):
    """Token mixing, whose sizes are fixed: of every block its own, or one for all."""

    width: int
    depth: int
    shared: bool = False

    @nn.compact
    def __call__(self, x: Any) -> Any:
        h = nn.Dense(self.width, name="embed")(x)
        one = (nn.Dense(4, name="in"), nn.Dense(5, name="out")) if self.shared else None
        for i in range(self.depth):
            first, last = one or (nn.Dense(4, name=f"in_{i}"), nn.Dense(5, name=f"out_{i}"))
            h = h + last(nn.gelu(first(h.swapaxes(1, 2)))).swapaxes(1, 2)
        return nn.Dense(2, name="readout")(h.mean(1))


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "inner"), [(0.5, 0.5), (1.0, 1.0)])
def test_weights_of_fixed_size_in_blocks_have_the_factors_in_depth(alpha, inner):
    """At m_L = 4: what hidden weights of the same place have, and their biases too; the branch's last layer holds m_L^(−α)."""

    def found(shared: bool, outputs: str) -> Any:
        def init(key: Any, **sizes: Any) -> Any:
            return Mixer(**sizes, shared=shared).init(key, TOKENS)["params"]

        roles = infer_roles(init, **DEPTHS, alpha=alpha, branch_outputs=outputs)
        return roles.factors(jax.eval_shape(lambda: init(jax.random.key(0), **DEPTHS["target"])))

    own, one = found(False, "out_"), found(True, IN_CODE)
    for part in ("kernel", "bias"):
        assert own["in_3"][part].step == pytest.approx(inner)
        assert (own["out_3"][part].step, own["out_3"][part].rate) == (pytest.approx(0.25), pytest.approx(0.25))
        assert (one["in"][part].step, one["in"][part].rate) == (pytest.approx(inner), pytest.approx(inner**2))
    for table in (own, one):
        assert (table["readout"]["bias"].step, table["readout"]["kernel"].step) == (1.0, 1.0)


WIDTHS: dict[str, Any] = {"base": {"width": 8}, "target": {"width": 32}}


def drawn(key: Any, shapes: dict[str, tuple[int, ...]]) -> Any:
    keys = jax.random.split(key, len(shapes))
    return {name: jax.random.normal(k, shape) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}


def roles_of(shapes: Any, apply: Any = None) -> dict[str, str]:
    found = infer_roles(lambda key, width: drawn(key, shapes(width)), **WIDTHS, apply=apply, tied=False)
    return {name: place.role for name, place in found.places.items()}


def test_no_matrix_is_a_bias_for_its_name():
    wanted = {"a": "input", "b": "hidden", "c": "readout"}
    assert roles_of(lambda w: {"a": (3, w), "b": (w, w), "c": (w, 1)}) == wanted

    def run(p: Any, width: int) -> Any:
        h = jnp.ones((2, 3)) @ p["in"]
        low = h @ p["a"] @ p["b"] + p["bias"].reshape(1, width) * p["scale"][:1]
        return (low * p["gain"][1:]).sum(-1) + h @ p["out.b"][:, 0]

    found = roles_of(
        lambda w: {
            "in": (3, w), "a": (w, 2), "b": (2, w), "bias": (4, w // 4), "scale": (3, w), "gain": (2, w), "out.b": (w, 1),
        }, run,
    )  # fmt: skip
    matrices = {"in": "input", "a": "readout", "b": "input", "out.b": "readout"}
    assert found == matrices | dict.fromkeys(("bias", "scale", "gain"), "bias")


def test_weights_that_the_forward_pass_transposes():
    """As [outputs, inputs]: which side is summed over is read from the use, of images too."""

    def shapes(w: int) -> Any:
        return {"conv": (w, 3, 2, 2), "first": (w, 3), "mid": (w, w), "last": (1, w)}

    def run(p: Any, width: int) -> Any:
        image = jax.lax.conv(jnp.ones((2, 3, 4, 4)), p["conv"], (1, 1), "SAME").mean((2, 3))
        return jnp.tanh(jnp.ones((2, 3)) @ p["first"].T + image) @ p["mid"].T @ p["last"].T

    assert roles_of(shapes, run) == {"conv": "input", "first": "input", "mid": "hidden", "last": "readout"}
    kept = roles_of(lambda w: {"first": (w, 3), "mid": (w, w), "last": (1, w)})  # without a forward pass, by the shape
    assert kept == {"first": "readout", "mid": "hidden", "last": "input"}


class Batched(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.first, self.norm = nnx.Linear(3, width, rngs=rngs), nnx.BatchNorm(width, rngs=rngs)
        self.last = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.norm(self.first(x)))


def test_a_refusal_of_batch_statistics_names_who_was_called():
    with pytest.raises(ValueError, match=r"^Rescaled.of: the NNX module keeps .*BatchStat.*give infer_roles init"):
        Rescaled.of(Batched, jnp.ones((2, 3)), **WIDTHS)
    with pytest.raises(ValueError, match=r"^infer_roles: the NNX module keeps .*BatchStat"):
        infer_roles(Batched, **WIDTHS)
    roles = infer_roles(lambda key, width: nnx.state(Batched(width, nnx.Rngs(key)), nnx.Param), **WIDTHS)
    assert roles.places["norm.scale"].role == "bias"


class Grouped(nn.Module):
    """Four groups of neurons, and groups of one."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Conv(self.width, (3, 3), name="first")(x))
        h = nn.relu(nn.Conv(self.width, (3, 3), feature_group_count=4, name="four")(h))
        h = nn.Conv(self.width, (3, 3), feature_group_count=self.width, name="each")(h)
        return nn.Dense(1)(h.mean((1, 2)))


def test_kernels_of_groups_are_no_layers():
    """Muon asked whether the 3 × 3 window of the four groups is 3 layers."""
    x = np.ones((2, 6, 6, 3), "float32")
    net = Rescaled.of(Grouped, x, base={"width": 16}, target={"width": 64})
    places = net.roles.places
    assert places["four.kernel"].sides == ((0, 1, 2), (3,))
    assert (places["four.kernel"].role, places["each.kernel"].role) == ("hidden", "input")
    weights = net.init(jax.random.key(0), x)["params"]
    rule = scaled("muon", net, learning_rate=0.1)
    step: Any = rule.update(weights, rule.init(weights), weights)[0]
    assert np.isfinite(np.asarray(step["four"]["kernel"])).all()


class Experts(nn.Module):
    """Two convolutions side by side, each with features of its own or both with the same."""

    width: int
    shared: bool = False
    start: Any = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Conv(self.width, (3, 3), name="first")(x))
        of: Any = None if self.shared else 0
        two = nn.vmap(nn.Conv, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=of, axis_size=2)
        h = nn.relu(
            two(self.width, (3, 3), kernel_init=self.start, name="two")(h if self.shared else jnp.stack([h, h]))
        )
        return nn.Dense(1)(h.sum(0).mean((1, 2)))


@pytest.mark.slow
def test_convolutions_side_by_side_under_vmap_are_matrices_of_their_own():
    """Optax said "reduction axes and output axes must be disjoint": all axes of their kernels were thought joined to one."""
    x = np.ones((2, 6, 6, 3), "float32")
    found = {}
    for shared in (False, True):
        net = in_parameterization(Experts(16, shared), "mup")
        weights = net.init(jax.random.key(0), x)["params"]
        found[shared] = factors(net, weights, x)["two"]["kernel"].sides
        rule = scaled("muon", net, x, learning_rate=0.1)
        grads: Any = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(1), leaf.shape), weights)
        second = grads["two"]["kernel"].at[1].multiply(jnp.linspace(0.1, 3, 16))
        other = {**grads, "two": {**grads["two"], "kernel": second}}
        moves: list[Any] = [rule.update(each, rule.init(weights), weights)[0] for each in (grads, other)]
        steps = [move["two"]["kernel"] for move in moves]
        assert np.isfinite(steps[0]).all()
        assert np.allclose(steps[0][0], steps[1][0], rtol=1e-3, atol=1e-6) is not shared  # orthogonal, each for itself
    assert found == {False: ((1, 2, 3), (4,)), True: ((1, 2, 3), (0, 4))}


@pytest.mark.parametrize("shared", [False, True])
def test_kernels_side_by_side_that_start_at_zero_sum_over_the_inputs_of_one(shared):
    """Their standard deviation was taken for one over all their numbers: rates were 32 times too small."""
    x, rates = np.ones((2, 6, 6, 3), "float32"), []
    of_one = nn.initializers.variance_scaling(1.0, "fan_in", "normal")  # vmap draws each by its own inputs
    for start in (nn.initializers.zeros, of_one):
        net = in_parameterization(Experts(16, shared, start), "mup")
        rates.append(factors(net, net.init(jax.random.key(0), x)["params"], x)["two"]["kernel"].rate)
    assert rates[0] == pytest.approx(rates[1], rel=1e-6)
