"""Text from a GPT: token after token, with keys and values kept from one to the next."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo import checks
from zoo.gpt import GPT


@checks.arguments(
    net=checks.a(GPT, "a zoo.GPT"),
    params=checks.tree,
    prompt=checks.Check(
        "tokens [n, t], whole numbers, at least one a row",
        lambda v: np.ndim(v) == 2 and np.shape(v)[1] > 0 and np.asarray(v).dtype.kind in "iu",
    ),
    steps=checks.count(1),
    key=checks.key,
    temperature=checks.number(0),
    mask=checks.nothing | checks.Check("an array [n, t] of True and False", lambda v: np.asarray(v).dtype == bool),
)
def generate(
    net: GPT, params: Any, prompt: Any, steps: int, key: Any = 0, temperature: float = 1.0, mask: Any = None
) -> jax.Array:
    """The prompts [n, t] and `steps` tokens more, [n, t + steps], drawn from softmax(f / temperature); 0: the likeliest.
    `net.padding`, a token that no other one sees, is never drawn.

    mask [n, t]: where tokens of the prompts count. Prompts of different lengths are padded on the left: by any token where a mask
    says so, by `net.padding` without one.

    >>> net = GPT(width=16, depth=1, vocabulary=7, context=8)
    >>> params = net.init(jax.random.key(0), jnp.ones((1, 8), int))["params"]
    >>> generate(net, params, [[1, 2], [3, 4]], steps=3).shape
    (2, 5)
    """
    prompt = jnp.asarray(prompt)
    prompt = prompt if prompt.dtype.itemsize >= 4 else prompt.astype("int32")  # bytes do not hold all that is drawn
    n, t = prompt.shape
    if t + steps > net.context:
        raise ValueError(
            f"generate: {t} tokens and {steps} more are beyond the context of {net.context}: ask for fewer, or keep the last "
            f"{max(net.context - steps, 0)} of the prompt."
        )
    valid = jnp.ones((n, t), bool) if mask is None else jnp.asarray(mask)
    valid = valid if net.padding is None else valid & (prompt != net.padding)
    if valid.shape != prompt.shape or not bool(valid[:, -1].all()):
        raise ValueError(
            f"generate: the mask of shape {valid.shape} must be that of the prompts, {prompt.shape}, and true at the last token "
            "of each: pad prompts on the left."
        )
    key = key if isinstance(key, jax.Array) else jax.random.key(key)
    net.check_tokens(prompt)
    drawn = _continued(net, int(steps), params, prompt, valid, key, jnp.asarray(temperature, float))
    return jnp.concatenate([prompt, drawn], axis=1)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _continued(net: GPT, steps: int, params: Any, prompt: Any, mask: Any, key: Any, temperature: Any) -> jax.Array:
    def seen(cache: Any, tokens: Any, mask: Any, positions: Any) -> tuple[Any, Any]:
        variables, last = {"params": params, **cache}, jnp.full(len(tokens), tokens.shape[1] - 1)
        options: Any = {"mask": mask, "positions": None if net.tells_positions else positions, "at": last}
        return net.apply(variables, tokens, decode=True, mutable=["cache"], **options)

    def draw(logits: Any, key: Any) -> Any:
        if net.padding is not None:
            logits = logits.at[:, net.padding].set(-jnp.inf)
        safe = jnp.where(temperature > 0, temperature, 1.0)
        drawn = jax.random.categorical(key, logits / safe)
        return jnp.where(temperature > 0, drawn, logits.argmax(-1)).astype(prompt.dtype)

    def step(state: Any, key: Any) -> Any:
        logits, cache, at = state
        token = draw(logits, key)
        logits, cache = seen(cache, token[:, None], jnp.ones((len(token), 1), bool), at[:, None])
        return (logits, cache, at + 1), token

    count = jnp.cumsum(mask, axis=1)
    first = seen({}, prompt, mask, jnp.maximum(count - 1, 0))
    keys = jax.random.split(key, steps)
    (logits, _, _), tokens = jax.lax.scan(step, (*first, count[:, -1]), keys[:-1])
    return jnp.concatenate([tokens.T, draw(logits, keys[-1])[:, None]], axis=1)
