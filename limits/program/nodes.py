"""Fields: vectors over neurons, as a graph whose second moments are known by recursion (`moments`).

A field has `shape`, the sizes of its axes of positions; one of size 1 may stand for any other. All its neurons have one law,
but for those of `Concat`. Nodes are equal only to themselves.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Det:
    """A number for every input and position, the same for all neurons: array [n or 1, *shape].

    Powers of N: of its size, and of what the finite network's differs by (−inf: nothing), both static. `default`: the value
    that one number has which moves with those of the network (`varied`).
    """

    array: Any
    power: float = 0.0
    noise: float = float("-inf")
    zero: bool = False  # whether it is zero by structure; its size is then its noise
    default: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its positions."""
        return tuple(self.array.shape[1:])

    @property
    def number(self) -> float | None:
        """Its value where it is one number that no input enters."""
        host = isinstance(self.array, np.ndarray) and self.array.size == 1
        return float(self.array.reshape(())) if host else None

    @property
    def scalar(self) -> "float | Moving | None":
        """Its number, which may move."""
        if self.number is None and self.default is not None:
            return Moving(self.array.reshape(()), self.default)
        return self.number

    @property
    def usual(self) -> float | None:
        """Its number, or that which it has by default."""
        return self.default if self.number is None else self.number


@dataclasses.dataclass(frozen=True, eq=False)
class Moving:
    """One number that moves with those of the network: a value, which jax may trace, and what it is by default."""

    value: Any
    default: float

    def __mul__(self, other: "float | Moving") -> "Moving":
        return Moving(self.value * plain(other), self.default * usual(other))

    def __add__(self, other: "float | Moving") -> "Moving":
        return Moving(self.value + plain(other), self.default + usual(other))

    __rmul__, __radd__ = __mul__, __add__


def plain(number: "float | Moving") -> Any:
    """As a number, or an array."""
    return number.value if isinstance(number, Moving) else number


