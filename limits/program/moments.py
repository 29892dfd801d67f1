"""Second moments and tangent kernels of pairs of fields, by recursion.

    ⟨u v⟩ = E[u(x) v(x′)],   Θ(u, v) = Σ_θ rate_θ ∂u(x) ∂v(x′),   of one neuron of each.

    ⟨Wu, Wv⟩ = σ² n ⟨u v⟩        Θ(Wu, Wv) = rate n ⟨u v⟩ + σ² n Θ(u, v)      the same W, n neurons; summed over equal
                                                                             contracted positions and offsets of a window
    ⟨Wu, Vv⟩ = 0                 Θ(Wu, Vv) = 0                               other weights
    ⟨Σ c_i u_i, v⟩ = Σ c_i ⟨u_i v⟩,   Θ the same
    ⟨φ(u), ψ(v)⟩, Θ = Σ_ij E[∂_i φ ∂_j ψ] Θ(u_i, v_j)                         Gaussian averages (`averages`)

Arrays are [batch, positions of u, positions of v], or [batch, positions] of equal ones. The batch is [n], each input with
itself (`OwnMoments`), or [n1, n2] (`CrossMoments`).

Reference: Yang, Tensor Programs I–III.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.compiled import written_out
from limits.kernels.special import safe_sqrt, snapped
from limits.program import averages
from limits.program.gaps import gap_of
from limits.program.nodes import Carried, Concat, Det, FieldSum, Image, Key, Map, Moved, Node
from limits.program.shared_weights import contracted, diagonal, meet, of_both, of_weights, same_weights, shared
from limits.program.values import NoLimitError
from limits.program.zeros import total


class PairMoments:
    """Of pairs of fields; each computed once. `OwnMoments` and `CrossMoments` say which inputs meet."""

    def __init__(self, series: Any) -> None:
        self.series, self._kept = series, dict[tuple, Any]()

    own: "OwnMoments"

    def side(self, array: Any, which: int) -> Any:
        """An array [n or 1, …] of inputs as the left (0) or right (1) of the pair: [batch, …]."""
        raise NotImplementedError

    batch: int  # number of axes

    def placed(self, array: Any, which: int, other: int, pairs: bool) -> Any:
        """An array [n or 1, positions] where the left or the right has its positions; `other`: axes of the other field's."""
        array = self.side(array, which)
        if not pairs:
            return array
        b = self.batch
        ones = (1,) * other
        shape = (*array.shape, *ones) if which == 0 else (*array.shape[:b], *ones, *array.shape[b:])
        return array.reshape(shape)

    def second(self, u: Any, v: Any, pairs: bool) -> Any:
        """⟨u v⟩; None where it is zero by structure."""
        return self._once(self._second, u, v, pairs)

    def tangent(self, u: Any, v: Any, pairs: bool) -> Any:
        """Θ(u, v); None where it is zero by structure."""
        if isinstance(u, Det) or isinstance(v, Det) or not meet(u.tops, v.tops):
            return None
        return self._once(self._tangent, u, v, pairs)

    def _once(self, function: Any, u: Any, v: Any, pairs: bool) -> Any:
        def compute() -> Any:
            found = function(u, v, pairs)
            if found is None:
                return None
            shape = (*u.shape, *v.shape) if pairs else np.broadcast_shapes(u.shape, v.shape)
            if self.series.measures:
                self.series.largest = max(self.series.largest, math.prod(shape))
                self.series.positions = max(self.series.positions, math.prod(u.shape), math.prod(v.shape))
            return jnp.broadcast_to(found, (*found.shape[: self.batch], *shape))

        return self.once((function.__name__, id(u), id(v), pairs), compute, u, v)

    def once(self, key: tuple, compute: Any, *alive: Any) -> Any:
        """What was computed under this key; what the key names by address stays alive with it."""
        if key not in self._kept:
            self._kept[key] = compute(), alive
        return self._kept[key][0]

    def product(self, u: Any, v: Any, left: Any, right: Any, pairs: bool) -> Any:
        """left(x) right(x′), for arrays of the positions of u and of v."""
        return self.placed(left, 0, len(v.shape), pairs) * self.placed(right, 1, len(u.shape), pairs)

    def times(self, c: Det, array: Any, *place: Any) -> Any:
        """A deterministic value, placed, times an array."""
        if c.number is None:
            return self.placed(c.array, *place) * array
        return array if c.number == 1 else c.number * array

    def _second(self, u: Any, v: Any, pairs: bool) -> Any:
        if isinstance(u, Det) and isinstance(v, Det):
            return None if u.zero or v.zero else self.product(u, v, u.array, v.array, pairs)
        if isinstance(u, Det) or isinstance(v, Det) or not meet(u.tops, v.tops):
            left, right = self.own.mean(u), self.own.mean(v)
            return None if left is None or right is None else self.product(u, v, left, right, pairs)
        if isinstance(u, FieldSum | Concat | Moved) or isinstance(v, FieldSum | Concat | Moved):
            return self._through(self.second, u, v, pairs)
        if isinstance(u, Map) or isinstance(v, Map):
            return averages.second(self, u, v, pairs)
        if isinstance(u, Carried):  # only with itself: of others it is independent
            return self._of_carried(u, pairs)
        if same_weights(u, v):
            return of_weights(self, u, v, pairs)
        return None

    def _tangent(self, u: Any, v: Any, pairs: bool) -> Any:
        if isinstance(u, FieldSum | Concat | Moved) or isinstance(v, FieldSum | Concat | Moved):
            return self._through(self.tangent, u, v, pairs)
        if isinstance(u, Map) or isinstance(v, Map):
            return averages.tangent(self, u, v, pairs)
        if isinstance(u, Carried):
            return u.known(Key(self.batch, "tangent", pairs))
        if not same_weights(u, v):
            return None
        variance, rate = of_both(u.matrix, v.matrix)
        if not isinstance(u, Image):
            ones = shared(self, u, v, pairs)
            return None if u.matrix.rate == 0 else rate * ones
        inner = None if isinstance(u.source, Det) else contracted(self, self.tangent, u, v, pairs)
        own = contracted(self, self.second, u, v, pairs) if u.matrix.rate else None
        inner = None if inner is None or u.matrix.std == 0 else u.fan * variance * inner
        return total(None if own is None else u.fan * rate * own, inner)

    def _through(self, form: Any, u: Any, v: Any, pairs: bool) -> Any:
        """A bilinear form through what is linear in one of its fields."""
        if isinstance(u, Concat) or isinstance(v, Concat):
            return self._side_by_side(form, u, v, pairs)
        if isinstance(u, FieldSum) or isinstance(v, FieldSum):
            return self._of_sum(form, u, v, pairs)
        both = pairs or not (self._selects_alike(u, v))
        left = 0 if isinstance(u, Moved) else 1
        node = u if left == 0 else v
        if not both:
            inner = form(u.source, v.source, False)
            return None if inner is None else u.act(inner, self.batch, self._sided(0))
        parts = (u.source, v) if left == 0 else (u, v.source)
        inner = form(*parts, True)
        if inner is None:
            return None
        first = self.batch if left == 0 else self.batch + len(u.shape)
        found = node.act(inner, first, self._sided(left))
        return found if pairs else diagonal(found, self.batch, u.shape, v.shape)

    def _selects_alike(self, u: Any, v: Any) -> bool:
        """Whether equal positions of both come from equal positions of what they select from."""
        return isinstance(u, Moved) and isinstance(v, Moved) and u.selects and v.selects and u.act is v.act

    def _sided(self, which: int) -> Any:
        """What a map calls with a deterministic array [n or 1, a, b …] of its own to have it on its side of a pair."""
        return lambda array: self.side(jnp.asarray(array), which)

    def _of_sum(self, form: Any, u: Any, v: Any, pairs: bool) -> Any:
        # The later of two sums first: the other way, a stream that goes through L layers would take L² steps.
        left = isinstance(u, FieldSum) and not (isinstance(v, FieldSum) and len(v.tops) > len(u.tops))
        node, other = (u, v) if left else (v, u)
        found = None
        for c, part in node.terms:
            inner = form(part, other, pairs) if left else form(other, part, pairs)
            if inner is not None and not c.zero:
                found = total(found, self.times(c, inner, 1 - left, len(other.shape), pairs))
        if node.constant is not None and form == self.second:
            at = (node.constant, other) if left else (other, node.constant)
            found = total(found, self.second(*at, pairs))
        return found

    def _side_by_side(self, form: Any, u: Any, v: Any, pairs: bool) -> Any:
        """The mean over neurons, part by part."""
        if not (isinstance(u, Concat) and isinstance(v, Concat)):
            raise NoLimitError("concatenated features meet features that are not")
        if len(u.parts) != len(v.parts) or any(abs(a[0] - b[0]) > 1e-9 for a, b in zip(u.parts, v.parts, strict=True)):
            raise NoLimitError("features that were concatenated in different ways meet")
        parts = [form(a, b, pairs) for (_, a), (_, b) in zip(u.parts, v.parts, strict=True)]
        parts = [None if part is None else share * part for (share, _), part in zip(u.parts, parts, strict=True)]
        return total(*parts)

    def gap(self, u: Node, pairs: bool) -> Any:
        """1 − ⟨u u′⟩ / √(⟨u u⟩ ⟨u′ u′⟩), without cancellation where sums do not force it."""
        return self._once(self._gap, u, u, pairs)

    def still(self, array: Any) -> Any:
        """1 − c and standard deviations say only how to work out values: derivatives go through (co)variances."""
        return jax.lax.stop_gradient(array) if self.series.differentiable else array

    def _gap(self, u: Node, v: Node, pairs: bool) -> Any:
        del v
        return self.kept(self.still(gap_of(self, u, pairs)))

    def kept(self, array: Any) -> Any:
        """The same, to be read, not worked out again: in a caller's program barriers do not hold (`written_out`)."""
        return written_out(array) if self.series.differentiable else jax.lax.optimization_barrier(array)

    def gap_between(self, u: Node, v: Node, pairs: bool) -> Any:
        """1 − c from the moments themselves."""
        moment = self.second(u, v, pairs)
        moment = moment if moment is None else self.still(moment)
        product = self.product(u, v, self.own.size(u), self.own.size(v), pairs)
        c = jnp.zeros_like(product) if moment is None else moment / jnp.where(product > 0, product, 1)
        return snapped(1 - c)

    def _of_carried(self, u: Carried, pairs: bool) -> Any:
        """A variance, or r r′ (1 − (1 − c))."""
        if (self is self.own and not pairs) or self.series.differentiable:
            return u.known(Key(self.batch, "second", pairs))
        r = self.own.size(u)
        return self.product(u, u, r, r, pairs) * (1 - u.known(Key(self.batch, "gap", pairs)))


