"""A Gaussian matrix that is never drawn: it is revealed along the directions that it meets."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.fields.exact import unit_vectors

REVEALED = "revealed"  # the collection that holds the matrices, by the path of their parameter
TOLERANCE = {"float32": 1e-3, "float64": 1e-8}  # of directions, relative to the longest vector met with them
OF_MOVEMENT = 1e-2  # and to how far vectors have moved, where that is less: of slow training all is below the other
Source = tuple[int, int]  # the first coordinate, and the number of parts that have a coordinate each


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Matrix:
    """W = s W⁰ + Vᵀ M U, [inputs, outputs], with W⁰ standard normal, known only through V W⁰ = Y and W⁰ Uᵀ = Zᵀ.

    The rows of v [k, inputs] and of u [k, outputs] are orthonormal, zero from the counts on. A new direction q of inputs
    has the image  q W⁰ = (q Zᵀ) U + ε (1 − Uᵀ U)  with fresh ε ~ N(0, 1): the law of W⁰ given all that is known, so
    that whatever is computed with it has the law of a network with a drawn matrix, at every size. Directions of outputs
    are the mirror image. `dense`: the trained part is an array of its own, for rules that act entry by entry. All
    leaves are floating point, so that a state can be its own cotangent.
    """

    v: Any
    y: Any
    u: Any
    z: Any
    known_in: Any  # rows of v and y
    known_out: Any  # rows of u and z
    start: Any  # s
    trained: Any  # M [k, k]
    gradient: Any  # of the loss with respect to M; None where it is not asked for
    then_in: Any  # [k]: how many rows of u were known when each row of v was met
    then_out: Any  # [k]: how many rows of v were known when each row of u was met
    exact: tuple[Source, Source] | None = dataclasses.field(default=None, metadata={"static": True})
    dense: bool = dataclasses.field(default=False, metadata={"static": True})  # W = s W⁰ + D; D is `trained`
    part: Any = None  # of a population, 0 or 1, that this is half of
    coupled: int = dataclasses.field(default=0, metadata={"static": True})  # sweeps share draws: 1 the whole, 2 a half
    turn: Any = None  # of several backward passes through one forward pass: 0, 1, …; each draws by itself
    kurtosis: Any = None  # excess, of the entries of W⁰ where they are not normal (`fourth.py`)

    @classmethod
    def fresh(
        cls,
        inputs: int,
        outputs: int,
        capacity: int,
        start: Any,
        dtype: Any,
        exact: tuple[Source, Source] | None = None,
    ) -> "Matrix":
        """Nothing known, nothing trained. `exact`: where new images come from, of inputs and of outputs.

        >>> Matrix.fresh(5, 3, 2, 1.0, "float32").v.shape
        (2, 5)
        """
        wide, narrow, row, zero = (
            jnp.zeros(shape, dtype) for shape in ((capacity, inputs), (capacity, outputs), (capacity,), ())
        )
        square = jnp.zeros((capacity, capacity), dtype)
        return cls(wide, narrow, narrow, wide, zero, zero, jnp.asarray(start, dtype), square, square, row, row, exact)

    @property
    def transposed(self) -> "Matrix":
        """The same matrix, seen from its outputs."""
        exact = None if self.exact is None else (self.exact[1], self.exact[0])
        gradient = None if self.gradient is None else self.gradient.T
        return Matrix(self.u, self.z, self.v, self.y, self.known_out, self.known_in, self.start,
                      self.trained.T, gradient, self.then_out, self.then_in, exact, self.dense,
                      self.part, self.coupled, self.turn, self.kurtosis)  # fmt: skip

    @property
    def made_dense(self) -> "Matrix":
        """The same matrix before training, whose trained part will be an array [inputs, outputs]."""
        lead = self.trained.shape[:-2]
        zeros = jnp.zeros((*lead, self.v.shape[-1], self.u.shape[-1]), self.v.dtype)
        return dataclasses.replace(self, trained=zeros, gradient=zeros, dense=True)

    def noise(self, key: jax.Array, count: int) -> jax.Array:
        """Images of `count` new directions, before what is known of them."""
        size, dtype = self.y.shape[-1], self.y.dtype
        if self.coupled == 2:
            both = jax.random.normal(key, (count, 2 * size), dtype)
            return jax.lax.dynamic_slice_in_dim(both, self.part.astype(jnp.int32) * size, size, 1)
        if self.exact is None:
            return jax.random.normal(key, (count, size), dtype)
        first, blocks = self.exact[0]
        return unit_vectors(first + self.known_in * blocks, count, size, blocks, dtype)

    def resized(self, capacity: int) -> "Matrix":
        """Room for `capacity` directions of either side."""
        more = capacity - self.v.shape[-2]
        rows = [(0, more), (0, 0)]
        square = [(0, more), (0, more)]

        def grown(a: Any, widths: list) -> Any:
            return jnp.pad(a, [(0, 0)] * (a.ndim - len(widths)) + widths)

        bases = {name: grown(getattr(self, name), rows) for name in ("v", "y", "u", "z")}
        squares = {name: grown(getattr(self, name), square) for name in ("trained", "gradient") if not self.dense}
        counts = {name: grown(getattr(self, name), rows[:1]) for name in ("then_in", "then_out")}
        return dataclasses.replace(self, **bases, **squares, **counts)


def outside(a: jax.Array, basis: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The rows of a as (coefficients on the orthonormal rows of `basis`, what is left, up to rounding of a)."""
    c = a @ basis.T
    return c, a - c @ basis


