"""What all network definitions share: argument checks with sentences."""

import dataclasses
import functools
import inspect
from collections.abc import Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from zoo.activations import activation_function
from zoo.checks import WIDEST, choice, count, flag, misfit, number, shown
from zoo.messages import did_you_mean
from zoo.parameterization import parameterization

T = TypeVar("T", bound=type)
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


def definition(cls: T) -> T:
    """Class decorator for a Linen module: an unknown argument is answered with the name that was meant."""
    plain_init: Any = cls.__init__
    signature = inspect.signature(plain_init)
    known = [name for name in signature.parameters if name not in ("self", "parent", "name")]

    @functools.wraps(plain_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        for key in kwargs:
            if key in _ALIASES and key not in known:
                raise TypeError(f"{cls.__name__} has no argument {key}: use {_ALIASES[key]}.")
            if key not in (*known, "parent", "name"):
                raise TypeError(f'{cls.__name__} has no argument "{key}". {did_you_mean(key, known)}')
        try:
            plain_init(self, *args, **kwargs)
        except TypeError as error:
            raise misfit(cls.__name__, signature, (self, *args), kwargs) or error from None

    cls.__init__ = init  # pyright: ignore[reportAttributeAccessIssue]
    return cls


def check_count(owner: str, field: str, value: Any, at_least: int = 1) -> None:
    """Raises unless `value` is an integer of at least `at_least`."""
    count(at_least, WIDEST)(f"{owner}: {field}", value)


def check_counts(owner: str, field: str, value: Any) -> None:
    """Raises unless `value` is a tuple of integers of at least 1, with at least one of them."""
    if not isinstance(value, tuple) or not value:
        raise ValueError(f"{owner}: {field} must be a tuple of integers such as (2, 2), got {shown(value)}.")
    for each in value:
        check_count(owner, field, each)


def check_scale(owner: str, field: str, value: Any, positive: bool = False) -> None:
    """Raises unless `value` is a finite number ≥ 0 (> 0 if `positive`); traced values pass."""
    number(-np.inf if positive else 0, positive=positive)(f"{owner}: {field}", value)


def check_choice(owner: str, field: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises unless `value` is one of `choices`."""
    choice(*choices)(f"{owner}: {field}", value)


def check_common(net: Any) -> None:
    """The checks of the fields that all definitions have."""
    owner = type(net).__name__
    for name in ("width", "depth", "outputs"):
        check_count(owner, name, getattr(net, name))
    for field in dataclasses.fields(net):
        if field.type in (bool, "bool"):
            flag(f"{owner}: {field.name}", getattr(net, field.name))
    activation_function(net.activation)
    parameterization(net.parameterization)
    check_scale(owner, "w_std", net.w_std, positive=True)
    check_scale(owner, "b_std", net.b_std)
    check_scale(owner, "gamma", net.gamma, positive=True)
    check_choice(owner, "bias_init", net.bias_init, ("normal", "zeros"))
    try:
        real = net.dtype is None or jnp.issubdtype(jnp.dtype(net.dtype), jnp.floating)
    except (TypeError, ValueError):
        real = False
    if not real:
        raise ValueError(
            f'{owner}: dtype must be a float type such as "bfloat16" or "float32", got {shown(net.dtype)}.'
        )


def check_images(net: Any, x: Any) -> None:
    """Raises unless x is [n, height, width, channels]."""
    if x.ndim != 4:
        raise ValueError(
            f"{type(net).__name__} needs images [n, height, width, channels]; the input has shape {tuple(x.shape)}. "
            "Add the axis of channels with x[..., None], or the axis of samples with x[None]."
        )
