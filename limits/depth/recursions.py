"""NNGP and NTK of deep networks, layer by layer to any depth, without loss of accuracy.

The algebra is that of the twins (`limits.kernels`). What goes through it is not, for the sake of great depth: mantissas with
powers of two, which a twin's `Walk` does not carry, and Hermite coefficients that are kept once no variance changes any more.
"""

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.depth.averages import NETWORK, RESIDUAL, accurate_orders, squares
from limits.depth.rates import DeepKernels
from limits.inputs import as_samples
from limits.kernels import Affine, State, activate, add, dense, dual, inputs
from limits.kernels.activations import as_piecewise_linear
from limits.kernels.hermite import coefficients, derivative, series
from limits.types import Provenance
from zoo import activation_function, checks
from zoo.once import jitted

_CHUNK = 32  # layers between two looks at whether the variances have settled
_DEPTHS = checks.Check(
    "a list of whole numbers from 1, such as [5]",
    lambda v: np.ndim(v) == 1 and len(v) and all(d >= 1 and int(d) == d for d in v),
)
_GAP = checks.Check("numbers between 0 and 2", lambda v: np.size(v) and (abs(np.asarray(v, float) - 1) <= 1).all())
_CORRELATION = checks.Check("numbers between −1 and 1", lambda v: _GAP.holds(np.asarray(v, float) + 1))


@dataclasses.dataclass(frozen=True)
class Layer:
    """What is the same in every layer: the code that is compiled is made from these."""

    phi: Any
    residual: str
    window: int
    has_bias: bool
    homogeneous: bool
    orders: int = 0  # of the Hermite series; 0: closed form


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Carry:
    """y^l: covariances r1 r2 (1 − gap) 4^height, tangent kernel k 2^power; powers of two, so that scaling is exact.

    same: pairs of an input with itself, whose gap is 0 by definition: in the chaotic phase a rounding error would grow as χ^l.
    """

    l: Any
    r1: Any
    r2: Any
    gap: Any
    height: Any
    k: Any
    power: Any
    same: Any


@checks.arguments(
    **NETWORK,
    depths=_DEPTHS,
    residual=RESIDUAL,
    window=checks.Check("0, or an odd number of positions", lambda v: v == 0 or operator.index(v) % 2 == 1 <= v),
)
def deep_kernels(
    x: Any,
    depths: Sequence[int] | np.ndarray,
    activation: Any = "relu",
    w_std: float = math.sqrt(2),
    b_std: float = 0.0,
    residual: str = "none",
    window: int = 0,
) -> DeepKernels:
    """Kernels between all inputs at every depth: covariance q^L of the outputs y^L, and the tangent kernel K^L.

        feed-forward     q^l = C^l,               K^l = q̇^l K^(l−1) + C^l
        "fixed"          q^l = q^(l−1) + C^l,     K^l = (1 + q̇^l) K^(l−1) + C^l
        "decreasing"     q^l = q^(l−1) + C^l / l, K^l = (1 + q̇^l / l) K^(l−1) + C^l / l

    with C^l = σ_b² + σ_w² E φφ', q̇^l = σ_w² E φ'φ' over N(0, q^(l−1)), and q¹ = K¹ = σ_b² + σ_w² x·x'/D in the first
    layer, which has no skip. depth L counts the layers of weights, and y^L is the output itself: `zoo.MLP` of depth L − 1.
    All weights and biases are N(0, 1) times σ_w/√n and σ_b.

    x: [n, D], or with `window` (2k + 1 positions, circular) [n, P, C] for the convolutional networks, whose kernels
    [n, n, P, P] hold all pairs of positions: then C^l and q̇^l K^(l−1) are averaged over the window, both positions
    shifted alike.

    1 − c is carried, not c, the K of pairs as a mantissa and a power of two, and so are the variances of positively
    homogeneous activations, so that nothing over- or underflows: depth 100,000 keeps its digits. A network whose variances
    settle gets there in seconds; where they never do (tanh in a residual network) every layer takes quadrature of its own.

    >>> k = deep_kernels(np.sqrt(2) * np.array([[1.0, 0.0], [0.5, 0.75**0.5]]), depths=[3, 30, 10_000])
    >>> (k.ntk[:, 0, 1] / k.ntk[:, 0, 0]).round(6).tolist()
    [0.450493, 0.318775, 0.250469]

    Reference: Hayou, Doucet, Rousseau, The curse of depth in kernel regime, lemmas 1-4. In their proofs for residual networks
    K^l gains the total covariance q^l where only the block's own C^l belongs (finite networks agree with C^l), the
    convolutional lines lack the 1/2 of relu, and sums over positions shift both by the same β.
    """
    x = as_samples(x, "x")
    want = 3 if window else 2
    if x.ndim != want:
        raise ValueError(
            f"x must be [n, D], or [n, P, C] with a window; got shape {x.shape} and window {window}."
            + (" Give window=3, say, for positions." if x.ndim == 3 else "")
        )
    with jax.enable_x64(True):
        flat = jax.jit(inputs)(*(jnp.asarray(x.reshape(-1, x.shape[-1])),) * 2)
        if not window:
            return _run(flat, depths, activation, w_std, b_std, residual, 0)
        n, p = x.shape[:2]
        r = np.asarray(flat.r1).reshape(n, p)
        gap = np.asarray(flat.gap).reshape(n, p, n, p).transpose(0, 2, 1, 3)
        start = (jnp.asarray(a) for a in (r[:, None, :, None], r[None, :, None, :], gap, np.zeros_like(gap)))
        return _run(State(*start), depths, activation, w_std, b_std, residual, window)


