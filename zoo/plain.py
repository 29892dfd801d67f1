"""A plain module (Linen, NNX, or a pair of functions) as a definition: its own forward code at any width."""

import dataclasses
import functools
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo import checks
from zoo.definition import in_form
from zoo.infer import infer_roles
from zoo.inferred import Place
from zoo.laws import Law, law_of, laws
from zoo.names import by_name, map_named, names_of
from zoo.parameterization import ROLES, Parameterization, parameterization
from zoo.roles import Where, placed

_NET = "net"  # the parameter that holds all those of what is no Linen module
_MARGIN = 0.05  # of a power of N
_HOW = (
    "Say how wide it is: in_parameterization(Net(width=256), …) of a Linen module, width=FIELD where the field has another "
    "name; or in_parameterization(make, …, width=256) with make(width) → a Linen module or a pair (init, apply), or "
    "make(width, rngs) → an NNX module."
)
_START = (
    "in_parameterization: {name} ({role}) starts with a standard deviation of {narrow:.4g} at width {width} and {wide:.4g} at "
    "{twice}, as N^{power:.2g}; it must go as N^{wanted:g} for signals of O(1). Initialise {remedy}."
)
_MEAN = (
    "in_parameterization: {name} ({role}) starts with entries of mean {mean:.4g}: a sum over N inputs of them grows as N. "
    "Initialise with mean 0, as nn.initializers.lecun_normal() does (nn.initializers.uniform has none)."
)
_REMEDIES = {
    -0.5: "it by its number of inputs, as nn.initializers.lecun_normal() does (attention and heads too)",
    0.0: "it with a law that the width does not enter, as in nn.Embed(…, embedding_init=nn.initializers.normal(1.0))",
}


@dataclasses.dataclass(frozen=True)
class Resized:
    """A Linen module at any width: the field that says it takes it.

    >>> Resized(nn.Dense(8), "features")(16).features
    16
    """

    module: nn.Module
    field: str

    def __call__(self, width: int) -> nn.Module:  # noqa: D102
        changed: Any = {self.field: width}
        return self.module.clone(**changed)


class Pair(NamedTuple):
    """init(key, x) → parameters; apply(parameters, x, **options) → outputs."""

    init: Callable[..., Any]
    apply: Callable[..., Any]


class PlainNetwork(nn.Module):
    """f = (what make(width) returns) / γ, with γ = γ₀ N^d; `in_parameterization` makes it.

    Its variables are those of the Linen module itself; what is none has all its parameters in one, "net", by their names.
    """

    make: Callable[..., Any]
    width: int
    parameterization: str | Parameterization = "mup"
    gamma: Any = 1.0
    known_roles: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()  # of the module's call

    def setup(self) -> None:  # noqa: D102
        self.inner: Any = made_by(self.make, self.width)
        if isinstance(self.inner, nn.Module):
            nn.share_scope(self, self.inner)

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> jax.Array:  # noqa: D102
        inner, options = self.inner, dict(self.options)
        linen = isinstance(inner, nn.Module)
        if "train" in inspect.signature(inner.__call__ if linen else inner.apply).parameters:
            options.setdefault("train", train)
        elif train:
            raise ValueError(f"{self.what} has no argument `train`, by which it would be told that it is trained.")
        if linen:
            f = inner(x, **options)
        else:
            here = self.has_variable("params", _NET)  # Linen would run `init` again to compare shapes
            params = self.get_variable("params", _NET) if here else self.param(_NET, inner.init, x)
            f = inner.apply(params, x, **options)
        scale = parameterization(self.parameterization).output_scale(self.width, self.gamma)
        return jnp.asarray(f, jax.dtypes.canonicalize_dtype(float)) / scale

    @property
    def what(self) -> str:
        """The name of what was brought."""
        made = self.make.module if isinstance(self.make, Resized) else self.make
        return getattr(made, "__name__", type(made).__name__)


