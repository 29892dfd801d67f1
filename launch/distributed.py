"""--distributed=auto|on|off: several processes become one program, before any device is touched.

  auto  where the environment tells of several processes: launch.local_cluster (or its three variables set by hand), Slurm,
        Open MPI, Cloud TPU, an indexed job of Kubernetes; otherwise this process is alone
  on    the same, and a process that is alone becomes a cluster of one, so that notices of preemption reach it
        (`multihost_utils.reached_preemption_sync_point` is always False without)
  off   never

Who is missing is told after --initialization_timeout seconds. jax itself ends the process there with a signal (0.10.2), and on
a pod where only one worker was started it waits for ever (jax issue 22436).
"""

import contextlib
import importlib.util
import io
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
from absl import flags

from launch import watch
from launch.processes import COORDINATOR, PROCESS, PROCESSES, free_port

MODES = ("auto", "on", "off")
DISTRIBUTED = flags.DEFINE_enum("distributed", "auto", MODES, "Join other processes: see launch/distributed.py.")
TIMEOUT = flags.DEFINE_integer("initialization_timeout", 300, "Seconds to wait for the other processes.", lower_bound=1)
_MARGIN = 60  # seconds by which jax's own timeout, a crash, comes after ours
_TELLING = 50  # seconds in which the others are to be told of an early end


class ProcessPlace(NamedTuple):
    """Where this process belongs. Counts are None where only jax's own query of the cluster knows them."""

    told_by: str
    process: int | None
    processes: int | None
    arguments: dict[str, Any]  # of jax.distributed.initialize; what is not given jax finds out

    def __str__(self) -> str:
        who = "a process" if self.process is None else f"process {self.process} of {self.processes}"
        return f"{who} on {socket.gethostname()}"


def initialize(mode: str = "auto", timeout: int = 300) -> None:
    """Joins the processes that belong together, and prints who this one is. To be called before any use of a device.

    Args:
      mode: "auto", "on" or "off".
      timeout: seconds after which the program ends with a sentence and exit code 1, if not all processes have come.
    """
    if mode not in MODES:
        raise ValueError(f'--distributed must be one of {", ".join(MODES)}; got "{mode}".')
    _write_whole_lines()
    place = find(os.environ) if mode != "off" else None
    if place is None and mode == "on":
        address = f"127.0.0.1:{free_port()}"
        place = ProcessPlace("--distributed=on", 0, 1, _explicit(address, 0, 1))
    if place is not None:
        _join(place, timeout)
    local, everywhere = jax.local_device_count(), jax.device_count()
    print(
        f"process {jax.process_index()} of {jax.process_count()} on {socket.gethostname()}, "
        f"devices {local} here, {everywhere} in all ({jax.default_backend()})",
        flush=True,
    )


