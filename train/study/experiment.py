"""A config file with functions of its own: a model, an optimiser, a loss and batches, from any place on the disk."""

import ast
import functools
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from limits.kept.identity import identity
from zoo.checks import shown
from zoo.messages import did_you_mean
from zoo.modules import is_nnx, takes_rngs

NEEDED = {
    "make": "make(width, depth, …) returns a model with init and apply, such as a Flax module",
    "optimizer": "optimizer(net, learning_rate, …) returns an Optax transformation",
    "loss": "loss(outputs, targets) returns a number",
    "batches": "batches(…) returns an iterator of (inputs, targets)",
}

_HAS = {"make": ("init", "apply"), "optimizer": ("init", "update")}  # what these return

_OUTPUTS = {"outputs", "logits", "predictions", "preds", "y_pred"}
_TARGETS = {"targets", "labels", "y_true"}
_TURNED = {  # names of the second argument at the first place, and the other way around
    "make": ({"depth"}, {"width"}), "loss": (_TARGETS, _OUTPUTS), "score": (_TARGETS, _OUTPUTS),
}  # fmt: skip

_OF_NNX = ' Of an NNX module: zoo.in_parameterization(build, "mup" or "ntk", width=width) with build(width, rngs).'

_NOT_MEANT = {
    "configs",
    "launch",
    "limits",
    "train",
    "zoo",
    *sys.stdlib_module_names,
}  # by a name of a file beside a config
_loaded: dict[tuple[Path, bytes], ModuleType] = {}  # by place and content


