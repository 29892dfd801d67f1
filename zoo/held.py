"""What a walk through a traced function knows of its arrays: those of parameters alone, and activations that met them."""

import enum
from typing import Any, NamedTuple


class Use(NamedTuple):
    """One use of a parameter: axes summed over or looked up by (`inputs`), kept (`outputs`), and of layers side by side."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    stacked: tuple[int, ...]


class Entrywise(NamedTuple):
    """How a parameter meets activations entry by entry, along one of its axes.

    kept: multiplied by what varies along it. made: by what does not, so that it is an axis of outputs. added: to what varies.
    alike: met by an array of its own shape, which may be weights (a mask, noise). weighed: what is made of it meets weights,
    summed over it. picked: met by some of its entries. summed: kept, and the products are summed over it with no weights
    between, nor divided by their number. unclear: so, but other factors or sums come between. reduced: so, but after what is
    not linear. mean: a product of matrices sums over it, divided by its number. sum, mixed, bent, product: these four, where
    they may be means; `scale` counts what is summed, over what it is divided by, and `given` is `Scale.given` of it.
    """

    how: str
    axis: int
    scale: float = 1.0
    given: float = 1.0


Axis = frozenset  # of (parameter, axis): what an axis of an array is made of


class Held(NamedTuple):
    """An array that is made of parameters alone."""

    axes: tuple[Axis, ...]
    taken: Axis = Axis()  # axes along which layers were taken out


class Met(NamedTuple):
    """Activations, along the axes of parameters that met them entry by entry."""

    held: Held
    under: Axis = Axis()  # axes along which weights vary that they were multiplied by
    mixed: Axis = Axis()  # axes along which other factors vary
    bent: Axis = Axis()  # axes of parameters in which they are not linear
    whole: bool = False  # the parameter itself, but for a mask or noise: no activations seem to be in it


class Other(enum.Enum):
    """An array that is neither Held nor Met, where it is known what it is."""

    ACTIVE = enum.auto()  # activations, made with parameters from what is none
    FIXED = enum.auto()  # of numbers and random draws alone: no input takes part


# Rules that read the shapes of their first operand alone.
OF_SHAPES = ("slice", "dynamic_slice", "split", "transpose", "broadcast_in_dim", "squeeze", "reshape")
# Entry by entry, and linear in activations, besides products.
LINEAR = ("add", "sub", "neg", "select_n", "convert_element_type", "copy", "copy_p", "reduce_precision", "add_any")


def names(held: Held) -> set[str]:
    """The parameters that it is made of."""
    return {leaf for axis in (*held.axes, held.taken) for leaf, _ in axis}


def in_rows(met: Met) -> Met:
    """As a scan collects them."""
    return met._replace(held=Held((Axis(), *met.held.axes), met.held.taken), whole=False)


def together(mets: list[Met], linear: bool = True) -> Met | None:
    """Several arrays in one, entry by entry."""
    if not mets:
        return None
    axes = tuple(Axis().union(*parts) for parts in zip(*(each.held.axes for each in mets), strict=True))
    held = Held(axes, Axis().union(*(each.held.taken for each in mets)))
    mixed, under = (Axis().union(*each) for each in zip(*((each.mixed, each.under) for each in mets), strict=True))
    bent = Axis().union(*(each.bent for each in mets)) if linear else Axis().union(*axes)
    return Met(held, under if linear else Axis(), mixed, bent, all(each.whole for each in mets))


def share(mets: list[Met]) -> bool:
    """Whether two are made of the same parameters."""
    return len(mets) == 2 and bool(names(mets[0].held) & names(mets[1].held))


def fits(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether an operand of this shape is repeated, or is as it is, in the result."""
    return len(before) == len(after) and all(a in (1, b) for a, b in zip(before, after, strict=True))


def by_entry(eqn: Any, inputs: list[Any], shape: tuple[int, ...]) -> Held | None:
    """Entry by entry, with numbers or other parameters; where activations take part, they are what comes out."""
    held = [(h, v.aval.shape) for v, h in zip(eqn.invars, inputs, strict=True) if isinstance(h, Held)]
    for v, h in zip(eqn.invars, inputs, strict=True):
        number = h is Other.FIXED or (v.aval.size == 1 and not isinstance(h, Met))
        if not (isinstance(h, Held) or number) or (v.aval.shape and not fits(v.aval.shape, shape)):
            return None
    parts = [h.axes for h, s in held if s == shape] or [
        h.axes for h, s in held if s
    ]  # not those of its norms and gains
    axes = tuple(Axis().union(*each) for each in zip(*parts, strict=True)) if parts else (Axis(),) * len(shape)
    return Held(axes, Axis().union(*(h.taken for h, _ in held)))


def reshaped(axes: tuple[Axis, ...], before: tuple[int, ...], after: tuple[int, ...]) -> tuple[Axis, ...]:
    """Axes that are joined hold what both held; parts of one that is divided hold what it held; what is empty holds nothing."""
    found: list[Axis] = [Axis()] * len(after)
    if 0 in before or 0 in after:
        return tuple(found)
    i = j = 0
    while i < len(before) and j < len(after):
        first_in, first_out, a, b = i, j, before[i], after[j]
        while a != b:
            if a < b:
                i += 1
                a *= before[i]
            else:
                j += 1
                b *= after[j]
        group = Axis().union(*axes[first_in : i + 1])
        for k in range(first_out, j + 1):
            found[k] = group if after[k] > 1 or first_out == j else Axis()
        i, j = i + 1, j + 1
    return tuple(found)


def each_group(held: Held, out: int) -> Held:
    """The kernel of one group: of axes that vmap joined to that of the outputs, the last is one of outputs."""
    last = {leaf: max(i for other, i in held.axes[out] if other == leaf) for leaf, _ in held.axes[out]}
    layers = Axis((leaf, i) for leaf, i in held.axes[out] if i != last[leaf])
    axes = tuple(axis - layers if at == out else axis for at, axis in enumerate(held.axes))
    return Held(axes, held.taken | layers)


def is_weights(value: Any) -> bool:
    """Whether it is made of parameters alone, or they are."""
    return isinstance(value, Held) or (isinstance(value, Met) and value.whole)


def active_too(value: Any) -> Any:
    """As one step of a scan has it, or all of them."""
    return Other.ACTIVE if value is Other.ACTIVE or isinstance(value, Met) else None


def one_step(value: Any) -> Any:
    """One entry of what a scan goes over."""
    if isinstance(value, Met):
        return value._replace(held=one_step(value.held))
    return Held(value.axes[1:], value.taken | value.axes[0]) if isinstance(value, Held) else active_too(value)
