"""Gaussian averages for any activation, as a series in the correlation."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.activations import Dual
from limits.kernels.high_orders import beyond_last
from limits.kernels.special import held, safe_sqrt, snapped

ORDERS = (32, 64, 128, 256, 512, 1024)
TOLERANCE = 1e-12


_FINEST = 20  # octaves below 1/2


def nodes(orders: int, finer: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Quadrature nodes z [m] and the matrix [m, orders] of w(z) He_k(z)/sqrt(k!), for averages over N(0, 1).

    Gauss–Legendre panels on [−10, 10] rather than Gauss–Hermite: of width 1/2, and towards 0, where φ(r z) does at z ~ 1/r
    what φ does at 1, of half the width each to 2^−21. They converge for functions with poles near the real axis (tanh of an
    argument up to 1e6), and a kink at 0 falls between two panels. `finer`: every panel halved, and six octaves more.
    """
    return _nodes_of(np.dtype(jax.dtypes.canonicalize_dtype("float64")), orders, finer)


@functools.cache
def _nodes_of(dtype: np.dtype, orders: int, finer: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """`nodes` in this type; as the same arrays at every call, which a program that asks for them often holds once.

    Others for each type: one that jax met in float64 stays float64 where that is switched off.
    """
    z, table = _nodes(orders, finer)
    return z.astype(dtype), table.astype(dtype)


@functools.cache
def _nodes(orders: int, finer: bool) -> tuple[np.ndarray, np.ndarray]:
    octaves = _FINEST + 6 * finer
    edges = np.r_[0, 2.0 ** np.arange(-octaves - 1, -1), np.arange(0.5, 10.25, 0.5)]
    edges = np.interp(np.arange(0, len(edges) - 0.75, 0.5), np.arange(len(edges)), edges) if finer else edges
    t, w = np.polynomial.legendre.leggauss(24)
    half = np.diff(edges)[:, None] / 2
    right, share = ((edges[:-1, None] + half * (1 + t)).ravel(), (half * w).ravel())
    z, share = np.r_[-right[::-1], right], np.r_[share[::-1], share]
    weight = share * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    table = np.empty((len(z), orders))
    table[:, 0], table[:, 1] = np.exp(-z * z / 4), z * np.exp(-z * z / 4)
    for k in range(2, orders):
        table[:, k] = (z * table[:, k - 1] - np.sqrt(k - 1) * table[:, k - 2]) / np.sqrt(k)
    return z, table * (weight * np.exp(z * z / 4))[:, None]


def off_zero(r: jax.Array) -> jax.Array:
    """r, or what is as good as zero: at 0 itself derivatives of code such as max(x, 0) + log(1 + exp(−|x|)) may be wrong."""
    return jnp.where(r > 0, r, 1e-20)


def coefficients(phi: Any, r: jax.Array, orders: int) -> jax.Array:
    """a_k with φ(r z) = Σ a_k He_k(z)/sqrt(k!), [orders + 1, *r.shape]; the last holds what the others miss of E φ².

    So Σ a_k² = E φ(r z)² to the accuracy of the quadrature, and the series is exact at correlation 1 whatever the
    truncation.
    """
    z, table = (jnp.asarray(part) for part in _nodes_of(r.dtype, orders))
    return expanded(phi(r.reshape(-1, 1) * z[None, :]), table).T.reshape(orders + 1, *r.shape)


def expanded(values: Any, table: Any) -> Any:
    """The same of values [..., nodes] at `nodes`: [..., orders + 1].

    What is missed is nothing where it is rounding, whose root would be a difference of two rows of one input: √ε in the angle.
    """
    a = jnp.matmul(values, table, precision=jax.lax.Precision.HIGHEST)
    total = _averaged(values * values, table)
    missed = total - jnp.sum(a * a, axis=-1)
    rest = safe_sqrt(jnp.where(missed > 16 * jnp.finfo(a.dtype).eps * total, missed, 0))
    return jnp.concatenate([a, rest[..., None]], axis=-1)


def _averaged(values: Any, table: Any) -> Any:
    return jnp.matmul(values, table[:, 0], precision=jax.lax.Precision.HIGHEST)


def mean(function: Any) -> Any:
    """E function(z), from its values [..., nodes] at the finer ones."""
    z, table = nodes(2, True)
    return _averaged(function(z), table)


def rms(phi: Any, r: jax.Array, finer: bool = False) -> jax.Array:
    """sqrt(E φ(r z)²)."""
    z, table = (jnp.asarray(part) for part in _nodes_of(r.dtype, 2, finer))
    values = phi(r[:, None] * z[None, :])
    return safe_sqrt(_averaged(values * values, table))


def derivative(phi: Any) -> Any:
    """φ', elementwise, by automatic differentiation."""
    return lambda x: jax.jvp(phi, (x,), (jnp.ones_like(x),))[1]


STEEP = "goes as 1/√|h| or faster at h = 0, so that its mean square, and with it"  # what is infinite
TOWARDS_ZERO = np.r_[1.0, -1.0][:, None] * 2.0 ** -np.array([20, 40])


def infinite_square(values: np.ndarray) -> bool:
    """Whether E φ(r z)² is infinite, from φ at `TOWARDS_ZERO`: φ² goes as 1/|z| or faster there.

    >>> [infinite_square(np.abs(TOWARDS_ZERO) ** -power) for power in (0.49, 0.5, 1.0)]
    [False, True, True]
    """
    with np.errstate(all="ignore"):
        far, near = np.asarray(values, float).reshape(2, 2).T ** 2
        return bool(np.any(np.log2(near / far) > 0.995 * 20))


def _sizes(r: float) -> Any:
    """Standard deviations up to r: what is far from 0 there may count at smaller ones."""
    return r * 2.0 ** -jnp.arange(0, 4, 0.4)


def orders_needed(phi: Any, r: float) -> tuple[int, float]:
    """How many orders bring the missing share of E φ² and E φ'² up to r below `TOLERANCE`, and that share.

    >>> orders_needed(jnp.tanh, 1.0)
    (128, 0.0)
    """
    with jax.enable_x64(True):
        squares = [np.asarray(coefficients(f, _sizes(r), ORDERS[-1])) ** 2 for f in (phi, derivative(phi))]
    totals = [s.sum(0) for s in squares]
    missing = [1 - np.cumsum(s, 0) / np.where(t > 0, t, 1) for s, t in zip(squares, totals, strict=True)]
    for orders in ORDERS:
        share = max(float(np.max(m[orders - 1], where=t > 0, initial=0)) for m, t in zip(missing, totals, strict=True))
        if share < TOLERANCE:
            return orders, 0.0
    return ORDERS[-1], share  # pyright: ignore[reportPossiblyUnboundVariable]


def series_error(phi: Any, r: float, missing: float) -> float:
    """The relative error of E φφ' and E φ'φ' where orders that miss so much are continued from those before, up to r.

    >>> series_error(jax.nn.relu, 1.0, 8e-3) < 1e-8, 1e-4 < series_error(lambda x: jax.nn.relu(x + 0.5), 1.0, 5e-3) < 1e-2
    (True, True)
    """
    if missing == 0:
        return 0.0
    return min(max(error_of_continuing(f, r) for f in (phi, derivative(phi))), 2.1 * missing)


def error_of_continuing(f: Any, r: float) -> float:
    """The same of E f f' of one function."""
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        z, table = nodes(ORDERS[-1])
        return float(_continued_error(f(_sizes(r)[:, None] * z[None]), jnp.asarray(table)))


def quadrature_error(phi: Any, r: float) -> float:
    """The relative error of E φ² and E φ'² by quadrature, up to r: twice the largest difference to a finer rule.

    It is rounding but for kinks elsewhere than at 0, and for features of φ narrower than some 1e-7 r. Where both rules miss them,
    E φ'² is below its least, Var φ(r z)/r² (Poincaré's inequality), and the error at least what is missing of that.

    >>> quadrature_error(jnp.tanh, 1e4) < 1e-12, 1e-4 < quadrature_error(jax.nn.hard_tanh, 10.0) < 0.1
    (True, True)
    >>> quadrature_error(jnp.tanh, 1e20), quadrature_error(lambda x: 0 * x + 1, 1e20) < 1e-12
    (1.0, True)
    """
    with jax.enable_x64(True):
        sizes, worst, least = _sizes(r), 0.0, np.zeros(10)
        for f in (phi, derivative(phi)):
            coarse, fine = (np.asarray(rms(f, sizes, finer)) ** 2 for finer in (False, True))
            missing = np.where(fine < least, 1 - fine / np.where(least > 0, least, 1), 0)
            apart = 2 * np.abs(coarse - fine) / np.where(fine > 0, fine, 1)
            worst = max(worst, float(np.max(np.maximum(apart, missing))))
            spread = fine - np.asarray(mean(lambda z, f=f: f(sizes[:, None] * z[None, :]))) ** 2
            least = np.where(spread > 1e-9 * fine, (1 - 1e-9) * spread / np.asarray(sizes) ** 2, 0)
    return worst


def hermite(phi: Any, orders: int) -> Dual:
    """E φφ' = Σ a_k(r1) a_k(r2) c^k and E φ'φ' likewise (Mehler's formula), summed so that small gaps keep digits.

    With unit vectors â = a/|a|:  1 − c' = ½ Σ (â1 − â2)² + (1 − c) Σ_j c^j Σ_{k>j} â1_k â2_k.
    The orders beyond `orders`, at most twice the share that `orders_needed` returns, times |c|^orders, are continued from those
    before (`beyond_last`), with an error that `series_error` estimates.
    """

    def dual(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> tuple:
        a1, a2 = (coefficients(phi, r, orders) for r in (r1, r2))
        d1, d2 = (coefficients(derivative(phi), off_zero(r), orders) for r in (r1, r2))
        s1, s2 = (safe_sqrt(jnp.sum(a * a, axis=0)) for a in (a1, a2))
        a1, a2 = (a / jnp.where(s > 0, s, 1)[None] for a, s in ((a1, s1), (a2, s2)))
        return s1, s2, *series(a1, a2, d1, d2, gap)

    return dual


def summed(a: Any, b: Any, c: Any) -> Any:
    """Σ_k a_k b_k c^k of coefficients [orders, …]."""

    def add(found: Any, rows: Any) -> tuple[Any, None]:
        return found * c + rows[0] * rows[1], None

    start = jnp.zeros(np.broadcast_shapes(c.shape, a.shape[1:], b.shape[1:]), a.dtype)
    return jax.lax.scan(add, start, (a[::-1], b[::-1]), unroll=8)[0]


def series(a1: jax.Array, a2: jax.Array, d1: jax.Array, d2: jax.Array, gap: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(1 − c', E φ'φ') from Hermite coefficients [orders, …]: unit vectors a of φ, and d of φ'. See `hermite`."""
    c, all_of, zero = 1 - gap, (a1, a2, d1, d2), jnp.zeros_like(gap)

    def add(carry: tuple, terms: tuple) -> tuple[tuple, None]:
        tail, bent, slope, spread = carry
        u, v, du, dv = terms
        tail = tail + u * v
        return (tail, bent * c + tail, slope * c + du * dv, spread + (u - v) ** 2 / 2), None

    def ending(carry: tuple, terms: tuple) -> tuple[tuple, None]:
        sums, (sign, u, v, du, dv) = carry[1], terms
        products = u * v, sign * u * v, du * dv, sign * du * dv
        return (
            add(carry[0], terms[1:])[0],
            tuple(s + product for s, product in zip(sums, products, strict=True)),
        ), None

    terms, carry, lost, beyond = tuple(x[:0:-1] for x in all_of), 4 * (zero,), 0.0, 0.0
    if len(a1) > ORDERS[-1]:  # shorter ones miss nothing that counts
        half = len(a1) // 2
        last, terms = tuple(x[1 : half + 1] for x in terms), tuple(x[half + 1 :] for x in terms)
        (carry, sums), _ = jax.lax.scan(ending, (carry, carry), (_signs(a1), *last), unroll=8)
        lost = (a1[-1] - a2[-1]) ** 2 / 2 + a1[-1] * a2[-1] * beyond_last(a1, a2, gap, *sums[:2])[1]
        beyond = d1[-1] * d2[-1] * beyond_last(d1, d2, gap, *sums[2:])[0]
    (_, bent, slope, spread), _ = jax.lax.scan(add, carry, terms, unroll=8)
    spread = spread + (a1[0] - a2[0]) ** 2 / 2
    bent = spread + gap * bent + lost
    alike = spread <= (64 * jnp.finfo(gap.dtype).eps) ** 2  # but for the rounding of rows and columns
    bent = jnp.where((gap == 2) & alike, snapped(bent), held(bent))  # of even and odd φ, 0 and 2
    return bent, slope * c + d1[0] * d2[0] + beyond


def _signs(a: Any) -> Any:
    """(−1)^k of the half before the last order, downwards."""
    return jnp.asarray((-1.0) ** np.arange(len(a) - 2, len(a) // 2 - 1, -1), a.dtype)


def whole_series(a: Any, b: Any, gap: Any) -> Any:
    """Σ_k a_k b_k c^k with what is beyond the last order."""
    found, half = summed(a[:-1], b[:-1], 1 - gap), len(a) // 2
    if len(a) <= ORDERS[-1]:
        return found
    sums = [
        jnp.sum(sign * a[half:-1] * b[half:-1], 0) for sign in (1, _signs(a)[::-1].reshape(-1, *(1,) * (a.ndim - 1)))
    ]
    return found + a[-1] * b[-1] * beyond_last(a, b, gap, *sums)[0]


def series_between_ends(a: Any, b: Any, gap: Any, f: Any, g: Any) -> Any:
    """Σ_k a_k b_k c^k; at c = ±1 what is beyond is known: Σ_z f(z) g(±z) of values at nodes, those of f with weights."""
    c, half, zero = 1 - gap, len(a) // 2, jnp.zeros_like(gap)

    def add(found: tuple, rows: tuple) -> tuple[tuple, None]:
        product = rows[0] * rows[1]
        return (found[0] * c + product, found[1] + product, product - found[2]), None

    def add_ends(found: tuple, rows: tuple) -> tuple[tuple, None]:
        return (found[0] + rows[0] * rows[1], found[1] + rows[0] * rows[2]), None

    (within, *known), _ = jax.lax.scan(add, (zero, zero, zero), (a[-2::-1], b[-2::-1]), unroll=4)
    ends, _ = jax.lax.scan(add_ends, (zero, zero), (f, g, g[::-1]), unroll=4)
    # With a_k b_k ~ e^(−s √(k/K)) beyond K, as of what is steep, they go over 2K/s orders. The laws of `beyond_last` would take
    # ten times as long to compile, and second derivatives have hundreds of these sums.
    halves = [jnp.sum(each[half:-1] ** 2, 0) / jnp.maximum(each[-1] ** 2, 1e-30) for each in (a, b)]
    s = jnp.maximum((jnp.log1p(halves[0]) + jnp.log1p(halves[1])) / (2 - 2**0.5), 0.5)
    x = (1 - len(a)) * jnp.log1p(-jnp.minimum(jnp.minimum(gap, 2 - gap), 0.05))
    return within + jnp.exp(-x) / (1 + 2 * x / s) * jnp.where(gap > 1, ends[1] - known[1], ends[0] - known[0])


def continued_error(values: Any, table: Any) -> Any:
    """The largest relative error of averages whose orders beyond the last are continued, from values [points, nodes] at `nodes`.

    1.5 times how far Σ a_k² c^k is from what half of the orders and `beyond_last` make of it: kinks at 0 are known ten times
    better, others and what is steep half as well to four times better. And what pairs of points are off at c = ±1, where one
    variable is left: E φ(r1 z) φ(±r2 z).
    """
    a = expanded(values, table).T
    orders, gaps = len(a) - 1, np.r_[0, 10.0 ** -np.arange(0.5, 7.5, 0.5), 0.1]
    gaps = np.r_[gaps, 2 - gaps].astype(a.dtype)
    powers = (1 - gaps)[:, None] ** np.arange(orders)
    exact = jax.lax.Precision.HIGHEST

    def whole(count: int) -> Any:
        rest = safe_sqrt(jnp.sum(a[count:] ** 2, 0))
        cut = jnp.concatenate([a[:count], rest[None]])[..., None]
        ends = cut[count // 2 : -1] ** 2
        signs = (-1.0) ** np.arange(count // 2, count).reshape(-1, 1, 1)
        share, _ = beyond_last(cut, cut, jnp.asarray(gaps)[None], jnp.sum(ends, 0), jnp.sum(signs * ends, 0))
        known = jnp.matmul(cut[:-1, :, 0].T ** 2, powers[:, :count].T, precision=exact)
        return known + cut[-1] ** 2 * share

    def at_the_end(sign: int) -> Any:
        known = jnp.matmul(values * table[None, :, 0], values[:, ::sign].T, precision=exact)
        gap = jnp.full((1, 1), 1.0 - sign, a.dtype)
        return jnp.max(jnp.abs(whole_series(a[:, :, None], a[:, None, :], gap) - known) / pairs)

    total = jnp.sum(a * a, 0)
    total = jnp.where(total > 0, total, 1)
    pairs = safe_sqrt(total[:, None] * total[None])
    alone = 1.5 * jnp.max(jnp.abs(whole(orders) - whole(orders // 2)) / total[:, None])
    return jnp.maximum(alone, jnp.maximum(at_the_end(1), at_the_end(-1)))


_continued_error = jax.jit(continued_error)
