"""Notes of how parameters meet activations, and what is looked up in tables: signals, or weights that signals meet."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.extend.core import Literal

from zoo.held import LINEAR, OF_SHAPES, Axis, Entrywise, Held, Met, Other, Use, names
from zoo.of_shapes import ShapeRules


@dataclasses.dataclass
class LookUp:
    """One look-up in a table, of several entries or of one of each sample; with what is done to what comes out."""

    table: Held
    by: Sequence[int]
    rest: Sequence[int]
    sums: list[tuple[Held, Sequence[int], Sequence[int], Sequence[int]]] = dataclasses.field(default_factory=list)
    signal: bool = False  # it goes on as activations do, as words of an embedding


class Looked(NamedTuple):
    """What was looked up, along the axes of its table: weights, as long as products with activations alone meet it."""

    held: Held
    origin: LookUp
    met: bool = False  # multiplied by activations, entry by entry: a product, if a sum over the axes follows

    def size(self) -> int:
        """How many of its axes are those of the table."""
        return sum(map(bool, self.held.axes))


class Notes(ShapeRules):
    """The uses of parameters; those of what is looked up are known at the end."""

    def __init__(self) -> None:
        self.found: dict[str, list[Use | Entrywise]] = {}
        self.counted = Counter[str]()
        self.times = 1  # that the equations are run, in a scan
        self._lookups: list[LookUp] = []

    def _count(self, held: Any) -> None:
        for name in names(held) if isinstance(held, Held) else ():
            self.counted[name] += self.times

    def _meet(self, how: str, axes: Axis) -> None:
        for name, axis in sorted(axes):
            self._use_of(name, Entrywise(how, axis))

    def _use_of(self, name: str, use: Use | Entrywise) -> None:
        if use not in self.found.setdefault(name, []):
            self.found[name].append(use)

    def _note(
        self, held: Held, inputs: Sequence[int], outputs: Sequence[int], stacked: Sequence[int] = (), count: bool = True
    ) -> None:
        def of(name: str, axes: Sequence[int]) -> tuple[int, ...]:
            return tuple(sorted({i for axis in axes for leaf, i in held.axes[axis] if leaf == name}))

        if count:
            self._count(held)
        for name in sorted(names(held)):
            taken = tuple(i for leaf, i in held.taken if leaf == name)
            self._use_of(name, Use(of(name, inputs), of(name, outputs), tuple(sorted({*of(name, stacked), *taken}))))

    def _gather(self, eqn: Any, table: Any, *_: Any) -> Held | Looked | None:
        if not isinstance(table, Held):
            return None
        numbers, sizes, shape = eqn.params["dimension_numbers"], eqn.params["slice_sizes"], eqn.outvars[0].aval.shape
        by = [i for i in numbers.start_index_map if sizes[i] == 1]
        rest = [i for i in range(len(sizes)) if i not in by]
        taken = table.taken.union(*(table.axes[i] for i in by))
        if eqn.invars[1].aval.size <= len(by) and len(rest) >= len(shape):  # one layer of a stack
            return Held(tuple(table.axes[i] for i in rest), taken)
        self._count(table)
        if not rest:
            return self._meet("picked", Axis().union(*table.axes))  # some of its entries
        if numbers.operand_batching_dims:
            return self._note(table, by, rest, count=False)
        axes = [Axis()] * len(shape)
        kept = [i for i in range(len(sizes)) if i not in numbers.collapsed_slice_dims]
        for at, i in zip(sorted(numbers.offset_dims), kept, strict=True):
            axes[at] = Axis() if i in by else table.axes[i]
        self._lookups.append(LookUp(table, by, rest))
        return Looked(Held(tuple(axes), taken), self._lookups[-1])

    def _signals(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs, of which what is looked up goes on as activations."""
        for each in inputs:
            if isinstance(each, Looked) and not each.origin.signal:
                each.origin.signal = True
                self._note(each.origin.table, each.origin.by, each.origin.rest, count=False)
        return [Other.ACTIVE if isinstance(each, Looked) else each for each in inputs]

    def _of_looked_up(self, eqn: Any, inputs: Sequence[Any]) -> tuple[list[Any], list[int]] | None:
        """(what comes out, the operands that are weights and summed over), where what is looked up stays weights."""
        name = eqn.primitive.name
        if any(isinstance(each, Looked) and each.met for each in inputs):
            return self._of_met(eqn, inputs)
        at = max(range(len(inputs)), key=lambda i: inputs[i].size() if isinstance(inputs[i], Looked) else -1)
        looked, rest = inputs[at], [i for i in range(len(inputs)) if i != at]
        if name == "dot_general" and not isinstance(inputs[1 - at], Held):
            other = inputs[1 - at]
            if isinstance(other, Looked) and other.size() == looked.size():
                return None  # two signals
            self._signals([other])
            return self._product(eqn, looked, at)
        alone = all(
            inputs[i] in (None, Other.FIXED, Other.ACTIVE) and _is_number(eqn.invars[i], inputs[i]) for i in rest
        )
        whole = eqn.invars[at].aval.shape == eqn.outvars[0].aval.shape
        if name == "mul" and whole and _is_active(inputs[1 - at]) and not alone:
            return [looked._replace(met=True)], []
        if not alone:
            return None
        if name in OF_SHAPES and at == 0:
            found = getattr(self, "_" + name)(eqn, looked.held, *[None] * len(rest))
            found = found if isinstance(found, list) else [found]
            return [each and Looked(each, looked.origin) for each in found], []
        if name in (*LINEAR, "mul", "div") and whole:
            return ([looked], []) if name != "div" or at == 0 else None
        return None

    def _of_met(self, eqn: Any, inputs: Sequence[Any]) -> tuple[list[Any], list[int]] | None:
        """Of products by entry: summed over axes of the table, they are products of matrices; otherwise signals."""
        looked, name = inputs[0], eqn.primitive.name
        if name in ("convert_element_type", "copy"):
            return [looked], []
        if name != "reduce_sum":
            return None
        held, axes = looked.held, eqn.params["axes"]
        if not any(held.axes[i] for i in axes):
            return [looked._replace(held=self._squeeze(eqn, held))], []
        kept = [i for i in range(len(held.axes)) if i not in axes]
        looked.origin.sums.append((held, [i for i in axes if held.axes[i]], kept, []))
        return [Other.ACTIVE], [0]

    def _product(self, eqn: Any, looked: Looked, at: int) -> tuple[list[Any], list[int]]:
        """A product with activations, that sums over axes of the table or, with weights for each, over what was looked up."""
        contracted, batch = eqn.params["dimension_numbers"]
        held, sums, beside = looked.held, contracted[at], batch[at]
        kept = [i for i in range(len(held.axes)) if i not in (*sums, *beside)]
        if any(held.axes[i] for i in sums):
            looked.origin.sums.append((held, sums, kept, beside))
            return [Other.ACTIVE], [at]
        others = [Axis()] * (len(eqn.outvars[0].aval.shape) - len(beside) - len(kept))
        own = [held.axes[i] for i in kept]
        axes = (*(held.axes[i] for i in beside), *(others + own if at else own + others))
        return [Looked(Held(axes, held.taken), looked.origin)], []

    def _end_of_lookups(self) -> None:
        """Note what was looked up as weights that signals meet; or else as signals."""
        for each in self._lookups:
            if not each.sums:
                self._signals([Looked(each.table, each)])
            for held, sums, kept, beside in () if each.signal else each.sums:
                self._note(held, sums, kept, beside, count=False)


def _is_number(v: Any, known: Any) -> bool:
    return isinstance(v, Literal) or known is Other.FIXED or v.aval.size == 1


def _is_active(known: Any) -> bool:
    return known in (None, Other.ACTIVE) or (isinstance(known, Met) and not known.whole)
