"""The coordinate check: whether training moves features and outputs by as much at every width and every depth."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import get_opaque_trace_state
from rich.progress import track

from limits.finite.forward import shows_inside
from train.coordinates_found import CoordinateCheck as CoordinateCheck
from train.coordinates_found import Slope as Slope
from train.evaluate.interval import mean
from train.evaluate.statistics import slope
from train.variables import descend, draws, forward, initial, split
from zoo import checks
from zoo.attention import WEIGHTS
from zoo.checks import is_array
from zoo.modules import Pair
from zoo.names import names_of
from zoo.plain import PlainNetwork
from zoo.rescaled import Rescaled, within
from zoo.starts import starts


@checks.arguments(
    make=checks.function,
    widths=checks.several(checks.count()),
    depths=checks.several(checks.count()),
    loss_fn=checks.function,
    optimizer=checks.function | checks.transformation,
    steps=checks.count(most=10**6),
    seeds=checks.count(most=10**6),
    batch=checks.pair,
    look=checks.function,
    predict=checks.function,
    progress=checks.flag,
)
def coord_check(
    make: Callable[[int, int], Any],
    widths: Sequence[int],
    depths: Sequence[int],
    batch: tuple[Any, Any],
    loss_fn: Callable[[Any, Any], Any],
    optimizer: Any,
    steps: int = 4,
    seeds: int = 8,
    look: Callable[[Any, Any, Any], dict[str, Any]] | None = None,
    predict: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> CoordinateCheck:
    """Trains `steps` steps at every width (at the first depth) and every depth (at the middle width), and compares.

    make(width, depth) returns a model: any object with `init(key, inputs)` and `apply(variables, inputs)`, such as a Linen
    module (batch statistics are kept, in training mode) or `zoo.Rescaled`, or a pair of such functions; batch is (inputs,
    targets); loss_fn(outputs, targets) a number; optimizer an Optax transformation, or a function from the model to one.
    Of every feature, of the outputs and of predict(outputs) the root mean square change is measured, which the right rules
    make independent of the size, after the first step and after the last: too large a rate in wide networks may overshoot
    and come back, so that what grows after the first step is shown in a row of its own and speaks against transfer. Features:
    the definition's h^l, or what every submodule of a Flax module returns (of pairs of functions: none); or
    look(model, variables, inputs), a dictionary of arrays. Over depth, of layers that differ by their number only the
    first and the last are compared; those in branches of `zoo.Rescaled` may move by less the more there are, as their rule
    asks. What outputs are at the start, f(0), falls as 1/√width and moves small networks by itself: what is not flat is
    measured anew with f(0) subtracted from the outputs that the loss sees. A rule that fails here does not transfer; one
    that passes may still fail later.

    >>> from zoo import MLP, Parameterization, scaled
    >>> def make(width, depth):
    ...     return MLP(width, depth, activation="tanh", parameterization=Parameterization.mup.based(32))
    >>> batch = jnp.ones((2, 3)), jnp.array([[1.0], [-1.0]])
    >>> check = coord_check(make, (32, 128), (2,), batch, lambda f, y: jnp.mean((f - y) ** 2),
    ...                     lambda net: scaled(optax.adam(1e-3), net))
    >>> bool(check)
    True
    """
    if len(widths) < 2 and len(depths) < 2:
        raise ValueError("coord_check: give at least two widths or two depths.")
    if seeds < 2:
        raise ValueError(f"coord_check: an interval needs at least 2 seeds, got {seeds}.")
    middle = widths[len(widths) // 2]
    cells = dict.fromkeys([*((width, depths[0]) for width in widths), *((middle, depth) for depth in depths[1:])])
    nets = {cell: _model(make(*cell)) for cell in cells}

    def measured(centred: bool, width: bool, depth: bool) -> list[Slope]:
        wanted = [*((each, depths[0]) for each in widths if width), *((middle, each) for each in depths if depth)]
        moved = {}
        for cell, net in track(
            [(cell, nets[cell]) for cell in dict.fromkeys(wanted)], "training", disable=not progress
        ):
            tx = optimizer if isinstance(optimizer, optax.GradientTransformation) else optimizer(net)
            moved[cell] = _movement(net, tx, batch, loss_fn, steps, seeds, look or _look, predict, centred)
        found = []
        for first in (False, True)[: min(steps, 2)]:
            here = {cell: each[first] for cell, each in moved.items()}
            if width:
                found += _slopes("width", widths, [here[width, depths[0]] for width in widths], first=first)
            if depth:
                deepest = middle, max(depths)  # at the base depth no layer is known to lie in a branch
                least = _ends(_least(nets[deepest], here[deepest]))
                found += _slopes("depth", depths, [_ends(here[middle, depth]) for depth in depths], least, first)
        return found

    slopes = measured(False, len(widths) > 1, len(depths) > 1)
    doubted = {s.key for s in slopes if s.against and s.verdict != "diverged"}
    if doubted and any(s.quantity == "outputs" for s in slopes):  # of several outputs it is not known which to subtract
        again = measured(True, *(any(over == size for _, over, _ in doubted) for size in ("width", "depth")))
        anew = {s.key: dataclasses.replace(s, centred=True) for s in again if s.verdict != "diverged"}
        slopes = [anew.get(s.key, s) if s.key in doubted else s for s in slopes]
    net = next(iter(nets.values()))
    alone, unseen = (False, ()) if look else _unseen(net, batch[0])
    last = tuple(s for s in slopes if not s.first)
    named = {(s.quantity, s.over) for s in last if s.verdict in ("grows", "diverged")}
    early = tuple(s for s in slopes if s.first and s.against and (s.quantity, s.over) not in named)
    return CoordinateCheck(last, steps, unseen, early, alone)


def _model(net: Any) -> Any:
    """Something with init and apply, or an error that says how to make it."""
    if isinstance(net, tuple) and len(net) == 2 and all(map(callable, net)):
        return Pair(*net)
    if callable(getattr(net, "init", None)) and callable(getattr(net, "apply", None)):
        return net
    name = type(net).__name__
    if any(cls.__module__.startswith("flax.nnx") for cls in type(net).__mro__):
        raise ValueError(
            f"coord_check: make returned the NNX module {name}, which has its parameters already, and every seed needs its own: "
            f"return zoo.in_parameterization({name}, …, width=width), where {name}(width, rngs) makes it, or a pair of "
            "functions (init, apply)."
        )
    raise ValueError(
        f"coord_check: make must return a model with init(key, inputs) and apply(variables, inputs), got {name}."
    )


def _look(net: Any, variables: Any, x: Any) -> dict[str, Any]:
    """The features of a model by name."""
    if isinstance(within(net), Pair) and "call_nnx" in inspect.signature(within(net).apply).parameters:
        return forward(net, *split(variables), x, call_nnx=_inside_nnx)[0]
    if not isinstance(within(net), nn.Module):
        return {}
    if shows_inside(within(net)):
        (_, inside), _ = forward(net, *split(variables), x, intermediates=True)
        return {f"h{l}": h for l, h in enumerate(inside["h"], start=1)}
    _, seen = forward(net, *split(variables), x, collect=("intermediates",), capture_intermediates=True)
    leaves = jax.tree_util.tree_leaves_with_path(seen["intermediates"])
    names = [".".join(str(k.key) for k in path if hasattr(k, "key")) for path, _ in leaves]
    found = {
        name.removesuffix(".__call__"): leaf
        for name, (_, leaf) in zip(names, leaves, strict=True)
        if not name.startswith("__call__") and not name.endswith(WEIGHTS) and jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    if isinstance(net, PlainNetwork):  # of which the readout's is γ times the output, and is no feature
        for name, start in starts(net, x).items():
            if start.role == "readout" and not start.place.inner:
                found.pop(name.rpartition(".")[0], None)
    return found


def _inside_nnx(model: Any, *inputs: Any, **how: Any) -> dict[str, Any]:
    """What the submodules of an NNX module return by name, but for those inside another transformation of JAX."""
    from flax import nnx  # slow to import

    inner = [(".".join(map(str, path)), module) for path, module in nnx.iter_modules(model) if path]
    names = {id(module): name for name, module in inner}
    found, here = dict[str, Any](), get_opaque_trace_state(convention="nnx")

    def noted(call: Callable) -> Callable:
        def with_note(self: Any, *arguments: Any, **options: Any) -> Any:
            out = call(self, *arguments, **options)
            floats = is_array(out) and jnp.issubdtype(out.dtype, jnp.floating)
            if floats and id(self) in names and get_opaque_trace_state(convention="nnx") == here:
                found[names[id(self)]] = out
            return out

        return with_note

    with ExitStack() as changed:
        for cls in dict.fromkeys(type(module) for _, module in inner):
            if any("__call__" in vars(each) for each in cls.__mro__):
                changed.enter_context(mock.patch.object(cls, "__call__", noted(cls.__call__)))
        model(*inputs, **how)
    return found


def _unseen(net: Any, x: Any) -> tuple[bool, tuple[str, ...]]:
    """Whether `_look` has outputs alone; the layers whose outputs it does not have."""
    linen = isinstance(within(net), nn.Module)

    def both(key: Any) -> Any:
        trained, state = initial(net, key, x)
        return trained, _look(net, {**trained, **state} if state else trained, x)

    trained, seen = jax.eval_shape(both, jax.random.key(0))
    layers = dict.fromkeys(name.removeprefix("params.").rpartition(".")[0] for name in names_of(trained))
    here = tuple(seen)
    if not here:
        return True, ()
    layers = () if isinstance(net, PlainNetwork) or (linen and shows_inside(within(net))) else layers
    return False, tuple(
        layer for layer in layers if layer and not any(f"{name}.".startswith(f"{layer}.") for name in here)
    )


def _outputs(f: Any) -> dict[str, Any]:
    """The outputs; where they are several arrays, each by its key or number."""
    leaves = jax.tree_util.tree_leaves_with_path(f)
    return {
        f"outputs{jax.tree_util.keystr(path)}": leaf
        for path, leaf in leaves
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }


def _movement(
    net: Any,
    tx: Any,
    batch: Any,
    loss_fn: Callable,
    steps: int,
    seeds: int,
    look: Callable,
    predict: Any,
    centred: bool,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The change of every quantity [seed] after the last step and after the first: one compilation, seeds one after the other.

    centred: the loss sees f − f(0)."""
    x, _ = batch

    def seen(variables: Any) -> dict[str, Any]:
        f, _ = forward(net, *split(variables), x)
        found = {**look(net, variables, x), **_outputs(f)}
        return found if predict is None else found | {"predictions": predict(f)}

    def run(key: Any) -> dict[str, Any]:
        trained, state = initial(net, key, x)
        start = {**trained, **state} if state else trained

        f_start = forward(net, *split(start), x)[0] if centred else None

        def loss(f: Any, y: Any) -> Any:
            return loss_fn(f - f_start if centred else f, y)

        def step(number: Any, carry: Any) -> Any:
            return descend(net, tx, loss, carry, batch, **draws(net, jax.random.fold_in(key, 1), number))[0]

        before = seen(start)

        def until(carry: Any, ends: tuple[Any, Any]) -> Any:
            trained, state, memory = jax.lax.fori_loop(ends[0], ends[1], step, carry)
            end = {**trained, **state} if state else trained
            moved = jax.tree.map(lambda a, b: jnp.sqrt(jnp.mean((a - b) ** 2)), seen(end), before)
            return (trained, state, memory), moved

        ends = jnp.asarray([0, 1] if steps > 1 else [0]), jnp.asarray([1, steps][-min(steps, 2) :])
        return jax.lax.scan(until, (trained, state, tx.init(trained)), ends)[1]

    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(0), seed))(jnp.arange(seeds))
    moved = jax.tree.map(np.asarray, jax.jit(lambda keys: jax.lax.map(run, keys))(keys))
    return {name: each[:, -1] for name, each in moved.items()}, {name: each[:, 0] for name, each in moved.items()}


