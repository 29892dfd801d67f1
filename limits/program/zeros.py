"""Moments that are zero by structure, which are None."""

from typing import Any


def total(*parts: Any) -> Any:
    """Their sum; None is zero."""
    found = None
    for part in parts:
        found = part if found is None else found if part is None else found + part
    return found
