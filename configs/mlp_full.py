"""The same over relu and erf, widths up to 1024, depths 1 to 4.

    python3 -m launch.compare --config=configs/mlp_full.py

About 8 minutes on two CPU cores (493 s measured). Expect the same verdicts as of configs/mlp.py, with narrower intervals;
erf moves less than relu in `mup`. Ends in runs/mlp_full/report.html.
"""

from ml_collections import ConfigDict

from configs import mlp


def get_config() -> ConfigDict:
    """The grid and its settings."""
    config = mlp.settings()
    config.name = "mlp_full"
    config.activations = ("relu", "erf")
    config.widths = (32, 64, 128, 256, 512, 1024)
    config.depths = (1, 2, 3, 4)
    return config
