"""The numbers in a definition that kernels are functions of: standard deviations, scales, slopes."""

import dataclasses
from typing import Any

import numpy as np

from zoo.plain import PlainNetwork, Resized

_OFTEN_WHOLE = ("w_std", "b_std", "gamma", "beta", "position_std")  # fields for which 1 means 1.0


def hyperparameters(net: Any) -> dict[str, Any]:
    """Fields of a definition that are numbers other than 0, or tuples of them, and those of its activation, by name.

    A 0 is no number to vary: it takes something away (b_std = 0 means that there are no biases).

    >>> from zoo import MLP, PiecewiseLinear
    >>> hyperparameters(MLP(width=8, depth=2, activation=PiecewiseLinear(0.1, 1.0), b_std=0.3))
    {'w_std': 1.0, 'b_std': 0.3, 'gamma': 1.0, 'negative': 0.1, 'positive': 1.0}
    """
    found = {name: value for name, value in _fields(net).items() if _is_number(name, value)}
    inner = _inner(net)
    if inner is not None:
        found |= {name: value for name, value in _fields(inner).items() if _is_number(name, value)}
    phi = getattr(net if inner is None else inner, "activation", None)
    if dataclasses.is_dataclass(phi):
        numbers = {name: value for name, value in _fields(phi).items() if _is_number(name, value)}
        found |= {f"activation_{name}" if name in found else name: value for name, value in numbers.items()}
    return found


def with_hyperparameters(net: Any, **values: Any) -> Any:
    """The same definition with other values of these.

    >>> from zoo import MLP, PiecewiseLinear
    >>> with_hyperparameters(MLP(8, 2, activation=PiecewiseLinear(0.1, 1.0)), w_std=2.0, negative=0.2).activation.negative
    0.2
    """
    inner = _inner(net)
    owner = net if inner is None else inner
    own = {name: value for name, value in values.items() if name in _fields(net)}
    inside = {name: value for name, value in values.items() if name not in own and name in _fields(owner)}
    rest = {name.removeprefix("activation_"): v for name, v in values.items() if name not in {*own, *inside}}
    if rest:
        phi: Any = owner.activation
        inside["activation"] = dataclasses.replace(phi, **rest)
    if inner is None:
        return net.clone(**own, **inside)
    return net.clone(**own, make=Resized(inner.clone(**inside), net.make.field))


def _inner(net: Any) -> Any:
    """The Linen module in a plain network, if there is one."""
    return net.make.module if isinstance(net, PlainNetwork) and isinstance(net.make, Resized) else None


def _fields(owner: Any) -> dict[str, Any]:
    return {
        f.name: getattr(owner, f.name) for f in dataclasses.fields(owner) if f.init and f.name not in ("parent", "name")
    }


def _is_number(name: str, value: Any) -> bool:
    if isinstance(value, tuple) and value:
        return all(_is_number(name, each) for each in value)
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool) and name in _OFTEN_WHOLE
    return (whole or isinstance(value, float | np.floating)) and bool(np.isfinite(value)) and value != 0
