"""The report of a command while it runs, for a browser on this machine alone: made again when it is asked for after a cell."""

import functools
import hashlib
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import urlsplit

from absl import flags

from train.evaluate.report import Report

_LIVE = flags.DEFINE_boolean(
    "live", False, "Serve the report at 127.0.0.1 while cells are computed; the page redraws when one is finished."
)
_PORT = flags.DEFINE_integer("live_port", 0, "The port of that; 0: one that is free.", 0, 65535)
_KINDS = {"report.html": "text/html; charset=utf-8", "report.json": "application/json"}
_LAST = 6.0  # seconds in which a page that was looked at fetches the finished one
_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


class Live:
    """A server of two files, for reading. made(): the report of what the folder's `cells` hold; port 0: one that is free."""

    def __init__(self, folder: Path, made: Callable[[], Report], port: int = 0) -> None:
        self._folder, self._made, self._lock = folder, made, threading.Lock()
        self._cells, self._documents, self._finished = "", dict[str, bytes](), False
        self._asked, self._last = 0.0, threading.Event()
        try:
            self._server = _Server(("127.0.0.1", port), functools.partial(_Handler, self))
        except OSError as error:
            raise OSError(
                f"Port {port} of 127.0.0.1 cannot be served ({error.strerror}): give another --live_port."
            ) from None
        self.port = int(self._server.server_address[1])
        self.address = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True).start()

    def document(self, name: str) -> bytes:
        """The file of this name, as new as the folder's cells are."""
        self._asked = time.monotonic()
        if self._finished:
            return (self._folder / name).read_bytes()
        with self._lock:
            cells = sorted((each.name, each.stat().st_mtime_ns) for each in (self._folder / "cells").glob("*.npz"))
            word = hashlib.blake2b(repr(cells).encode(), digest_size=8).hexdigest()
            if word != self._cells:
                made = self._made()
                self._documents = {"report.json": made.json().encode(), "report.html": made.html(word).encode()}
                self._cells = word
            return self._documents[name]

    def sent(self, name: str) -> None:
        """A file has gone out."""
        if self._finished and name == "report.html":
            self._last.set()

    def finish(self) -> None:
        """Serves the folder's own report, once more where somebody looks at the page, and ends."""
        self._finished = True
        if time.monotonic() - self._asked < _LAST:
            self._last.wait(_LAST)
            time.sleep(0.2)
        self.close()

    def close(self) -> None:
        """Ends."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without asking a name server who 127.0.0.1 is
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of whoever went before the answer was there, as a page that is closed does."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = 10  # seconds for a client to say what it wants
    server_version, sys_version = "limit-zoo", ""

    def __init__(self, live: Live, *given: Any) -> None:
        self.live = live
        super().__init__(*given)

    def do_GET(self) -> None:
        """One of the two files."""
        hosts = (f"127.0.0.1:{self.live.port}", f"localhost:{self.live.port}")
        if self.headers.get("Host") not in hosts:  # a name that somebody's server says is this machine
            self.send_error(403)
            return
        name = urlsplit(self.path).path.removeprefix("/") or "report.html"
        if name not in _KINDS:
            self.send_error(404)
            return
        try:
            body = self.live.document(name)
        except Exception as error:  # the run itself goes on, and says what is wrong
            self.send_error(500, explain=type(error).__name__)
            return
        word = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        known = self.headers.get("If-None-Match") == word
        self.send_response(304 if known else 200)
        for header, value in {**_HEADERS, "ETag": word, "Content-Type": _KINDS[name]}.items():
            self.send_header(header, value)
        self.send_header("Content-Length", "0" if known else str(len(body)))
        self.end_headers()
        if self.command == "GET" and not known:
            self.wfile.write(body)
        self.live.sent(name)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Not on the terminal, where the bar is."""


def not_here(program: str) -> None:
    """Refuses --live of a program that takes this module's flags from another and serves nothing."""
    if _LIVE.value:
        raise ValueError(f"--live: {program} serves no report while it runs, as launch.compare and launch.transfer do.")


def start(folder: Path, made: Callable[[], Report], screen: Any) -> Live | None:
    """Begins to serve, where --live asks for it, and says where."""
    if not _LIVE.value:
        return None
    live = Live(folder, made, _PORT.value)
    screen.print(f"The report so far: {live.address}", highlight=False)
    return live
