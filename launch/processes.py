"""Processes that run side by side: their output by process, and an end for all when one fails."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

COORDINATOR, PROCESSES, PROCESS = "LIMIT_ZOO_COORDINATOR", "LIMIT_ZOO_PROCESSES", "LIMIT_ZOO_PROCESS"
GRACE = 30.0  # seconds
_POLL = 0.05  # seconds between two looks at them


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def places(processes: int, devices: int) -> list[dict[str, str]]:
    """The variables of the environment that make each of so many processes, with so many CPU devices, the one it is.

    >>> [place["LIMIT_ZOO_PROCESS"] for place in places(2, 4)]
    ['0', '1']
    """
    if processes < 1 or devices < 1:
        raise ValueError(f"processes and devices must be at least 1; got {processes} and {devices}.")
    same = {
        COORDINATOR: f"127.0.0.1:{free_port()}",
        PROCESSES: str(processes),
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_PLATFORMS": "cpu",
        "PYTHONUNBUFFERED": "1",
    }
    return [{**same, PROCESS: str(i)} for i in range(processes)]


class Result(NamedTuple):
    """How a cluster ended: return codes (−signal, as in subprocess) and output by process, and the code of the first failure."""

    returncodes: list[int]
    outputs: list[str]
    returncode: int


class Cluster:
    """So many times a command, each with so many CPU devices; `processes` are their Popen handles. Leaving the `with` block
    kills what is left of them.

    Args:
      command: program and arguments, the same for all.
      processes: how many.
      devices: CPU devices of each.
      env: variables beside, or in place of, those of this process.
      grace: when one has failed, the seconds that the others have to end by themselves, and as many again after a SIGTERM.
      echo: print lines as they come, behind the number of the process.

    >>> with Cluster(["bash", "-c", "echo $LIMIT_ZOO_PROCESS"], 2, 1) as cluster:
    ...     cluster.wait(timeout=60).outputs
    ['0\\n', '1\\n']
    """

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        devices: int,
        env: Mapping[str, str] | None = None,
        grace: float = GRACE,
        echo: bool = False,
    ) -> None:
        self.grace, self._echo = grace, echo
        self._first: int | None = None
        self._swept: set[int] = set()
        self._lines: list[list[str]] = [[] for _ in range(processes)]
        self._printing = threading.Lock()
        self.processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        try:
            for place in places(processes, devices):
                self.processes.append(_popen(command, {**(env or {}), **place}))
        except OSError:
            self.kill()
            raise
        self._readers = [
            threading.Thread(target=self._read, args=(i, process), daemon=True)
            for i, process in enumerate(self.processes)
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def outputs(self) -> list[str]:
        """What each process has printed so far, standard output and errors together."""
        return ["".join(lines) for lines in self._lines]

    def send(self, number: int) -> None:
        """Sends a signal to every process that still runs."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    def kill(self) -> None:
        """Ends everything at once, and what the processes themselves started."""
        self.kill_groups()
        for process in self.processes:
            process.wait()
        for reader in self._readers:
            reader.join(timeout=5.0)  # a child that left the group may hold the pipe open

    def kill_groups(self) -> None:
        """SIGKILL without waiting, fit for a signal handler."""
        for process in self.processes:
            if process.pid not in self._swept:  # once: the number may be another's later
                self._swept.add(process.pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> Result:
        """Waits for all processes; a failure of one ends the others (see `grace`).

        After `timeout` seconds all are killed and TimeoutError tells which of them still ran, with their last lines.
        """
        started, measures = time.monotonic(), [lambda: self.send(signal.SIGTERM), self.kill]
        since = None
        while self._running():
            now = time.monotonic()
            if timeout is not None and now - started > timeout:
                raise TimeoutError(self._give_up(timeout))
            if self._first is not None:
                since = now if since is None else since
                if measures and now - since > self.grace:
                    measures.pop(0)()
                    since = now
            time.sleep(_POLL)
        self.kill()
        return Result([process.returncode for process in self.processes], self.outputs, self._first or 0)

    def _running(self) -> list[int]:
        codes = [process.poll() for process in self.processes]
        if self._first is None:
            self._first = next((code for code in codes if code), None)
        return [i for i, code in enumerate(codes) if code is None]

    def _give_up(self, timeout: float) -> str:
        running = self._running()
        self.kill()
        last = "\n".join(f"[{i}] {line.rstrip()}" for i in running for line in self._lines[i][-10:])
        return f"After {timeout:g} s of processes 0 to {len(self.processes) - 1} these still ran: {running}.\n{last}"

    def _read(self, i: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                self._lines[i].append(line)
                if self._echo:
                    with self._printing:
                        print(f"[{i}] {line.rstrip()}", flush=True)


def _popen(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # the terminal's ^C reaches us alone, and we pass it on
    )