def at_depth(net: nn.Module, depth: int) -> nn.Module:
    """The same definition with another value of the field `depth`, which a plain module has itself; an error without one."""
    made: Any = net.make if isinstance(net, PlainNetwork) else None
    module = made.module if isinstance(made, Resized) else net if made is None else None
    if module is None or "depth" not in {field.name for field in dataclasses.fields(module)}:
        raise ValueError(
            f"{net.what if isinstance(net, PlainNetwork) else type(net).__name__} has no field `depth`, by which its depth could "
            "go to infinity: give the module one, and scale its branches by depth ** -0.5."
        )
    changed: Any = {"depth": depth}
    other = module.clone(**changed)
    return other if made is None else net.clone(make=Resized(other, made.field))


@checks.arguments(
    parameterization=checks.Check('"ntk", "mup", "standard" or a Parameterization', lambda v: parameterization(v)),
    gamma=checks.number(positive=True),
    roles=checks.nothing | checks.table,
    options=checks.nothing | checks.table,
)
def in_parameterization(
    module: Any,
    parameterization: str | Parameterization,
    *,
    width: int | str = "width",
    gamma: Any = 1.0,
    roles: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """A plain module as a definition, which `twin`, `ensemble`, `scaled`, `explain` take: f = module / γ, γ = γ₀ N^d.

    The forward code and the initialisation stay the module's own. Learning rates are those of weights W = s ω with ω of
    variance 1: η₀ γ² s² for what is drawn (s its standard deviation), for what starts at one value η₀ γ², and over the
    number of inputs for weights that start at zero. `infer_roles` finds which parameters these are; roles names those
    that you know better, options are keywords of the module's call, such as {"train": False}.

    module: a Linen module with a field `width` (or width="FIELD"); or, with width=N, a function make(N) → Linen module or
    pair (init, apply), or make(N, rngs) → NNX module. Its outputs are [n, outputs].

    >>> from zoo import learning_rate_factors
    >>> class Net(nn.Module):
    ...     width: int
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         x = nn.relu(nn.Dense(self.width, name="first")(x))
    ...         return nn.Dense(1, name="readout")(x)
    >>> net = in_parameterization(Net(width=100), "mup")
    >>> rates = learning_rate_factors(net, jax.ShapeDtypeStruct((1, 4), "float32"))
    >>> rates["first"]["kernel"], round(rates["readout"]["kernel"], 9)
    (25.0, 1.0)

    Reference: Yang & Hu, Tensor Programs IV.
    """
    if isinstance(module, nn.Module) and {"width", "parameterization"} <= {f.name for f in dataclasses.fields(module)}:
        return in_form(module, parameterization, gamma)  # zoo's, and those of its layers
    known, more = (tuple(sorted((each or {}).items())) for each in (roles, options))
    unknown = sorted({str(role) for _, role in known} - {*ROLES, "constant"})
    if unknown:
        raise ValueError(f"in_parameterization: there are no roles {', '.join(unknown)}; there are {', '.join(ROLES)}.")
    if isinstance(module, nn.Module):
        field = width if isinstance(width, str) else ""
        size: Any = getattr(module, field, None)
        if not checks.count().holds(size):
            raise ValueError(f"in_parameterization: {type(module).__name__} has no width in a field {width!r}. {_HOW}")
        return PlainNetwork(Resized(module, field), size, parameterization, gamma, known, more)
    whole = not isinstance(width, str) and checks.count().holds(width)
    if not callable(module) or _is_nnx(module) or isinstance(width, str) or not whole:
        raise ValueError(f"in_parameterization: got {checks.shown(module)} and width={checks.shown(width)}. {_HOW}")
    made_by(module, width)  # what it makes is checked here
    return PlainNetwork(module, width, parameterization, gamma, known, more)


def made_by(make: Callable[..., Any], width: int) -> nn.Module | Pair:
    """What a function makes of a width, with NNX modules as pairs of functions."""
    rngs = _argument_of_rngs(make)
    if rngs is not None:
        from flax import nnx  # slow to import

        return _by_names(_from_nnx(lambda key: make(width, **{rngs: nnx.Rngs(key)})))
    made = make(width)
    if isinstance(made, nn.Module):
        return made
    if _is_nnx(made):
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
    taken: Any = functools.partial(make.__init__, None) if isinstance(make, type) else make
    parameters = list(inspect.signature(taken).parameters.values())
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    return "rngs" if "rngs" in {p.name for p in parameters} else needed[1] if len(needed) > 1 else None


def _is_nnx(value: Any) -> bool:
    """Whether this is an NNX module."""
    nnx = sys.modules.get("flax.nnx")  # whoever has an NNX module has imported it
    return nnx is not None and isinstance(value, nnx.Module)


def _from_nnx(build: Callable[[Any], Any]) -> Pair:
    """Its parameters are a plain dictionary; keys that layers keep for dropout are the same at every call."""
    from flax import nnx

    graph, _, rest = nnx.split(nnx.eval_shape(lambda: build(0)), nnx.Param, ...)
    kinds = {type(leaf).__name__ for leaf in jax.tree.leaves(rest, is_leaf=lambda v: isinstance(v, nnx.Variable))}
    strange = sorted(kinds - {"RngKey", "RngCount", "RngState"})
    if strange:
        raise ValueError(
            f"in_parameterization: the NNX module keeps variables that are no parameters ({', '.join(strange)}): batch "
            "statistics and caches have no limit here. Use another normalisation (nnx.LayerNorm, nnx.RMSNorm), or leave them out."
        )

    def init(key: Any, x: Any) -> Any:
        del x
        return nnx.to_pure_dict(nnx.split(build(key), nnx.Param, ...)[1])

    def apply(parameters: Any, x: Any) -> Any:
        held = nnx.split(nnx.eval_shape(lambda: build(0)), nnx.Param, ...)[1]
        nnx.replace_by_pure_dict(held, parameters)
        return nnx.merge(graph, held, jax.tree.map(_start_of, rest))(x)

    return Pair(init, apply)


def _start_of(leaf: Any) -> Any:
    key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jnp.broadcast_to(jax.random.key(0), leaf.shape) if key else jnp.zeros(leaf.shape, leaf.dtype)


class Start(NamedTuple):
    """What is known of one parameter: where it is, its role, its standard deviation, and how many inputs are summed."""

    path: tuple[str, ...]  # in "params"
    role: str
    std: float
    inputs: int
    place: Place


def starts(net: PlainNetwork, x: Any) -> dict[str, Start]:
    """`Start` of every parameter by name, for inputs like x: from its own roles and laws."""
    bare = net.clone(parameterization="standard", gamma=1.0)
    arguments: Any = bare, tuple(x.shape[1:]), str(jax.dtypes.canonicalize_dtype(x.dtype))
    try:
        hash(arguments)
    except TypeError:  # it holds arrays
        return _starts.__wrapped__(*arguments)
    return _starts(*arguments)


@functools.lru_cache(maxsize=64)
def _starts(net: PlainNetwork, shape: tuple[int, ...], kind: str) -> dict[str, Start]:
    x = jax.ShapeDtypeStruct((1, *shape), kind)

    def init(key: Any, width: int) -> Any:
        return net.clone(width=width).init(key, jnp.zeros(x.shape, kind))["params"]

    def apply(params: Any, width: int) -> Any:
        return net.clone(width=width).apply(
            {"params": params}, jnp.zeros(x.shape, kind), rngs={"dropout": jax.random.key(0)}
        )

    size = {"width": net.width}
    found = infer_roles(init, size, size, roles=dict(net.known_roles), apply=apply, tied=False)
    narrow, wide = (
        by_name(
            laws(functools.partial(init, width=width)),
            is_leaf=lambda leaf: hasattr(leaf, "reason") or isinstance(leaf, Law),
        )
        for width in (net.width, 2 * net.width)
    )
    shapes = nn.unbox(jax.eval_shape(lambda: init(jax.random.key(0), net.width)))
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    paths = {name: tuple(entry.key for entry in path) for (path, _), name in zip(leaves, names_of(shapes), strict=True)}
    readouts = {name.rpartition(".")[0]: place for name, place in found.places.items() if place.role == "readout"}
    return {
        name: _start(net, name, paths[name], place, law_of(narrow[name]), law_of(wide[name]), readouts)
        for name, place in found.places.items()
    }


def _start(
    net: PlainNetwork, name: str, path: tuple[str, ...], place: Place, law: Law, wide: Law, readouts: dict[str, Place]
) -> Start:
    role, inputs = place.role, 1
    if role in ("hidden", "readout"):
        inputs = math.prod(place.shape[i] for i in _inputs(place))
        if law.mean:
            raise ValueError(_MEAN.format(name=name, role=role, mean=law.mean))
    elif role == "constant" and _is_bias(place, readouts.get(name.rpartition(".")[0])):
        role = "bias"
    if role == "bias" and not law.variance and law.mean:
        role = "norm"  # a gain
    a, b = (each.variance**0.5 for each in (law, wide))
    wanted = -0.5 if role in ("hidden", "readout") else 0.0
    power = math.log2(b / a) if a and b else wanted
    if abs(power - wanted) > _MARGIN:
        raise ValueError(_START.format(
            name=name, role=role, narrow=a, wide=b, width=net.width, twice=2 * net.width, power=power, wanted=wanted,
            remedy=_REMEDIES[wanted],
        ))  # fmt: skip
    return Start(path, role, a, inputs, place)


def _is_bias(place: Place, readout: Place | None) -> bool:
    """Whether what does not grow is the bias of the readout: one number for each of its outputs."""
    return readout is not None and len(place.shape) == 1 and place.shape[0] in readout.shape


def _inputs(place: Place) -> tuple[int, ...]:
    """The axes of a matrix that are summed over."""
    if place.role == "hidden":
        return place.matrix[0]
    last = len(place.shape) - 1
    return place.grows if place.grows == (last,) else tuple(range(place.stacked, last))


@placed.register
def _(net: PlainNetwork, x: Any) -> dict:
    p, found = parameterization(net.parameterization), starts(net, x)

    def where(name: str, leaf: Any) -> Where:
        del leaf
        start = found[name]
        sigma = start.std * start.inputs**0.5 if start.std else 1.0  # what starts at one value moves as if drawn with 1
        role = "bias" if start.role == "constant" else start.role
        _, stored = p.scales(role, start.inputs, net.width, sigma)
        if start.role == "constant":  # one number for all neurons, of whose gradient all have a share: γ₀² without N
            return Where(role, False, start.std, 1.0, stored / p.output_scale(net.width, 1.0), constant=True)
        sides = start.place.matrix if start.role == "hidden" else None
        return Where(start.role, False, start.std, 1.0, stored, sides, start.place.unsure)

    params = jax.eval_shape(lambda key, x: net.init(key, x), jax.eval_shape(jax.random.key, 0), x)["params"]
    return map_named(where, params)


def readout_of(net: PlainNetwork, x: Any) -> tuple[float, float]:
    """(w, b) of the readout, whose output has the covariance w² Φ + b²: of the one parameter of that role, and its bias."""
    found = starts(net, x)
    names = [name for name, start in found.items() if start.role == "readout"]
    if len(names) != 1:
        raise ValueError(
            f"{net.what} has {len(names)} parameters of role readout ({', '.join(names)}); its kernels need exactly one, from "
            "the last features to the outputs."
        )
    readout, layer = found[names[0]], names[0].rpartition(".")[0]
    bias = found.get(f"{layer}.bias" if layer else "bias")
    return readout.std * readout.inputs**0.5, 0.0 if bias is None else bias.std
