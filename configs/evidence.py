"""Do the hyperparameters that the evidence prefers predict best? Dense networks of relu and erf, on handwritten digits.

    python3 -m launch.limit --config=configs/evidence.py

About a minute on two CPU cores; no network is trained. Ends in runs/evidence/evidence.png and limit.json.
"""

import itertools

from ml_collections import ConfigDict

from configs import kernels


def get_config() -> ConfigDict:
    """A grid of standard deviations for each activation, at three depths."""
    grid = itertools.product(("relu", "erf"), (1.0, 2.0, 4.0), (0.0, 1.0))
    variants = {
        f"{phi}, w {w:g}, b {b:g}": {"architecture": "mlp", "activation": phi, "w_std": w, "b_std": b}
        for phi, w, b in grid
    }
    config = kernels.get_config()
    config.update({"name": "evidence", "depths": (1, 3, 8)})
    config.task.update({"n_train": 300, "n_test": 1400})
    config.variants = variants
    return config
