"""Loops of a program, read once: through equal blocks goes one field, of which only moments are carried.

It is Gaussian, so that functions of it have averages; or more of it than mean and second moments is not asked for, as where
branches φ(W h) are added up and meet matrices alone. (At infinite depth the sum of such branches is Gaussian.)

What a block makes of these moments is computed in a loop of jax's, so that neither reading nor compiling takes longer the
more blocks there are. Which moments are carried is found out beforehand (`LoopPlans`): a first reading, of shapes only,
notes what is asked of the field, after the loop and within a block, until nothing new is asked.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from limits.program.deterministic import constant
from limits.program.functions import dets_of, leaves_of
from limits.program.loops import EqualBlocks, Loops, Slot
from limits.program.moments import CrossMoments, OwnMoments
from limits.program.nodes import Carried, Det, Key, Map, Node
from limits.program.values import NoLimitError, Value

# Up to 0.11 JAX forgets rules of derivatives in a loop where it takes what the loop does not change out of its reverse, and a
# derivative of that is then one of the code: second derivatives of kernels came out wrong, by a third and more.
_FORGETS_RULES = jax.__version_info__ < (0, 12)


class ReadMoments:
    """The moments of some inputs with themselves and, if asked for, with others."""

    def __init__(self, series: Any, inputs: int, n1: int | None) -> None:
        self.series, self.inputs, self.n1 = series, inputs, n1
        self.own = OwnMoments(series)
        self.cross = None if n1 is None else CrossMoments(self.own, n1, series)

    def again(self) -> "ReadMoments":
        """Of the same inputs, with nothing known yet, and nothing measured."""
        return ReadMoments(type(self.series)() if self.series.measures else self.series, self.inputs, self.n1)

    def form(self, node: Node, key: Key) -> Any:
        """A moment of a field with itself, over all inputs and positions."""
        m: Any = self.own if key.batch == 1 else self.cross
        if key.form == "mean":
            found = m.mean(node)
        else:
            found = m.gap(node, key.pairs) if key.form == "gap" else getattr(m, key.form)(node, node, key.pairs)
        blank = self.blank(node.shape, key)
        return blank if found is None else jnp.broadcast_to(found, blank.shape).astype(float)

    def blank(self, shape: tuple[int, ...], key: Key) -> Any:
        """Zeros in the place of a moment of a field of this shape."""
        batch = (self.inputs,) if key.batch == 1 else (self.n1, self.inputs - self.n1)  # pyright: ignore
        return jnp.zeros((*batch, *shape * (1 + key.pairs)))


class LoopPlan(NamedTuple):
    """A loop and the moments that are carried through it, of a field that is Gaussian, or not."""

    loop: EqualBlocks
    keys: tuple[Key, ...]
    normal: bool


class Rolling:
    """Reads loops: with `plans` (by first equation), or to find these, where there are none.

    `flow`, if there is one, says what numbers do at infinite depth, where loops are equations (`deep`), solved to `tolerance`.
    `sums`: whether fields that are not Gaussian are carried, "normal" ones that are such at infinite depth; `missed`: whether
    more of one than its moments was asked for.
    """

    def __init__(
        self,
        loops: Loops | None,
        moments: ReadMoments,
        plans: dict[int, LoopPlan] | None,
        flow: Any = None,
        tolerance: Any = None,
        sums: str = "",
    ) -> None:
        self.loops, self.moments, self.plans = loops, moments, plans
        self.flow, self.tolerance, self.sums, self.missed = flow, tolerance, sums, False
        self.found = dict[int, LoopPlan]()

    def __call__(self, interpreter: Any, i: int, known: dict[int, Any]) -> EqualBlocks | None:
        """The loop that starts with equation i, whose result is then known; None if there is none."""
        if self.loops is None:
            return None
        if self.plans is not None:
            plan = self.plans.get(i)
            if plan is not None:
                known[plan.loop.last] = self._run(interpreter, plan, known)
            return plan and plan.loop
        loop = self.loops.at(i)
        source: Any = None if loop is None else known.get(loop.enters)
        if loop is None or not _may_be_carried(source):
            return None
        value = self._planned(interpreter, loop, known, True) if source.held.gaussian else None
        if value is None and self.sums:
            value = self._planned(interpreter, loop, known, False)
        if value is None:
            self.found.pop(loop.start, None)
            return None
        known[loop.last] = value
        return loop

    def _block(
        self,
        interpreter: Any,
        loop: EqualBlocks,
        known: dict[int, Any],
        enter: Node,
        inside: ReadMoments,
        changing: Any,
    ) -> Any:
        """What a block makes of a field, and the reader that found out."""
        here = {**known, loop.enters: Value(known[loop.enters].axes, enter)}
        reader = interpreter.inside(inside.own, loop, changing)
        reader.read(loop.start, loop.start + loop.period, here)
        return here[loop.leaves]

    def _carried(self, source: Value, known: Callable[[Key], Any], normal: bool) -> Carried:
        def missed() -> None:
            self.missed = True

        return Carried(source.held.shape, source.held.power, known, normal, missed)

    def _planned(self, interpreter: Any, loop: EqualBlocks, known: dict[int, Any], normal: bool) -> Value | None:
        source = known[loop.enters]
        inside, keys, waiting = self.moments.again(), list[Key](), list[Key]()

        def ask(key: Key) -> Any:
            if key not in keys:
                keys.append(key)
                waiting.append(key)
            return self.moments.blank(source.held.shape, key)

        enter = self._carried(source, ask, normal)
        first = {slot: values[0] for slot, values in _constants(interpreter, loop).items()}
        leave = self._block(interpreter, loop, known, enter, inside, first)
        if not self._goes_on(leave, source, normal):
            return None
        if first:
            variables = _variables(inside.own)
            inside = self.moments.again()
            moving = {slot: _moving(value, jnp.asarray(value.held.array)) for slot, value in first.items()}
            leave = self._block(interpreter, loop, known, enter, inside, moving)
            if not self._goes_on(leave, source, normal) or _variables(inside.own) != variables:
                return None

        def settle() -> None:
            while waiting:
                key = waiting.pop()
                inside.form(leave.held, key)
                self.moments.form(source.held, key)
                self.found[loop.start] = LoopPlan(loop, tuple(keys), normal)

        def after(key: Key) -> Any:
            blank = ask(key)
            settle()
            return blank

        self.found[loop.start] = LoopPlan(loop, (), normal)
        settle()
        return Value(source.axes, self._carried(source, after, normal))

    def _goes_on(self, leave: Any, source: Value, normal: bool) -> bool:
        """Whether what leaves a block can enter the next one."""
        return _alike(leave, source) and (leave.held.gaussian or not normal or self.sums == "normal")

    def _run(self, interpreter: Any, plan: LoopPlan, known: dict[int, Any]) -> Value:
        """After the loop; nothing is computed before it is asked for."""
        source, held = known[plan.loop.enters], dict[Key, Any]()

        def after(key: Key) -> Any:
            if not held:
                through = self._through if self.flow is None else self._through_time
                held.update(through(interpreter, plan, known))
            return held[key]

        return Value(source.axes, self._carried(source, after, plan.normal))

    def _through(self, interpreter: Any, plan: LoopPlan, known: dict[int, Any]) -> dict[Key, Any]:
        loop, source, series = plan.loop, known[plan.loop.enters].held, self.moments.series
        values = _constants(interpreter, loop)
        over = [jnp.stack([jnp.asarray(value.held.array) for value in each]) for each in values.values()]
        seen: Any = None

        def block(carry: dict[Key, Any], numbers: list[Any]) -> tuple[dict[Key, Any], Any]:
            nonlocal seen
            inside = self.moments.again()
            seen = inside.series
            changing = {
                slot: _moving(value[0], number) for (slot, value), number in zip(values.items(), numbers, strict=True)
            }
            enter = self._carried(known[loop.enters], carry.__getitem__, plan.normal)
            leave = self._block(interpreter, loop, known, enter, inside, changing)
            after = {key: inside.form(leave.held, key) for key in carry}
            return after, seen.arrays() if series.measures else None

        start = {key: self.moments.form(source, key) for key in plan.keys}
        if series.differentiable and _FORGETS_RULES:
            for i in range(loop.count):
                start, _ = block(start, [row[i] for row in over])
            return start
        found, measured = jax.lax.scan(block, start, over, length=loop.count)
        if series.measures:
            series.add(seen, jax.tree.map(lambda a: a.max(0), measured))
        return found

    def _through_time(self, interpreter: Any, plan: LoopPlan, known: dict[int, Any]) -> dict[Key, Any]:
        """The same of infinitely many blocks."""
        from limits.depth.layer_time import solved
        from limits.program.deep import Flow

        source, series = known[plan.loop.enters].held, self.moments.series

        def block(enter: Node, inside: ReadMoments, at: Any) -> Node:
            here = {**known, plan.loop.enters: Value(known[plan.loop.enters].axes, enter)}
            reader = interpreter.inside(inside.own, plan.loop, {})
            reader.changed |= self.flow.values(at)
            reader.read(plan.loop.start, plan.loop.start + plan.loop.period, here)
            return here[plan.loop.leaves].held

        flow = Flow(block, source, self.moments, plan, self.flow.leaks)
        start = {key: self.moments.form(source, key) for key in plan.keys}
        found = solved(flow.velocity, start, 1.0, self.tolerance)
        found = {key: jnp.clip(a, 0, 2) if key.form == "gap" else a for key, a in found.items()}
        if series.measures:  # variances only grow, but where signals leak: the largest ones are met at an end
            for met in (start, found) if self.flow.leaks else (found,):
                inside = self.moments.again()
                seen = inside.series
                leave = block(flow.enters(met), inside, jnp.zeros(3))
                for key in plan.keys:
                    inside.form(leave, key)
                series.add(seen, seen.arrays())
        return found


def _constants(interpreter: Any, loop: EqualBlocks) -> dict[Slot, list[Value]]:
    """Those that differ from block to block."""
    return {
        (i, k): [
            interpreter.changed.get((loop.start + i + j * loop.period, k)) or constant(*each)
            for j, each in enumerate(constants)
        ]
        for (i, k), constants in loop.changing.items()
    }


def _may_be_carried(value: Any) -> bool:
    return (
        isinstance(value, Value) and isinstance(value.held, Node) and not value.held.still and value.held.skewed is None
    )


def _alike(leave: Any, source: Value) -> bool:
    """Whether it has the form of what entered the first one."""
    if not _may_be_carried(leave) or leave.axes != source.axes:
        return False
    return leave.held.shape == source.held.shape and abs(leave.held.power - source.held.power) < 1e-6


def _moving(value: Value, array: Any) -> Value:
    """A constant whose number is another one in each block."""
    return Value(value.axes, Det(array, value.held.power, value.held.noise))


def _variables(own: Any) -> tuple[int, int]:
    """How many fields, and deterministic values other than numbers, enter functions of fields: of one field is closed."""
    maps = [node for _, node in own.places.values() if isinstance(node, Map)]
    fields = sum(len({id(leaf) for leaf in leaves_of(node)}) for node in maps)
    return fields, sum(sum(det.number is None for det in dets_of(node)) for node in maps)


def plans_of(
    read: Callable[[Rolling], Any], loops: Loops | None, moments: Callable[[], ReadMoments], deep: bool = False
) -> dict[int, LoopPlan]:
    """What loops carry in a reading that asks for no more than this one, which is done with shapes only."""
    found: dict[int, LoopPlan] = {}

    def asked(sums: str) -> bool:
        rolling = Rolling(loops, moments(), None, sums=sums)
        with contextlib.suppress(NoLimitError):
            read(rolling)
        found.clear()
        found.update(rolling.found)
        return rolling.missed

    def either() -> None:
        if asked("normal" if deep else "moments") and not deep:
            asked("")

    if loops is not None and loops.runs:
        jax.eval_shape(either)
    return found
