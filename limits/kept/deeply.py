"""Calls inside one another, in their thousands."""

import sys
import threading
from collections.abc import Callable
from typing import Any

_CALLS, _STACK = 50_000, 2**28  # Python's usual limit is 1,000; bytes that so many take


def deeply(act: Callable[[], Any]) -> Any:
    """act(); where that goes deeper than Python allows here, once more in a thread with room for fifty times as many calls.

    >>> def below(n): return n and 1 + below(n - 1)
    >>> deeply(lambda: below(5000))
    5000
    """
    try:
        return act()
    except RecursionError:
        pass
    found: list[Any] = []

    def again() -> None:
        try:
            found.extend((act(), None))
        except BaseException as error:  # raised where it is asked for
            found.extend((None, error))

    calls, stack = sys.getrecursionlimit(), threading.stack_size(_STACK)
    try:
        sys.setrecursionlimit(max(calls, _CALLS))
        thread = threading.Thread(target=again)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(stack)
        sys.setrecursionlimit(calls)
    if found[1] is not None:
        raise found[1]
    return found[0]
