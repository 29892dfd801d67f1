"""Attention as one kernel: here by the same call of JAX's without cuDNN, on a GPU by cuDNN."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import zoo.fused
from train.step import Program
from train.variables import descend
from zoo import GPT, ViT, fused_attention

IMAGES = jax.random.normal(jax.random.key(0), (3, 8, 8, 2))
TOKENS = jax.random.randint(jax.random.key(1), (3, 6), 0, 11)
GROUPED = GPT(
    width=32, depth=1, heads=4, kv_heads=2, context=8, vocabulary=11, norm="rms", positions="rotary", dtype="bfloat16"
)
NETS: dict[str, tuple[Any, Any]] = {
    "ViT": (ViT(width=16, depth=1, patch=4, heads=2, dtype="bfloat16"), IMAGES),
    "1/sqrt(d)": (ViT(width=32, depth=1, patch=4, heads=2, logits="1/sqrt(d)", dtype="bfloat16"), IMAGES),
    "GPT, groups": (GROUPED, TOKENS),
}


@pytest.fixture
def calls(monkeypatch):
    """How often the kernel is asked for on a machine that has one."""
    made, kernel = [], jax.nn.dot_product_attention

    def counted(q, *others, implementation, **options):
        made.append((implementation, options["is_causal"]))
        on_gpu = jax.default_backend() == "gpu"
        return kernel(q, *others, implementation="cudnn" if on_gpu else "xla", **options)

    monkeypatch.setattr(zoo.fused, "_has_kernel", lambda: True)
    monkeypatch.setattr(jax.nn, "dot_product_attention", counted)
    return made


def measured(net, x, params):
    """(gradient of a loss, outputs)."""

    def loss(params):
        f = net.apply(params, x).astype("float32")
        return jnp.sum(jnp.sin(f)), f

    return jax.jit(jax.grad(loss, has_aux=True))(params)


@pytest.mark.parametrize(
    ("net", "x"),
    [pytest.param(*each, id=name, marks=pytest.mark.slow if name == "ViT" else ()) for name, each in NETS.items()],
)
@pytest.mark.slow
def test_fused_attention_has_the_outputs_and_gradients_of_the_written_out(net, x, calls):
    exact = net.clone(dtype="float32")
    params = jax.jit(exact.init)(jax.random.key(2), x)
    written, _ = measured(net, x, params)
    assert not calls
    with fused_attention():
        slope, f = measured(net, x, params)
    assert set(calls) == {("cudnn", isinstance(net, GPT))}
    precise, expected = measured(exact, x, params)
    np.testing.assert_allclose(f, expected, atol=0.03)
    # Half precision rounds both by some 1 % of the largest entry; a wrong scale, mask or head moves them by tens.
    for ours, theirs, full in zip(*map(jax.tree.leaves, (slope, written, precise)), strict=True):
        size = float(jnp.abs(full).max()) + 1e-3
        assert float(jnp.abs(ours - full).max()) < max(0.04 * size, 2 * float(jnp.abs(theirs - full).max()))


@pytest.mark.parametrize(
    ("changes", "x"),
    [({"dtype": "float32"}, TOKENS), ({}, TOKENS[:, :5]), ({"heads": 8, "kv_heads": 4}, TOKENS)],
    ids=["full precision", "an odd number of tokens", "heads of 4"],
)
def test_what_the_kernel_does_not_do_is_written_out(changes, x, calls):
    net = GROUPED.clone(**changes)
    with fused_attention():
        jax.eval_shape(net.init, jax.random.key(0), x)
    assert not calls


def test_weights_that_are_asked_for_and_padding_are_written_out(calls):
    params = jax.eval_shape(GROUPED.init, jax.random.key(0), TOKENS)
    padded = functools.partial(GROUPED.apply, mask=jnp.ones(TOKENS.shape, bool))
    with fused_attention():
        _, kept = jax.eval_shape(functools.partial(GROUPED.apply, mutable="intermediates"), params, TOKENS)
        jax.eval_shape(padded, params, TOKENS)
    assert not calls
    assert [leaf.shape[-4:] for leaf in jax.tree.leaves(kept)] == [(3, 4, 6, 6)]


def test_training_steps_take_the_kernel_and_others_do_not(calls):
    program = Program(GROUPED, optax.sgd(0.1), lambda f, y: jnp.mean(f**2))
    state = jax.eval_shape(functools.partial(program.initial, 0), TOKENS)
    jax.eval_shape(GROUPED.apply, state.variables, TOKENS)
    assert not calls
    jax.eval_shape(program.step, state, (TOKENS, TOKENS))
    assert set(calls) == {("cudnn", True)}
    calls.clear()
    carry = state.trained, state.collections, state.memory  # of `launch.transfer`
    jax.eval_shape(functools.partial(descend, GROUPED, program.tx, program.loss), carry, (TOKENS, TOKENS))
    assert set(calls) == {("cudnn", True)}
