"""Processes that are started, waited for, and looked at when they have ended."""

from collections.abc import Mapping, Sequence

from launch.processes import GRACE, Cluster, Result


def run_cluster(
    command: Sequence[str],
    processes: int,
    devices: int,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    grace: float = GRACE,
) -> Result:
    """Starts a `Cluster` and waits for its end, at most `timeout` seconds."""
    with Cluster(command, processes, devices, env, grace) as cluster:
        return cluster.wait(timeout)