@checks.arguments(
    **NETWORK,
    c=checks.nothing | _CORRELATION,
    gap=_GAP,
    depths=_DEPTHS,
    residual=RESIDUAL,
    q=checks.number(positive=True),
)
def deep_pair(
    c: Any,
    depths: Sequence[int] | np.ndarray,
    activation: Any = "relu",
    w_std: float = math.sqrt(2),
    b_std: float = 0.0,
    residual: str = "none",
    q: float | None = None,
    gap: Any = None,
) -> DeepKernels:
    """Kernels of pairs of inputs with correlation c¹ (one, or an array) and variance q¹ = `q` in the first layer, [depth, …].

    Give `gap` = 1 − c¹ (and c=None) where c is too near 1 to be written. Default q: w_std² + b_std², inputs of size 1.

    >>> from limits.depth import edge_of_chaos, phase
    >>> w = edge_of_chaos("tanh", 0.2)
    >>> k = deep_pair([0.5, 1.0], depths=[10, 1000], activation="tanh", w_std=w, b_std=0.2, q=phase("tanh", w, 0.2).q)
    >>> (k.ntk[:, 0] / k.ntk[:, 1]).round(3).tolist()
    [0.437, 0.332]
    """
    if (c is None) == (gap is None):
        raise ValueError("Give the correlation c, or gap = 1 − c and c=None.")
    q = float(sum(squares(w_std, b_std)) if q is None else q)
    away = np.asarray(1 - np.asarray(c, float) if gap is None else gap, float)
    with jax.enable_x64(True):
        r = np.full((1,) * away.ndim, math.sqrt(q))
        first = State(*(jnp.asarray(a) for a in (r, r, away, q * (1 - away))))
        return _run(first, depths, activation, w_std, b_std, residual, 0, started=True)


