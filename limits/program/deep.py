"""Infinitely many residual blocks: the loop of a program, with branches of size L^(−1/2), as an equation in layer time.

A network is read at two depths. Numbers of its program that fall with the depth vanish in the limit, and others go to 1
(`numbers_in_depth`); inside a loop they say what its blocks are, h ← (1 − c/L) h + Σ_j a_j L^(−1/2) F_j(h), and moments move by

    d⟨h h⟩/dτ = Σ_j a_j² ⟨F_j F_j⟩ − 2 c ⟨h h⟩,   dΘ/dτ = Σ_j a_j² Θ(F_j, F_j) − 2 c Θ,   0 ≤ τ ≤ 1,

of branches that are read with the numbers in the limit: to first order each sees the stream as it enters the block. Branches
need not be Gaussian where they are functions of images of the stream by weights of their own, of mean zero (tanh(W h), not
relu(W h), whose mean adds up to √L): the stream is a sum of infinitely many.

Reference: Bordelon, Noci, Li, Hanin, Pehlevan (2023), Depthwise hyperparameter transfer in residual networks.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program.deterministic import constant
from limits.program.functions import leaves_of
from limits.program.loops import Slot
from limits.program.nodes import Carried, Det, FieldSum, Key, Node
from limits.program.numbers_in_depth import InDepth, in_depth
from limits.program.rolled import LoopPlan, ReadMoments
from limits.program.simplified import constant_written, operation_written
from limits.program.trace import Constant, Equation
from limits.program.values import NoLimitError, Value

_MEAN = 1e-9  # of the size, which rounding leaves of a mean that is zero
DEPTHS = (8, 32)  # at which a network is read
_TWO_DEPTHS = (
    "its code is another one at depth {0} and at depth {1} beside its equal blocks ({2}), so that no equation in layer time "
    "describes it"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Depths:
    """What goes with the depth, by equation and input: the constants, and what they do. `leaks`: whether one goes as 1 − c/L."""

    constants: dict[Slot, Constant]
    numbers: dict[Slot, InDepth]

    @functools.cached_property
    def leaks(self) -> bool:
        """Whether a number may take from the stream what is of order 1/L, or more."""
        return any(number.toward[1] or number.toward[2] for number in self.numbers.values())

    def values(self, at: Any) -> dict[Slot, Value]:
        """The numbers beside their limits; `at`: L^(−1/2), 1/L, and what lies between, as three small numbers."""
        found = {}
        for slot, number in self.constants.items():
            value, how = constant(*number), self.numbers[slot]
            size = how.limit + jnp.asarray(how.toward) @ at
            found[slot] = Value(value.axes, Det(size * jnp.ones(value.held.shape)[None], value.held.power))
        return found


def compared(readings: tuple[Any, Any], plans: tuple[dict, dict], depths: tuple[int, int] = DEPTHS) -> Depths:
    """What `ProgramKernels` at two depths, and their loops, say of the limit; `NoLimitError` where there is none."""
    programs = tuple(reading.program for reading in readings)
    pairs = _alike(programs, plans, depths)
    loops = {plan.loop.start: (plan.loop, other.loop) for plan, other in _paired(*plans)}
    found, numbers = dict[Slot, Constant](), dict[Slot, InDepth]()
    for i, j in pairs:
        small, large = programs[0].equations[i], programs[1].equations[j]
        for k, (a, b) in enumerate(zip(small.inputs, large.inputs, strict=True)):
            if not isinstance(a, Constant):
                if _law(readings[0], small, a) != _law(readings[1], large, b):
                    raise NoLimitError(
                        f"{small.where}: a parameter starts with another law, or learns at another rate, at depth "
                        f"{depths[0]} than at depth {depths[1]}. Multiply branches by the power of the depth in the "
                        "forward code instead"
                    )
                continue
            if constant_written(a) == constant_written(b):
                continue
            x, y = (np.asarray(each.value, float) for each in (a, b))
            number = in_depth(x.item(), y.item(), depths) if x.size == 1 else None
            if number is None:
                raise NoLimitError(
                    f"{small.where}: a number of the code, or the size that weights start with, goes from {x.ravel()[0]:.4g} "
                    f"at depth {depths[0]} to {y.ravel()[0]:.4g} at depth {depths[1]}. At infinite depth branches "
                    "must be scaled by L^(−1/2) (or a larger power), with L the field `depth`, the signal by 1, or by what "
                    "goes as 1 − c/L, and all other numbers must not depend on it"
                )
            inside = next((pair for pair in loops.values() if pair[0].start <= i < pair[0].stop), None)
            blocks = 0.0 if inside is None else (inside[1].count - inside[0].count) / (depths[1] - depths[0])
            found[i, k], numbers[i, k] = a, number.over(blocks)
    for loop, _ in loops.values():
        if loop.changing:
            raise NoLimitError("blocks are scaled in different ways, and their sizes do not fall as L^(−1/2)")
        if not any(loop.start <= i < loop.start + loop.period for i, _ in found):
            raise NoLimitError(
                f"blocks are of one size at all depths: signals and tangent kernels grow (or forget their inputs) without bound. "
                f"Scale the branches of the {loop.count} blocks at depth {depths[0]} by L^(−1/2), with L the field `depth`"
            )
    return Depths(found, numbers)


def _law(reading: Any, equation: Equation, operand: Any) -> Any:
    """That of a parameter, or of a layer that is taken out of a stack, which is longer the deeper the network is."""
    law = reading.law(operand)
    return law and (law[0][1:], *law[1:]) if equation.primitive == "scan_index" else law


def _paired(small: dict[int, LoopPlan], large: dict[int, LoopPlan]) -> list[tuple[LoopPlan, LoopPlan]]:
    return [(small[a], large[b]) for a, b in zip(sorted(small), sorted(large), strict=False)]


def _alike(programs: Any, plans: Any, depths: tuple[int, int]) -> list[tuple[int, int]]:
    """Equations of the two that are the same but for numbers: all of the first, but blocks of loops after the first one."""
    if not plans[0]:
        raise NoLimitError(
            "no run of equal blocks was found in its code through which one Gaussian signal goes (weights of their own in every "
            "block, and what is computed before is not used again)"
        )
    if len(plans[0]) != len(plans[1]):
        raise NoLimitError(_TWO_DEPTHS.format(*depths, f"{len(plans[0])} and {len(plans[1])} runs of them"))
    pairs, i, j = list[tuple[int, int]](), 0, 0
    for plan, other in _paired(*plans):
        a, b = plan.loop, other.loop
        if a.start - i != b.start - j or a.period != b.period:
            raise NoLimitError(_TWO_DEPTHS.format(*depths, "what comes before or inside them differs"))
        pairs += [(i + k, j + k) for k in range(a.start - i + a.period)]
        i, j = a.stop, b.stop
    rest = [len(program.equations) for program in programs]
    if rest[0] - i != rest[1] - j:
        raise NoLimitError(_TWO_DEPTHS.format(*depths, "what comes after them differs"))
    pairs += [(i + k, j + k) for k in range(rest[0] - i)]
    for i, j in pairs:
        small, large = programs[0].equations[i], programs[1].equations[j]
        if operation_written(small) != operation_written(large):
            raise NoLimitError(_TWO_DEPTHS.format(*depths, f"{small.primitive} and {large.primitive} at {small.where}"))
    return pairs


def terms_of(leave: Node, enter: Node, unit: Any, leaks: bool) -> tuple[Any, list[tuple[Any, Node]]]:
    """(s, (coefficient, branch)…) of leave = s enter + Σ coefficient × branch; arrays [n or 1, positions]. No `leaks`: s is 1."""
    found, streams = list[tuple[Any, Node]](), list[Any]()

    def take(node: Node, coefficient: Any) -> None:
        if node is enter:
            streams.append(coefficient)
        elif isinstance(node, FieldSum) and node.constant is None:
            for c, part in node.terms:
                take(part, coefficient * (jnp.asarray(c.array) if c.number is None else c.number))
        else:
            found.append((coefficient * unit, node))

    take(leave, 1.0)
    stream = sum(streams)
    known = not leaks and (len(streams) != 1 or not isinstance(stream, float))
    if not streams or known or np.size(stream) != 1 or (isinstance(stream, float) and stream != 1.0):
        raise NoLimitError(
            "a block does not add its branches to the signal that enters it: there is no equation in layer time"
        )
    tops = [top for _, node in found for top in node.tops]
    if len(tops) != len(set(tops)):
        raise NoLimitError("branches of one block share weights: there is no equation in layer time")
    return jnp.reshape(stream, ()), found


def _has_no_mean(own: Any, node: Node, enter: Node) -> Any:
    """Whether a branch adds as much noise in every block, and no mean; it must not depend on the stream's own neurons."""
    if node.gaussian:
        return True
    # A sum with the stream is one leaf and has its top; an image of the stream has that of its weights alone.
    if any(leaf.tops & enter.tops for leaf in leaves_of(node)):
        raise NoLimitError(
            "a branch multiplies neurons of the signal, or is a function of each of them alone: what infinitely many add up to "
            "is not Gaussian. Put a layer of weights between"
        )
    mean, size = own.mean(node), own.size(node)
    return True if mean is None else jnp.all(jnp.abs(mean) <= _MEAN * size)


