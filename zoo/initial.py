"""How the initialisation of every parameter scales with width and depth: by its law, or measured by as few draws as it takes."""

import contextlib
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo.laws import Law, Unknown, laws
from zoo.names import by_name, numberless

POWERS = (0.0, -0.5, -1.0, 0.5)  # of the width or depth that initialisations scale with
_DRAWS, _ENTRIES = 64, 2**24  # at most so many initialisations, and so many numbers drawn (but for the first)
_PROGRAMS = 32  # that are kept


def init_powers(
    init: Callable, sizes: Sequence[Mapping[str, Any]], ratios: tuple[float, float], entries: Mapping[str, int]
) -> dict[str, tuple[float, float]]:
    """The powers of width and depth that initialisations scale with, rounded to halves.

    As Xavier's √(2/(fan_in + fan_out)) is none where one side grows, laws that are read may have any power: that between the
    two sizes, by which `Roles.rescale` makes exactly the standard deviation that is wanted.

    sizes: the base, with the other depth, with the other width too; ratios: of width and of depth. entries: how many
    independent ones each parameter has at least.
    """
    logs = [abs(math.log(ratio)) for ratio in ratios if ratio != 1]
    if not logs:
        return dict.fromkeys(entries, (0.0, 0.0))
    # Five standard errors of a ratio of two root mean squares, 5/√n, are then 0.02 of a power.
    needed = (5 / (0.02 * min(logs))) ** 2
    found: dict[tuple, Any] = {}
    for at in sizes:
        key = tuple(sorted(at.items()))
        found[key] = found.get(key) or _root_mean_squares(init, at, entries, needed)
    small, tall, large = (found[tuple(sorted(at.items()))] for at in sizes)
    out = {}
    for name, count in entries.items():
        first = small.get(name) or _nearest(name, small)
        draws = min(each[name][1] for each in (tall, large))
        noise = max(5 / max(count * draws, 1) ** 0.5, 1e-3)
        out[name] = (
            _power(f"{name}: the width", tall[name], large[name], ratios[0], noise),
            _power(f"{name}: the depth", first or (0.0, math.inf), tall[name], ratios[1], noise),
        )
    return out


def _nearest(name: str, small: Mapping[str, Any]) -> Any:
    """That of the layer whose name differs from this one in the fewest numbers, and in nothing else; None without one."""

    def differing(other: str) -> int:
        return sum(a != b for a, b in zip(*(re.findall(r"\d+", each) for each in (name, other)), strict=True))

    alike = [other for other in small if numberless(other) == numberless(name)]
    return small[min(alike, key=differing)] if alike else None