def negligible(matrix: Matrix, a: jax.Array, c: jax.Array, rest: jax.Array, tolerance: float) -> jax.Array:
    """The square of the length below which a direction is left out: it would be rounding, or nearly nothing.

    Less than `tolerance` of the longest row of a, and than `OF_MOVEMENT` of what lies outside the directions that were met before
    anything was trained.
    """
    longest = jnp.max(jnp.sum(a * a, axis=-1))
    later = jnp.where(matrix.then_in > matrix.then_in[0], c, 0)
    moved = jnp.max(jnp.sum(later * later, axis=-1) + jnp.sum(rest * rest, axis=-1))
    least = jnp.minimum(tolerance**2 * longest, OF_MOVEMENT**2 * moved)
    return jnp.maximum(least, (100 * jnp.finfo(a.dtype).eps) ** 2 * longest)


def new_directions(rest: jax.Array, basis: jax.Array, least: jax.Array) -> jax.Array:
    """Orthonormal rows, also to the basis, that span `rest`; the last of them zero where it has fewer.

    A direction in which the square of `rest` is below `least` is left out. Of those just above it rounding takes a part, so that
    their length is not 1: what lost half of it is left out too.
    """
    values, vectors = jnp.linalg.eigh(rest @ rest.T)
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = jnp.take_along_axis(vectors, jnp.argmax(jnp.abs(vectors), axis=0)[None], axis=0)
    keep = values > least
    # The sign is fixed, so that rounding does not decide which network it is.
    rate = jnp.where(keep, jnp.sign(largest[0]) * jax.lax.rsqrt(jnp.where(keep, values, 1)), 0)
    q = rate[:, None] * (vectors.T @ rest)
    q = q - (q @ basis.T) @ basis  # the second time, at unit length: once leaves rounding, over `least`
    # Gram and Schmidt, in order: what is not left out keeps its orientation, which rounding does not decide either. All of it
    # on the inner products, since a product with q itself takes as long as one with the basis of a few steps.
    one, inner = jnp.eye(len(q), dtype=q.dtype), q @ q.T
    lower = jnp.linalg.cholesky(inner + 1e-5 * one)
    keep = jnp.cumprod(jnp.diagonal(lower) > 0.5)  # rows that are kept come first
    turn = jnp.where(keep[:, None] > 0, jax.scipy.linalg.solve_triangular(lower, one, lower=True), 0)
    for _ in range(2):  # to the nearest orthonormal rows (Newton, Schulz)
        turn = 1.5 * turn - 0.5 * (turn @ inner @ turn.T) @ turn
    return turn @ q


