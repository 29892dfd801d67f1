"""A definition as JSON and back: what lies beside the weights in a checkpoint."""

import dataclasses
import importlib
import numbers
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from zoo.activations import ACTIVATIONS, activation_function

_NOT_FIELDS = ("parent", "name")  # Linen's own


def to_json(net: nn.Module) -> dict[str, Any]:
    """The class of a definition and its fields, in what JSON can hold.

    >>> from zoo import MLP
    >>> to_json(MLP(width=8, depth=2))["class"]
    'zoo.mlp:MLP'
    """
    return _object(net)


def from_json(saved: dict[str, Any]) -> Any:
    """The definition that `to_json` wrote.

    >>> from zoo import MLP
    >>> from_json(to_json(MLP(width=8, depth=2, parameterization="mup"))) == MLP(width=8, depth=2, parameterization="mup")
    True
    """
    path = saved["class"]
    module, _, name = path.partition(":")
    try:
        cls = importlib.import_module(module)
        for part in name.split("."):
            cls = getattr(cls, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"The definition {path} cannot be imported here ({error}): put its file on PYTHONPATH, under the same name."
        ) from None
    return cls(**{name: _read(value) for name, value in saved["fields"].items()})  # pyright: ignore[reportCallIssue]


def _object(value: Any) -> dict[str, Any]:
    cls = type(value)
    kept = [f for f in dataclasses.fields(value) if f.init and f.name not in (_NOT_FIELDS if _is_module(value) else ())]
    fields = {}
    for f in kept:
        try:
            fields[f.name] = _write(getattr(value, f.name))
        except TypeError as error:
            raise ValueError(
                f"{cls.__name__}: the field {f.name} cannot be written into a checkpoint. {error}"
            ) from None
    return {"class": f"{cls.__module__}:{cls.__qualname__}", "fields": fields}


def _is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


def _write(value: Any) -> Any:
    function: Any = value
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, list | tuple):
        return [_write(each) for each in value]
    if isinstance(value, dict):
        return {"dict": {key: _write(each) for key, each in value.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    try:
        return float(function)
    except (TypeError, ValueError):
        pass
    names = [name for name, known in ACTIVATIONS.items() if callable(value) and known is activation_function(function)]
    if names:
        return names[0]
    try:
        dtype = jnp.dtype(function)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind == "O":
        raise TypeError(
            f"It is {value!r}: use a name, numbers, tuples, or a frozen dataclass of them, as zoo.Quadratic is."
        )
    return {"dtype": dtype.name}


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read(each) for each in value)
    if isinstance(value, dict):
        if "class" in value:
            return from_json(value)
        if "dtype" in value:
            return jnp.dtype(value["dtype"])
        return {key: _read(each) for key, each in value["dict"].items()}
    return value
