"""One network, one loss curve: on one device and on eight, in one process and in two, under jit and pmap, divided or not,
on batches of the host and of samples on the devices.

With plain SGD, which shows a gradient of the wrong size (Adam would hide it).
"""

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from clusters import run_cluster
from loss_curves import curve

PROGRAM = Path(__file__).with_name("loss_curves.py")
PATHS = str(PROGRAM.parents[2])
EIGHT: dict[str, dict[str, Any]] = {
    "conv, eight devices": {"net": "conv"},
    "conv, pmap": {"net": "conv", "pmap": True},
    "conv, fsdp": {"net": "conv", "rules": "fsdp"},
    "vit, pmap": {"net": "vit", "pmap": True},
    "vit, fsdp, accumulated": {"net": "vit", "rules": "fsdp", "accumulate": 2},
    "gpt, eight devices": {"net": "gpt"},
    "gpt, fsdp, accumulated": {"net": "gpt", "rules": "fsdp", "accumulate": 2},
    "gpt, pmap": {"net": "gpt", "pmap": True},
    "memory, fsdp": {"net": "conv", "rules": "fsdp", "memory": True},
    "vit, data and model": {"net": "vit", "mesh": {"data": 4, "model": 2}, "rules": "fsdp+model"},
}
TWO: dict[str, dict[str, Any]] = {
    "conv, two processes": {"net": "conv"},
    "memory, two processes, fsdp": {"net": "conv", "rules": "fsdp", "memory": True},
    "vit, two processes, fsdp": {"net": "vit", "rules": "fsdp"},
    "vit, two processes, pmap": {"net": "vit", "pmap": True},
}
DOUBLE = ("conv, fsdp", "vit, fsdp, accumulated", "gpt, fsdp, accumulated", "vit, two processes, fsdp")
QUICK = ("conv, fsdp", "memory, fsdp", "vit, pmap", "vit, data and model")
TOLERANCE = {False: 1e-5, True: 1e-10}


@functools.cache
def alone(nets: tuple[str, ...], float64: bool) -> dict[str, Any]:
    one = {net: {"net": "conv", "memory": True} if net == "memory" else {"net": net} for net in nets}
    if not float64:
        return run(one, 1, 1, float64)
    with jax.enable_x64(True):  # here, where all is imported: so many digits do not depend on the process
        return {net: curve(case) for net, case in one.items()}


@functools.cache
def curves(processes: int, devices: int, float64: bool, quick: bool = False) -> dict[str, Any]:
    cases = {8: EIGHT, 4: TWO}[devices]
    if float64:  # a part of them: eight threads that wait for each other are slow on two cores
        cases = {name: case for name, case in cases.items() if name in DOUBLE}
    elif quick:
        cases = {name: cases[name] for name in QUICK}
    return run(cases, processes, devices, float64)


def run(cases: dict[str, dict[str, Any]], processes: int, devices: int, float64: bool) -> dict[str, Any]:
    words = json.dumps([{**case, "float64": float64} for case in cases.values()])
    environment = {"PYTHONPATH": PATHS, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = run_cluster(
        [sys.executable, str(PROGRAM), words], processes, devices, {**os.environ, **environment}, timeout=400
    )
    assert done.returncode == 0, done.outputs
    found = json.loads(done.outputs[0].strip().splitlines()[-1])
    assert (found["devices"], found["processes"]) == (processes * devices, processes)
    return dict(zip(cases, found["curves"], strict=True))


def agree(found: dict[str, Any], float64: bool) -> None:
    expected_of = alone(tuple(sorted({name.partition(",")[0] for name in found})), float64)
    for name, losses in found.items():
        expected = expected_of[name.partition(",")[0]]
        np.testing.assert_allclose(losses, expected, rtol=TOLERANCE[float64], err_msg=name)
        assert np.mean(expected[-5:]) < 0.85 * expected[0], "it learns, so that a wrong gradient would show"


@pytest.mark.slow
def test_eight_devices():
    agree(curves(1, 8, False, quick=True), False)


@pytest.mark.slow
@pytest.mark.parametrize("float64", [False, True], ids=["float32", "float64"])
def test_eight_devices_in_every_way(float64: bool):
    agree(curves(1, 8, float64), float64)


@pytest.mark.slow
@pytest.mark.parametrize("float64", [False, True], ids=["float32", "float64"])
def test_two_processes_of_four_devices(float64: bool):
    agree(curves(2, 4, float64), float64)
