"""Kernels of zoo's networks read off their forward code, and by the recursions by hand, for `launch.bench`."""

import time
from typing import Any

import numpy as np

from launch.bench_child import inputs, timed
from limits import twin
from limits.program.closed import closed_kernels
from zoo import CNN, MLP, ResNet, ViT

_DENSE, _IMAGES = (16,), (8, 8, 3)
# name → (definition, shape of an input, inputs)
NETWORKS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "MLP, relu": (MLP(8, 3, activation="relu", w_std=2**0.5, b_std=0.1), _DENSE, 500),
    "MLP, erf": (MLP(8, 3, activation="erf", w_std=1.5, b_std=0.1), _DENSE, 500),
    "MLP, tanh": (MLP(8, 6, activation="tanh", w_std=1.5, b_std=0.1), _DENSE, 500),
    "ResNet, 20 blocks": (ResNet(8, 21, activation="relu"), _DENSE, 500),
    "CNN, flattened": (CNN(8, 3, activation="relu", b_std=0.1), _IMAGES, 50),
    "CNN, average": (CNN(8, 3, activation="relu", b_std=0.1, readout="average"), _IMAGES, 20),
    "ViT": (ViT(8, 2, patch=4), _IMAGES, 50),
}


def reading(side: str, name: str) -> dict[str, float]:
    """Processor seconds of the first call, and seconds of the fastest of three more; side: "program" or "walk"."""
    net, shape, n = NETWORKS[name]
    x = inputs(n, int(np.prod(shape)), 0.0, "float64").reshape(n, *shape)

    def run() -> Any:
        return twin(net).kernels(x).ntk if side == "walk" else closed_kernels(net, x, None)[0]["ntk"]

    begin = time.process_time()
    found = run()
    return {"first": time.process_time() - begin, "seconds": timed(run, 3), "sum": float(np.asarray(found).sum())}