def _run(
    start: State,
    depths: Any,
    activation: Any,
    w_std: float,
    b_std: float,
    residual: str,
    window: int,
    started: bool = False,
) -> DeepKernels:
    """Advances from the inputs (`started`: from y¹) through all depths."""
    phi = activation_function(activation)
    w, b = squares(w_std, b_std)
    layer = Layer(phi, residual, window, b > 0, as_piecewise_linear(phi) is not None)
    scales = (jnp.asarray(w, float), jnp.asarray(b, float))
    carry = first_layer(start, scales, layer, started)
    recorded, walk, now = {}, _Walk(layer, scales), 1
    for depth in sorted({int(d) for d in depths}):
        carry = walk.advance(carry, depth - now)
        now = depth
        recorded[depth] = jax.tree.map(np.asarray, carry)
        if not all(np.isfinite(getattr(recorded[depth], name)).all() for name in ("r1", "r2", "gap", "k")):
            raise ValueError(
                f"The signal overflows before depth {depth} at w_std {w_std:g}, b_std {b_std:g}: take a smaller w_std or depth."
            )
    return DeepKernels.of([recorded[int(d)] for d in depths], walk.provenance)


@jitted(static_argnames=("layer", "started"))
def first_layer(state: State, scales: tuple, layer: Layer, started: bool) -> Carry:
    """y¹, from the inputs if that is not what was given."""
    if not started:
        state = dense(state, Affine(*scales, *scales), layer.has_bias)
        state = _averaged(state, layer.window) if layer.window else state
    zero = jnp.zeros((), jnp.int64)
    powers = jnp.zeros((*state.ntk.shape[:2], 1, 1) if layer.window else state.ntk.shape, jnp.int64)
    same = (state.gap == 0) & (state.r1 == state.r2)
    carry = Carry(jnp.ones((), jnp.int64), state.r1, state.r2, state.gap, zero, state.ntk, powers, same)
    return _rescaled(carry, layer)


class _Walk:
    """Carries a state through layers; once no variance changes any more, with Hermite coefficients computed only once."""

    def __init__(self, layer: Layer, scales: tuple) -> None:
        self.layer, self.scales, self.settled, self.largest = layer, scales, None, 0.0
        self.provenance = Provenance("exact", "closed form")

    def advance(self, carry: Carry, count: int) -> Carry:
        while count > 0:
            if self.layer.homogeneous or self.settled is not None:
                return layers(carry, count, self.settled, self.scales, self.layer)
            done = min(count, _CHUNK)
            self._make_room(carry)
            before, carry = carry, layers(carry, done, None, self.scales, self.layer)
            if self._make_room(carry):  # signals have grown beyond what the series was made for
                carry = layers(before, done, None, self.scales, self.layer)
            same = all(_same(getattr(before, r), getattr(carry, r)) for r in ("r1", "r2"))
            if self.layer.orders and done > 1 and same:
                self.settled = settle(self.layer.phi, carry.r1, carry.r2, self.layer.orders)
            count -= done
        return carry

    def _make_room(self, carry: Carry) -> bool:
        """Chooses the average for the largest signal so far; whether it is another one now."""
        largest, before = float(max(carry.r1.max(), carry.r2.max())), self.layer.orders
        if not largest <= self.largest:  # NaN too: it is refused
            orders, self.provenance = accurate_orders(self.layer.phi, largest)
            self.largest, self.layer = largest, dataclasses.replace(self.layer, orders=orders)
        return self.layer.orders != before


@jitted(static_argnums=(0, 3))
def settle(phi: Any, r1: jax.Array, r2: jax.Array, orders: int) -> tuple:
    """Hermite coefficients at variances that no longer change."""
    return tuple(coefficients(f, r, orders) for f in (phi, derivative(phi)) for r in (r1, r2))


def _same(before: Any, after: Any) -> bool:
    return bool(np.all(np.abs(np.asarray(after - before)) <= 2e-15 * np.asarray(after)))


