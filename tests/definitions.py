"""All definitions of zoo, found by themselves: what must hold for every architecture is asked of each of these."""

from typing import Any

import zoo

# Where a definition has such a field: sizes that make it small.
_SIZES = {"width": 8, "depth": 2, "heads": 2, "patch": 2, "stem": "small", "norm": "layer"}


def definitions() -> list[type]:
    """The classes of `zoo` that declare their fields with @definition(…), but for GPT, which takes tokens (`zoo/test_gpt.py`)."""
    found = [each for each in vars(zoo).values() if isinstance(each, type) and hasattr(each, "field_checks")]
    return [each for each in found if each is not zoo.GPT]


def small(cls: Any, **changes: Any) -> Any:
    """A small network of this class; `changes` that it has no field for are left out."""
    fields = cls.__dataclass_fields__
    sizes = _SIZES | ({} if "depth" in fields else {"stages": (1, 1)}) | changes
    return cls(**{name: value for name, value in sizes.items() if name in fields})


def input_shape(net: Any) -> tuple[int, ...]:
    """The shape of inputs that it takes."""
    return (2, 4, 4, 3) if net.images else (2, 5)