def ordered_directions(rest: jax.Array, least: jax.Array) -> jax.Array:
    """The same directions by Gram and Schmidt in the order of the rows; the rows of those that are left out are zero.

    A continuous function of the rows' inner products, so that sweeps that share their draws meet corresponding directions,
    where eigenvectors turn by O(1) between values that are close.
    """

    def add(i: Any, q: jax.Array) -> jax.Array:
        row = rest[i]
        for _ in range(2):
            row = row - (q @ row) @ q
        size = jnp.sum(row * row)
        return q.at[i].set(jnp.where(size > least, row * jax.lax.rsqrt(jnp.where(size > least, size, 1)), 0))

    return jax.lax.fori_loop(0, len(rest), add, jnp.zeros_like(rest))


def meet(matrix: Matrix, a: jax.Array, key: Any, tolerance: float) -> tuple[jax.Array, jax.Array, Matrix]:
    """(c, e, the matrix with what they reveal) of rows a = c V + rest, with e = rest Zᵀ; `key` is raw key data.

    What is left out is of a length that counts in nothing but the mean of its image given all that is known, e U, for which
    it need not be met: of small movements W⁰ gives on little else than what it has carried back.
    Under `jax.vmap` over a alone, the rows of all samples meet the one matrix together.
    """
    bare = dataclasses.replace(matrix, start=None, trained=None, gradient=None)  # these may differ between samples
    (c, e), after = _meeting(tolerance)(bare, a, key)
    kept = {name: getattr(matrix, name) for name in ("start", "trained", "gradient")}
    return c, e, dataclasses.replace(after, **kept)


@functools.cache
def _meeting(tolerance: float) -> Any:
    @jax.custom_batching.custom_vmap
    def meeting(matrix: Matrix, a: jax.Array, key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], Matrix]:
        return _meet(matrix, a, jax.random.wrap_key_data(key), tolerance)

    @meeting.def_vmap
    def together(size: int, batched: Any, matrix: Matrix, a: jax.Array, key: jax.Array) -> Any:
        several, rows, keys = batched
        if any(jax.tree.leaves(several)):  # matrices side by side (`nn.vmap`): each meets its own rows
            each = jax.tree.map(
                lambda leaf, has: leaf if has else jnp.stack([leaf] * size), (matrix, a, key), tuple(batched)
            )
            out = jax.lax.map(lambda parts: meeting(*parts), each)
            return out, jax.tree.map(lambda _: True, out)
        key = key[0] if keys else key
        both, after = meeting(matrix, a.reshape(-1, a.shape[-1]), key)
        both = jax.tree.map(lambda part: part.reshape(*a.shape[:-1], -1), both)
        return (both, after), ((rows, rows), jax.tree.map(lambda _: False, after))

    return meeting


def _meet(matrix: Matrix, a: jax.Array, key: jax.Array, tolerance: float) -> tuple[Any, Matrix]:
    c, rest = outside(a, matrix.v)
    noise, least = matrix.noise(key, len(a)), negligible(matrix, a, c, rest, tolerance)
    if matrix.coupled or matrix.kurtosis is not None:
        q = ordered_directions(rest, least)
        order = jnp.argsort(jnp.sum(q * q, axis=-1) < 0.5, stable=True)  # what is kept comes first, with its noise
        q, noise = q[order], noise[order]
        q = q - (q @ matrix.v.T) @ matrix.v
    else:
        q = new_directions(rest, matrix.v, least)
    kept = jnp.sum(q * q, axis=-1) > 0.5
    noise = jnp.where(kept[:, None], noise, 0)
    seen, all_seen = jnp.split(jnp.concatenate([q, rest]) @ matrix.z.T, 2)  # z is read once
    image = noise + (seen - noise @ matrix.u.T) @ matrix.u
    if matrix.kurtosis is not None:
        image = image + from_fourth(matrix, q, noise)
    at = matrix.known_in.astype(jnp.int32)
    new = rest @ q.T
    c, e = jax.lax.dynamic_update_slice_in_dim(c, new, at, 1), all_seen - new @ seen
    v, y = (jax.lax.dynamic_update_slice_in_dim(old, new, at, 0) for old, new in ((matrix.v, q), (matrix.y, image)))
    known = matrix.known_in + jnp.sum(kept).astype(a.dtype)
    full = matrix.known_in + len(a) > len(v)  # a slice that does not fit would be moved without a word
    c, known = jnp.where(full, jnp.nan, c), jnp.where(full, jnp.inf, known)
    then = jax.lax.dynamic_update_slice_in_dim(matrix.then_in, jnp.broadcast_to(matrix.known_out, len(a)), at, 0)
    return (c, e), dataclasses.replace(matrix, v=v, y=y, known_in=known, then_in=then)


