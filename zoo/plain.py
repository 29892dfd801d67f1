"""A plain module (Linen, NNX, or a pair of functions) as a definition: its own forward code at any width."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo import checks
from zoo.definition import in_form
from zoo.modules import check_told, is_nnx, made_by, told
from zoo.parameterization import ROLES, Parameterization, parameterization

_NET = "net"  # the parameter that holds all those of what is no Linen module
_HOW = (
    "Say how wide it is: in_parameterization(Net(width=256), …) of a Linen module, width=FIELD where the field has another "
    "name; or in_parameterization(make, …, width=256) with make(width) → a Linen module or a pair (init, apply), or "
    "make(width, rngs) → an NNX module."
)


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
    def __call__(self, x: Any, train: bool | None = None) -> jax.Array:  # noqa: D102
        inner, options = self.inner, dict(self.options)
        linen = isinstance(inner, nn.Module)
        call = inner.__call__ if linen else inner.apply
        check_told(call, 1 if linen else 2, options, f"in_parameterization: {self.what}")
        mode, asked = told(call, bool(train)), inspect.signature(call).parameters
        if train is None and not linen:  # NNX modules are then as they were made
            mode = {name: said for name, said in mode.items() if asked[name].default is not None}
        if train and not mode:
            raise ValueError(f"{self.what} has no argument `train`, by which it would be told that it is trained.")
        options = {**mode, **options}
        if linen:
            f = inner(x, **options)
        else:
            here = self.has_variable("params", _NET)  # Linen would run `init` again to compare shapes
            params = self.get_variable("params", _NET) if here else self.param(_NET, inner.init, x)
            if self.has_rng("dropout") and "key" in asked:
                options = {"key": self.make_rng("dropout"), **options}
            f = inner.apply(params, x, **options)
        if not checks.is_array(f):
            raise ValueError(
                f"in_parameterization: {self.what} returns {checks.parts(f)}; one array of outputs [n, outputs] is expected."
            )
        scale = parameterization(self.parameterization).output_scale(self.width, self.gamma)
        return jnp.asarray(f, jax.dtypes.canonicalize_dtype(float)) / scale

    @property
    def what(self) -> str:
        """The name of what was brought."""
        made = self.make.module if isinstance(self.make, Resized) else self.make
        return getattr(made, "__name__", type(made).__name__)


def at_depth(net: nn.Module, depth: int) -> nn.Module:
    """The same definition with another value of the field `depth`; an error without one.

    A plain module has it itself, or the dataclass that makes it: make(width), make(width, rngs).
    """
    made: Any = net.make if isinstance(net, PlainNetwork) else None
    holder: Any = made.module if isinstance(made, Resized) else net if made is None else made
    fields: Any = {} if isinstance(holder, type) else getattr(holder, "__dataclass_fields__", {})
    if "depth" not in fields:
        raise ValueError(
            f"{net.what if isinstance(net, PlainNetwork) else type(net).__name__} has no field `depth`, by which its depth could "
            "go to infinity: give the module one (or let a dataclass that has one make it of a width), and scale its branches by "
            "depth ** -0.5."
        )
    changed: Any = {"depth": depth}
    replaced: Any = dataclasses.replace
    if isinstance(made, Resized):
        return net.clone(make=Resized(holder.clone(**changed), made.field))
    return holder.clone(**changed) if made is None else net.clone(make=replaced(holder, **changed))


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
    if not callable(module) or is_nnx(module) or isinstance(width, str) or not whole:
        raise ValueError(f"in_parameterization: got {checks.shown(module)} and width={checks.shown(width)}. {_HOW}")
    made_by(module, width)  # what it makes is checked here
    return PlainNetwork(module, width, parameterization, gamma, known, more)
