"""Stands between a process and process 0: `python relay.py HOST PORT`, with nothing but the standard library.

jax aborts a process, with a stack dump, as soon as its connection to process 0 breaks. Here the connection is kept open: what
comes at the printed port of this machine is handed on to HOST:PORT and back, and when that end breaks, a line "gone" is printed
instead. Ends with its standard input, which the process that started it holds.
"""

import contextlib
import os
import signal
import socket
import sys
import threading


def serve(host: str, port: int) -> None:
    """Accepts and hands on, without end."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the process itself decides when it ends
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_input, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as here:
        print(here.getsockname()[1], flush=True)
        while True:
            near, _ = here.accept()
            threading.Thread(target=_join, args=(near, host, port), daemon=True).start()


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def _join(near: socket.socket, host: str, port: int) -> None:
    try:
        far = socket.create_connection((host, port), timeout=20)
    except OSError:  # not there yet: who calls tries again
        near.close()
        return
    far.settimeout(None)
    for side in (near, far):
        side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        side.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    left = threading.Event()
    threading.Thread(target=_from_here, args=(near, far, left), daemon=True).start()
    _from_there(far, near)
    if not left.is_set():
        print("gone", flush=True)  # and `near` stays open


def _from_here(near: socket.socket, far: socket.socket, left: threading.Event) -> None:
    with contextlib.suppress(OSError):  # far is broken, which the other direction tells
        while data := _received(near):
            far.sendall(data)
        left.set()  # the process itself has closed
        far.shutdown(socket.SHUT_RDWR)


def _from_there(far: socket.socket, near: socket.socket) -> None:
    while data := _received(far):
        with contextlib.suppress(OSError):
            near.sendall(data)


def _received(source: socket.socket) -> bytes:
    """What comes next; nothing where it has ended."""
    try:
        return source.recv(65536)
    except OSError:
        return b""


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
