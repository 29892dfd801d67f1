"""Processes that have failed end, whatever threads of libraries wait for."""

import subprocess
import sys

import pytest

_WAITS = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from launch.ended import end_in_time
waits = threading.Event().wait  # as threads that wait for what was not saved
{start}
print("said", end="")
end_in_time(3, 0.2)
sys.exit(3)
"""


@pytest.mark.parametrize("start", ["ThreadPoolExecutor().submit(waits)", "threading.Thread(target=waits).start()"])
def test_a_thread_that_waits_for_ever_does_not_hold_a_process_that_has_failed(start):
    done = subprocess.run(
        [sys.executable, "-c", _WAITS.format(start=start)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (3, "said")
