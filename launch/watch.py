"""Processes that watch one another: when one fails or dies, all end within a minute, with a sentence that names it.

Every second each process writes a beat into the key-value store that jax keeps in process 0, and reads those of the others. Who
fails writes down why, who finishes that it has. Who has written nothing for `SILENCE` beats is dead. That process 0 is gone tells
its relay (launch/relay.py). jax itself notices after 100 s, or at once, and aborts with a stack dump.
"""

import atexit
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax._src import distributed  # the store of keys has no public name
from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage]

from launch import relay

BEAT, SILENCE = 1.0, 25  # seconds from beat to beat; how many may be missing
_GRACE = 6  # half beats until the failure of another ends this process
_PLACE = "limit-zoo/beats/"
# How XLA's errors begin, also those that Python gets as ValueError, where a collective broke.
_BROKEN = re.compile(r"\b(UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION): ")
_watch: "Watch | None" = None


class Relay:
    """The connection to process 0 at HOST:PORT through a process of its own; `gone` is set when process 0 is."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        command = [sys.executable, "-I", "-S", relay.__file__, host.strip("[]"), port]
        self._program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._program.stdout
        self.address = f"127.0.0.1:{int(self._program.stdout.readline())}"
        self.gone = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()
        known = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""  # noqa: SIM112
        os.environ["no_grpc_proxy"] = ",".join(filter(None, (known, "127.0.0.1")))  # noqa: SIM112

    def _listen(self) -> None:
        assert self._program.stdout
        self._program.stdout.readline()
        self.gone.set()


class Watch:
    """Of this process over the others. `client` is jax's, of the key-value store; `end` ends this process with an exit code."""

    def __init__(
        self, client: Any, process: int, processes: int, relay: Relay | None, end: Callable[[int], Any] = os._exit
    ) -> None:
        self._client, self.process, self.processes, self._relay, self._exit = client, process, processes, relay, end
        self._mine = {"host": socket.gethostname(), "state": "runs", "said": "", "beat": 0}
        self.known: dict[int, dict[str, Any]] = {}
        self._silent = dict.fromkeys(range(processes), 0)  # beats since the last new one of each
        self._unanswered = self._sentenced = 0
        self._finished = False
        self._ending = threading.Lock()  # taken once, by who ends this process
        for act, every in ((self._beat, BEAT), (self._judge, BEAT / 2)):
            threading.Thread(target=self._repeat, args=(act, every), daemon=True).start()

    def _repeat(self, act: Callable[[], None], every: float) -> None:
        while not self._finished:
            act()
            time.sleep(every)

    def _write(self) -> None:
        self._mine["beat"] += 1
        self._client.key_value_set(f"{_PLACE}{self.process}", json.dumps(self._mine), allow_overwrite=True)

    def _beat(self) -> None:
        try:
            self._write()
            found = self._client.key_value_dir_get(_PLACE)
        except jax.errors.JaxRuntimeError:
            return
        self._unanswered = 0
        before, self.known = self.known, {int(key.rpartition("/")[2]): json.loads(value) for key, value in found}
        for i in self._silent:
            self._silent[i] = self._silent[i] + 1 if self.known.get(i) == before.get(i) else 0

    def _judge(self) -> None:
        self._unanswered += 1
        verdict = self._verdict()
        self._sentenced = (
            self._sentenced + 1 if verdict else 0
        )  # what fails on one may fail on all, and each says so itself
        if verdict and self._sentenced > _GRACE and not self._finished and self._ending.acquire(blocking=False):
            self._say_and_end("left", *verdict)

    def _verdict(self) -> tuple[str, str] | None:
        """(what others are to be told, what is said here), where this process must end."""
        for i, each in self.known.items():
            if i != self.process and each["state"] == "failed":
                said = f"{self.name(i)} failed: {each['said']}"
                return said, f"{said} This process ends with it."
        for each in self.known.values():
            if each["state"] == "left":
                return each["said"], f"{each['said']} This process ends with it."
        words = "it was killed, or its host is gone. This process ends with it; start all of them again to go on."
        dead = [i for i, count in self._silent.items() if count > SILENCE and i != self.process and not self._done(i)]
        if dead:
            said = f"{self.name(dead[0])} has not been heard of for {SILENCE * BEAT:.0f} s:"
        elif self._relay and self._relay.gone.is_set():
            said = f"{self.name(0)} has ended without a word:"
        elif self.process and self._unanswered > 2 * SILENCE:
            said = f"{self.name(0)} has not answered for {SILENCE * BEAT:.0f} s:"
        else:
            return None
        return f"{said} {words}", f"{said} {words}"

    def name(self, i: int) -> str:
        """Such as "process 1 of 2 on HOST"."""
        host = self.known.get(i, {}).get("host", "a host that never told its name")
        return f"process {i} of {self.processes} on {host}"

    def _done(self, i: int, *states: str) -> bool:
        return self.known.get(i, {}).get("state") in (states or ("done", "over"))

    def _say_and_end(self, state: str, told: str, said: str) -> None:
        sys.stdout.flush()
        if said:
            print(f"error: {said}", file=sys.stderr, flush=True)
        self._mine |= {"state": state, "said": told}
        if not (self._relay and self._relay.gone.is_set()):
            teller = threading.Thread(target=self._tell, daemon=True)  # process 0 may not be there to hear it
            teller.start()
            teller.join(5 * BEAT)
        self._exit(1)

    def _tell(self) -> None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            self._write()
        while self.process == 0 and any(self._hears(i) for i in range(1, self.processes)):
            time.sleep(BEAT / 5)  # with process 0 the store ends

    def _hears(self, i: int) -> bool:
        return self._silent[i] <= 3 and self.known.get(i, {"state": "runs"})["state"] == "runs"

    def await_verdict(self, error: BaseException) -> None:
        """Ends this process where jax failed since another one did, with what is known of that one."""
        if self._mine["state"] == "runs" and _BROKEN.search(str(error)):
            last = self._mine["beat"] + SILENCE + 10
            while self._mine["beat"] < last:
                time.sleep(BEAT / 5)

    def announce(self, error: BaseException) -> None:
        """Tells the others that this process fails: they end, and what it does until it ends itself, in 20 s, counts no more."""
        self.await_verdict(error)
        if self._mine["state"] != "runs":
            return
        if not self._ending.acquire(blocking=False):
            time.sleep(10 * BEAT)  # another thread ends this process at this moment
        self._mine |= {"state": "failed", "said": str(error) or repr(error)}
        threading.Thread(target=self._tell, daemon=True).start()
        limit = threading.Timer(20 * BEAT, self._say_and_end, ("failed", self._mine["said"], self._mine["said"]))
        limit.daemon = True
        limit.start()

    def fail(self, error: BaseException) -> None:
        """Ends this process, which has said why, and lets the others know."""
        self.announce(error)
        self._say_and_end("failed", self._mine["said"], "")

    def leave(self) -> None:
        """Waits until all have finished; from then on nobody is missed. With process 0 the store ends: it is the last to go."""
        if self._mine["state"] == "runs":
            self._mine["state"] = "done"
            while not all(self._done(i) for i in range(self.processes)):
                time.sleep(BEAT / 5)
            self._mine["state"] = "over"
            if self.process:
                with contextlib.suppress(jax.errors.JaxRuntimeError):
                    self._write()
            limit = time.monotonic() + 10 * BEAT
            while not (self.process or self._others_over()) and time.monotonic() < limit:
                time.sleep(BEAT / 5)
            self._finished = True

    def _others_over(self) -> bool:
        return all(self._done(i, "over") for i in range(1, self.processes))


