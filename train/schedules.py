"""Learning rates over the steps, by name."""

from collections.abc import Callable

import jax.numpy as jnp
import optax

from zoo import checks
from zoo.messages import did_you_mean

SCHEDULES: dict[
    str, Callable[[float, int, float], optax.Schedule]
] = {  # of the rate, the steps, and the share at the end
    "constant": lambda rate, steps, end: optax.constant_schedule(rate),
    "linear": lambda rate, steps, end: optax.linear_schedule(rate, end * rate, steps),
    "cosine": lambda rate, steps, end: optax.cosine_decay_schedule(rate, steps, alpha=end),
}


@checks.arguments(
    name=checks.word, learning_rate=checks.number(0), steps=checks.whole, warmup=checks.count(0), end=checks.number(0)
)
def make_schedule(name: str, learning_rate: float, steps: int, warmup: int = 0, end: float = 0.0) -> optax.Schedule:
    """Linear warm-up from 0 over `warmup` steps, then "constant", "linear" or "cosine" to `end` times the rate at `steps`,
    or "inverse_sqrt": rate · √(warmup / step).

    >>> rates = make_schedule("cosine", 1.0, steps=20, warmup=10)
    >>> [round(float(rates(step)), 3) for step in (0, 5, 10, 15, 20)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if not 0 <= warmup < steps:
        raise ValueError(f"A warm-up of {warmup} steps must be shorter than the {steps} steps of the run.")
    if name == "inverse_sqrt":
        start = max(warmup, 1)
        return lambda step: (
            learning_rate * jnp.minimum(step / start if warmup else 1.0, jnp.sqrt(start / jnp.maximum(step, start)))
        )
    if name not in SCHEDULES:
        raise ValueError(f'Unknown schedule "{name}". {did_you_mean(name, [*SCHEDULES, "inverse_sqrt"])}')
    after = SCHEDULES[name](learning_rate, steps - warmup, end)
    if not warmup:
        return after
    return optax.join_schedules([optax.linear_schedule(0.0, learning_rate, warmup), after], [warmup])
