"""What a walk through a traced function knows of its arrays: those of parameters alone, and activations that met them."""

import enum
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import Literal


class Use(NamedTuple):
    """One use of a parameter: axes summed over or looked up by (`inputs`), kept (`outputs`), and of layers side by side."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    stacked: tuple[int, ...]


class Entrywise(NamedTuple):
    """How a parameter meets activations entry by entry, along one of its axes.

    kept: multiplied by what varies along it. made: by what does not, so that it is an axis of outputs. added: to what varies.
    alike: met by an array of its own shape, which may be weights (a mask, noise). weighed: what is made of it meets weights,
    summed over it. summed: kept, and the products are summed over it with no weights between, nor divided by their number.
    unclear: so, but other factors or sums come between. reduced: so, but after what is not linear. sum, mixed, bent: these
    three, where they may be means; `scale` counts what is summed, over what it is divided by.
    """

    how: str
    axis: int
    scale: float = 1.0


def may_be_means(met: Sequence[Any]) -> bool:
    """Whether a parameter's role hangs on whether sums are means."""
    entries = [use for use in met if isinstance(use, Entrywise)]
    weighed = {use.axis for use in entries if use.how == "weighed"}
    return any(use.how in SUMS and (use.how != "bent" or use.axis not in weighed) for use in entries)


def told_apart(first: Sequence[Any], second: Sequence[Any], grown: float) -> list[Any]:
    """The uses of a parameter, with sums and means told apart by how they count at two widths: those of a mean alike.

    >>> told_apart([Entrywise("sum", 0, 16.0)], [Entrywise("sum", 0, 64.0)], 4.0)
    [Entrywise(how='summed', axis=0, scale=1.0)]
    """
    sums, others = ([use for use in met if isinstance(use, Entrywise) and use.how in SUMS] for met in (first, second))
    same = [use[:2] for use in sums] == [use[:2] for use in others]
    ratios = [b.scale / a.scale for a, b in zip(sums, others, strict=True)] if same else [math.nan] * len(sums)
    found = [use for use in first if use not in sums]
    for use, ratio in zip(sums, ratios, strict=True):
        if not math.isclose(ratio, 1, rel_tol=0.02):  # no mean
            how = SUMS[use.how] if use.how != "sum" or math.isclose(ratio, grown, rel_tol=0.02) else "unclear"
            found.append(Entrywise(how, use.axis))
    return found


SUMS = {"sum": "summed", "mixed": "unclear", "bent": "reduced"}  # what they are, if no means
Axis = frozenset  # of (parameter, axis): what an axis of an array is made of


class Held(NamedTuple):
    """An array that is made of parameters alone."""

    axes: tuple[Axis, ...]
    taken: Axis = Axis()  # axes along which layers were taken out


class Met(NamedTuple):
    """Activations, along the axes of parameters that met them entry by entry."""

    held: Held
    scale: float = 1.0  # numbers that they were multiplied by, and sizes of axes that they were summed over
    sums: tuple["Sum", ...] = ()
    mixed: Axis = Axis()  # axes along which other factors vary
    bent: Axis = Axis()  # axes of parameters in which they are not linear
    whole: bool = False  # the parameter itself, but for a mask or noise: no activations seem to be in it


class Other(enum.Enum):
    """An array that is neither Held nor Met, where it is known what it is."""

    ACTIVE = enum.auto()  # activations, made with parameters from what is none
    FIXED = enum.auto()  # of numbers and random draws alone: no input takes part


class Sum:
    """A sum over axes of parameters, by how it is one; of a mean, `scale` becomes alike at all widths."""

    def __init__(self, axes: dict[str, Axis], scale: float) -> None:
        self.axes, self.scale = axes, scale


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


def number(v: Any) -> float | None:
    """Its value, where the program has it, if not zero."""
    return float(v.val) if isinstance(v, Literal) and np.size(v.val) == 1 and np.all(v.val != 0) else None


def together(mets: list[Met], linear: bool = True) -> Met | None:
    """Several arrays in one, entry by entry."""
    if not mets:
        return None
    axes = tuple(Axis().union(*parts) for parts in zip(*(each.held.axes for each in mets), strict=True))
    held = Held(axes, Axis().union(*(each.held.taken for each in mets)))
    mixed, sums = Axis().union(*(each.mixed for each in mets)), tuple(s for each in mets for s in each.sums)
    bent = Axis().union(*(each.bent for each in mets)) if linear else Axis().union(*axes)
    scale = max(each.scale for each in mets)
    return Met(held, scale, sums if linear else (), mixed, bent, all(each.whole for each in mets))


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
    """Axes that are joined hold what both held; parts of one that is divided hold what it held."""
    found: list[Axis] = [Axis()] * len(after)
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