def usual(number: "float | Moving") -> float:
    """What it is by default."""
    return number.default if isinstance(number, Moving) else number


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """What all fields have: positions, and the power of N of their size."""

    shape: tuple[int, ...]
    power: float

    @property
    def parts_of(self) -> tuple["Node", ...]:
        """The fields that it is made of; none for what weights give."""
        return ()

    @functools.cached_property
    def tops(self) -> frozenset:
        """The weights that stand at its top: fields without a common one are independent."""
        return frozenset().union(*(part.tops for part in self.parts_of))

    @functools.cached_property
    def gaussian(self) -> bool:
        """Whether it is a centred Gaussian process."""
        return False

    @functools.cached_property
    def still(self) -> bool:
        """Whether it is zero at the start: parameters that begin at one value, which only the tangent kernel sees."""
        return False

    @functools.cached_property
    def lacks_rows(self) -> bool:
        """Whether a table may lack rows of it."""
        return any(part.lacks_rows for part in self.parts_of)

    @functools.cached_property
    def skewed(self) -> "Weights | None":
        """Weights in it that are not normal and not summed over, so that of its law only two moments are known."""
        return next(filter(None, (part.skewed for part in self.parts_of)), None)


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
    """A parameter with i.i.d. entries, times `factor`; `rows` tells slices of its outputs apart.

    Two uses share weights where path, index (of a stack) and rows agree.
    """

    path: str
    index: tuple  # of entries taken: (axis of the parameter, which)
    rows: tuple
    std: float  # at the first width, factor included
    rate: float  # of learning, times factor²
    gaussian: bool
    kind: str
    moving: Any = 1.0  # the standard deviation over `std`, where that moves with numbers of the network
    quicker: Any = 1.0  # the learning over `rate`

    @property
    def variance(self) -> Any:
        """Of its entries."""
        return self.std**2 * self.moving**2

    @property
    def key(self) -> tuple:
        """What uses of the same weights share."""
        return self.path, self.index, self.rows


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """How a convolution slides: by axis of positions (size, stride, (before, after), spacing)."""

    axes: tuple[tuple[int, int, tuple[int, int], int], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class OfWeights(Node):
    """What weights of its own give."""

    matrix: Weights

    @functools.cached_property
    def tops(self) -> frozenset:  # noqa: D102
        return frozenset({self.matrix.key})

    @functools.cached_property
    def gaussian(self) -> bool:  # noqa: D102
        return True

    @functools.cached_property
    def still(self) -> bool:  # noqa: D102
        return self.matrix.std == 0


@dataclasses.dataclass(frozen=True, eq=False)
class Image(OfWeights):
    """W u: contracted are the last `contracted` axes of positions of u and its neurons, `fan` of these.

    With a window the first axes of positions are slid over.
    """

    source: Any  # Node or Det
    contracted: int
    fan: float
    layout: tuple  # how entries of W meet entries of u: two uses of W must agree
    window: Window | None = None

    @functools.cached_property
    def lacks_rows(self) -> bool:  # noqa: D102
        return isinstance(self.source, Node) and self.source.lacks_rows


@dataclasses.dataclass(frozen=True, eq=False)
class Entry(OfWeights):
    """An array of parameters [positions, N] as a field, less its mean: covariance std² δ."""

    own: tuple[bool, ...] = ()  # axes of positions along which entries are others

    @functools.cached_property
    def skewed(self) -> Weights | None:  # noqa: D102
        return None if self.matrix.gaussian or self.still else self.matrix


@dataclasses.dataclass(frozen=True, eq=False)
class Lookup(OfWeights):
    """Rows of a table of parameters: covariance std² where indices [n, *shape] are equal.

    count: of rows, beyond which it is NaN; None where all are inside. cleared: whether a selection has told which are taken.
    """

    indices: Any
    count: int | None = None
    cleared: bool = False

    @functools.cached_property
    def lacks_rows(self) -> bool:  # noqa: D102
        return self.count is not None and not self.cleared

    @functools.cached_property
    def skewed(self) -> Weights | None:  # noqa: D102
        return None if self.matrix.gaussian or self.still else self.matrix


@dataclasses.dataclass(frozen=True, eq=False)
class Mask(Entry):
    """Zeros and ones that a forward pass draws, less their mean p: covariance p (1 − p) δ, also over inputs where `by_input`."""

    by_input: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class FieldSum(Node):
    """Σ c_i u_i + c, with deterministic c."""

    terms: tuple[tuple[Det, Node], ...]
    constant: Det | None = None

    @property
    def parts_of(self) -> tuple[Node, ...]:  # noqa: D102
        return tuple(u for _, u in self.terms)

    @functools.cached_property
    def gaussian(self) -> bool:  # noqa: D102
        return self.constant is None and all(part.gaussian for part in self.parts_of)

    @functools.cached_property
    def still(self) -> bool:  # noqa: D102
        return self.constant is None and all(part.still for part in self.parts_of)


@dataclasses.dataclass(frozen=True, eq=False)
class Moved(Node):
    """L u: a linear map of axes of positions. `act(array, first, side)` maps those axes of an array that begin at `first`.

    `selects`: every new position is an old one, or zero, and the map of a variance is that of a signal.
    """

    source: Node
    act: Callable[[Any, int, Callable], Any]
    selects: bool

    @property
    def parts_of(self) -> tuple[Node, ...]:  # noqa: D102
        return (self.source,)

    @functools.cached_property
    def gaussian(self) -> bool:  # noqa: D102
        return all(part.gaussian for part in self.parts_of)

    @functools.cached_property
    def still(self) -> bool:  # noqa: D102
        return all(part.still for part in self.parts_of)


@dataclasses.dataclass(frozen=True, eq=False)
class Map(Node):
    """φ(u_1, …), neuron by neuron: a primitive of jax applied to fields and numbers."""

    function: Callable
    name: str  # with its parameters: maps of one name are one function
    arguments: tuple[Any, ...]

    @property
    def parts_of(self) -> tuple[Node, ...]:  # noqa: D102
        return tuple(u for u in self.arguments if isinstance(u, Node))


@dataclasses.dataclass(frozen=True, eq=False)
class Concat(Node):
    """Fields side by side along the neurons, each with its share of them."""

    parts: tuple[tuple[float, Node], ...]
    before: int = 1  # how many neurons the axes have that stand before the one along which they are

    @property
    def parts_of(self) -> tuple[Node, ...]:  # noqa: D102
        return tuple(u for _, u in self.parts)


class Key(NamedTuple):
    """A moment: of each input with itself (1 axis of inputs) or of pairs (2); the form; whether of all pairs of positions."""

    batch: int
    form: str
    pairs: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Carried(Node):
    """A field that comes out of a loop, or into one of its blocks: variances, 1 − c and tangent kernels are known.

    It is Gaussian, or more of it is not known than that and its mean (`normal`); `missed` is called where that will not do.
    """

    known: Callable[[Key], Any]
    normal: bool = True
    missed: Callable[[], None] = lambda: None

    @functools.cached_property
    def tops(self) -> frozenset:
        """Itself: it is independent of all weights that are still to come."""
        return frozenset({("carried", id(self))})

    @functools.cached_property
    def gaussian(self) -> bool:  # noqa: D102
        return self.normal


def scaled_by(node: Node) -> "tuple[float | Moving, Node] | None":
    """(s, u) of a field s u with a number s."""
    inner = multiplied(node)
    if inner is None:
        return None
    number: Any = node.terms[0][0].scalar  # pyright: ignore[reportAttributeAccessIssue]
    return number, inner


def multiplied(node: Node) -> Node | None:
    """u of a field s u with a number s, which is not looked at."""
    if isinstance(node, FieldSum) and len(node.terms) == 1 and node.constant is None:
        return None if node.terms[0][0].usual is None else node.terms[0][1]
    return None


def law_at_start(node: Node) -> str:
    """ "" of a centred Gaussian process, "mean" of one around a mean that is not zero, else "other"."""
    if node.gaussian:
        return ""
    if not isinstance(node, FieldSum | Moved | Concat):
        return "other"
    parts, constant = {law_at_start(part) for part in node.parts_of}, getattr(node, "constant", None)
    if "other" in parts:
        return "other"
    return "mean" if "mean" in parts or not (constant is None or constant.zero or constant.number == 0) else ""
