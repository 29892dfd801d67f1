"""Functions chosen in a config, by name and options."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from zoo import checks
from zoo.messages import did_you_mean


def chosen(table: Mapping[str, Callable[..., Any]], item: Any, what: str) -> Callable[..., Any]:
    """The function of this name with these options (its keyword-only arguments); `item` is "name" or ("name", options).

    >>> def scaled(x, *, factor=2.0):
    ...     return factor * x
    >>> chosen({"scaled": scaled}, ("scaled", {"factor": 3.0}), "change")(2.0)
    6.0
    """
    try:
        name, options = (item, {}) if isinstance(item, str) else item
        options = dict(options)
    except (TypeError, ValueError):
        raise ValueError(f'A step of {what} is "name" or ("name", {{options}}); got {checks.shown(item)}.') from None
    if not isinstance(name, str) or name not in table:
        raise ValueError(f'Unknown {what} "{name}". {did_you_mean(str(name), table)}')
    arguments = inspect.signature(table[name]).parameters.values()
    known = {a.name: a.default for a in arguments if a.kind is inspect.Parameter.KEYWORD_ONLY}
    for option in options:
        if option not in known:
            raise ValueError(f'The {what} "{name}" has no option "{option}". {did_you_mean(option, known)}')
    for option, value in options.items():
        if check := getattr(table[name], "checks", {}).get(option):
            check(f'The {what} "{name}": {option}', value)
    missing = [o for o, default in known.items() if default is inspect.Parameter.empty and o not in dict(options)]
    if missing:
        raise ValueError(f'The {what} "{name}" needs {" and ".join(missing)}: ("{name}", {{"{missing[0]}": …}}).')
    return functools.partial(table[name], **dict(options))
