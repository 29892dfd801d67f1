"""What all network definitions share: what they say of themselves, and checks of their fields."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import flax.linen as nn
import jax.numpy as jnp

from zoo.activations import activation_function
from zoo.checks import WIDEST, Check, choice, count, flag, misfit, number, several
from zoo.parameterization import Parameterization, parameterization

T = TypeVar("T", bound=type)


@runtime_checkable
class Definition(Protocol):
    """What every network of zoo says of itself. Of a module of your own, `definition_of` says it."""

    width: int
    depth: int  # L, as the definition counts it
    outputs: int
    activation: Any
    w_std: Any
    b_std: Any
    parameterization: str | Parameterization
    gamma: Any  # γ₀
    bias_init: str
    dtype: Any
    branches: int  # residual branches
    branch_scale: Any  # the factor of every branch: one number, or an array [branches] where they differ
    images: bool  # inputs are images [n, height, width, channels]; if not, they may have any shape [n, …]


# What a module says by leaving it out. `images` None: not known; `kernel`, `patch`: the sides of windows and patches.
_LEFT_OUT = {
    "depth": 1, "outputs": 1, "gamma": 1.0, "branches": 0, "branch_scale": 1.0, "images": None,
    "residual": "uniform", "stages": 1, "kernel": 1, "patch": 1, "logits": None,
}  # fmt: skip


class _Described:
    def __init__(self, net: Any) -> None:
        self._net = net

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name, _LEFT_OUT[name]) if name in _LEFT_OUT else getattr(self._net, name)


def definition_of(net: Any) -> Any:
    """The `Definition` of any module that has a width and a parameterization: what it leaves out makes no difference.

    >>> class Mine:
    ...     width, parameterization, gamma = 8, "mup", 2.0
    >>> mine = definition_of(Mine())
    >>> mine.width, mine.gamma, mine.depth, mine.branches
    (8, 2.0, 1, 0)
    """
    return _Described(net)


PLAIN = (
    "{caller}: {name} is a plain module, which does not say how its learning rates go with its width. "
    'zoo.in_parameterization(net, "mup") says it for features that learn, "ntk" for the kernel regime.'
)


def name_of(net: Any) -> str:
    """What messages call a network: its class, or that of the plain module in it.

    >>> name_of(nn.Dense(3))
    'Dense'
    """
    return net.what if hasattr(net, "known_roles") else type(net).__name__


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_definition(caller: str, net: Any) -> None:
    """Raises unless a module says its width and its parameterization, as a definition does, and is called with inputs alone."""
    if not {"width", "parameterization"} <= {field.name for field in dataclasses.fields(net)}:
        raise ValueError(PLAIN.format(caller=caller, name=name_of(net)))
    if needed := asked_beside_inputs(net):
        raise ValueError(
            f'{caller}: {name_of(net)} must be given "{needed[0]}" beside its inputs, and a definition is called with inputs '
            f"alone: give it a default, {needed[0]}=…."
        )


def asked_beside_inputs(net: Any) -> list[str]:
    """What the call of a module must be given beside its inputs."""
    asked = list(inspect.signature(getattr(net, "__call__", lambda x: x)).parameters.values())[1:]  # noqa: B004
    return [each.name for each in asked if each.default is each.empty and each.kind not in _VARIABLE]


def is_ours(net: Any) -> bool:
    """Whether it is one of zoo's definitions, and no module of one's own: then its fields say what it returns.

    >>> class Mine(nn.Module):
    ...     width: int = 8
    >>> is_ours(Mine())
    False
    """
    return type(net).__module__.startswith("zoo.") and hasattr(net, "outputs")


def in_form(net: Any, parameterization: Any, gamma: Any) -> Any:
    """The same network in another parameterization and with another γ₀, where it has one."""
    return net.clone(parameterization=parameterization, **({"gamma": gamma} if hasattr(net, "gamma") else {}))


# What fields of definitions may be.
size = count(1, WIDEST)
counts = Check(
    "a tuple of integers of at least 1, such as (2, 2)",
    lambda v: isinstance(v, tuple) and v and all(map(size.holds, v)),
)
sides = Check("rows and columns, such as (2, 8)", lambda v: counts.holds(v) and len(v) == 2)
scale = number(0)
_COMMON = {
    "width": size,
    "depth": size,
    "outputs": size,
    "w_std": number(positive=True),
    "b_std": scale,
    "gamma": number(positive=True),
    "bias_init": choice("normal", "zeros"),
    "dtype": Check(
        'a float type such as "bfloat16" or "float32"',
        lambda v: v is None or jnp.issubdtype(jnp.dtype(v), jnp.floating),
    ),
}


def rows_and_columns(patch: Any) -> tuple[int, int]:
    """The sides of a patch; one number is a square.

    >>> rows_and_columns(4), rows_and_columns((1, 28))
    ((4, 4), (1, 28))
    """
    rows, columns = patch if isinstance(patch, tuple) else (patch, patch)
    return int(rows), int(columns)


LAYERED = ("w_std", "b_std", "activation")  # fields that may be tuples, an entry a layer


def by_layer(**checked: Check) -> dict[str, Check]:
    """Checks of a definition whose weights, biases and activations may differ from layer to layer."""
    each = {name: _COMMON[name] for name in ("w_std", "b_std")}
    return {name: check | several(check, 1) for name, check in each.items()} | checked


def of_layer(value: Any, l: int) -> Any:
    """What a field says of layer l = 1, 2, … (0: the readout, which comes last): its entry, or the one value for all.

    >>> of_layer((1.0, 2.0, 3.0), 1), of_layer((1.0, 2.0, 3.0), 0), of_layer(1.5, 2)
    (1.0, 3.0, 1.5)
    """
    return value[l - 1] if isinstance(value, tuple) else value


def is_layered(net: Any) -> bool:
    """Whether layers differ in what is one number, or one function, for all layers of others."""
    return any(isinstance(getattr(net, name, None), tuple) for name in LAYERED)


def check_alike(owner: str, net: Any) -> None:
    """Raises where a theory is for networks whose layers are alike, and these are not."""
    if is_layered(net):
        raise ValueError(
            f"{owner} is for layers that are alike: {', '.join(LAYERED)} must be one value for all of them; "
            f"{type(net).__name__} has tuples there."
        )


def check_layers(net: Any, layers: int | None = None, activations: int | None = None) -> None:
    """Raises unless tuples have an entry a layer: w_std and b_std for so many layers (default: `depth`) and the readout."""
    count: int = net.depth if layers is None else layers
    for name in LAYERED:
        value, wanted = getattr(net, name), count + 1
        wanted = (count if activations is None else activations) if name == "activation" else wanted
        if isinstance(value, tuple) and len(value) != wanted:
            more = ", the readout's last" if name != "activation" else ""
            raise ValueError(
                f"{type(net).__name__}: {name} has {len(value)} entries for depth {net.depth}; give {wanted}, one a layer{more}."
            )


# Names of other packages, with ours.
_ALIASES = {
    "W_std": "w_std",
    "B_std": "b_std",
    "hidden": "width",
    "out_dim": "outputs",
    "num_classes": "outputs",
    "num_heads": "heads",
    "patch_size": "patch",
    "alpha": "parameterization=Parameterization.mup.replace(alpha=…): the depth exponent is a field of the parameterization",
}


class Network(nn.Module):
    """The fields that `MLP`, `CNN`, `ResNet` and `ViT` share, of which those of one's own come after."""

    width: int
    depth: int
    outputs: int = 1
    activation: Any = "relu"
    w_std: Any = 1.0
    b_std: Any = 0.0
    parameterization: str | Parameterization = "ntk"
    gamma: Any = 1.0
    bias_init: str = "normal"

    branches, branch_scale = 0, 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        super().__post_init__()


