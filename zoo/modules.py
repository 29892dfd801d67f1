"""What functions make of a width: Linen modules, or pairs of functions, as which NNX modules are taken."""

import functools
import inspect
import sys
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

from zoo import checks
from zoo.names import by_name, names_of


class Pair(NamedTuple):
    """init(key, x) → parameters; apply(parameters, x, **options) → outputs."""

    init: Callable[..., Any]
    apply: Callable[..., Any]


# Names by which modules ask whether they are trained, and what they are then told; zoo's own layers say `train`.
TOLD = dict.fromkeys(("train", "training", "is_train", "is_training", "train_mode", "training_mode"), True)
TOLD |= dict.fromkeys(("deterministic", "use_running_average", "inference", "is_inference", "eval", "evaluate"), False)
TOLD |= dict.fromkeys(("evaluation", "is_eval", "eval_mode", "is_eval_mode", "inference_mode"), False)


_OF_ONE = (
    "If it is a second input: Rescaled.of and, of arrays of one length, coord_check take a tuple of as many; elsewhere make it a "
    "module of one, whose call takes one array [n, …] apart, or makes what is the same for all inputs (keys too) itself."
)


def told(call: Callable[..., Any], trained: bool | None) -> dict[str, bool]:
    """The arguments that tell a forward pass whether it is one of training; none where it does not ask.

    None: nobody says so. What has a default keeps it, what has none is told that it is not.

    >>> told(lambda x, deterministic=True: x, trained=True), told(lambda x: x, trained=True)
    ({'deterministic': False}, {})
    >>> told(lambda x, train: x, trained=None), told(lambda x, train=True: x, trained=None)
    ({'train': False}, {})
    """
    asked = inspect.signature(call).parameters
    flags = {name: sense for name, sense in TOLD.items() if name in asked and _is_flag(asked[name])}
    if trained is None:
        flags = {name: sense for name, sense in flags.items() if asked[name].default is inspect.Parameter.empty}
    return {name: sense == bool(trained) for name, sense in flags.items()}


def _is_flag(argument: inspect.Parameter) -> bool:
    default = argument.default
    return default is argument.empty or default is None or (isinstance(default, int) and default in (False, True))


def check_told(call: Callable[..., Any], first: int, also: Container[str] = (), what: str = "") -> None:
    """Raises where a forward pass must be given what nobody knows, beside its first arguments and those in `also`.

    >>> check_told(lambda x, phase: x, 1, what="Net")
    Traceback (most recent call last):
    ...
    ValueError: Net must be given "phase" beside its inputs, and is told no more than whether it is trained, as train, training, \
is_train, is_training, … or deterministic, …: rename that argument, or give it a default. If it is a second input: Rescaled.of \
and, of arrays of one length, coord_check take a tuple of as many; elsewhere make it a module of one, whose call takes one array \
[n, …] apart, or makes what is the same for all inputs (keys too) itself.
    """
    for argument in list(inspect.signature(call).parameters.values())[first:]:
        variable = argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
        if argument.default is argument.empty and argument.name in ("key", "rng"):
            raise ValueError(
                f'{what} must be given "{argument.name}", of which evaluation has none: give it a default, None.'
            )
        if (
            argument.default is argument.empty
            and not variable
            and argument.name not in TOLD
            and argument.name not in also
        ):
            raise ValueError(
                f'{what} must be given "{argument.name}" beside its inputs, and is told no more than whether it is trained, as '
                f"{', '.join([*TOLD][:4])}, … or deterministic, …: rename that argument, or give it a default. {_OF_ONE}"
            )


def spread(call: Callable[..., Any], x: Any) -> tuple[Any, ...]:
    """Inputs as arguments: those of a tuple one by one where the call must be given as many, else the one that they are.

    >>> spread(lambda nodes, edges, train: nodes, (1, 2)), spread(lambda both: both, (1, 2))
    ((1, 2), ((1, 2),))
    """
    asked = [
        argument
        for argument in inspect.signature(call).parameters.values()
        if argument.default is argument.empty
        and argument.kind in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD)
        and argument.name not in TOLD
    ]
    return x if isinstance(x, tuple) and len(x) == len(asked) > 1 else (x,)


def made_by(make: Callable[..., Any], width: int, caller: str = "in_parameterization") -> nn.Module | Pair:
    """What a function makes of a width, with NNX modules as pairs of functions."""
    rngs = _argument_of_rngs(make)
    if rngs is not None:
        from flax import nnx  # slow to import

        return _by_names(_from_nnx(lambda key: make(width, **{rngs: nnx.Rngs(key)}), caller))
    made = make(width)
    if isinstance(made, nn.Module):
        return made
    if is_nnx(made):
        raise ValueError(
            "in_parameterization: make returns an NNX module; give it an argument rngs, make(width, rngs)."
        )
    if isinstance(made, tuple) and len(made) == 2 and all(map(callable, made)):
        return _by_names(Pair(*made))
    raise ValueError(
        f"in_parameterization: make({width}) must return a Linen module or a pair (init, apply) of functions; it returns "
        f"{checks.shown(made)}."
    )


def _by_names(model: Pair) -> Pair:
    """With parameters in one dictionary, whatever tree they are."""

    @functools.wraps(model.apply)
    def apply(parameters: Any, x: Any, **options: Any) -> Any:
        shapes = jax.eval_shape(model.init, jax.random.key(0), x)
        leaves = [parameters[name] for name in names_of(shapes)]
        return model.apply(jax.tree.unflatten(jax.tree.structure(shapes), leaves), x, **options)

    return Pair(lambda key, x: by_name(model.init(key, x)), apply)


