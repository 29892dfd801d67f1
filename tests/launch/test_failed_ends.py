"""Processes that have failed end, whatever threads of libraries wait for."""

import subprocess
import sys

import pytest
from forked import ended

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


@pytest.mark.parametrize(
    ("folder", "said"), [("", "Nothing was begun that is kept."), ("{0}/run", "is kept: run the same")]
)
def test_an_interruption_says_whether_anything_is_kept(tmp_path, folder, said):
    begin = f"    common.workdir({folder.format(tmp_path)!r})\n" if folder else ""
    code = f"from launch import common\ndef main():\n{begin}    raise KeyboardInterrupt\ncommon.start(main, '')\n"
    end = ended(code, folder=tmp_path)
    assert end.codes == [130]
    assert f"Interrupted. {said}" in end.outputs[0].replace("What is finished (cells, checkpoints) ", "")
