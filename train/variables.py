"""A model's variables: what is trained, what only changes with the forward pass, and how a step changes both."""

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.errors import InvalidRngError
from jax.extend.core import Literal

from limits.kernels.alike import INLINED
from zoo.checks import is_array, parts, shown
from zoo.fused import fused_attention
from zoo.modules import check_told, made_by, spread, told
from zoo.plain import PlainNetwork
from zoo.rescaled import within


def split(variables: Any) -> tuple[Any, dict[str, Any]]:
    """(what is trained, other collections) of what `init` returned: {"params": …} and, say, {"batch_stats": …}.

    >>> split({"params": 1, "batch_stats": 2}), split([1, 2])
    (({'params': 1}, {'batch_stats': 2}), ([1, 2], {}))
    """
    if not (isinstance(variables, Mapping) and "params" in variables):
        return variables, {}
    return {"params": variables["params"]}, {name: part for name, part in variables.items() if name != "params"}


def inputs_of(net: Any, x: Any) -> tuple[Any, ...]:
    """What `init` and `apply` take as inputs: those of a tuple one by one, where a Linen module is called with as many."""
    model = within(net)
    return spread(model.__call__, x) if isinstance(model, nn.Module) else (x,)


def mode(net: Any, trained: bool, inputs: int = 1) -> dict[str, bool]:
    """What tells its forward pass of so many inputs whether it is one of training (`zoo.modules.told`).

    >>> from zoo import MLP, HeResNet
    >>> mode(MLP(8, 1), trained=True), mode(HeResNet(8, (1,), 2), trained=True)
    ({}, {'train': True})
    """
    model = within(net)
    asks: Any = made_by(model.make, model.width) if isinstance(model, PlainNetwork) else model
    linen = isinstance(asks, nn.Module)
    call = asks.__call__ if linen else getattr(asks, "apply", asks)
    given = dict(model.options) if isinstance(model, PlainNetwork) else {}
    check_told(call, inputs if linen else 2, given, f"The model ({type(asks).__name__})")
    found = told(call, trained)
    return {"train": trained} if found and asks is not model else found  # wrapped ones translate


def initial(net: Any, key: Any, x: Any) -> tuple[Any, dict[str, Any]]:
    """(what is trained, other collections) at the start."""
    taken = inspect.signature(within(net).init).parameters
    whole = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    inputs = inputs_of(net, x)
    how = mode(net, False, len(inputs))
    trained, state = split(
        net.init(key, *inputs, **{name: said for name, said in how.items() if whole or name in taken})
    )
    linen = isinstance(within(net), nn.Module)
    sown = _sown(net, trained, state, inputs, how) if linen and {*state} - {"batch_stats"} else []
    if sown:
        warnings.warn(
            f"What the model sows in {', '.join(sown)} is left out: the loss is that of outputs and targets alone. Losses of its "
            "own can be among its outputs.",
            stacklevel=2,
        )
    return trained, {name: part for name, part in state.items() if name not in sown}


def _sown(net: Any, trained: Any, state: dict[str, Any], inputs: tuple, how: dict[str, bool]) -> list[str]:
    """The collections that layers sow in: they would grow with every call, or add up over the steps."""
    found, sow = set[str](), nn.Module.sow

    def noted(self: nn.Module, col: str, *arguments: Any, **options: Any) -> bool:
        found.add(col)
        return sow(self, col, *arguments, **options)

    def after(state: Any, inputs: Any) -> Any:
        rngs = {name: jax.random.key(0) for name in ("dropout", "params")}
        return net.apply({**trained, **state}, *inputs, mutable=[*state], rngs=rngs, **how)[1]

    with mock.patch.object(nn.Module, "sow", noted):
        jax.eval_shape(after, state, inputs)
    return [name for name in state if name in found]


def draws(net: Any, key: Any, step: Any, part: Any = 0) -> dict[str, Any]:
    """What `apply` takes in a step of training beside inputs: keys of random numbers, for dropout, of a Linen module; what tells
    another object with init and apply that it is trained, with a key where it asks for one."""
    here = jax.random.fold_in(jax.random.fold_in(key, step), part)
    if isinstance(within(net), nn.Module):
        return {"rngs": {"dropout": here}}
    found = mode(net, True)
    asked = inspect.signature(within(net).apply).parameters if found else ()
    return found | {name: here for name in ("key", "rng") if name in asked}


