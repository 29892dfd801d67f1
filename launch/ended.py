"""A process that has failed ends, whatever threads of libraries wait for."""

import atexit
import os
import sys
import threading
import time

PATIENCE = 30.0  # seconds for threads that still write


def end_in_time(code: int, patience: float = PATIENCE) -> None:
    """Ends this process with `code` where it has not ended by itself so long after its last line.

    Threads that save a checkpoint wait for one another: where one has failed, Python, as it ends, waits for the others for ever.
    """

    ends = threading.Event()
    # Before pools of threads are waited for, where Python has that (private, as of 3.9); else after.
    getattr(threading, "_register_atexit", atexit.register)(ends.set)

    def end() -> None:
        ends.wait()
        time.sleep(patience)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)

    threading.Thread(target=end, daemon=True).start()
