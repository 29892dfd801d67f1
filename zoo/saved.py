"""A definition as JSON and back: what lies beside the weights in a checkpoint.

What is read is data: it names classes, and only those of zoo and those that were registered are made; nothing is imported.
"""

import dataclasses
import inspect
import numbers
import pkgutil
import sys
from types import ModuleType
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from zoo.activations import ACTIVATIONS, activation_function
from zoo.rescaled import within


def to_json(net: Any) -> dict[str, Any]:
    """The class of a definition and its fields, in what JSON can hold.

    >>> from zoo import MLP
    >>> to_json(MLP(width=8, depth=2))["class"]
    'zoo.mlp:MLP'
    """
    return _object(within(net))  # roles are of the optimiser and the start: what is saved needs neither


def from_json(saved: dict[str, Any]) -> Any:
    """The definition that `to_json` wrote.

    >>> from zoo import MLP
    >>> from_json(to_json(MLP(width=8, depth=2, parameterization="mup"))) == MLP(width=8, depth=2, parameterization="mup")
    True
    """
    path, fields = saved["class"], saved["fields"]
    cls = _KNOWN.get(path) or _of_zoo().get(path)
    if cls is None:
        raise ValueError(
            f"The definition {path} is not one of zoo's, and what a checkpoint names is not imported: name the file that defines "
            "it with --config=FILE (in Python: zoo.saved.register)."
        )
    try:
        return cls(**{name: _read(value) for name, value in fields.items()})
    except TypeError as error:
        raise ValueError(
            f"The definition {path} has other fields now than the saved one: {str(error).rstrip('.')}."
        ) from None


def register(*known: type | ModuleType) -> None:
    """Makes definitions of one's own known to `from_json`: classes, or all of a module, with the modules that these come from.

    >>> class Mine(nn.Module):
    ...     width: int
    >>> register(Mine)
    >>> from_json(to_json(Mine(8))).width
    8
    """
    for each in known:
        if isinstance(each, type):
            _KNOWN[_path(each)] = each
            continue
        classes = _classes(each)
        homes = {sys.modules[cls.__module__] for cls in classes if cls.__module__ in sys.modules}
        register(*classes, *(cls for home in homes for cls in _classes(home)))


_KNOWN: dict[str, type] = {}


def _of_zoo() -> dict[str, type]:
    """The classes of zoo's own modules, which are all imported with it or by what uses them."""
    import zoo

    names = [f"zoo.{each.name}" for each in pkgutil.iter_modules(zoo.__path__)]
    modules = [sys.modules[name] for name in names if name in sys.modules]
    return {_path(cls): cls for module in modules for cls in _classes(module) if cls.__module__ == module.__name__}


def _classes(module: ModuleType) -> list[type]:
    """Its dataclasses, which Flax modules are too."""
    return [each for each in vars(module).values() if inspect.isclass(each) and dataclasses.is_dataclass(each)]


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _object(value: Any) -> dict[str, Any]:
    cls = type(value)
    linens = ("parent", "name") if isinstance(value, nn.Module) else ()
    kept = [f for f in dataclasses.fields(value) if f.init and f.name not in linens]
    fields = {}
    for f in kept:
        try:
            fields[f.name] = _write(getattr(value, f.name))
        except TypeError as error:
            raise ValueError(
                f"{cls.__name__}: the field {f.name} cannot be written into a checkpoint. {error}"
            ) from None
    return {"class": _path(cls), "fields": fields}


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