def from_fourth(matrix: Matrix, q: jax.Array, noise: jax.Array) -> jax.Array:
    """What the images of new directions q, with this noise, have besides where the entries of W⁰ have an excess kurtosis."""
    v, y, u, z = matrix.v, matrix.y, matrix.u, matrix.z
    free = (1 - jnp.sum(v * v, axis=0))[:, None], (1 - jnp.sum(u * u, axis=0))[None, :]
    known = v.T @ y + (z.T - v.T @ (v @ z.T)) @ u
    new = q.T @ (noise - (noise @ u.T) @ u)
    s, sigma = 1 - free[0] * free[1], jnp.sum(q * q, axis=0)[:, None] * free[1]
    third = 4 * (known**2 - 3 * s) * known + 6 * (known**2 - s) * new + 4 * known * (new**2 - sigma)
    moved = matrix.kurtosis / 24 * (q @ (third + (new**2 - 3 * sigma) * new))
    return moved - (moved @ u.T) @ u


def multiply(a: jax.Array, matrix: Matrix, key: Any, tolerance: float) -> tuple[jax.Array, Matrix]:
    """(a W for rows a, the matrix with what they revealed); `key` is raw key data.

    The cotangent of the matrix that comes out is the matrix itself: the backward pass hands the state on, with the
    directions ȳ of the outputs revealed and Vᵀ(c ȳ Uᵀ)U added to the gradient, through all uses in reverse order. So
    `jax.vjp` of a whole network with the cotangents (1, final state) returns the updated state.
    """
    out: Any = _multiply(tolerance, a, matrix, key)
    return out


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _multiply(tolerance: float, a: jax.Array, matrix: Matrix, key: jax.Array) -> Any:
    return _forward(tolerance, a, matrix, key)[0]


def _forward(tolerance: float, a: jax.Array, matrix: Matrix, key: jax.Array) -> Any:
    c, known, after = meet(matrix, a, _folded(key, 0), tolerance)
    out = _given_on(after, a, c, known)
    # Where every sample has a gradient of its own, what comes back must be of each, also where `a` is the same for all.
    out = out if matrix.gradient is None else out + 0 * matrix.gradient[0, 0]
    return (out, after), (a if matrix.dense else c, key)


def _backward(tolerance: float, kept: Any, cotangents: Any) -> Any:
    (c, key), (slope, matrix) = kept, cotangents
    turn = 0 if matrix.turn is None else matrix.turn.astype(jnp.uint32)
    d, known, after = meet(matrix.transposed, slope, _folded(key, 1 + turn), tolerance)
    right = slope if matrix.dense else d
    gradient = None if matrix.gradient is None else matrix.gradient + c.T @ right
    back = _given_on(after, slope, d, known)
    return back, dataclasses.replace(after.transposed, gradient=gradient), np.zeros(key.shape, jax.dtypes.float0)


def _given_on(matrix: Matrix, a: jax.Array, c: jax.Array, known: jax.Array) -> jax.Array:
    """Rows a W, with c their coefficients and `known` those on u of what s W⁰ gives besides."""
    by_start = matrix.start * (c @ matrix.y)
    if matrix.dense:
        return by_start + (matrix.start * known) @ matrix.u + a @ matrix.trained
    return by_start + (matrix.start * known + c @ matrix.trained) @ matrix.u


def _folded(key: jax.Array, number: Any) -> jax.Array:
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(key), number))


_multiply.defvjp(_forward, _backward)