def _frozen(settled: tuple) -> Any:
    """The average between variances that are mapped to themselves, from their Hermite coefficients."""
    a1, a2, d1, d2 = settled

    def average(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> tuple:
        del r1, r2
        s1, s2 = (jnp.sqrt(jnp.sum(a * a, axis=0)) for a in (a1, a2))
        u1, u2 = (a / jnp.where(s > 0, s, 1)[None] for a, s in ((a1, s1), (a2, s2)))  # signals may have vanished
        return s1, s2, *series(u1, u2, d1, d2, gap)

    return average


@jitted(static_argnames=("layer",))
def layers(carry: Carry, count: Any, settled: Any, scales: tuple, layer: Layer) -> Carry:
    """`count` layers further."""
    average = dual(layer.phi, layer.orders) if settled is None else _frozen(settled)
    return jax.lax.fori_loop(0, count, lambda _, c: _step(c, average, scales, layer), carry)


def _step(carry: Carry, average: Any, scales: tuple, layer: Layer) -> Carry:
    """One layer. With a tangent kernel of 1 put in, what comes out of the algebra is q̇ itself."""
    w, b = scales
    state = State(carry.r1, carry.r2, carry.gap, jnp.ones_like(carry.gap))
    bias = jnp.ldexp(b, -2 * carry.height) if layer.homogeneous else b
    branch = dense(activate(state, average), Affine(w, bias, 0.0, 0.0), layer.has_bias)
    gain, l = branch.ntk, carry.l + 1
    own = jnp.ldexp(branch.covariance, (2 * carry.height - carry.power).astype(jnp.int32))
    k = gain * carry.k + own
    if layer.window:
        branch, k = _averaged(branch, layer.window), _over_window(k, layer.window)
    if layer.residual != "none":
        scale = 1 / jnp.sqrt(l.astype(float)) if layer.residual == "decreasing" else jnp.ones(())
        k, branch = carry.k + scale**2 * k, add(state, branch, scale)
    gap = jnp.where(carry.same, 0, branch.gap)
    return _rescaled(Carry(l, branch.r1, branch.r2, gap, carry.height, k, carry.power, carry.same), layer)


def _rescaled(carry: Carry, layer: Layer) -> Carry:
    """The same numbers with mantissas near 1."""
    k = jnp.abs(carry.k)
    _, up = jnp.frexp(k.max((2, 3), keepdims=True) if layer.window else k)
    up = jnp.where(up > -1000, up, 0)  # zero has no size
    carry = dataclasses.replace(carry, k=jnp.ldexp(carry.k, -up), power=carry.power + up)
    if not layer.homogeneous:
        return carry
    top = jnp.maximum(carry.r1, carry.r2) if jnp.ndim(carry.height) else jnp.maximum(carry.r1.max(), carry.r2.max())
    _, up = jnp.frexp(top)
    r1, r2 = (jnp.ldexp(r, -up) for r in (carry.r1, carry.r2))
    return dataclasses.replace(carry, r1=r1, r2=r2, height=carry.height + up)


def _over_window(a: jax.Array, window: int) -> jax.Array:
    """The mean over β of a_(α+β)(α'+β), on a circle (where an axis of one entry stays so)."""
    half = window // 2
    return sum((_rolled(a, o) for o in range(-half, half + 1)), jnp.zeros_like(a)) / window


def _rolled(a: jax.Array, offset: int) -> jax.Array:
    axes = tuple(i for i in (-2, -1) if a.shape[i] > 1)
    return jnp.roll(a, (-offset,) * len(axes), axes)


def _averaged(state: State, window: int) -> State:
    """The covariance averaged over the window. With unit vectors u, v of the standard deviations within it,

    1 − c = ½ |u − v|² + Σ_β u_β v_β (1 − c_β),  which has no cancellation.
    """
    r1, r2 = (jnp.sqrt(_over_window(r * r, window)) for r in (state.r1, state.r2))
    u, v = (jnp.where(r > 0, r, 1) for r in (r1, r2))
    gap = jnp.zeros_like(state.gap)
    for o in range(-(window // 2), window // 2 + 1):
        a, b, g = (_rolled(s, o) for s in (state.r1, state.r2, state.gap))
        gap = gap + ((a / u - b / v) ** 2 / 2 + a * b / (u * v) * g) / window
    return State(r1, r2, jnp.clip(gap, 0, 2), _over_window(state.ntk, window))