@contextlib.contextmanager
def relayed() -> Iterator[list[Relay]]:
    """Inside, jax connects to process 0 through a relay, which is put into the list."""
    relays: list[Relay] = []
    connect = _jax.get_distributed_runtime_client

    def through(address: str, process: int, **options: Any) -> Any:
        if process:
            relays.append(Relay(address))
            address = relays[0].address
        return connect(address, process, **options)

    _jax.get_distributed_runtime_client = through
    try:
        yield relays
    finally:
        _jax.get_distributed_runtime_client = connect


def start(relays: list[Relay]) -> None:
    """Watches the others, until this process ends."""
    global _watch
    known = distributed.global_state
    if known.num_processes == 1:
        return
    _watch = Watch(known.client, known.process_id, known.num_processes, relays[0] if relays else None)
    atexit.register(_watch.leave)
    show = sys.excepthook

    def fail_too(kind: Any, error: BaseException, trace: Any) -> None:
        show(kind, error, trace)
        fail(error)

    sys.excepthook = fail_too


def announce(error: BaseException) -> None:
    """Tells other processes, where there are, that this one is failing, before anything that could wait for them."""
    if _watch:
        _watch.announce(error)


def await_verdict(error: BaseException) -> None:
    """Ends this process where its error comes from the end of another."""
    if _watch:
        _watch.await_verdict(error)


def fail(error: BaseException) -> None:
    """Ends this process where there are others, and these with it; to be called when the error has been said."""
    if _watch:
        _watch.fail(error)