def _least(net: Any, quantities: Iterable[str]) -> dict[str, float]:
    """The exponents of depth by which layers in branches may fall: that of their learning rate, with the branch factor where
    their weights hold it; 0 of all else, the residual stream too."""
    found = dict.fromkeys(quantities, 0.0)
    for name, place in net.roles.places.items() if isinstance(net, Rescaled) else ():
        layer, alpha = name.rpartition(".")[0], net.roles.alpha
        if place.in_block and layer in found:
            held = alpha if place.branch_output and not net.roles.in_code else 0.0
            found[layer] = min(found[layer], max(2 * alpha - 1, 0.0) - alpha - held)
    return found


def _ends(moved: dict[str, Any]) -> dict[str, Any]:
    """Layers that differ by their numbers only: the first and the last of them."""
    groups: dict[str, list[tuple[list[int], str]]] = {}
    for name in moved:
        numbers = [int(n) for n in re.findall(r"\d+", name)]
        groups.setdefault(re.sub(r"\d+", "#", name), []).append((numbers, name))
    found = {}
    for group, members in groups.items():
        first, *_, last = [*sorted(members), max(members)]
        if first == last:
            found[first[1]] = moved[first[1]]
        else:
            found |= {f"{group} (first)": moved[first[1]], f"{group} (last)": moved[last[1]]}
    return found


def _slopes(
    over: str,
    sizes: Sequence[int],
    moved: list[dict[str, np.ndarray]],
    least: Mapping[str, float] | None = None,
    first: bool = False,
) -> list[Slope]:
    """A straight line in log-log for every seed; the interval is Student's over seeds."""
    found = []
    for name in moved[0]:
        if any(name not in each for each in moved):
            continue
        movement = np.stack([each[name] for each in moved])
        if not movement.any():
            continue  # a layer that does not move, such as a frozen one
        with np.errstate(divide="ignore", invalid="ignore"):
            each = slope(np.log2(sizes), np.log2(movement).T)
        exponent, low, high = map(float, mean(each).ends)
        may = (least or {}).get(name, 0.0)
        found.append(Slope(name, over, tuple(sizes), movement, exponent, low, high, may, first=first))
    return found
