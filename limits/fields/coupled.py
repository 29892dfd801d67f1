"""Sweeps that share their draws: of a population of 2S neurons, and of its two halves.

A sweep of S samples is in law the network of width S, so that for any mean q over networks E q_N = q∞ + b/N + O(1/N²). From
q of the population and q_A, q_B of its halves, with Δ = q − ½ (q_A + q_B),

    q_N = q + (1 − 2S/N) Δ,   b = −2S Δ,   C = S ½ (V_A + V_B) + 4S [sym Cov(q_A + q_B, Δ) + Cov(Δ, Δ)],   Cov q_N = C/N.

As the draws are shared, Δ is of second order, and its errors are small beside those of q. C asks for A and B that are
independent: what does not grow with the width, as a readout's bias, is drawn for each of them, and for the population as
(A + B)/√2 where it is normal, so that of what enters outputs as bias/√N nothing is left in Δ; as that of A where it is not.

Reference: theory notes, "Finite width from the causal engine"; Richardson (1911).
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from limits.fields.matrix import Matrix
from zoo.abstract import abstract
from zoo.laws import Law, Unknown, laws
from zoo.once import once
from zoo.roles import Where, placed

_GROUPS = 40  # of replicas, for the standard errors of covariances
_CHANCE = 1e-4  # of saying that a variance is negative where it is not
_NEURONS = (
    "rich: observe returns arrays of neurons, of shapes {shapes[0]} of {samples[0]} samples and {shapes[1]} of {samples[1]}, and "
    "order=2 and width= compare means over them. Return means over neurons, or take order=1 and leave width out."
)
_NEGATIVE = (
    "rich: at width {width:g} the variance of outputs comes out as {value:.2g} ± {error:.1g} at {count} of {of} times and "
    "points: to order 1/width it is not what networks of that width have. Take more samples, or ask `ensemble`."
)


class Coupled(NamedTuple):
    """What sweeps of a population saw, and those of its halves: leaves [replica, …]. `samples`: of the population.

    `pair`: where hidden weights are not normal, what sweeps of `size` samples saw with their fourth cumulant and without
    (`fourth.py`).
    """

    whole: Any
    halves: tuple[Any, Any]
    samples: int
    pair: tuple[Any, Any] | None = None
    size: int = 0

    def at(self, width: float | None, values: Callable[[Any], Any] = lambda seen: seen) -> Any:
        """`values` of what was seen, at this width to O(1/N²), or at infinite width to O(1/samples²): [replica, …]."""
        whole, first, second = (values(each) for each in (self.whole, *self.halves))
        weight = 1.0 - (0.0 if width is None else self.samples / width)
        normal = jax.tree.map(lambda q, a, b: q + weight * (q - (a + b) / 2), whole, first, second)
        if width is None or self.pair is None:
            return normal
        own, other = (values(each) for each in self.pair)
        return jax.tree.map(lambda q, a, b: q + self.size / width * (a - b), normal, own, other)

    def covariance(self, f: Callable[[Any], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(C of f [replica, time, n, outputs], averaged over outputs: [time, n, n]; its standard errors)."""
        q, a, b = (np.asarray(f(each), np.float64) for each in (self.whole, *self.halves))
        found = _covariance(q, a, b, self.samples)
        groups = np.array_split(np.arange(len(q)), min(_GROUPS, len(q)))
        without = [np.setdiff1d(np.arange(len(q)), group) for group in groups]
        if any(len(rows) < 3 for rows in without):
            return found, np.full_like(found, np.nan)
        left = np.stack([_covariance(q[rows], a[rows], b[rows], self.samples) for rows in without])
        return found, np.sqrt((len(groups) - 1) / len(groups) * ((left - left.mean(0)) ** 2).sum(0))


def check_observed(whole: Any, half: Any, x: Any) -> None:
    """Raises where what sweeps observe goes with their samples, so that the whole's cannot be compared with the halves'."""
    key, shapes = jax.random.key(0), []
    for sweep in (whole, half):
        seen = sweep.shapes(sweep.shapes_at_start(key, x), x, key, ())
        shapes.append([leaf.shape for leaf in jax.tree.leaves(seen["observed"])])
    if shapes[0] != shapes[1]:
        raise ValueError(_NEURONS.format(shapes=shapes, samples=[sweep.net.width for sweep in (whole, half)]))


def check_variances(covariance: np.ndarray, errors: np.ndarray, replicas: int, width: float) -> None:
    """Warns where variances, the diagonals of [time, n, n], are negative by more than chance (Student's)."""
    import scipy.special

    value, error = (np.diagonal(each, axis1=1, axis2=2) for each in (covariance, errors))
    most = -scipy.special.stdtrit(min(_GROUPS, replicas) - 1, _CHANCE / max(value.size, 1))
    away = value < -most * error
    if away.any():
        i = np.unravel_index(np.argmin(np.where(away, value, 0)), value.shape)
        said = _NEGATIVE.format(width=width, value=value[i], error=error[i], count=int(away.sum()), of=value.size)
        warnings.warn(said, stacklevel=2)


