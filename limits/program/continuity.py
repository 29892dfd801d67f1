"""Whether functions of fields jump: what is differentiated under an average must not.

E[a F] = Σ_j Cov(a, u_j) E[∂_j F] holds where F has no jumps; where it has some, ∂_j F lacks a δ for each that automatic
differentiation does not see.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program.differentiated import SMOOTH, made_of
from limits.program.functions import Function

_WITHOUT_JUMPS = SMOOTH | {
    "abs", "asinh", "atan", "cbrt", "clamp", "log1p", "max", "min", "real", "sqrt",
}  # fmt: skip
_GRID = np.sinh(np.linspace(-7.6, 7.6, 2048))  # ±1,000, dense around 0
_HALVINGS, _TRIALS = 48, 4


def is_continuous(f: Function) -> bool:
    """Whether a function has no jumps: by what it is made of, else by its values on both sides of where it changes most."""
    differentiated = any(factor.slopes for factor in f.factors)
    if not f.random or made_of(f) <= (SMOOTH if differentiated else _WITHOUT_JUMPS):
        return True
    random = np.random.default_rng(0)
    return not any(_jumps(f, random, several=len(f.random) > 1) for _ in range(_TRIALS if _moves(f) else 1))


def are_continuous(m: Any, *functions: Function) -> bool:
    """Whether all are; of each it is found once."""
    return all(m.own.once(("continuous", f.key), lambda f=f: is_continuous(f), f) for f in functions)


def _moves(f: Function) -> bool:
    return len(f.random) > 1 or any(det.number is None for det in f.dets)


def _jumps(f: Function, random: np.random.Generator, several: bool) -> bool:
    """Along one line through its variables, at some values of what is given."""
    dets = {id(det): det.number if det.number is not None else float(random.normal()) for det in f.dets}
    lines = {id(leaf): random.normal(size=2) if several else (0.0, 1.0) for leaf in f.random}

    def at(x: np.ndarray) -> np.ndarray:
        with jax.ensure_compile_time_eval(), jax.enable_x64(True):
            values: dict[int, Any] = {leaf: jnp.asarray(p + q * x) for leaf, (p, q) in lines.items()}
            found = np.asarray(f(values, lambda det: dets[id(det)]), float)
            return np.broadcast_to(np.nan_to_num(found), x.shape)  # 0/0 where a sign is a quotient

    low, high = _GRID[:-1], _GRID[1:]
    left, right = at(low), at(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        found = at(middle)
        in_left = abs(found - left) >= abs(right - found)
        low, high = np.where(in_left, low, middle), np.where(in_left, middle, high)
        left, right = np.where(in_left, left, found), np.where(in_left, found, right)
    beside = 1e-9 * (1 + abs(low))  # at a point alone a slope may be any number, as that of max(x, 0) is at 0
    left, right = at(low - beside), at(high + beside)
    size = np.maximum(abs(left), abs(right))
    return bool((abs(right - left) > 1e-6 * np.maximum(size, size[abs(low) < 3].max())).any())
