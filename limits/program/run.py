"""A program run equation by equation, with other values than arrays in place of some: what a reading gives rules for."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from limits.kernels.alike import INLINED
from zoo.abstract import abstract
from zoo.plain import PlainNetwork
from zoo.scans import scan_counts
from zoo.starts import readouts, starts


@dataclasses.dataclass(frozen=True)
class Noted:
    """An array of weights, what is multiplied with which is noted: those of the readout, and so the features."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Weighed(Noted):
    """Such an array times signals entry by entry, which is a product with them once it is summed."""

    signal: Any
    along: tuple[bool, ...]  # the axes along which the weights vary

    def summed(self, axes: Sequence[int]) -> jax.Array:
        """The signals that enter the sum over these axes, [.., features]."""
        alike = [i for i in axes if not self.along[i]]
        beside = [i for i in range(self.signal.ndim) if i not in axes and self.signal.shape[i] < self.value.shape[i]]
        gone = [i for i in axes if self.along[i]]
        signal = jnp.broadcast_to(
            self.signal,
            [n if i in axes else m for i, (n, m) in enumerate(zip(self.value.shape, self.signal.shape, strict=True))],
        )
        kept = [i for i in range(signal.ndim) if i not in (*axes, *beside)]
        rows = jnp.transpose(signal.sum(alike, keepdims=True), (*kept, *alike, *beside, *gone))
        return rows.reshape(*(signal.shape[i] for i in kept), -1)


class EquationRun:
    """One run through the equations. `features`: what was multiplied with a `Noted`, [.., features]."""

    special: tuple[type, ...] = (Noted,)

    def __init__(self) -> None:
        self.features: Any = None

    def through(self, jaxpr: Any, consts: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """The outputs of a program."""
        held = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, given, strict=True))
        read = lambda v: v.val if isinstance(v, Literal) else held[v]  # noqa: E731
        for eqn in jaxpr.eqns:
            held |= zip(eqn.outvars, self._outputs(eqn, [read(v) for v in eqn.invars]), strict=True)
        return [read(v) for v in jaxpr.outvars]

    def _outputs(self, eqn: Any, values: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        if not any(isinstance(value, self.special) for value in values):
            return bound(eqn, values)
        if name in INLINED:
            inner = eqn.params[INLINED[name]]
            return self.through(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), values)
        if name == "scan":
            return self._unrolled(eqn, values)
        return self.rule(eqn, values)

    def rule(self, eqn: Any, values: list[Any]) -> list[Any]:
        """The outputs of an equation that meets other values than arrays; here, `Noted` ones."""
        name, bare = eqn.primitive.name, [value.value if isinstance(value, Noted) else value for value in values]
        made = bound(eqn, bare)
        if name == "dot_general" and not any(isinstance(value, Weighed) for value in values):
            side = int(isinstance(values[0], Noted))
            gone = eqn.params["dimension_numbers"][0][side]
            kept = [i for i in range(jnp.ndim(bare[side])) if i not in gone]
            features = jnp.transpose(bare[side], (*kept, *gone))
            self.features = features.reshape(*features.shape[: len(kept)], -1)
            return made
        if name == "reduce_sum" and isinstance(values[0], Weighed):
            self.features = values[0].summed(eqn.params["axes"])
            return made
        same = all(isinstance(value, Noted) or jnp.size(value) == 1 for value in values)
        if name == "mul" and not same:
            at = int(isinstance(values[1], Noted))
            weights = [n > 1 for n in jnp.shape(bare[at])]
            return made if isinstance(values[at], Weighed) else [Weighed(made[0], values[1 - at], tuple(weights))]
        if any(isinstance(value, Weighed) for value in values):
            factor = name in ("mul", "div", "neg", "convert_element_type", "copy") and len(made) == 1
            weighed = next(value for value in values if isinstance(value, Weighed))
            return [dataclasses.replace(weighed, value=made[0])] if factor and same else made
        return [Noted(each) for each in made] if same else made

    def entry(self, value: Any, i: int) -> Any:
        """Entry i along the first axis."""
        return Noted(value.value[i]) if isinstance(value, Noted) else value[i]

    def _unrolled(self, eqn: Any, values: list[Any]) -> list[Any]:
        """A loop, step by step, since every step meets what the one before has left."""
        body, length = eqn.params["jaxpr"], eqn.params["length"]
        consts, carried = scan_counts(eqn.params)
        carries = consts + carried
        fixed, state, over = values[:consts], values[consts:carries], values[carries:]
        results: list[Any] = [None] * length
        for i in reversed(range(length)) if eqn.params["reverse"] else range(length):
            here = [self.entry(each, i) for each in over]
            made = self.through(body.jaxpr, body.consts, [*fixed, *state, *here])
            state, results[i] = made[: len(state)], made[len(state) :]
        return [*state, *(jnp.stack(parts) for parts in zip(*results, strict=True))]


def bound(eqn: Any, values: list[Any]) -> list[Any]:
    """An equation run as it is."""
    made = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return made if eqn.primitive.multiple_results else [made]


def run_network(
    run: EquationRun,
    net: PlainNetwork,
    params: dict[tuple, Any],
    fixed: Any,
    x: Any,
    hold: Callable[[tuple, Any], Any],
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """(outputs, the collections that changed) of a network: its program, run with hold(path, leaf) for each parameter.

    `params`, by path, may be shapes where `hold` puts something else in their place. The readout's weights are `Noted`.
    """

    def apply(leaves: Any, fixed: Any, x: Any) -> Any:
        held = {"params": flax.traverse_util.unflatten_dict(dict(zip(params, leaves, strict=True))), **fixed}
        mutable = list(fixed) if options.get("train") else False
        out: Any = net.apply(held, x, mutable=mutable, **options)
        return out if mutable else (out, {})

    shape = abstract(x.shape, x.dtype)
    closed, shapes = jax.make_jaxpr(apply, return_shape=True)(list(params.values()), fixed, shape)
    names = readouts(net, x)
    one = starts(net, x)[names[0]].path if len(names) == 1 else None
    given = [Noted(leaf) if path == one else hold(path, leaf) for path, leaf in params.items()]
    made = run.through(closed.jaxpr, closed.consts, [*given, *jax.tree.leaves((fixed, x))])
    return jax.tree.unflatten(jax.tree.structure(shapes), made)


def features_of(net: PlainNetwork, variables: dict[str, Any], x: Any, **options: Any) -> Any:
    """What enters the readout of a finite network."""
    run, fixed = EquationRun(), {name: part for name, part in variables.items() if name != "params"}
    params: Any = flax.traverse_util.flatten_dict(variables["params"])
    run_network(run, net, params, fixed, x, lambda _, leaf: leaf, **options)
    if run.features is None:
        raise ValueError(f"features: no product of {net.what} has weights of role readout; say which are, by roles.")
    return run.features