def _covariance(q: np.ndarray, a: np.ndarray, b: np.ndarray, samples: int) -> np.ndarray:
    half, delta = samples / 2, q - (a + b) / 2

    def cov(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x, y = x - x.mean(0), y - y.mean(0)
        return np.einsum("rtik,rtjk->tij", x, y) / ((len(x) - 1) * x.shape[-1])

    cross = cov(a + b, delta)
    more = (cross + np.swapaxes(cross, 1, 2)) / 2 + cov(delta, delta)
    return half * (cov(a, a) + cov(b, b)) / 2 + 4 * half * more


def marked(revealed: Any, coupled: int, part: Any) -> Any:
    """Matrices as those of a population (1), or of its half (2) number `part`."""

    def mark(m: Matrix) -> Matrix:
        lead = m.start.shape
        return dataclasses.replace(m, coupled=coupled, part=None if part is None else jnp.full(lead, part, m.v.dtype))

    return jax.tree.map(mark, revealed, is_leaf=lambda leaf: isinstance(leaf, Matrix))


def half_of(params: Any, population: Any, net: Any, wide: Any, x: Any, part: Any) -> Any:
    """Parameters like `params`, those of the population's half: along axes twice as long, one half of the entries."""
    flat, whole = (flax.traverse_util.flatten_dict(tree) for tree in (params, population))
    stds = [_stds(each, x) for each in (net, wide)]

    def cut(path: Any) -> Any:
        leaf: Any = whole[path]
        wanted: Any = flat[path]
        for axis, (n, m) in enumerate(zip(wanted.shape, leaf.shape, strict=True)):
            if m == 2 * n:
                leaf = jax.lax.dynamic_slice_in_dim(leaf, jnp.asarray(part, jnp.int32) * n, n, axis)
        small, large = (std[path] for std in stds)
        return leaf if small == large else leaf * (small / large)

    return flax.traverse_util.unflatten_dict({path: cut(path) for path in flat})


def with_own(params: Any, again: Callable[[], Any], net: Any, x: Any, part: Any) -> Any:
    """Parameters of a population, in which what does not grow is that of half `part`, or of the whole (None).

    `again` draws all of them once more.
    """
    found = _of_one_size(net, tuple(x.shape), str(x.dtype))
    if not found:
        return params
    flat: Any = flax.traverse_util.flatten_dict(params)
    other: Any = flax.traverse_util.flatten_dict(again())
    for path, law in found.items():
        a, b = flat[path], other[path]
        if part is not None:
            flat[path] = jnp.where(part == 0, a, b)
        elif isinstance(law, Law) and law.gaussian:
            flat[path] = law.mean + ((a - law.mean) + (b - law.mean)) / 2**0.5
    return flax.traverse_util.unflatten_dict(flat)


@once(maxsize=64)
def _of_one_size(net: Any, shape: tuple[int, ...], kind: str) -> dict[Any, Law | Unknown]:
    """The laws of what is drawn and has no axis that grows with the width, by path."""
    x = abstract(shape, kind)

    def shapes(width: int) -> dict[Any, Any]:
        key, wide = jax.eval_shape(jax.random.key, 0), net.clone(width=width)
        init = jax.eval_shape(lambda key, x: nn.unbox(wide.init(key, x))["params"], key, x)
        flat: Any = flax.traverse_util.flatten_dict(init)
        return {path: leaf.shape for path, leaf in flat.items()}

    one, two = shapes(net.width), shapes(2 * net.width)
    same = [path for path, shape in one.items() if shape == two[path]]
    stds = _stds(net, x) if same else {}
    if not any(stds[path] for path in same):
        return {}
    read = laws(lambda key, x: nn.unbox(net.init(key, x))["params"], x)
    leaves = jax.tree_util.tree_leaves_with_path(read, is_leaf=lambda leaf: isinstance(leaf, Law | Unknown))
    known = {tuple(entry.key for entry in path): law for path, law in leaves}
    return {path: known[path] for path in same if isinstance(known[path], Unknown) or known[path].variance}


def _stds(net: Any, x: Any) -> dict[Any, float]:
    """Of the parameters at the start, as they are stored."""
    flat = jax.tree_util.tree_leaves_with_path(placed(net, x), is_leaf=lambda leaf: isinstance(leaf, Where))
    return {tuple(entry.key for entry in path): where.std for path, where in flat}
