"""Members spread over several devices are the same members: run in a process that has two."""

import json
import os
import subprocess
import sys

from train import data, ensemble
from zoo import MLP

PROGRAM = """
import json, jax
from train import data, ensemble
from zoo import MLP
run = ensemble(MLP(width=16, depth=2), data.sphere(4, 2, dim=3), members=5, steps=4, learning_rate=0.2)
print(json.dumps({"devices": jax.device_count(), "f": run.f_test.tolist(), "ntk": run.ntk[-1].tolist()}))
"""


def test_two_devices_give_what_one_gives():
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment)
    two = json.loads(done.stdout)
    assert two["devices"] == 2
    one = ensemble(MLP(width=16, depth=2), data.sphere(4, 2, dim=3), members=5, steps=4, learning_rate=0.2)
    assert abs(one.f_test - two["f"]).max() < 1e-5
    assert abs(one.ntk[-1] - two["ntk"]).max() < 1e-4
