"""Functions of Gaussian fields, neuron by neuron: what a `Map` is a function of, its factors and its derivatives."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from limits.program.nodes import Carried, Det, FieldSum, Map, Mask, Moving, Node, multiplied, scaled_by
from limits.program.opened import opened
from limits.program.shared_weights import meet
from limits.program.values import NoLimitError

_SKEWED = (
    "entries of the parameter {path} are {kind}, and as gains or biases they are not summed over: a function of them has closed "
    "averages only where they are normal. Initialise it with normal numbers or one value"
)

_MASKED = (
    "dropout stands before a function, and averages of functions of masked signals have no closed form: put it after the "
    "function (of relu, and of all that are positively homogeneous, that is the same network)"
)


class Factor(NamedTuple):
    """A field, differentiated with respect to these of its leaves."""

    node: Node
    slopes: tuple[Node, ...] = ()

    @property
    def leaves(self) -> list[Node]:
        """The Gaussian fields that it is made of."""
        return leaves_of(self.node)


@dataclasses.dataclass(frozen=True, eq=False)
class Function:
    """A product of fields and of derivatives of fields, as a function of the Gaussian fields they are made of."""

    factors: tuple[Factor, ...]
    rank: int  # number of axes of positions

    @functools.cached_property
    def key(self) -> tuple:
        """Equal for the same factors."""
        return tuple((id(node), *map(id, slopes)) for node, slopes in self.factors), self.rank

    @functools.cached_property
    def leaves(self) -> tuple[Node, ...]:
        """The Gaussian fields that it is made of, each once."""
        found = tuple({id(leaf): leaf for factor in self.factors for leaf in factor.leaves}.values())
        for leaf in found:
            if isinstance(leaf, Carried) and not leaf.normal:
                leaf.missed()
            if not opened(leaf).gaussian:  # or an error that says why
                raise NoLimitError(
                    "a function of signals that are not Gaussian, together with others that depend on them"
                )
            uses = [factor for factor in self.factors if any(each is leaf for each in factor.leaves)]
            if leaf.skewed is not None and (len(uses) > 1 or bare(uses[0].node) is None):
                raise NoLimitError(
                    _MASKED if isinstance(leaf, Mask) else _SKEWED.format(path=leaf.skewed.path, kind=leaf.skewed.kind)
                )
        return found

    @functools.cached_property
    def of_gaussians(self) -> bool:
        """Whether it is a function of Gaussian fields, of whose law all is known."""
        try:
            return bool(self.leaves) or True
        except NoLimitError:
            return False

    @functools.cached_property
    def random(self) -> tuple[Node, ...]:
        """Those that are not zero at the start."""
        return tuple(leaf for leaf in self.leaves if not leaf.still)

    @functools.cached_property
    def tops(self) -> frozenset:
        """The weights that stand at its top."""
        return frozenset().union(*(factor.node.tops for factor in self.factors))

    @functools.cached_property
    def dets(self) -> tuple[Det, ...]:
        """The deterministic values that are in it and are no plain numbers."""
        return tuple({id(d): d for f in self.factors for d in dets_of(f.node) if d.number is None}.values())

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """Of its positions."""
        return np.broadcast_shapes((1,) * self.rank, *(factor.node.shape for factor in self.factors))

    @property
    def without(self) -> "Function":
        """1, with as many axes of positions."""
        return Function((), self.rank)

    def replaced(self, k: int, *factors: Factor) -> "Function":
        """With other factors in place of the k-th."""
        return Function((*self.factors[:k], *factors, *self.factors[k + 1 :]), self.rank)

    @functools.cached_property
    def name(self) -> str:
        """Equal for equal functions, whatever their leaves."""
        places = {id(leaf): f"u{i}" for i, leaf in enumerate(self.leaves)}
        places |= {id(det): f"d{i}" for i, det in enumerate(self.dets)}
        written = (
            f"{_written(f.node, places)}{''.join(chr(39) + places[id(s)] for s in f.slopes)}" for f in self.factors
        )
        return " ".join(written) + " of " + ",".join("0" if leaf.still else "u" for leaf in self.leaves)

    def __call__(self, values: dict[int, Any], place: Callable[[Det], Any]) -> Any:
        """Its values, from those of its random leaves (by id) and of its deterministic values."""
        given = {**{id(leaf): jnp.zeros(()) for leaf in self.leaves if leaf.still}, **values}
        found: Any = 1.0
        for factor in self.factors:
            found = found * _differentiated(factor.node, factor.slopes, given, place)
        return found

    def derivatives(self, leaf: Node) -> list["Function"]:
        """Functions whose sum is ∂/∂leaf; of one variable, they are one."""
        if len(self.factors) > 1 and len(self.random) == 1 and not any(factor.slopes for factor in self.factors):
            return [Function((Factor(product_of([factor.node for factor in self.factors]), (leaf,)),), self.rank)]
        return [
            self.replaced(k, Factor(f.node, (*f.slopes, leaf)))
            for k, f in enumerate(self.factors)
            if any(each is leaf for each in f.leaves) and not (f.slopes and bare(f.node) is not None)
        ]


def function_of(node: Node) -> Function:
    """A field as a product."""
    return Function(tuple(Factor(factor) for factor in factors_of(node)), len(node.shape))


def bare(node: Node) -> tuple[float | Moving, Node] | None:
    """(s, u) where a field is s u with a Gaussian leaf u."""
    scaled = scaled_by(node)
    if scaled is not None:
        inner = bare(scaled[1])
        return None if inner is None else (scaled[0] * inner[0], inner[1])
    return (1.0, node) if node.gaussian else None


def _differentiated(node: Node, slopes: tuple[Node, ...], given: dict[int, Any], place: Callable[[Det], Any]) -> Any:
    if not slopes:
        return _evaluated(node, given, place)
    *rest, leaf = slopes
    sizes = [jnp.shape(a) for a in given.values()]
    at = jnp.broadcast_to(
        given[id(leaf)],
        np.broadcast_shapes(*sizes, *(jnp.shape(place(d)) for d in dets_of(node) if d.number is None)),
    )
    along = lambda x: jnp.broadcast_to(_differentiated(node, tuple(rest), {**given, id(leaf): x}, place), at.shape)  # noqa: E731
    return jax.jvp(along, (at,), (jnp.ones_like(at),))[1]


# What is met again is passed by: signals that are used twice in every one of many steps have 2^steps paths.


def leaves_of(node: Any) -> list[Node]:
    """The Gaussian fields in a field, each once."""
    found, met = list[Node](), set[int]()

    def visit(node: Any) -> None:
        if not isinstance(node, Node) or id(node) in met:
            return
        met.add(id(node))
        inner = multiplied(node)
        if inner is not None:
            visit(inner)
        elif not node.gaussian and isinstance(node, FieldSum | Map):
            for part in node.parts_of:
                visit(part)
        else:
            found.append(node)

    visit(node)
    return found


def dets_of(node: Any) -> list[Det]:
    """The deterministic values in a function of fields, each once."""
    found, met = list[Det](), set[int]()

    def visit(node: Any) -> None:
        if id(node) in met:
            return
        met.add(id(node))
        if isinstance(node, Det):
            found.append(node)
        elif not isinstance(node, Node) or (node.gaussian and multiplied(node) is None):
            return
        elif isinstance(node, FieldSum):
            for part in (*itertools.chain(*node.terms), *([] if node.constant is None else [node.constant])):
                visit(part)
        elif isinstance(node, Map):
            for part in node.arguments:
                visit(part)

    visit(node)
    return found


def _written(node: Any, places: dict[int, str]) -> str:
    """places: how leaves are written, and, from here on, what was written before."""
    if id(node) in places:
        return places[id(node)]
    if isinstance(node, Det):
        return repr(node.number)
    if isinstance(node, FieldSum):
        terms = [f"{_written(c, places)}*{_written(u, places)}" for c, u in node.terms]
        found = f"({'+'.join(terms + ([_written(node.constant, places)] if node.constant else []))})"
    else:
        found = f"{node.name}({','.join(_written(u, places) for u in node.arguments)})"
    places[id(node)] = f"#{len(places)}"
    return found


def _evaluated(node: Any, values: dict[int, Any], place: Callable[[Det], Any], kept: dict | None = None) -> Any:
    kept = {} if kept is None else kept
    if id(node) in values:
        return values[id(node)]
    if isinstance(node, Det):
        return node.number if node.number is not None else place(node)
    if id(node) in kept:
        return kept[id(node)]
    if isinstance(node, FieldSum):
        found: Any = 0.0 if node.constant is None else _evaluated(node.constant, values, place, kept)
        for c, u in node.terms:
            found = found + _evaluated(c, values, place, kept) * _evaluated(u, values, place, kept)
    else:
        found = node.function(*(_evaluated(u, values, place, kept) for u in node.arguments))
    kept[id(node)] = found
    return found


def factors_of(node: Node) -> list[Node]:
    """Fields whose product it is."""
    if isinstance(node, Map) and node.name == "mul":
        return [factor for u in node.arguments if isinstance(u, Node) for factor in factors_of(u)]
    return [node]


def product_of(fields: list[Node]) -> Node:
    """As one field."""
    found = fields[0]
    for field in fields[1:]:
        shape = np.broadcast_shapes(found.shape, field.shape)
        found = Map(shape, found.power + field.power, jnp.multiply, "mul", (found, field))
    return found


def components(left: Function, right: Function) -> list[tuple[Function, Function]]:
    """Both, taken apart into products of groups of factors that are independent of each other."""
    groups: list[tuple[set, list[Factor], list[Factor]]] = []
    both = [(0, f) for f in left.factors] + [(1, f) for f in right.factors]
    for which, factor in both:
        mine = [group for group in groups if meet(factor.node.tops, group[0])]
        groups = [group for group in groups if all(group is not each for each in mine)]
        tops = set(factor.node.tops).union(*(group[0] for group in mine))
        sides = [[f for group in mine for f in group[1 + i]] for i in (0, 1)]
        sides[which].append(factor)
        groups.append((tops, sides[0], sides[1]))
    return [(Function(tuple(a), left.rank), Function(tuple(b), right.rank)) for _, a, b in groups]