def _argument_of_rngs(make: Callable[..., Any]) -> str | None:
    parameters = list(signature_of(make).parameters.values())
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    return "rngs" if "rngs" in {p.name for p in parameters} else needed[1] if len(needed) > 1 else None


def is_nnx(value: Any) -> bool:
    """Whether this is an NNX module."""
    nnx = sys.modules.get("flax.nnx")  # whoever has an NNX module has imported it
    return nnx is not None and isinstance(value, nnx.Module)


def takes_rngs(make: Any) -> bool:
    """Whether this is a function or class that makes an NNX module of its sizes and rngs."""
    if "flax.nnx" not in sys.modules or not callable(make):
        return False
    try:
        rngs = signature_of(make.func if isinstance(make, functools.partial) else make).parameters.get("rngs")
    except (TypeError, ValueError):  # of what is written in C
        return False
    return rngs is not None and rngs.default is rngs.empty


def signature_of(make: Callable[..., Any]) -> inspect.Signature:
    """That of a function, or of a class's own __init__ (classes of NNX show another), also where some are given already."""
    part = functools.partial(make)
    taken: Any = functools.partial(part.func.__init__, None) if isinstance(part.func, type) else part.func
    return inspect.signature(functools.partial(taken, *part.args, **part.keywords))


def pair_of(make: Callable[..., Any], sizes: Mapping[str, Any], caller: str) -> Any:
    """The pair of functions of make(**sizes, rngs=…), an NNX module."""
    return made_by(lambda _, rngs: make(**sizes, rngs=rngs), 0, caller)


_WHY = {
    True: ("batch statistics and caches have no limit here", ""),
    False: (
        "it is taken for a function of its parameters alone",
        "; or give infer_roles init(key, **sizes) → nnx.state(model, nnx.Param), and your training the roles that it returns",
    ),
}


def _from_nnx(build: Callable[[Any], Any], caller: str) -> Pair:
    """Its parameters are a plain dictionary. Keys that layers keep for dropout are the same at every call, but where a step of
    training brings one (`key`); where it is said that it is not trained (train=False), nothing is dropped."""
    from flax import nnx

    graph, _, rest = nnx.split(nnx.eval_shape(lambda: build(0)), nnx.Param, ...)
    variables = jax.tree.leaves(rest, is_leaf=lambda v: isinstance(v, nnx.Variable))
    others = [variable for variable in variables if not isinstance(variable, nnx.RngState)]
    mine = [not isinstance(variable, nnx.RngState) for variable in variables for _ in jax.tree.leaves(variable)]
    kinds = sorted({type(variable).__name__ for variable in others})
    if any(isinstance(variable, nnx.BatchStat | nnx.Cache) for variable in others):
        why, or_else = _WHY[caller == "in_parameterization"]
        raise ValueError(
            f"{caller}: the NNX module keeps variables that are no parameters ({', '.join(kinds)}): {why}. Use another "
            f"normalisation (nnx.LayerNorm, nnx.RMSNorm), or leave them out{or_else}."
        )

    def init(key: Any, x: Any) -> Any:
        del x
        return nnx.to_pure_dict(nnx.split(build(key), nnx.Param, ...)[1])

    def apply(
        parameters: Any, x: Any, train: bool | None = None, key: Any = None, call_nnx: Callable | None = None
    ) -> Any:
        held = nnx.split(nnx.eval_shape(lambda: build(0)), nnx.Param, ...)[1]
        nnx.replace_by_pure_dict(held, parameters)
        leaves, structure = jax.tree.flatten(rest)
        start = [_start_of(leaf, i, key) for i, leaf in enumerate(leaves)]

        def called(start: list[Any], call: Callable = lambda model, *given, **how: model(*given, **how)) -> Any:
            model: Any = nnx.merge(graph, held, jax.tree.unflatten(structure, start))
            if train is False:
                model.eval()
            given = spread(model.__call__, x)
            check_told(model.__call__, len(given), what=f"{caller}: {type(model).__name__}")
            return call(model, *given, **told(model.__call__, train))

        if others and _enters(called, start, mine):
            raise ValueError(
                f"{caller}: outputs of the NNX module depend on variables that are no parameters ({', '.join(kinds)}), and it "
                "is taken for a function of its parameters alone. Make what is trained an nnx.Param, and what is not a number "
                "or an array that __call__ makes; variables that outputs do not depend on, as those that count calls, may stay."
            )
        return called(start, call_nnx) if call_nnx else called(start)  # what looks at its submodules

    return Pair(init, apply)


def _enters(function: Callable[[list[Any]], Any], values: list[Any], which: list[bool]) -> bool:
    """Whether what it returns depends on those of the arrays.

    >>> a, b = jnp.ones(3), jnp.ones(3)
    >>> [_enters(lambda values: 2 * values[0], [a, b], which) for which in ([True, False], [False, True])]
    [True, False]
    >>> _enters(lambda values: values[0] if values[1] > 0 else None, [a, b[0]], [False, True])
    True
    """

    def of_those(those: list[Any]) -> Any:
        left = iter(those)
        return function([next(left) if each else value for value, each in zip(values, which, strict=True)])

    try:
        program = jax.make_jaxpr(of_those)([value for value, each in zip(values, which, strict=True) if each]).jaxpr
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return True  # Python asks for their values
    return any(dce_jaxpr(program, [True] * len(program.outvars))[1])


def _start_of(leaf: Any, number: int, key: Any) -> Any:
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jnp.zeros(leaf.shape, leaf.dtype)
    return jnp.broadcast_to(jax.random.key(0) if key is None else jax.random.fold_in(key, number), leaf.shape)
