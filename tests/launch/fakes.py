"""Fakes of gcloud, uv and tar, first in PATH: no test may reach a real one."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# Records its arguments in calls/, one file a call. Its queued resource has the state of the first line of `states`, which goes
# with every question but for the last line. Commands over ssh run in the home of the one worker, made with the TPU, unless it
# has been taken away (`node`): so the scripts for the workers are really run.
GCLOUD = r"""
here=$(dirname "$0")/..
home=$here/home
mkdir -p "$here/calls"
printf '%s\0' gcloud "$@" > "$here/calls/$(date +%s%N)"
case "$*" in
  *"queued-resources create"*)
    if [ -f "$here/create_fails" ]; then exit "$(cat "$here/create_fails")"; fi
    echo READY > "$here/node"
    rm -rf "$home"
    mkdir -p "$home/limit-zoo/.venv/bin"
    ln -s /bin/true "$home/limit-zoo/.venv/bin/python" ;;
  *"queued-resources describe"*)
    head -n 1 "$here/states"
    if [ "$(wc -l < "$here/states")" -gt 1 ]; then sed -i 1d "$here/states"; fi ;;
  *"tpu-vm describe"*networkEndpoints*) echo 2 ;;
  *"tpu-vm describe"*) cat "$here/node" ;;
  *"tpu-vm ssh"*)
    if head -n 1 "$here/states" | grep -q SUSPEND || grep -qv READY "$here/node"; then exit 255; fi
    for argument in "$@"; do
      case $argument in
        --command=*) command=${argument#--command=} ;;
        --output-directory=*) exec > "${argument#--output-directory=}/0.log" ;;
      esac
    done
    if [ -f "$here/report" ] && [[ $command == *"nothing started"* ]]; then exec cat "$here/report"; fi
    cd "$home" && HOME=$home bash -c "$command" ;;
  *"queued-resources delete"*)
    if [ -f "$home/limit-zoo-run/pid" ]; then kill "$(cut -d' ' -f1 "$home/limit-zoo-run/pid")" 2> /dev/null; fi
    if [ -f "$here/delete_fails" ]; then exit 1; fi ;;
esac
"""
# The setup of a worker, which would install from the network.
UV = """
echo "$@" >> "$HOME/uv"
"""


@pytest.fixture
def tools(tmp_path):
    """A folder with fakes first in PATH, and what they were called with."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "states").write_text("WAITING_FOR_RESOURCES\nACTIVE\n")
    make_tool(tmp_path, "gcloud", GCLOUD)
    make_tool(tmp_path, "uv", UV)
    make_tool(tmp_path, "tar", "exit 0\n")  # the checkout need not be packed
    return tmp_path


def make_tool(folder: Path, name: str, script: str) -> None:
    tool = folder / "bin" / name
    tool.write_text("#!/usr/bin/env bash\n" + textwrap.dedent(script))
    tool.chmod(0o755)


def run(tools: Path, *command, timeout=60, **environment):
    path = f"{tools / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "TMPDIR": str(tools), **environment}
    return subprocess.run(
        list(map(str, command)), cwd=tools, env=environ, capture_output=True, text=True, check=False, timeout=timeout
    )