class Experiment:
    """The fields of a config, and its functions.

    A function's arguments that the caller does not give are filled with the config's fields of that name.
    """

    def __init__(
        self, path: str, config: ConfigDict | Mapping[str, Any], needed: Iterable[str] = tuple(NEEDED)
    ) -> None:
        self.given, self.path, self.config = path, Path(path.partition(":")[0]), config
        self.module = load(self.path)
        missing = [NEEDED[name] for name in needed if not callable(getattr(self.module, name, None))]
        if missing:
            raise ValueError(f"{self.path} lacks functions: {'; '.join(missing)}.")
        for function in filter(self.has, _TURNED):
            self._check_order(function)

    def _check_order(self, function: str) -> None:
        """What the first two arguments get goes by their place: raises where they have each other's names, or warns of a loss,
        which may be the same either way."""
        names, turned = self.parameters(function)[:2], _TURNED[function]
        if len(names) < 2 or any(name not in known for name, known in zip(names, turned, strict=True)):
            return
        right = NEEDED.get(function, f"{function}(outputs, targets) returns a number")
        said = f"{self.path}: {function}({', '.join(names)}) has its first arguments turned, which go by their place: {right}."
        if function == "make":
            raise ValueError(said)
        warnings.warn(said, stacklevel=3)

    def has(self, name: str) -> bool:
        """Whether the config defines this function."""
        return callable(getattr(self.module, name, None))

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Its functions by name."""
        return {name: getattr(self.module, name) for name in NEEDED if self.has(name)}

    def call(self, function: str, *positional: Any, **given: Any) -> Any:
        """Calls the function with what it asks for by name."""
        bound = self.bound(function, len(positional), **given)
        try:
            result = bound(*positional)
        except (TypeError, ValueError, AssertionError) as error:
            if function != "loss" or isinstance(error, jax.errors.JAXTypeError):
                raise
            outputs, targets = (_in_words(each) for each in positional[:2])
            raise ValueError(
                f"{self.path}: loss fails for outputs {outputs} with targets {targets}: {error}"
            ) from error
        lacks = [name for name in _HAS.get(function, ()) if not hasattr(result, name)]
        lacks += ["iter"] * (
            function == "batches" and not (hasattr(result, "__iter__") or hasattr(result, "__getitem__"))
        )
        if (result is None and function in NEEDED) or lacks:
            hint = _OF_NNX if is_nnx(result) or takes_rngs(result) else ""
            raise ValueError(f"{self.path}: {function} returned {shown(result)}; {NEEDED[function]}.{hint}")
        return result

    def bound(self, function: str, positional: int, **given: Any) -> functools.partial:
        """The function with what it asks for by name, but for so many arguments at first."""
        signature = inspect.signature(getattr(self.module, function))
        parameters = list(signature.parameters.values())
        first, wanted = parameters[:positional], parameters[positional:]
        if len(first) < positional or any(each.kind is each.KEYWORD_ONLY for each in first):
            raise ValueError(
                f"{self.path}: {function} must take {positional} argument{'s' * (positional > 1)} by position; it is "
                f"{function}{signature}. {NEEDED.get(function, '')}".rstrip()
                + "."
            )
        known = {**self.config, **given}
        name = first[0].name if first and function == "optimizer" else ""
        own = name in ("net", "model") or self.asks_for(name, ("make",))
        if isinstance(known.get(name), int | float) and not own:  # not a network: it has taken the first place
            raise ValueError(
                f"{self.path}: the first argument of optimizer (here {name}) is for the network, whatever its name: write "
                f"def optimizer(net, {', '.join(each.name for each in parameters)})."
            )
        found = {}
        for parameter in wanted:
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                raise ValueError(f"{self.path}: {function} must name its arguments; it has *{parameter.name}.")
            if parameter.name in known:
                found[parameter.name] = known[parameter.name]
            elif parameter.default is parameter.empty:
                raise ValueError(
                    f'{self.path}: {function} asks for "{parameter.name}", and the config has no such field. '
                    f"{did_you_mean(parameter.name, known)}"
                )
        return functools.partial(getattr(self.module, function), **found)

    def asked_for(self, among: Iterable[str] = tuple(NEEDED)) -> set[str]:
        """The names of all arguments of these functions."""
        return {name for each in among for name in self.parameters(each)}

    def parameters(self, function: str) -> list[str]:
        """The names of its arguments, in order; none where there is no such function."""
        return list(inspect.signature(getattr(self.module, function)).parameters) if self.has(function) else []

    def asks_for(self, name: str, among: Iterable[str] = tuple(NEEDED)) -> bool:
        """Whether any of these functions has an argument of this name."""
        return name in self.asked_for(among)

    @functools.cached_property
    def code(self) -> str:
        """A word for what its functions do: not `get_config`, what only judges, comments and docstrings."""
        return identity(*(getattr(self.module, name, None) for name in (*NEEDED, "task", "rows")))


def _in_words(arrays: Any) -> str:
    return ", ".join(f"{jnp.result_type(each)}{list(np.shape(each))}" for each in jax.tree.leaves(arrays))


def load(path: Path) -> ModuleType:
    """The module of this file; its folder can be imported from, after everything else.

    Raises where something else is taken for a module that lies beside it.
    """
    key = path.resolve(), path.read_bytes()
    if key in _loaded:  # executed once a start, for its fields and for its functions
        sys.modules[_loaded[key].__name__] = _loaded[key]
        return _loaded[key]
    spec = importlib.util.spec_from_file_location(f"config_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file: give one whose name ends in .py.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    _check_beside(path, set())
    _loaded[key] = module
    return module


def _check_beside(file: Path, looked_at: set[Path]) -> None:
    """Raises where what a file imports by the name of one beside it, here or in a function, is another file of another folder."""
    for name in sorted(_imported(file) - _NOT_MEANT):
        places = (file.parent / name / "__init__.py", file.parent / f"{name}.py")  # as Python looks for them
        own = next((each.resolve() for each in places if each.is_file()), None)
        if own is None or own in looked_at:
            continue
        looked_at.add(own)
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # of a module that was made by hand
            continue
        taken = Path(spec.origin).resolve() if spec and spec.origin else None
        if taken != own and not (taken and taken.is_file() and taken.read_bytes() == own.read_bytes()):
            raise ValueError(
                f"{file} imports {name}, which is there twice: {own}, beside it, and {taken}, which is taken. Give one of them "
                "another name, or take one program for each."
            )
        if own == places[1].resolve():  # what a package imports does not lie beside its files
            _check_beside(own, looked_at)


def _imported(file: Path) -> set[str]:
    """The first parts of the names that a file imports, but for what it does where it is run itself."""
    try:
        todo, names = list[ast.AST](ast.parse(file.read_bytes()).body), set[str]()
    except SyntaxError:  # said by whoever imports it
        return set()
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
        elif not (isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)):
            todo.extend(ast.iter_child_nodes(node))
    return names


def plain_fields(fields: Mapping[str, Any] | ConfigDict) -> dict[str, Any]:
    """Nested config dictionaries as dictionaries."""
    return {key: plain_fields(value) if hasattr(value, "items") else value for key, value in fields.items()}


def overrides(given: Sequence[str], but: Collection[str] = ()) -> list[str]:
    """Fields that a command line changes, but for some, a word each: --config.FIELD VALUE is two of them.

    >>> overrides(["--config.steps", "50", "--config.rate", "-1", "-config.flag", "--only=a", "--config.of=(1, 2)"], {"of"})
    ['--config.steps=50', '--config.rate=-1', '-config.flag']
    >>> overrides(["--noconfig.bias", "--config.steps=3"])
    ['--noconfig.bias', '--config.steps=3']
    """
    found = []
    for word, following in zip(given, [*given, "--"][1:], strict=True):
        name = word.lstrip("-").partition("=")[0]
        of_config = word.startswith("-") and name.startswith(("config.", "noconfig."))
        if of_config and name.split(".")[1] not in but:
            alone = "=" in word or name.startswith("no") or following.startswith(("--", "-config", "-noconfig"))
            found.append(word if alone else f"{word}={following}")
    return found
