"""The families of definitions that a config compares: name → (width, depth) → definition."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import zoo
from train.study.experiment import Experiment, plain_fields
from zoo import activation_function, checks
from zoo.definition import Network
from zoo.messages import did_you_mean

Families = dict[str, Callable[[int, int], Any]]
_LONGEST = 200  # bytes of a label in a file's name
# By name: the networks of zoo that have a width and a depth.
ARCHITECTURES = {
    name.lower(): each for name, each in vars(zoo).items() if isinstance(each, type) and issubclass(each, Network)
}


def families(config: Any, path: str | None, outputs: int) -> Families:
    """By the file's own make(width, depth, …), for every entry of the config's `variants` (label → further arguments of it), or
    by a definition of zoo for every combination of activation and parameterization in the config.

    `make` is asked for `outputs` too, where it has such an argument, as many as the task has targets.
    """
    if path is not None and has_make(path):
        own = Experiment(path, config, needed=())
        checks.word("name", config.name)
        variants = plain_fields(config.get("variants") or {config.name: {}})
        return {label: functools.partial(_own, own, {"outputs": outputs, **given}) for label, given in variants.items()}
    if config.get("variants"):
        return {
            label: functools.partial(_build, config, outputs, plain_fields(fields))
            for label, fields in config.variants.items()
        }
    found = {}
    for activation in config.activations:
        activation_function(activation)
        for parameterization in config.parameterizations:
            label = f"{activation} {parameterization}" if len(config.activations) > 1 else parameterization
            fields = {**config.get("fields", {}), **config.net.get(activation, {})}
            fields |= {
                "architecture": config.architecture,
                "activation": activation,
                "parameterization": parameterization,
            }
            found[label] = functools.partial(_build, config, outputs, fields)
    for make in found.values():
        _architecture(make.args[2])
    return found


def check_file_names(labels: Iterable[str]) -> None:
    """Raises unless files can be named by these labels: each a name, and no two the same one.

    >>> check_file_names(["m 1", "m_1"])
    Traceback (most recent call last):
    ...
    ValueError: Files of "m 1" and "m_1" would both be named m_1: give one of them another label.
    """
    seen: dict[str, str] = {}
    for label in labels:
        name = label.replace(" ", "_").replace(",", "")
        if not name or {"/", "\\", "\0"} & {*name} or len(name.encode()) > _LONGEST:
            raise ValueError(
                f'No file can be named by the label "{label}" of a network: give one without / or \\, of 1 to {_LONGEST} letters.'
            )
        if name in seen:
            raise ValueError(
                f'Files of "{seen[name]}" and "{label}" would both be named {name}: give one of them another label.'
            )
        seen[name] = label


def has_make(path: str) -> bool:
    """Whether the config's file makes its own networks."""
    return Experiment(path, {}, needed=()).has("make")


def check_variants(config: Any, own: Experiment | None) -> None:
    """Raises unless `variants` is a dictionary of dictionaries: of arguments of the file's own make, or each with its
    architecture."""
    checks.table("config.variants", config.variants)
    asked = () if own is None else list(inspect.signature(own.module.make).parameters)[2:]
    for label, fields in config.variants.items():
        checks.table(f"config.variants: {label}", fields)
        if own is None:
            checks.word(f"config.variants: {label}: architecture", fields.get("architecture"))
        for name in fields:
            if own is None and name in ("width", "depth", "outputs"):
                raise ValueError(
                    f"config.variants: {label}: {name} is the same for all that is compared: leave it out here, and give "
                    f"{'the task other targets' if name == 'outputs' else f'config.{name}s'}."
                )
            if own is not None and name not in asked:
                raise ValueError(
                    f"config.variants: {label}: {name} is not read: make of {own.path.name} has no argument of that name after "
                    f"its first two. {did_you_mean(name, asked)}"
                )


def _own(experiment: Experiment, given: dict[str, Any], width: int, depth: int) -> Any:
    return experiment.call("make", width, depth, **given)


def _build(config: Any, outputs: int, fields: dict[str, Any], width: int, depth: int) -> Any:
    others = {name: value for name, value in fields.items() if name != "architecture"}
    return _architecture(fields)(width=width, depth=depth, outputs=outputs, **{"gamma": config.gamma, **others})


def _architecture(fields: dict[str, Any]) -> Any:
    name = fields["architecture"]
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ValueError(f'Unknown architecture "{name}". {did_you_mean(name, ARCHITECTURES)}')
    return ARCHITECTURES[name]
