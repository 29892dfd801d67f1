"""A walk through a traced function: how its parameters meet activations."""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from zoo.held import (
    LINEAR,
    OF_SHAPES,
    Axis,
    Entrywise,
    Held,
    Met,
    Other,
    active_too,
    by_entry,
    each_group,
    fits,
    in_rows,
    is_weights,
    names,
    one_step,
    share,
    together,
)
from zoo.looked_up import Looked, Notes
from zoo.scans import is_call, scan_counts
from zoo.sums import Scales, Sum, summed

_INNER = ("scan", "while", "cond")  # rules that walk through programs inside
_PRODUCTS = ("dot_general", "conv_general_dilated", "gather")


class Meetings(Notes):
    """Through the equations of a function: which arrays are made of parameters alone, and how they meet activations."""

    def __init__(self, told: bool = False) -> None:
        """told: inputs are arguments, so that what no argument takes part in is no activation."""
        super().__init__()
        self.told = told
        self.scales = Scales()
        self._sums: list[Sum] = []
        self._now: list[Sum] = []  # of the equation that is looked at
        self._weights: list[int] = []  # its operands that are weights, and summed over

    def finish(self) -> None:
        """Note what is not known before the end: the scale of sums over products, and what becomes of what is looked up."""
        self._end_of_lookups()
        for each in self._sums:
            for how, axes in each.axes.items():
                for name, axis in sorted(axes):
                    self.found.setdefault(name, []).append(Entrywise(how, axis, each.size(), each.given))

    def through(self, jaxpr: Any, given: Sequence[Any]) -> list[Any]:
        """The outputs, where they are made of parameters alone (Held), or by their entries (Met); `given`: the inputs."""
        known: dict[Any, Any] = {v: h for v, h in zip(jaxpr.invars, given, strict=True) if h is not None}
        if self.told:
            known |= dict.fromkeys(jaxpr.constvars, Other.FIXED)

        def read(v: Any) -> Any:
            return None if isinstance(v, Literal) else known.get(v)

        for eqn in jaxpr.eqns:
            if not eqn.outvars:
                continue  # what only shows its numbers (jax.debug.print)
            inputs = [read(v) for v in eqn.invars]
            fixed = [isinstance(v, Literal) or each is Other.FIXED for v, each in zip(eqn.invars, inputs, strict=True)]
            found = [None] * len(eqn.outvars)
            if any(each not in (None, Other.FIXED) for each in inputs) or is_call(eqn):
                found = self._after(eqn, inputs)
            else:
                self.scales.after(eqn, [], [], [])
            if self.told and all(fixed):
                found = [Other.FIXED] * len(eqn.outvars)
            known |= {v: each for v, each in zip(eqn.outvars, found, strict=True) if each is not None}
        return [read(v) for v in jaxpr.outvars]

    def _after(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        name = eqn.primitive.name.replace("-", "_")
        rule = getattr(self, "_" + name, None)
        inner = [p for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
        if name in _INNER:
            return rule(eqn, *self._signals(inputs))  # pyright: ignore
        if rule is None and inner:
            body = getattr(inner[0], "jaxpr", inner[0])
            same = len(body.invars) == len(inputs) and len(body.outvars) == len(eqn.outvars)
            return self._run(body, inputs, eqn.invars, eqn.outvars) if same else [None] * len(eqn.outvars)
        self._now, self._weights = [], []
        if any(isinstance(each, Looked) for each in inputs):
            if followed := self._of_looked_up(eqn, inputs):
                self.scales.after(eqn, followed[1], [], [])
                return followed[0]
            inputs = self._signals(inputs)
        found = self._of_rule(rule, eqn, inputs) if rule else self._by_entry(eqn, inputs)
        held = [i for i, each in enumerate(inputs) if is_weights(each)]
        self.scales.after(eqn, self._weights, held, self._now)
        active = any(each is Other.ACTIVE or (isinstance(each, Met) and not each.whole) for each in inputs)
        active = active or (name in _PRODUCTS and not all(isinstance(each, Held) for each in inputs))
        return [Other.ACTIVE if each is None and active else each for each in found]

    def _run(self, body: Any, inputs: Sequence[Any], given: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """Through a program inside, with its inputs and outputs here."""
        self.scales.give(body.invars, given)
        found = self.through(body, inputs)
        self.scales.give(outs, body.outvars)
        return found

    def _of_rule(self, rule: Any, eqn: Any, inputs: list[Any]) -> list[Any]:
        operands = [None if isinstance(each, Other) else each for each in inputs]
        if not any(operands):
            return [None] * len(eqn.outvars)
        met = operands[0] if eqn.primitive.name in OF_SHAPES else None
        found = rule(eqn, met.held, *[None] * (len(operands) - 1)) if isinstance(met, Met) else rule(eqn, *operands)
        found = found if isinstance(found, list) else [found]
        return [met._replace(held=each) if isinstance(met, Met) and each is not None else each for each in found]

    def _by_entry(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        found = [by_entry(eqn, inputs, v.aval.shape) for v in eqn.outvars]
        for v, held in zip(eqn.invars, inputs, strict=True):
            if None in found or v.aval.shape not in ((), eqn.outvars[0].aval.shape):
                self._count(held)
        return found if None not in found else [self._entrywise(eqn, inputs), *[None] * (len(found) - 1)]

    def _entrywise(self, eqn: Any, inputs: list[Any]) -> Met | None:
        """Activations take part, entry by entry: what they are then."""
        name, shapes, shape = eqn.primitive.name, [v.aval.shape for v in eqn.invars], eqn.outvars[0].aval.shape
        if any(s and not fits(s, shape) for s in shapes):  # nothing that this walk follows
            self._meet("unclear", Axis().union(*(a for h in inputs if isinstance(h, Held) for a in h.axes)))
            return None
        several = [not isinstance(each, Held) and v.aval.size > 1 for each, v in zip(inputs, eqn.invars, strict=True)]
        active = [i for i, each in enumerate(inputs) if isinstance(each, Met) or several[i]]
        if not active:  # parameters of several shapes
            return None
        own = [names(each.held) for each in inputs if isinstance(each, Met) and each.whole]  # sums over them are theirs
        met = [each for each in inputs if isinstance(each, Met) and not each.whole and names(each.held) not in own]
        certain = bool(met) or any(inputs[i] is Other.ACTIVE for i in active)
        if certain:
            inputs = [each.held if isinstance(each, Met) and each.whole else each for each in inputs]
        mets: list[Met] = []
        for i, value in enumerate(inputs):
            if isinstance(value, Held) and shapes[i]:
                alike = all(value.axes) and shapes[i] == shape
                if alike and not certain:
                    self._meet("alike", Axis().union(*value.axes))
                    mets.append(Met(value, whole=True))
                elif name not in ("mul", "div"):
                    self._meet("alike" if alike else "added", Axis().union(*value.axes))
                    mets.append(Met(value, bent=Axis().union(*value.axes)))
                else:
                    vary = [any(shapes[k] and shapes[k][j] == size for k in active) for j, size in enumerate(shape)]
                    self._meet("kept", Axis().union(*(a for a, v in zip(value.axes, vary, strict=True) if v)))
                    self._meet("made", Axis().union(*(a for a, v in zip(value.axes, vary, strict=True) if not v)))
                    if name == "mul" or i == 0:
                        mets.append(Met(value))
            elif isinstance(value, Met):
                k = next((k for k, s in enumerate(shapes) if k != i and s and name in ("mul", "div")), None)
                varied = isinstance(k, int) and inputs[k] is not Other.FIXED and not isinstance(eqn.invars[k], Literal)
                held = value.held if shapes[i] else Held((Axis(),) * len(shape), value.held.taken)  # one number for all
                along = [a for j, a in enumerate(held.axes) if varied and shapes[k][j] > 1]  # pyright: ignore
                met = value._replace(held=held, whole=value.whole and shapes[i] == shape)
                weights = name == "mul" and k is not None and is_weights(inputs[k])
                field = "under" if weights else "mixed"
                mets.append(met._replace(**{field: getattr(met, field).union(*along)}))
        weights = [each for each in mets if each.whole]
        if weights:
            return together(weights)
        linear = name in LINEAR or name == "mul" or (name == "div" and 0 in active and 1 not in active)
        linear = linear or (name == "div" and isinstance(inputs[0], Held))
        return together(mets, linear and not (name == "mul" and share(mets)))

    def _dot_general(self, eqn: Any, *operands: Any) -> Held | Met | None:
        contracted, batch = eqn.params["dimension_numbers"]
        left, right = operands
        if isinstance(left, Held) and isinstance(right, Held):  # what it is used for is what its axes are used for
            kept = [
                [h.axes[i] for i in range(len(h.axes)) if i not in (*sums, *beside)]
                for h, sums, beside in zip(operands, contracted, batch, strict=True)
            ]
            layers = [left.axes[i] | right.axes[j] for i, j in zip(*batch, strict=True)]
            return Held((*layers, *kept[0], *kept[1]), left.taken | right.taken)
        found = []
        for k, (each, sums, beside) in enumerate(zip(operands, contracted, batch, strict=True)):
            other = operands[1 - k]
            held = each.held if isinstance(each, Met) and each.whole and not isinstance(other, Held) else each
            if isinstance(held, Met):
                self._meet("weighed", Axis().union(*(held.held.axes[i] for i in sums)))
            if isinstance(held, Held):
                kept = [i for i in range(len(held.axes)) if i not in (*sums, *beside)]
                self._note(held, sums, kept, beside)
                self._weights += [k] if sums else []
                gone = Axis().union(*(held.axes[i] for i in sums))
                if gone and all(axis == 0 for each in held.axes for _, axis in each):  # a vector
                    self._sum(eqn, {"product": gone}, *eqn.invars)
                rest = len(eqn.outvars[0].aval.shape) - len(beside)
                found.append(Met(Held((*(held.axes[i] for i in beside), *[Axis()] * rest), held.taken)))
        return found[0] if len(found) == 1 and any(batch) else None

    def _conv_general_dilated(self, eqn: Any, data: Any, kernel: Any) -> None:
        if kernel is None or isinstance(data, Held):
            return
        out, *summed = eqn.params["dimension_numbers"].rhs_spec
        if isinstance(data, Met):
            self._meet("weighed", data.held.axes[eqn.params["dimension_numbers"].lhs_spec[1]])
        held = kernel.held if isinstance(kernel, Met) and kernel.whole else kernel
        if isinstance(held, Held):  # of groups too, whose kernels stand side by side along the outputs
            several = eqn.params["feature_group_count"] > 1
            self._note(each_group(held, out) if several else held, summed, [out])

    def _reduce_max(self, eqn: Any, value: Any) -> Any:
        if isinstance(value, Held):
            return self._squeeze(eqn, value)
        bent = Axis().union(*value.held.axes)
        self._meet("reduced", Axis().union(*(value.held.axes[i] for i in eqn.params["axes"])))
        return Met(self._squeeze(eqn, value.held), Axis(), value.mixed, bent)

    _reduce_min = _reduce_max

    def _reduce_sum(self, eqn: Any, value: Any) -> Any:
        if isinstance(value, Held):
            return self._squeeze(eqn, value)
        self._over(eqn, value, eqn.params["axes"])
        return value._replace(held=self._squeeze(eqn, value.held), whole=False)

    def _cumsum(self, eqn: Any, value: Any) -> Any:
        """Its last entry is the sum."""
        if isinstance(value, Held):
            return value
        self._over(eqn, value, [eqn.params["axis"]])
        return value._replace(mixed=value.mixed | value.held.axes[eqn.params["axis"]], whole=False)

    def _over(self, eqn: Any, met: Met, axes: Sequence[int]) -> None:
        """A sum over these axes."""
        gone, *rest = (
            Axis().union(*(a for i, a in enumerate(met.held.axes) if (i in axes) is s)) for s in (True, False)
        )
        if gone and met.whole:  # not weights that something was done to
            self._meet("made", *rest)
        self._meet("weighed", gone & met.under)
        gone -= met.under
        linear = gone - met.bent
        if gone:
            self._sum(
                eqn, {"sum": linear - met.mixed, "mixed": linear & met.mixed, "bent": gone & met.bent}, eqn.invars[0]
            )
        self._weights = [0] if linear - met.mixed else []

    def _sum(self, eqn: Any, axes: dict[str, Axis], *operands: Any) -> None:
        scales = [self.scales.of(v) for v in operands]
        factor, given = (math.prod(each) for each in zip(*(each[:2] for each in scales), strict=True))
        self._now.append(Sum(axes, factor * summed(eqn), given))
        self._sums.append(self._now[-1])

    def _concatenate(self, _: Any, *operands: Any) -> Held | Met | None:
        if not all(isinstance(each, Held) for each in operands):
            self._added(operands)
            met = together([each for each in operands if isinstance(each, Met)])
            return met and met._replace(bent=Axis().union(*met.held.axes), whole=False)
        return Held(tuple(Axis().union(*axes) for axes in zip(*(o.axes for o in operands if o), strict=True)))

    def _added(self, values: Sequence[Any]) -> None:
        """Parameters that stand where activations do: tokens beside others, states that a loop begins with."""
        for held in values:
            self._count(held)
            self._meet("added", Axis().union(*held.axes) if isinstance(held, Held) else Axis())

    def _dynamic_update_slice(self, _: Any, whole: Any, part: Any, *at: Any) -> None:
        for held in (whole, part):
            self._count(held)

    def _scatter(self, _: Any, whole: Any, at: Any, part: Any) -> None:
        self._dynamic_update_slice(_, whole, part)

    _scatter_add = _scatter

    def _scan(self, eqn: Any, *operands: Any) -> list[Any]:
        fixed, carried = scan_counts(eqn.params)
        body, consts, layers = eqn.params["jaxpr"].jaxpr, operands[:fixed], operands[fixed + carried :]
        layers = [one_step(each) for each in layers]
        states = self._states(body, consts, operands[fixed : fixed + carried], layers)
        self.times *= eqn.params["length"]
        outs = self._run(body, [*consts, *states, *layers], eqn.invars, eqn.outvars)
        self.times //= eqn.params["length"]
        rows = [in_rows(each) if isinstance(each, Met) else active_too(each) for each in outs[carried:]]
        return [
            *(h if isinstance(h, Held) else active_too(out) for h, out in zip(states, outs[:carried], strict=True)),
            *rows,
        ]

    def _states(self, body: Any, consts: Sequence[Any], given: Sequence[Any], layers: Sequence[Any] = ()) -> list[Any]:
        """What the steps of a loop begin with: activations, where these change it; weights, where they are summed."""
        before, quiet, states = body.invars[len(consts) :], Meetings(self.told), list(given)
        while True:
            after = quiet.through(body, [*consts, *states, *layers])
            pairs = zip(before, body.outvars, states, after, strict=False)
            changed = [
                state if v is w else _either(state, None if _multiplied(body, {v}) else out, v)
                for v, w, state, out in pairs
            ][: len(given)]
            if changed == states:
                break
            states = changed
        kept = [v is w or isinstance(state, Held) for v, w, state in zip(before, body.outvars, states, strict=False)]
        self._added([each for each, same in zip(given, kept, strict=False) if not same])
        return states

    def _while(self, eqn: Any, *operands: Any) -> list[Any]:
        condition, constants = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        body, consts = eqn.params["body_jaxpr"].jaxpr, operands[condition : condition + constants]
        states = self._states(body, consts, operands[condition + constants :])
        after = self._run(body, [*consts, *states], eqn.invars[condition:], eqn.outvars)
        return [h if isinstance(h, Held) else active_too(out) for h, out in zip(states, after, strict=True)]

    def _cond(self, eqn: Any, _: Any, *operands: Any) -> list[Any]:
        bodies = [branch.jaxpr for branch in eqn.params["branches"]]
        branches = [self._run(body, operands, eqn.invars[1:], eqn.outvars) for body in bodies]
        return [outs[0] if all(o == outs[0] for o in outs) else None for outs in zip(*branches, strict=True)]


def _either(state: Any, after: Any, v: Any) -> Any:
    """What a state of a loop is that a step begins with and leaves like this: weights, where weights are added to numbers."""
    state, after = (each.held if isinstance(each, Met) and each.whole else each for each in (state, after))
    held = [each for each in (state, after) if isinstance(each, Held)]
    if state not in (*held, None, Other.FIXED) or after not in (*held, Other.FIXED):
        return Other.ACTIVE if jnp.issubdtype(v.aval.dtype, np.inexact) else None
    axes = tuple(Axis().union(*each) for each in zip(*(each.axes for each in held), strict=True))
    return Held(axes, Axis().union(*(each.taken for each in held))) if held else state


def _multiplied(body: Any, by: set[Any]) -> bool:
    """Whether one of these variables, or what is made of them, enters a product or a look-up, as signals and places do."""
    by = {*by}
    for eqn in body.eqns:
        enters = [not isinstance(v, Literal) and v in by for v in eqn.invars]
        if not any(enters):
            continue
        inner = [getattr(p, "jaxpr", p) for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
        same = all(len(each.invars) == len(enters) for each in inner)
        if eqn.primitive.name in _PRODUCTS or not same:
            return True
        if any(_multiplied(one, {v for v, e in zip(one.invars, enters, strict=True) if e}) for one in inner):
            return True
        by |= {*eqn.outvars}
    return False
