"""What the steps of an optimiser depend on besides each gradient's own history: found by trying."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

# Gradients of all sizes in a mixed order: a rule that divides by their size (Adam) sees a threshold only if not all of them meet
# it, and the threshold may be any.
_SIZES = np.random.default_rng(0).permutation(np.repeat(10.0 ** np.arange(-6, 11), 2))
_SIGNS = np.random.default_rng(1).choice([-1.0, 1.0], len(_SIZES))
_LARGE = 1e4 * np.ones(
    3
)  # beside which decay that is added to gradients is nothing; three, since a schedule may begin at 0
_SMALL = 1e-2  # weights, beside whose steps decay is little

_COMPILED = ("cond[", "while[", "scan[")  # at every call, where nothing else is


@functools.lru_cache(maxsize=64)
def asks_for_norms(init: Callable, update: Callable) -> bool:
    """Whether many gradients of one size are moved otherwise than few of them."""
    found = [_steps(init, update, _SIZES * _SIGNS, np.ones(count, np.float32)) for count in (4, 256)]
    if any(each is None or not np.isfinite(each).all() for each in found):
        return False
    few, many = found
    if not all(np.allclose(each, each[:, :1], rtol=1e-4, atol=0) for each in found):  # noise is added to them
        moved = [np.abs(each).mean(1).sum() for each in found]
        return bool(moved[0] > 0 and moved[1] < 0.5 * moved[0])
    few, many = few[:, 0], many[:, 0]
    return bool((np.abs(few - many) > 0.02 * np.maximum(np.abs(few), np.abs(many))).any())


@functools.lru_cache(maxsize=64)
def asks_for_weights(init: Callable, update: Callable) -> float | None:
    """By what weights four times as large move more often under the same gradients, if not 1; decay does not count.

    Decay is what does not turn its sign with the gradient.
    """
    moved = []
    for size in (_SMALL, 4 * _SMALL):
        params = np.full((4, 4), size, np.float32)
        found = [_steps(init, update, sign * _LARGE, params) for sign in (1.0, -1.0)]
        if any(each is None or not np.isfinite(each).all() for each in found):
            return None
        moved.append(np.abs(found[0] - found[1]).mean())
    ratio = float(moved[1] / moved[0]) if moved[0] > 0 else 1.0
    return ratio if not 0.9 < ratio < 1.1 else None


def _steps(init: Callable, update: Callable, gradients: Any, params: Any) -> Any:
    """Its steps under gradients of equal entries, one row each, and a loss of 1; None if it asks for what else there may be."""
    steps, weights = [], {"w": params}
    try:
        with jax.ensure_compile_time_eval(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a trial
            state, run = init(weights), update
            try:
                program = jax.make_jaxpr(run)(weights, state, weights)
            except TypeError:  # polyak_sgd and momo are given the loss
                run = functools.partial(update, value=np.float32(1))
                program = jax.make_jaxpr(run)(weights, state, weights)
            if any(word in str(program) for word in _COMPILED):
                run = jax.jit(run)
            for size in gradients:
                step, state = run({"w": np.full_like(params, size)}, state, weights)
                steps.append(np.asarray(step["w"], float).ravel())
    except Exception:
        return None
    return np.array(steps)