def definition(**wanted: Check) -> Callable[[T], T]:
    """Class decorator for a Linen module: what its fields may be, for `check_fields`.

    An unknown argument is answered with the name that was meant.
    """

    def declare(cls: T) -> T:
        plain_init: Any = cls.__init__
        signature = inspect.signature(plain_init)

        @functools.wraps(plain_init)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            for key in kwargs:
                if key in _ALIASES and key not in signature.parameters:
                    raise TypeError(f"{cls.__name__} has no argument {key}: use {_ALIASES[key]}.")
            try:
                plain_init(self, *args, **kwargs)
            except TypeError as error:
                raise misfit(cls.__name__, signature, (self, *args), kwargs) or error from None

        declared: Any = cls
        declared.__init__, declared.field_checks = init, {**_COMMON, **wanted}
        return cls

    return declare


def check_fields(net: Any) -> None:
    """Raises unless every field is what the definition declares; lists, as configs have them, become tuples."""
    layered = net.field_checks.get("w_std") is not _COMMON["w_std"]
    for field in dataclasses.fields(net):
        value = getattr(net, field.name)
        if isinstance(value, list):  # which cannot be hashed
            value = tuple(value)
            object.__setattr__(net, field.name, value)
        check = flag if field.type in (bool, "bool") else net.field_checks.get(field.name)
        if check is not None:
            check(f"{type(net).__name__}: {field.name}", value)
    if isinstance(net.activation, tuple) and not layered:
        raise ValueError(
            f"{type(net).__name__}: activation must be one for all layers; tuples are for MLP, CNN, ResNet and ViT."
        )
    for phi in net.activation if isinstance(net.activation, tuple) else (net.activation,):
        activation_function(phi)
    parameterization(net.parameterization)


def check_images(net: Any, x: Any) -> None:
    """Raises unless x is [n, height, width, channels]."""
    if x.ndim != 4:
        raise ValueError(
            f"{type(net).__name__} needs images [n, height, width, channels]; the input has shape {tuple(x.shape)}. "
            "Add the axis of channels with x[..., None], or the axis of samples with x[None]."
        )