class OwnMoments(PairMoments):
    """Each of n inputs with itself."""

    batch = 1

    def __init__(self, series: Any) -> None:
        super().__init__(series)
        self.own, self._means = self, dict[int, Any]()
        self.places = dict[int, tuple[str, Any]]()  # where fields stand in the network, by id; they stay alive

    def side(self, array: Any, which: int) -> Any:  # noqa: D102
        return array

    def mean(self, u: Any) -> Any:
        """E u [n or 1, positions]; None where it is zero by structure."""
        if isinstance(u, Det):
            return None if u.zero else u.array
        if id(u) not in self._means:
            found = self._mean(u)
            self._means[id(u)] = None if found is None else jnp.broadcast_to(found, (len(found), *u.shape)), u
        return self._means[id(u)][0]

    def _mean(self, u: Node) -> Any:
        if u.gaussian:
            return None
        if isinstance(u, Carried):
            return u.known(Key(1, "mean", False))
        if isinstance(u, FieldSum):
            parts = [(c, self.mean(part)) for c, part in u.terms]
            return total(
                *(None if m is None else c.array * m for c, m in parts), self.mean(u.constant) if u.constant else None
            )
        if isinstance(u, Moved):
            inner = self.mean(u.source)
            return None if inner is None else u.act(inner, 1, lambda array: array)
        if isinstance(u, Concat):
            parts = [(share, self.mean(part)) for share, part in u.parts]
            return total(*(None if m is None else share * m for share, m in parts))
        return averages.mean(self, u)

    def place(self, function: Any) -> str:
        """Where in the network a function is applied."""
        nodes = [factor.node for factor in function.factors]
        while nodes:
            found = [self.places[id(node)][0] for node in nodes if id(node) in self.places]
            if found:
                return found[0]
            nodes = [part for node in nodes for part in node.parts_of]
        return "the network"

    def size(self, u: Any) -> Any:
        """√⟨u u⟩ [n or 1, positions]."""
        found = self.second(u, u, False)
        return jnp.zeros((1,) * (1 + len(u.shape))) if found is None else self.still(safe_sqrt(self.still(found)))


class CrossMoments(PairMoments):
    """The first n1 inputs with the others. `own` are the moments of all of them."""

    batch = 2

    def __init__(self, own: OwnMoments, n1: int, series: Any) -> None:
        super().__init__(series)
        self.own, self.n1 = own, n1

    def side(self, array: Any, which: int) -> Any:  # noqa: D102
        array = array if len(array) == 1 else array[: self.n1] if which == 0 else array[self.n1 :]
        return array[:, None] if which == 0 else array[None]