def _root_mean_squares(
    init: Callable, at: Mapping[str, Any], entries: Mapping[str, int], needed: float
) -> dict[str, tuple[float, float]]:
    """(root mean square, number of draws) of every parameter, with `needed` entries in all where they are random.

    Of laws that are read off the program of `init` there is no end of draws.
    """
    leaves = by_name(_laws(init, at), is_leaf=lambda leaf: isinstance(leaf, (Law, Unknown)))
    known = {name: law for name, law in leaves.items() if isinstance(law, Law)}
    found = {name: (math.hypot(law.mean, law.variance**0.5), math.inf) for name, law in known.items()}
    if len(found) == len(leaves):
        return found
    shapes = by_name(jax.eval_shape(lambda key: init(key, **at), jax.random.key(0)))
    measured = {name: _representative(name, shapes) for name in shapes if name not in found}
    kept = sorted(set(measured.values()))

    def squares(key: Any) -> Any:
        leaves = by_name(init(key, **at))
        return jnp.stack([jnp.mean(jnp.square(leaves[name].astype("float32"))) for name in kept])

    most = max(1, min(_DRAWS, _ENTRIES // max(sum(math.prod(leaf.shape) for leaf in shapes.values()), 1)))
    with jax.ensure_compile_time_eval():  # a caller may be tracing
        drawn = _drawn(squares)
        for i in range(most):
            draws = drawn.first(i + 1)
            fixed = (np.ptp(draws, axis=0) == 0) & (i > 0)  # drawn at random, they would differ
            if all(fixed[j] or entries.get(name, 1) * (i + 1) >= needed for j, name in enumerate(kept)):
                break
    roots = dict(zip(kept, np.sqrt(draws.mean(0)), strict=True))
    return found | {name: (float(roots[one]), len(draws)) for name, one in measured.items()}


def _laws(init: Callable, at: Mapping[str, Any]) -> Any:
    """Of every parameter, as far as they can be read."""
    reason = Unknown("the program of init cannot be read")
    with contextlib.suppress(Exception):  # what cannot be read is drawn
        return laws(lambda key: init(key, **at))
    return jax.tree.map(lambda _: reason, jax.eval_shape(lambda key: init(key, **at), jax.random.key(0)))


def zeros_of(init: Callable, at: Mapping[str, Any]) -> set[str]:
    """The parameters that start at zero, of those whose laws can be read.

    >>> sorted(zeros_of(lambda key: {"a": jnp.zeros(2), "b": jnp.ones(2)}, {}))
    ['a']
    """
    leaves = by_name(_laws(init, at), is_leaf=lambda leaf: isinstance(leaf, (Law, Unknown)))
    return {name for name, law in leaves.items() if isinstance(law, Law) and not law.mean and not law.variance}


class _Drawn:
    """What a compiled function of a key gives for the first keys, once."""

    def __init__(self, program: Callable) -> None:
        self.program, self.found = program, []

    def first(self, count: int) -> np.ndarray:
        """[count, …]"""
        while len(self.found) < count:
            key = jax.random.fold_in(jax.random.key(0), len(self.found))
            self.found.append(np.asarray(self.program(key)))
        return np.stack(self.found[:count])


_KEPT: dict[str, _Drawn] = {}  # by program: the base size is the same for every target


def _drawn(function: Callable) -> _Drawn:
    lowered = jax.jit(function).lower(jax.random.key(0))
    name = hashlib.sha256(lowered.as_text().encode()).hexdigest()
    if name not in _KEPT:
        # It runs a few times: that it is compiled fast counts for more than that it is fast.
        quick: Any = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
        _KEPT[name] = _Drawn(lowered.compile(compiler_options=quick))
        while len(_KEPT) > _PROGRAMS:
            del _KEPT[next(iter(_KEPT))]
    return _KEPT[name]


def _representative(name: str, shapes: Mapping[str, Any]) -> str:
    """Of blocks that differ by their numbers alone, the first: one of them is compiled."""

    def kind(name: str) -> tuple[str, ...]:
        *outer, layer, parameter = ["", *name.split(".")]
        return (*map(numberless, outer), layer, parameter)

    alike = [other for other in shapes if kind(other) == kind(name) and shapes[other].shape == shapes[name].shape]
    return min(alike, key=lambda other: (len(other), other))


def _power(what: str, before: tuple[float, float], after: tuple[float, float], ratio: float, noise: float) -> float:
    """The power of the ratio that the change is, of (root mean square, number of draws): without end where a law is read."""
    if ratio == 1 or before[0] == 0 or after[0] == 0:
        return 0.0
    power = float(np.log(after[0] / before[0]) / np.log(ratio))
    nearest = min(POWERS, key=lambda p: abs(p - power))
    if abs(power - nearest) <= min(noise / abs(np.log(ratio)), 0.24):
        return nearest
    if before[1] == after[1] == math.inf:
        return power
    raise ValueError(
        f"infer_roles: {what} changes by {ratio:g} and its initialisation by {after[0] / before[0]:.3g}, which is the power "
        f"{power:.3f}, none of {', '.join(f'{p:g}' for p in POWERS)}. It was drawn, since its law was not read off the program "
        "of init; of normal, truncated normal and uniform laws any power will do."
    )
