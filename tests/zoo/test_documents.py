"""Padding and packed documents, told from the tokens: each sequence, and each document, gives what it gives by itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_gpt import MODERN, network, run, variables

from zoo.generate import generate

PAD, BEGIN = 6, 0
WINDOW = jnp.array([[3, 4, BEGIN, 5, 1, BEGIN, BEGIN, 2]])
DOCUMENTS = (slice(0, 2), slice(2, 5), slice(5, 6), slice(6, 8))
KINDS = pytest.mark.parametrize("options", [{"scan": True}, MODERN], ids=["learned", "rotary"])
OTHERS = (("right", "rotary"), ("left", "learned"), ("between", "rotary"))  # these are slow


@pytest.mark.parametrize(
    ("options", "at"),
    [
        pytest.param(options, at, id=f"{where}-{name}", marks=pytest.mark.slow if (where, name) in OTHERS else ())
        for where, at in {"right": (0, 1, 2), "left": (5, 6, 7), "between": (1, 4, 6)}.items()
        for name, options in {"learned": {"scan": True}, "rotary": MODERN}.items()
    ],
)
def test_padding_changes_nothing_wherever_it_stands(options, at):
    net, x = network(padding=PAD, **options), jnp.full((2, 8), PAD).at[:, jnp.array(at)].set(jnp.array([[1, 2, 3]] * 2))
    given = variables(network(**options))
    found = run(net, given, x.at[1, 0].set(5))[0, jnp.array(at)]  # the other row has a token more
    np.testing.assert_allclose(found, run(network(**options), given, jnp.array([[1, 2, 3]]))[0], atol=1e-11)


@pytest.mark.parametrize(
    "options", [pytest.param({"scan": True}, marks=pytest.mark.slow), MODERN], ids=["learned", "rotary"]
)
def test_documents_of_a_window_give_what_they_give_apart(options):
    net, given = network(separator=BEGIN, **options), variables(network(**options))
    packed = run(net, given, WINDOW)[0]
    for part in DOCUMENTS:
        np.testing.assert_allclose(packed[part], run(net, given, WINDOW[:, part])[0], atol=1e-11)
        np.testing.assert_allclose(packed[part], run(network(**options), given, WINDOW[:, part])[0], atol=1e-11)
    crossing = run(network(**options), given, WINDOW)[0]
    assert np.abs(packed - crossing)[2:].max(-1).min() > 1e-3


def test_padding_and_masks_between_documents():
    net, given = network(separator=BEGIN, padding=PAD, **MODERN), variables(network(**MODERN))
    apart = run(net, given, jnp.array([[BEGIN, 5, 1]]))[0]
    x = jnp.array([[PAD, 3, BEGIN, PAD, 5, 1, PAD, BEGIN]])
    np.testing.assert_allclose(run(net, given, x)[0, jnp.array([2, 4, 5])], apart, atol=1e-11)
    masked = run(net, given, x.at[:, 3].set(2), mask=jnp.arange(8)[None] != 3)
    np.testing.assert_allclose(masked[0, jnp.array([2, 4, 5])], apart, atol=1e-11)


@pytest.mark.parametrize(
    "options", [{}, pytest.param(MODERN | {"scan": True}, marks=pytest.mark.slow)], ids=["learned", "rotary"]
)
def test_a_cache_tells_documents_and_padding_apart(options):
    net = network(separator=BEGIN, padding=PAD, **options)
    given = jax.tree.map(lambda a: jnp.asarray(a, "float32"), variables(network(**options)))
    x = jnp.concatenate([WINDOW, jnp.array([[PAD, PAD, 3, BEGIN, 5, PAD, 1, 4]])])

    def in_parts(given: Any) -> Any:
        cache, found = {}, []
        for part in (slice(0, 3), slice(3, 4), slice(4, 6), slice(6, 8)):
            f, cache = net.apply({**given, **cache}, x[:, part], decode=True, mutable=["cache"])
            found.append(f)
        return jnp.concatenate(found, axis=1)

    counts = np.asarray(x != PAD)
    found, whole = jax.jit(in_parts)(given), jax.jit(net.apply)(given, x)
    np.testing.assert_allclose(found[counts], whole[counts], atol=1e-5)


@pytest.mark.slow
def test_prompts_of_different_lengths_are_written_on_as_each_by_itself():
    net = network(padding=PAD, **MODERN)
    params = variables(network(**MODERN))["params"]
    prompts = jnp.array([[PAD, PAD, 1, 2], [3, 1, 4, 2]])
    both = generate(net, params, prompts, steps=3, temperature=0.0)[:, 4:]
    for row, prompt in enumerate((prompts[:1, 2:], prompts[1:])):
        alone = generate(network(**MODERN), params, prompt, steps=3, temperature=0.0)[0, -3:]
        np.testing.assert_array_equal(both[row], alone)
    with pytest.raises(ValueError, match="true at the last token of each: pad prompts on the left"):
        generate(net, params, prompts[:, ::-1], steps=3)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padding_is_never_drawn_and_other_tokens_as_often_as_before(temperature):
    net, params = network(padding=PAD, **MODERN), jax.tree.map(np.copy, variables(network(**MODERN))["params"])
    params["readout"]["kernel"][:, PAD] *= -10  # the likeliest after some
    prompts = jnp.tile(jnp.array([[1, 2], [3, 4], [5, 0], [2, 2]]), (1000, 1))
    drawn = np.asarray(generate(net, params, prompts, steps=1, temperature=temperature))[:, -1].reshape(1000, 4)
    f = np.asarray(run(net, {"params": params}, prompts[:4]))[:, -1]
    assert (f.argmax(-1) == PAD).any()
    p = np.exp(f) * (np.arange(PAD + 1) != PAD)
    p = p / p.sum(-1, keepdims=True) if temperature else p == p.max(-1, keepdims=True)
    often = np.stack([np.bincount(row, minlength=PAD + 1) for row in drawn.T]) / 1000
    assert np.abs(often - p).max() <= 4 * np.sqrt(0.25 / 1000) * (temperature > 0)  # standard errors
    assert not often[:, PAD].any()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"padding": 7}, "GPT: padding is token 7, and there are 7, numbered from 0"),
        ({"separator": -1}, "separator must be an integer of at least 0"),
        ({"separator": 3, "padding": 3}, "token 3 is both padding and separator"),
    ],
)
def test_tokens_that_say_nothing_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        network(**fields)
