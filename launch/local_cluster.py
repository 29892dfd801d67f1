"""Several processes with several CPU devices each, on one machine: what a pod does, to be tried out and tested.

    python3 -m launch.local_cluster --processes=2 --devices=4 [--grace=30] [--dry_run] -- python3 -m launch.train --config=…

Each process is told its place by three variables of the environment, which launch.distributed reads: LIMIT_ZOO_COORDINATOR,
LIMIT_ZOO_PROCESSES, LIMIT_ZOO_PROCESS. (Set them by hand on a cluster that jax does not know.) Lines of output begin with the
process that wrote them. SIGTERM and SIGINT are passed on, a second SIGINT kills. When a process fails, the others have `grace`
seconds to end by themselves, as many after a SIGTERM, and are then killed. The exit code is that of the first process that
failed (128 + signal, if it was a signal), or 0.
"""

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence

from launch.processes import GRACE, Cluster, places


def shell_lines(command: Sequence[str], processes: int, devices: int) -> str:
    """The same as lines for a shell."""
    lines = []
    for place in places(processes, devices):
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in place.items())
        lines.append(f"{variables} {shlex.join(command)} &")
    return "\n".join([*lines, "wait"])


def _arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    at = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser("launch.local_cluster", "", __doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "python3 -m launch.local_cluster [flags] -- COMMAND …"
    parser.add_argument("--processes", type=int, default=2, help="how many (default 2)")
    parser.add_argument("--devices", type=int, default=4, help="CPU devices of each (default 4)")
    parser.add_argument(
        "--grace", type=float, default=GRACE, help="seconds to end in, once one has failed (default 30)"
    )
    parser.add_argument("--dry_run", action="store_true", help="print the commands instead of running them")
    flags, command = parser.parse_args(argv[:at]), list(argv[at + 1 :])
    if not command:
        parser.error("there is no command to run: give one after --, such as -- python3 -m launch.train --config=…")
    return flags, command


def main(argv: Sequence[str]) -> int:
    """The exit code of the cluster."""
    flags, command = _arguments(argv)
    if flags.dry_run:
        print(shell_lines(command, flags.processes, flags.devices))
        return 0
    started: list[Cluster] = []
    interrupts: list[int] = []
    early: list[int] = []  # signals that came before there was anyone to pass them on to

    def forward(number: int, _: object) -> None:
        interrupts.extend([number] if number == signal.SIGINT else [])
        if not started:
            early.append(number)
        elif len(interrupts) > 1:
            started[0].kill_groups()
        else:
            started[0].send(number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    with Cluster(command, flags.processes, flags.devices, grace=flags.grace, echo=True) as cluster:
        started.append(cluster)
        interrupts.clear()  # they are counted as they are passed on
        for number in early:
            forward(number, None)
        code = cluster.wait().returncode
    return code if code >= 0 else 128 - code


def run() -> None:
    """Entry point."""
    try:
        raise SystemExit(main(sys.argv[1:]))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    run()