def _write_whole_lines() -> None:
    """PYTHONUNBUFFERED writes a line piece by piece, and Gloo's lines on the same descriptor then stand in the middle."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # in a notebook it is not
        sys.stdout.reconfigure(line_buffering=True, write_through=False)


def initialize_from_flags() -> None:
    """`initialize` with --distributed and --initialization_timeout."""
    initialize(DISTRIBUTED.value, TIMEOUT.value)


@contextlib.contextmanager
def telling_of_an_early_end() -> Iterator[None]:
    """Where the program inside ends with an error before it has joined the others, it joins them to say so: they would wait."""
    try:
        yield
    except SystemExit as end:
        early = end.code not in (0, None) and not jax.distributed.is_initialized()
        place = find(os.environ) if early and "--distributed=off" not in sys.argv else None
        if place is None:
            raise
        said = str(end.code) if isinstance(end.code, str) else "error: its command line cannot be used."
        if isinstance(end.code, str):
            print(said, file=sys.stderr, flush=True)
        with contextlib.suppress(ConnectionError):
            _join(place, _TELLING)
            watch.fail(ValueError(said.removeprefix("error: ")))
        raise SystemExit(1) from None


def find(environ: Mapping[str, str]) -> ProcessPlace | None:
    """What the environment tells of several processes; None for a process that is alone.

    >>> find({"LIMIT_ZOO_COORDINATOR": "10.0.0.1:1234", "LIMIT_ZOO_PROCESSES": "2", "LIMIT_ZOO_PROCESS": "1"})[:3]
    ('LIMIT_ZOO_COORDINATOR', 1, 2)
    >>> find({})
    """
    for look in (_own, _open_mpi, _slurm, _tpu, _kubernetes):  # after our own, the order in which jax looks
        place = look(environ)
        if place is not None:
            return place if place.processes != 1 else None
    return None


def _explicit(address: str, process: int, processes: int) -> dict[str, Any]:
    arguments = {
        "coordinator_address": address,
        "process_id": process,
        "num_processes": processes,
        "cluster_detection_method": "deactivate",  # under Slurm it would still choose one GPU of each process
    }
    if address.startswith(("127.", "localhost:")):
        arguments["coordinator_bind_address"] = address  # jax would open the port to the network
    return arguments


def _own(environ: Mapping[str, str]) -> ProcessPlace | None:
    names = (COORDINATOR, PROCESS, PROCESSES)
    missing = [name for name in names if name not in environ]
    if len(missing) == len(names):
        return None
    process, processes = environ.get(PROCESS, ""), environ.get(PROCESSES, "")
    numbers = process.isdigit() and processes.isdigit() and int(process) < int(processes)
    if not numbers or not re.fullmatch(r".+:\d+", environ.get(COORDINATOR, "")):
        given = ", ".join(f"{name}={environ.get(name)}" for name in names)
        raise ValueError(
            f"{COORDINATOR} must be HOST:PORT of process 0, {PROCESSES} a number n, {PROCESS} one from 0 to n − 1; got {given}."
        )
    return ProcessPlace(
        COORDINATOR, int(process), int(processes), _explicit(environ[COORDINATOR], int(process), int(processes))
    )


def _slurm(environ: Mapping[str, str]) -> ProcessPlace | None:
    names = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
    if not all(name in environ for name in names):  # in the batch script itself, outside srun, there is no step
        return None
    return ProcessPlace("Slurm", int(environ["SLURM_PROCID"]), int(environ["SLURM_NTASKS"]), {})


def _open_mpi(environ: Mapping[str, str]) -> ProcessPlace | None:
    process, processes = environ.get("OMPI_COMM_WORLD_RANK"), environ.get("OMPI_COMM_WORLD_SIZE")
    if process is None or processes is None:
        return None
    if "OMPI_MCA_orte_hnp_uri" not in environ and int(processes) > 1:  # version 5 has it no more
        raise ValueError(
            f"Open MPI started {processes} processes, but this version of it does not tell where process 0 is. Tell it: "
            f"mpirun … bash -c '{COORDINATOR}=HOST:PORT {PROCESSES}=$OMPI_COMM_WORLD_SIZE {PROCESS}=$OMPI_COMM_WORLD_RANK "
            "exec python3 …'; or --distributed=off, if each is a run of its own."
        )
    return ProcessPlace("Open MPI", int(process), int(processes), {})


def _tpu(environ: Mapping[str, str]) -> ProcessPlace | None:
    platforms = environ.get("JAX_PLATFORMS") or "tpu"
    if "tpu" not in platforms.split(","):
        return None
    hosts = environ.get("TPU_PROCESS_ADDRESSES") or environ.get("TPU_WORKER_HOSTNAMES")
    if hosts:  # GKE
        workers, slices = len(hosts.split(",")), int(environ.get("MEGASCALE_NUM_SLICES") or 1)
        process = int(environ.get("TPU_WORKER_ID") or 0) + workers * int(environ.get("MEGASCALE_SLICE_ID") or 0)
        return ProcessPlace("TPU_WORKER_HOSTNAMES", process, workers * slices, {})
    # A TPU VM: only its metadata server knows how many workers there are, and jax asks it. Importing jax has set
    # TPU_SKIP_MDS_QUERY where there are no chips.
    if importlib.util.find_spec("libtpu") and "TPU_SKIP_MDS_QUERY" not in environ:
        return ProcessPlace("Cloud TPU", None, None, {})
    return None


def _kubernetes(environ: Mapping[str, str]) -> ProcessPlace | None:
    index = environ.get("JOB_COMPLETION_INDEX")
    if "KUBERNETES_SERVICE_HOST" not in environ or index is None:
        return None
    if importlib.util.find_spec("kubernetes") is None:
        raise ValueError(
            f"This is pod {index} of an indexed job, and jax needs the package kubernetes to find the others: "
            "pip install 'jax[k8s]'; or --distributed=off, if each pod is a run of its own."
        )
    return ProcessPlace("Kubernetes", None, None, {})


def _join(place: ProcessPlace, timeout: int) -> None:
    if place.processes != 1:
        print(f"{place}: joining the others ({place.told_by}), for at most {timeout} s", flush=True)
    if place.process == 0 and "coordinator_address" in place.arguments:
        _require_free(place.arguments["coordinator_address"])
    try:
        late = _end_after(timeout, f"{place} waited {timeout} s for the others, and not all came. {_advice(place)}")
        with late, watch.relayed() as relays:
            jax.distributed.initialize(**place.arguments, initialization_timeout=timeout + _MARGIN)
        watch.start(relays)
    except (ValueError, RuntimeError, OSError) as error:
        if "be called" in str(error):  # twice, or too late: the program's mistake, not the cluster's
            raise
        raise ConnectionError(
            f"{place} could not join the others ({place.told_by}): {error} {_advice(place)}"
        ) from error


def _require_free(address: str) -> None:
    """The port of process 0 must be free: jax 0.10.2 crashes where it is not."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just given back is free
        try:
            probe.bind((host if host.startswith("127.") else "", int(port)))
        except OSError as error:
            raise ConnectionError(
                f"Process 0 cannot open port {port} ({error.strerror}), at which the others are to find it: another program has "
                f"it, or an earlier run that has not ended. Choose another port ({COORDINATOR})."
            ) from error


def _advice(place: ProcessPlace) -> str:
    coordinator = place.arguments.get("coordinator_address")
    return (
        "Was the program started on every host (launch/tpu_vm.sh run does), did one of them end at its start (see their logs), "
        f"can all reach process 0{f' at {coordinator}' if coordinator else ''} (firewall; proxy variables)? Longer: "
        "--initialization_timeout=SECONDS. Without the others: --distributed=off."
    )


@contextlib.contextmanager
def _end_after(seconds: float, sentence: str) -> Iterator[None]:
    """Ends the process from a thread beside: the call inside cannot be interrupted, and crashes rather than raises."""

    def end() -> None:
        print(f"error: {sentence}", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