class Flow:
    """The moments that go through a loop, as a flow in layer time. `block(enter, inside, at)` → what leaves a block."""

    def __init__(self, block: Any, source: Node, moments: ReadMoments, plan: LoopPlan, leaks: bool) -> None:
        self.block, self.source, self.moments, self.leaks = block, source, moments, leaks
        self.keys, self.normal = plan.keys, plan.normal

    def enters(self, carry: dict[Key, Any]) -> Carried:
        """The stream with these moments."""
        return Carried(self.source.shape, self.source.power, carry.__getitem__, self.normal)

    def branches(self, carry: dict[Key, Any]) -> tuple[Node, ReadMoments, list[tuple[Any, Node]], Any]:
        """(the stream, its moments, size and signal of every branch, −c of the stream)."""
        unit = jnp.ones((1,) * (1 + len(self.source.shape)))
        enter = self.enters(carry)

        def sizes(at: Any) -> tuple[Any, list[Any]]:
            leave = self.block(enter, self.moments.again(), at)
            stream, terms = terms_of(leave, enter, unit, self.leaks)
            return stream, [size for size, _ in terms]

        along = lambda i: jax.jvp(sizes, (jnp.zeros(3),), (jnp.eye(3)[i],))  # noqa: E731
        (still, resting), (slower, slopes) = along(0)
        steady, lost = (still == 1) & (slower == 0), jnp.zeros(())
        if self.leaks:
            lost, other = (along(i)[1][0] for i in (1, 2))
            steady &= other == 0  # else the signal would be lost, or grow, in less than the depth
        inside = self.moments.again()
        _, terms = terms_of(self.block(enter, inside, jnp.zeros(3)), enter, unit, self.leaks)
        slopes = [jnp.where(size == 0, slope, jnp.nan) for size, slope in zip(resting, slopes, strict=True)]
        sized = [
            (jnp.where(_has_no_mean(inside.own, node, enter), slope, jnp.nan), node)
            for slope, (_, node) in zip(slopes, terms, strict=True)
        ]
        return enter, inside, sized, jnp.where(steady, lost, jnp.nan)

    def velocity(self, carry: dict[Key, Any]) -> dict[Key, Any]:
        """Of every moment. That of 1 − c is that of `gaps._of_sum`, to first order in a branch's variance."""
        enter, inside, branches, lost = self.branches(carry)
        found = {key: sum(self._moved(key, enter, inside, size, node) for size, node in branches) for key in self.keys}
        if not self.leaks:
            return found
        times = {"gap": 0, "mean": 1}
        return {key: moved + times.get(key.form, 2) * lost * carry[key] for key, moved in found.items()}

    def _moved(self, key: Key, enter: Node, inside: ReadMoments, size: Any, node: Node) -> Any:
        if key.form == "mean":
            return self.moments.blank(enter.shape, key)
        m: Any = inside.own if key.batch == 1 else inside.cross
        moment = inside.form(node, key)
        rank = len(enter.shape)
        if key.form != "gap":
            return moment * m.product(enter, enter, size, size, key.pairs)
        r = inside.own.size(enter)
        b = size * inside.own.size(node) / jnp.where(r > 0, r, 1)
        left, right = (m.placed(b, i, rank, key.pairs) for i in (0, 1))
        own = left**2 + right**2
        return ((left - right) ** 2 - own * m.gap(enter, key.pairs)) / 2 + left * right * moment
