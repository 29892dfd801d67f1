"""--config.FIELD=VALUE: fields by their names, and values as they are typed; what a flag does not take, in a sentence."""

import ast
import inspect
import re
from collections.abc import Sequence
from typing import Any

from absl import flags

from zoo import checks
from zoo.messages import did_you_mean

_SWITCHES = {"true": True, "false": False}
_OPEN = ("data", "task")  # what they name has options that the file need not list; it says which
_PATHS = ("path", "pattern", "data_dir")  # of these options: words, also where one is named 3 or None

_MEANT = {  # of what absl and ml_collections say of a value that they cannot read
    r"invalid literal for int\(\).*": "it must be a whole number",
    r"could not convert string to float.*": "it must be a number",
    r"\('Non-boolean argument.*": "it must be true or false",
    r"Failed to parse .* as a ConfigDict.*": "it has fields, each given by its own name, such as --config.task.seed=1",
}


def parse(arguments: Sequence[str]) -> list[str]:
    """Reads all flags and returns what is beside them; where one is unknown or takes no such value, the program ends."""
    try:
        return flags.FLAGS(arguments)
    except flags.Error as error:
        said = str(error)
        for theirs, ours in _MEANT.items():
            said = re.sub(theirs, ours, said, flags=re.DOTALL)
        raise SystemExit(f"error: {said.rstrip('.')} (--help lists the flags).") from None


def options(module: Any) -> tuple[str, ...]:
    """The fields of a config file that it leaves to the sources of data and tasks, which know their options: none that a function
    of its own asks for."""
    own = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]
    asked = {name for f in own for name in inspect.signature(f).parameters}
    return tuple(name for name in _OPEN if name not in asked)


def _is_option(inside: Sequence[str], name: str, settings: Any, open_fields: Sequence[str]) -> bool:
    """Whether the file lacks this field, and it is an option of the data or of the task that the file names."""
    if len(inside) != 1 or inside[0] not in open_fields or not hasattr(place := settings.get(inside[0]), "keys"):
        return False
    return "name" in place and name not in place and name.isidentifier()


def value_of(word: str) -> Any:
    """What is typed for a field whose kind nobody knows: a value of Python, a switch, or a word.

    >>> [value_of(word) for word in ("(1, 2)", "1e-3", "None", "false", "layer")]
    [(1, 2), 0.001, None, False, 'layer']
    >>> value_of("{[]: 1}")
    '{[]: 1}'
    """
    try:
        return ast.literal_eval(word)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _SWITCHES.get(word.lower(), word)


def named(arguments: Sequence[str]) -> set[str]:
    """The fields that the command line names."""
    words = [each.lstrip("-").partition("=")[0] for each in arguments]
    return {each.removeprefix("config.") for each in words if each.startswith("config.")}


def fill(arguments: Sequence[str], settings: Any, open_fields: Sequence[str] = _OPEN) -> list[str]:
    """Sets those fields that are None in the config, or options that it lacks, which absl knows no kind of; returns the other
    arguments."""
    left, given = list[str](), [*arguments]
    while given:
        argument = given.pop(0)
        override, equal, value = argument.lstrip("-").partition("=")
        if not (argument.startswith("-") and override.startswith("config.")):
            left.append(argument)
            continue
        *inside, name = override.split(".")[1:]
        place = settings
        for each in inside:
            place = place[each]
        option = _is_option(inside, name, settings, open_fields)
        none = option or place.get_type(name) is type(None)
        if none and not equal and (not given or given[0].startswith(("--", "-config"))):
            raise SystemExit(f"error: --{override} needs a value: --{override}=VALUE.")
        if none:
            with place.unlocked():
                typed = value if equal else given.pop(0)
                place[name] = typed if option and name in _PATHS else value_of(typed)
        else:
            left.append(argument)
    return left


def check(arguments: list[str], settings: Any, open_fields: Sequence[str] = _OPEN) -> None:
    """A field that the config does not have is answered with the one that was meant; and none has two lists."""
    given: dict[str, list[str]] = {}
    for i, argument in enumerate(arguments):
        override, equal, value = argument.lstrip("-").partition("=")
        if argument.startswith("-") and override.startswith("config."):
            now = field_of(override, settings, open_fields)
            values = given.setdefault(override, [])
            values.append(value if equal else "".join(arguments[i + 1 : i + 2]))
            if isinstance(now, tuple) and len(values) > 1 and any(each.startswith(("(", "[")) for each in values):
                raise SystemExit(
                    f"error: --{override} is given twice, as {' and as '.join(values)}, which would be joined to one list: give "
                    "one list."
                )


def field_of(override: str, settings: Any, open_fields: Sequence[str] = _OPEN) -> Any:
    """What the config has in a field; where it has none of that name, the program ends with the one that was meant."""
    place, names = settings, override.split(".")[1:]
    if _is_option(names[:-1], names[-1], settings, open_fields):
        return None
    for i, name in enumerate(names):
        if not hasattr(place, "keys"):
            whole = ".".join(["config", *names[:i]])
            raise SystemExit(
                f'error: the config has no field "{override}": {whole} is {checks.shown(place)}, which has no fields of its own; '
                f"give it whole, --{whole}=…."
            )
        if name not in place:
            known = place.keys()
            more = " A field that the file lacks is given by --set=NAME=VALUE." if "set" in flags.FLAGS else ""
            more = more if place is settings else f" Where the file lacks it, add it there, in a copy: {name}."
            raise SystemExit(f'error: the config has no field "{override}": {did_you_mean(name, known)}{more}')
        place = place[name]
    return place
