"""A progress bar for what may take long, or not."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.errors import LiveError
from rich.progress import Progress, TimeElapsedColumn

PATIENCE = 3.0  # seconds


@contextlib.contextmanager
def patient_bar(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A function that advances a bar by one; the bar appears on stderr after a few seconds, also while jax compiles.

    total None: nobody knows.

    >>> with patient_bar("sums", total=2) as advance:
    ...     advance()
    """
    bar = Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True))
    count = bar.add_task(what, total=total)

    def appear() -> None:
        with contextlib.suppress(LiveError):  # another bar is there already
            bar.start()

    timer = threading.Timer(PATIENCE, appear)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: bar.advance(count)
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()
