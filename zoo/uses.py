"""What parameters are used for, seen where jax traces the model: which of their axes are summed over with activations."""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from jax.extend.core import Literal

from zoo.names import by_name
from zoo.scans import scan_counts


class Use(NamedTuple):
    """One use of a parameter: axes summed over or looked up by (`inputs`), kept (`outputs`), and of layers side by side."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    stacked: tuple[int, ...]


Axis = frozenset  # of (parameter, axis): what an axis of an array is made of


class Held(NamedTuple):
    """An array that is made of parameters alone."""

    axes: tuple[Axis, ...]
    taken: Axis = Axis()  # axes along which layers were taken out


def uses(function: Callable, params: Any, *arguments: Any) -> dict[str, list[Use]]:
    """The uses of every parameter in function(params, *arguments), by name; params and arguments may be shapes.

    >>> import jax.numpy as jnp
    >>> tied = {"embed": jnp.ones((5, 8))}
    >>> uses(lambda w, x: w["embed"][x] @ w["embed"].T, tied, jnp.zeros((2,), int))["embed"]
    [Use(inputs=(0,), outputs=(1,), stacked=()), Use(inputs=(1,), outputs=(0,), stacked=())]
    """
    walk, names = _walked(function, params, *arguments)
    return {name: walk.found.get(name, []) for name in names}


def counts(function: Callable, params: Any, *arguments: Any) -> dict[str, int]:
    """How often every parameter meets activations: once for each layer that shares it. Not of numbers without axes.

    >>> import jax.numpy as jnp
    >>> tied = {"bias": jnp.ones(3), "matrix": jnp.eye(3)}
    >>> counts(lambda w, x: (x @ w["matrix"] + w["bias"]) @ w["matrix"], tied, jnp.ones(3))
    {'bias': 1, 'matrix': 2}
    """
    walk, names = _walked(function, params, *arguments)
    return {name: walk.counted[name] for name in names}


def _walked(function: Callable, params: Any, *arguments: Any) -> "tuple[_Walk, list[str]]":
    closed = jax.make_jaxpr(function)(params, *arguments)
    named = by_name(params)
    held: list[Any] = [Held(tuple(Axis({(name, i)}) for i in range(len(leaf.shape)))) for name, leaf in named.items()]
    others = len(closed.jaxpr.invars) - len(held)
    walk = _Walk()
    walk.through(closed.jaxpr, [*held, *[None] * others])
    return walk, list(named)


def linen_uses(init: Callable[[], Any], of: Callable[..., dict[str, Any]] = uses) -> list[dict[str, Any]]:
    """Of every Linen model whose `init` this function calls, in the forward pass that `init` makes; of: or its `counts`."""
    calls: list[tuple[nn.Module, str, Any, Any]] = []
    running: list[None] = []

    def note(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if context.method_name == "setup":
            return run(*args, **kwargs)
        if not running and context.module.is_initializing():
            calls.append((context.module.clone(parent=None), context.method_name, args, kwargs))
        running.append(None)
        try:
            return run(*args, **kwargs)
        finally:
            running.pop()

    with nn.intercept_methods(note):
        jax.eval_shape(lambda: init())
        if not calls:  # an `init` under jax.jit that was traced before: run its code again
            with jax.disable_jit():
                jax.eval_shape(lambda: init())
    return [_of_call(of, *call) for call in calls]


def _of_call(of: Callable, module: nn.Module, method: str, args: Any, kwargs: Any) -> dict[str, Any]:
    leaves, structure = jax.tree.flatten((args, kwargs))
    arrays = {i: leaf for i, leaf in enumerate(leaves) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")}
    shapes = {i: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for i, leaf in arrays.items()}

    def call(run: Callable, given: dict[int, Any], **options: Any) -> Any:
        args, kwargs = jax.tree.unflatten(structure, [given.get(i, leaf) for i, leaf in enumerate(leaves)])
        return run(*args, method=method, **options, **kwargs)

    def start(key: Any, given: dict[int, Any]) -> Any:
        return call(functools.partial(module.init, {"params": key, "dropout": key}), given)

    def forward(variables: Any, key: Any, given: dict[int, Any]) -> Any:
        rngs = {"params": key, "dropout": key}
        return call(functools.partial(module.apply, variables), given, rngs=rngs, mutable=True)

    key = jax.random.key(0)
    return of(forward, jax.eval_shape(start, key, shapes), key, shapes)


class _Walk:
    """Through the equations of a function: which arrays are made of parameters alone, and how they meet activations."""

    def __init__(self) -> None:
        self.found: dict[str, list[Use]] = {}
        self.counted = Counter[str]()
        self.times = 1  # that the equations are run, in a scan

    def through(self, jaxpr: Any, given: Sequence[Held | None]) -> list[Held | None]:
        """The outputs, where they are made of parameters alone; `given`: the inputs."""
        known: dict[Any, Held] = {v: h for v, h in zip(jaxpr.invars, given, strict=True) if h is not None}

        def read(v: Any) -> Held | None:
            return None if isinstance(v, Literal) else known.get(v)

        for eqn in jaxpr.eqns:
            inputs = [read(v) for v in eqn.invars]
            if any(inputs):
                for v, held in zip(eqn.outvars, self._after(eqn, inputs), strict=True):
                    if held is not None:
                        known[v] = held
        return [read(v) for v in jaxpr.outvars]

    def _after(self, eqn: Any, inputs: list[Held | None]) -> list[Held | None]:
        rule = getattr(self, "_" + eqn.primitive.name, None)
        if rule is not None:
            found = rule(eqn, *inputs)
            return found if isinstance(found, list) else [found]
        inner = [p for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
        if inner:
            body = getattr(inner[0], "jaxpr", inner[0])
            same = len(body.invars) == len(inputs) and len(body.outvars) == len(eqn.outvars)
            return self.through(body, inputs) if same else [None] * len(eqn.outvars)
        found = [_by_entry(eqn, inputs, v.aval.shape) for v in eqn.outvars]
        for held in inputs if None in found else ():
            self._count(held)
        return found

    def _count(self, held: Held | None) -> None:
        for name in {leaf for axis in (*held.axes, held.taken) for leaf, _ in axis} if held else ():
            self.counted[name] += self.times

    def _note(self, held: Held, inputs: Sequence[int], outputs: Sequence[int], stacked: Sequence[int] = ()) -> None:
        def of(name: str, axes: Sequence[int]) -> tuple[int, ...]:
            return tuple(sorted({i for axis in axes for leaf, i in held.axes[axis] if leaf == name}))

        self._count(held)
        for name in sorted({leaf for axis in (*held.axes, held.taken) for leaf, _ in axis}):
            taken = tuple(i for leaf, i in held.taken if leaf == name)
            use = Use(of(name, inputs), of(name, outputs), tuple(sorted({*of(name, stacked), *taken})))
            if use not in self.found.setdefault(name, []):
                self.found[name].append(use)

    def _dot_general(self, eqn: Any, *operands: Held | None) -> None:
        if all(operands):
            return  # a product of parameters: what it is used for is not that of either
        contracted, batch = eqn.params["dimension_numbers"]
        for held, sums, beside in zip(operands, contracted, batch, strict=True):
            if held is not None:
                kept = [i for i in range(len(held.axes)) if i not in (*sums, *beside)]
                self._note(held, sums, kept, beside)

    def _conv_general_dilated(self, eqn: Any, data: Held | None, kernel: Held | None) -> None:
        if data is None and kernel is not None and eqn.params["feature_group_count"] == 1:
            out, *summed = eqn.params["dimension_numbers"].rhs_spec
            self._note(kernel, summed, [out])

    def _gather(self, eqn: Any, table: Held | None, *_: Any) -> Held | None:
        if table is None:
            return None
        numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
        by = [i for i in numbers.start_index_map if sizes[i] == 1]
        rest = [i for i in range(len(sizes)) if i not in by]
        if eqn.invars[1].aval.size > len(by):
            return self._note(table, by, rest)
        taken = table.taken.union(*(table.axes[i] for i in by))  # one layer of a stack
        axes = tuple(table.axes[i] for i in rest)
        return Held(axes, taken) if len(axes) == len(eqn.outvars[0].aval.shape) else None

    def _slice(self, eqn: Any, held: Held | None, *_: Any) -> Held | None:
        """Where one entry of an axis is taken, it is one layer of several."""
        if held is None:
            return None
        before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
        one = [i for i in range(len(before)) if after[i] == 1 < before[i]]
        axes = tuple(Axis() if i in one else axis for i, axis in enumerate(held.axes))
        return Held(axes, held.taken.union(*(held.axes[i] for i in one)))

    _dynamic_slice = _slice

    def _split(self, eqn: Any, held: Held) -> list[Held | None]:
        return [held] * len(eqn.outvars)

    def _transpose(self, eqn: Any, held: Held) -> Held:
        return Held(tuple(held.axes[i] for i in eqn.params["permutation"]), held.taken)

    def _broadcast_in_dim(self, eqn: Any, held: Held, *_: Any) -> Held:
        axes = [Axis()] * len(eqn.params["shape"])
        for i, j in enumerate(eqn.params["broadcast_dimensions"]):
            axes[j] = held.axes[i]
        return Held(tuple(axes), held.taken)

    def _squeeze(self, eqn: Any, held: Held) -> Held:
        gone = eqn.params["dimensions" if eqn.primitive.name == "squeeze" else "axes"]
        return Held(tuple(axis for i, axis in enumerate(held.axes) if i not in gone), held.taken)

    def _reshape(self, eqn: Any, held: Held, *_: Any) -> Held:
        return Held(_reshaped(held.axes, eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape), held.taken)

    _reduce_sum = _reduce_max = _reduce_min = _squeeze

    def _concatenate(self, _: Any, *operands: Held | None) -> Held | None:
        if not all(operands):
            return None
        return Held(tuple(Axis().union(*axes) for axes in zip(*(o.axes for o in operands if o), strict=True)))

    def _scan(self, eqn: Any, *operands: Held | None) -> list[Held | None]:
        fixed, carried = scan_counts(eqn.params)
        whole, layers = operands[: fixed + carried], operands[fixed + carried :]
        one = [None if h is None else Held(h.axes[1:], h.taken | h.axes[0]) for h in layers]
        self.times *= eqn.params["length"]
        self.through(eqn.params["jaxpr"].jaxpr, [*whole, *one])
        self.times //= eqn.params["length"]
        return [None] * len(eqn.outvars)

    def _while(self, eqn: Any, *operands: Held | None) -> list[Held | None]:
        condition, body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        carried = operands[condition + body :]
        after = self.through(eqn.params["body_jaxpr"].jaxpr, [*operands[condition : condition + body], *carried])
        return [h if h == before else None for h, before in zip(after, carried, strict=True)]

    def _cond(self, eqn: Any, _: Any, *operands: Held | None) -> list[Held | None]:
        branches = [self.through(branch.jaxpr, operands) for branch in eqn.params["branches"]]
        return [outs[0] if all(o == outs[0] for o in outs) else None for outs in zip(*branches, strict=True)]


def _by_entry(eqn: Any, inputs: list[Held | None], shape: tuple[int, ...]) -> Held | None:
    """Entry by entry, with numbers or other parameters; where activations take part, they are what comes out."""
    held = [h for h in inputs if h is not None]
    for v, h in zip(eqn.invars, inputs, strict=True):
        if (h is None and v.aval.size > 1) or (h is not None and v.aval.shape not in (shape, ())):
            return None
    whole = [h for h in held if len(h.axes) == len(shape)]
    axes = tuple(Axis().union(*parts) for parts in zip(*(h.axes for h in whole), strict=True))
    return Held(axes, Axis().union(*(h.taken for h in held)))


def _reshaped(axes: tuple[Axis, ...], before: tuple[int, ...], after: tuple[int, ...]) -> tuple[Axis, ...]:
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
