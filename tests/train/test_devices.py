"""Members, samples and blocks of kernels spread over several devices are the same ones: run in a process that has two."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from limits import twin
from train import data, ensemble
from zoo import CNN, MLP

PROGRAM = """
import json, jax, numpy as np
from limits import twin
from train import data, ensemble
from zoo import CNN, MLP
images = np.cos(np.arange(5 * 9.0)).reshape(5, 3, 3, 1)
kernels = twin(CNN(8, 1, readout="average")).kernels(images, block=2)
run = ensemble(MLP(width=16, depth=2), data.sphere(4, 2, dim=3), members=5, steps=4, learning_rate=0.2, kernels=("ntk",))
net = MLP(8, 2, activation="tanh", parameterization="mup")
learned = twin(net).rich(
    data.sphere(4, 2, dim=3), 3, 0.5, kernels=("phi",), samples=64, replicas=2, dtype=np.float64)
print(json.dumps({"devices": jax.device_count(), "f": run.f_test.tolist(), "ntk": run.ntk[-1].tolist(),
    "kernels": kernels.ntk.tolist(), "learned": learned.f_test.tolist(), "phi": learned.phi[1].tolist()}))
"""


RICH = {"samples": 64, "replicas": 2, "dtype": np.float64}


@pytest.mark.slow
def test_two_devices_give_what_one_gives():
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment)
    two = json.loads(done.stdout)
    assert two["devices"] == 2
    images = np.cos(np.arange(5 * 9.0)).reshape(5, 3, 3, 1)
    np.testing.assert_allclose(twin(CNN(8, 1, readout="average")).kernels(images).ntk, two["kernels"], rtol=1e-12)
    net = MLP(8, 2, activation="tanh", parameterization="mup")
    learned = twin(net).rich(data.sphere(4, 2, dim=3), 3, 0.5, kernels=("phi",), **RICH)
    np.testing.assert_allclose(learned.f_test, two["learned"], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(learned.phi[1], two["phi"], rtol=1e-8)
    one = ensemble(
        MLP(width=16, depth=2), data.sphere(4, 2, dim=3), members=5, steps=4, learning_rate=0.2, kernels=("ntk",)
    )
    assert abs(one.f_test - two["f"]).max() < 1e-5
    assert abs(one.ntk[-1] - two["ntk"]).max() < 1e-4
