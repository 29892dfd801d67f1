"""--live: the report so far, on this machine alone and for reading; a page that is open follows, its sliders stay."""

import http.client
import json
import os
import re
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from launch import limit
from launch.live import Live
from limits import Store
from train.data import make_task
from train.evaluate.compare import Design, cells_of
from train.evaluate.compare_so_far import so_far
from train.evaluate.exploration import Exploration, Series
from train.evaluate.report import Report, Text
from zoo import MLP


def report(cells: int) -> Report:
    """Of so many cells."""
    curves = [Series({"width": 8 * (i + 1)}, {"step": [1, 2, 3]}, np.arange(3) + 10.0 * i + 1) for i in range(cells)]
    shown = [Exploration("With sliders", "", "loss", curves, ("width",))] if cells else []
    return Report("Live", [Text(f"{cells} cells"), *shown], {"cells": cells})


@pytest.fixture
def served(tmp_path: Path) -> Any:
    """(the server, its folder)."""
    (tmp_path / "cells").mkdir()
    live = Live(tmp_path, lambda: report(len(list((tmp_path / "cells").glob("*.npz")))))
    yield live, tmp_path
    live.close()


def ask(live: Live, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers


def test_the_report_follows_the_cells(served: Any):
    live, folder = served
    assert json.loads(ask(live, "/report.json")[1]) == {"cells": 0}
    status, page, headers = ask(live, "/")
    assert (status, b'<p class="">0 cells</p>' in page) == (200, True)
    assert ask(live, "/", **{"If-None-Match": headers["ETag"]})[:2] == (304, b"")
    (folder / "cells/a.npz").write_bytes(b"")
    assert json.loads(ask(live, "/report.json?x=1")[1])["explore"][0]["axes"] == [{"name": "width", "values": [8]}]
    status, again, newer = ask(live, "/report.html", **{"If-None-Match": headers["ETag"]})
    assert (status, b"1 cells" in again) == (200, True)
    word = re.compile(rb'<body data-live="(\w+)"')
    assert word.findall(page) != word.findall(again)
    assert newer["Content-Security-Policy"].startswith("default-src 'none'")
    (folder / "report.html").write_text("whole")
    threading.Thread(target=live.finish).start()
    while not live._finished:
        time.sleep(0.01)
    assert ask(live, "/")[1] == b"whole"


def test_who_may_ask_and_for_what(served: Any):
    live, folder = served
    (folder / "secret.txt").write_text("x")
    for path in ("/secret.txt", "/cells/", "/../report.html", "/%2e%2e/x", "/report.html/"):
        assert ask(live, path)[0] == 404, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(live, "/", method)[0] == 501, method
    for host in ("evil.example", f"evil.example:{live.port}", "127.0.0.1", ""):
        assert ask(live, "/", Host=host)[0] == 403, host
    assert ask(live, "/", "HEAD")[:2] == (200, b"")
    assert live.address == f"http://127.0.0.1:{live.port}/"
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", live.port))  # any interface would answer
    with pytest.raises(OSError, match="another --live_port"):
        Live(folder, lambda: report(0), live.port)
    assert not set(os.listdir(folder)) - {"cells", "secret.txt"}


def test_a_report_that_cannot_be_made_stops_nothing(tmp_path: Path):
    (tmp_path / "cells").mkdir()

    def broken() -> Report:
        raise ValueError("no")

    live = Live(tmp_path, broken)
    assert ask(live, "/")[0] == 500
    live.close()


def test_the_ensembles_of_a_comparison_that_are_there(tmp_path: Path):
    task = make_task("sphere", n_train=3, n_test=2, dim=3)
    families = {"ntk": lambda width, depth: MLP(width, depth, activation="erf")}
    design = Design(families, (4, 2), (1,), task, steps=2, learning_rate=0.1, members=8, init_members=8)
    assert json.loads(so_far(design, tmp_path).json()) == {"finished": 0, "of": 4}
    groups, _ = cells_of(design)
    (cell,) = [cell for cell in groups["train", "ntk", 1] if cell.net.width == 4]
    seen = {
        "loss": np.array([0.5, 0.3, 0.2]),
        "loss_sem": np.full(3, 0.01),
        "f_mean": np.zeros(3),
        "f_sem": np.zeros(3),
    }
    Store(tmp_path).put(cell.key(task), seen)
    made = so_far(design, tmp_path)
    assert "<td>0.2 ± 0.01</td>" in made.html()
    (explored,) = json.loads(made.json())["explore"]
    assert explored["axes"][-1]["values"] == [4]
    assert explored["cells"][0]["value"] == [0.5, 0.3, 0.2]
    assert explored["cells"][0]["low"] == [0.48, 0.28, 0.18]


@pytest.mark.slow
@browser.needed
def test_a_page_that_is_open_follows_and_ends_as_the_report(tmp_path: Path):
    (tmp_path / "cells").mkdir()
    (tmp_path / "report.html").write_text("<body>finished: <b>with pictures</b></body>")
    seen: list[int] = []

    def made() -> Report:  # with every look there is one more
        count = len(list((tmp_path / "cells").glob("*.npz")))
        seen.append(count)
        (tmp_path / f"cells/{count}.npz").write_bytes(b"")
        return report(count)

    live = Live(tmp_path, made)
    shown = browser.dom(f"{live.address}#width=16&step=2", milliseconds=9000)
    assert seen[:4] == [0, 1, 2, 3]
    assert any(f"{count} cells" in shown for count in seen[-2:])  # the last may be on its way when the browser ends
    assert re.search(r'<strong data-value="12">', shown)  # width 16, step 2: where the sliders were
    threading.Timer(1.0, live.finish).start()
    assert "with pictures" in browser.dom(f"{live.address}#width=16", milliseconds=30_000)


def test_a_program_that_serves_nothing_says_so():
    flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(live=True), pytest.raises(ValueError, match=r"--live: launch\.limit serves no report"):
        limit.main()


def test_who_goes_before_the_answer_leaves_no_traceback(served: Any, capfd: Any):
    live, _ = served
    for _ in range(20):
        each = socket.create_connection(("127.0.0.1", live.port))
        each.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\n\r\n".encode())
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # as RST
        each.close()
    assert ask(live, "/")[0] == 200
    time.sleep(0.3)
    assert capfd.readouterr().err == ""