def _with_any_rngs(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Where a module draws by another name than "dropout", which Linen takes from "params" if there is no such key."""

    @functools.wraps(forward)
    def called(*arguments: Any, rngs: Any = None, **options: Any) -> Any:
        if rngs is None:
            return forward(*arguments, **options)
        try:
            return forward(*arguments, rngs=rngs, **options)
        except InvalidRngError:
            more = {"params": jax.random.fold_in(rngs["dropout"], 1)}
            return forward(*arguments, rngs={**more, **rngs}, **options)

    return called


@_with_any_rngs
def forward(
    net: Any, trained: Any, state: dict[str, Any], x: Any, collect: tuple[str, ...] = (), **options: Any
) -> tuple[Any, dict[str, Any]]:
    """(outputs, other collections after it, with those to `collect`).

    In training mode where there are batch statistics, or keys for dropout (`rngs`).
    """
    inputs, model = inputs_of(net, x), within(net)
    if "batch_stats" in state or "rngs" in options:
        options = {**mode(net, True, len(inputs)), **options}
    else:
        options = {**told(model.__call__ if isinstance(model, nn.Module) else model.apply, None), **options}
    if not state and not collect:
        return net.apply(trained, *inputs, **options), state
    outputs, state = net.apply({**trained, **state}, *inputs, mutable=[*state, *collect], **options)
    return outputs, dict(state)


def update(tx: optax.GradientTransformation, gradient: Any, memory: Any, trained: Any, **known: Any) -> tuple[Any, Any]:
    """(updates, memory) of the optimiser, whose memory keeps its types; `known`: what else it may ask for by name.

    A traced hyperparameter is a float32 array, which would promote the memory of bfloat16 weights.
    """
    more = {name: value for name, value in {"grad": gradient, **known}.items() if value is not None}
    try:
        updates, after = _updated(tx, gradient, memory, trained, more)
    except (AttributeError, TypeError) as error:
        if "has no attribute 'fast'" in str(error):
            raise ValueError(
                "The optimiser (optax.lookahead) keeps two copies of the parameters in a type of its own, which networks here do "
                "not take: leave it out; averaged parameters are the field `average`."
            ) from error
        if "required keyword-only argument" in str(error):
            raise ValueError(
                f"The optimiser asks for what a step does not know: {error}. It knows {', '.join(more)}: take another."
            ) from error
        raise
    return updates, jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), after, memory)


def _updated(tx: optax.GradientTransformation, gradient: Any, memory: Any, trained: Any, more: dict[str, Any]) -> Any:
    if isinstance(tx, optax.GradientTransformationExtraArgs):
        try:
            return tx.update(gradient, memory, trained, **more)
        except TypeError as error:  # it takes others by name, or says that it takes any and does not
            if "unexpected keyword argument" not in str(error):
                raise
    return tx.update(gradient, memory, trained)


def loss_of(loss: Callable[[Any, Any], Any], net: Any, outputs: Any, targets: Any, *, name: str = "loss") -> jax.Array:
    """loss(outputs, targets), one number; what fails on outputs that are several arrays names the model."""
    try:
        found = loss(outputs, targets)
    except (AttributeError, TypeError, ValueError) as error:
        if is_array(outputs):
            raise
        raise ValueError(
            f"The model ({type(within(net)).__name__}) returns {parts(outputs)}, where losses expect one array: return the "
            f"outputs alone, or let the loss take what it needs of them ({str(error).splitlines()[0]})."
        ) from error
    if shape := broadcast(loss, outputs, targets):
        warnings.warn(
            f"The {name} spreads outputs of shape {outputs.shape} and targets of shape {targets.shape} over {shape}, every "
            "output against every target. Unless that is meant, give targets the shape of outputs: targets[:, None], or "
            "outputs[:, 0].",
            stacklevel=2,
        )
    return one_number(found, name)


def broadcast(loss: Callable[[Any, Any], Any], outputs: Any, targets: Any) -> tuple[int, ...]:
    """The shape that a loss spreads outputs and targets over, where it is larger than both; else nothing.

    >>> f, y = jnp.ones((3, 1)), jnp.ones((1, 3))
    >>> broadcast(lambda f, y: ((f - y) ** 2).mean(), f, y), broadcast(lambda f, y: ((f - y.T) ** 2).mean(), f, y)
    ((3, 3), ())
    """
    if not (is_array(outputs) and is_array(targets)):
        return ()
    try:
        shape = np.broadcast_shapes(outputs.shape, targets.shape)
    except ValueError:
        return ()
    if math.prod(shape) <= max(outputs.size, targets.size):
        return ()
    like = (jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (outputs, targets))
    try:
        program = jax.make_jaxpr(loss)(*like).jaxpr
    except Exception:  # what needs the targets' values cannot be looked at
        return ()
    return shape if _spread(program, [("f", outputs.size), ("y", targets.size)], shape)[0] else ()


def _spread(program: Any, given: list[tuple[str, int]], shape: tuple[int, ...]) -> tuple[bool, list[tuple[str, int]]]:
    """(whether numbers of f alone, repeated, meet those of y alone in an array of this shape; what the results are of: "f", "y",
    "fy", and how many different numbers they are)."""
    known, met = dict(zip(program.invars, given, strict=True)), False
    for eqn in program.eqns:
        sides = [("", 1) if isinstance(v, Literal) else known.get(v, ("", 1)) for v in eqn.invars]
        name, inner = eqn.primitive.name, eqn.params.get(INLINED.get(eqn.primitive.name, ""))
        if inner is not None:
            inside, found = _spread(getattr(inner, "jaxpr", inner), sides, shape)
            met |= inside
        else:
            of = "".join(letter for letter in "fy" if any(letter in side for side, _ in sides))
            mine = [side for side in sides if side[0]]
            repeated = name == "broadcast_in_dim" or len(mine) == 1
            found = [(of, mine[0][1] if repeated and mine else v.aval.size) for v in eqn.outvars]
            few = all(n <= math.prod(shape) // 2 for _, n in mine)  # else pairs of one of them were made before
            here = any(v.aval.shape == shape for v in eqn.outvars)
            met |= here and few and {side for side, _ in mine} == {"f", "y"}
        known |= dict(zip(eqn.outvars, found, strict=True))
    return met, [known.get(v, ("", 1)) for v in program.outvars]


def one_number(loss: Any, function: str = "loss") -> jax.Array:
    """What a loss function returned, or an error that says what is wrong with it.

    >>> one_number(jnp.ones(3))
    Traceback (most recent call last):
    ...
    ValueError: loss(outputs, targets) must return one real number; it returned float32 of shape (3,): take its mean.
    >>> one_number(None, "score")
    Traceback (most recent call last):
    ...
    ValueError: score(outputs, targets) must return one real number; it returned None.
    """
    if isinstance(loss, tuple | list | Mapping):
        raise ValueError(
            f"{function}(outputs, targets) must return one real number; it returned {parts(loss)}: what comes beside the number "
            "(as with has_aux) is not taken."
        )
    try:
        found = jnp.asarray(loss)
    except (TypeError, ValueError):  # a word; nothing, where `return` was forgotten
        raise ValueError(
            f"{function}(outputs, targets) must return one real number; it returned {shown(loss)}."
        ) from None
    if function != "loss" and jnp.issubdtype(found.dtype, jnp.integer):  # what is not differentiated may count
        found = found.astype(float)
    if found.shape or not jnp.issubdtype(found.dtype, jnp.floating):
        raise ValueError(
            f"{function}(outputs, targets) must return one real number; it returned {found.dtype} of shape {found.shape}"
            f"{': take its mean' * bool(found.shape)}."
        )
    return found


def descend(
    net: Any,
    tx: optax.GradientTransformation,
    loss_fn: Callable[[Any, Any], Any],
    carry: tuple,
    batch: tuple,
    **options: Any,
) -> tuple[tuple, Any]:
    """((what is trained, other collections, the optimiser's memory) after a batch (inputs, targets), the loss before it).

    options: of the forward pass.
    """
    trained, state, memory = carry

    def objective(trained: Any) -> Any:
        outputs, after = forward(net, trained, state, batch[0], **options)
        return loss_of(loss_fn, net, outputs, batch[1]), after

    with fused_attention():
        (loss, state), gradient = jax.value_and_grad(objective, has_aux=True)(trained)
        updates, memory = update(
            tx, gradient, memory, trained, value=loss, value_fn=lambda trained: objective(trained)[0]
        )
    return (optax.apply_updates(trained, updates), state, memory), loss
