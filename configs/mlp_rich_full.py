"""MLPs that learn features little, much and very much (γ₀ = 0.2, 1, 3) meet the limit that does: tanh, relu, erf.

    python3 -m launch.compare --config=configs/mlp_rich_full.py

33 minutes, measured on two CPU cores that did other work beside (10 for the networks and 8 sweeps a limit, 23 for 32 sweeps).
Expect: predictions at the end and along training and the tangent kernel after it agree with the limit in every family, with
standard errors below 2 %, and N·E|f_N − f|² is level to a third over three octaves of width. Ends in
runs/mlp_rich_full/report.html.
"""

from ml_collections import ConfigDict

from configs import mlp_rich


def get_config() -> ConfigDict:
    """configs/mlp_rich.py with nine families of three hidden layers."""
    config = mlp_rich.get_config()
    config.update({"name": "mlp_rich_full", "depths": (3,), "widths": (32, 64, 128, 256), "members": 256})
    for name in ("architecture", "activations", "parameterizations", "net", "fields"):  # each variant says its own
        delattr(config, name)
    config.rich.replicas = 32  # of relu, sweeps vary more than ensembles do
    config.learning_rate = 0.025  # at 0.05 relu with γ₀ = 3 becomes unstable: outputs of members spread at any width
    w_std = {"tanh": 1.2, "relu": 2**0.5, "erf": 1.5}
    config.variants = {
        f"{phi}, γ₀ = {name}": {
            "architecture": "mlp", "activation": phi, "w_std": w_std[phi], "gamma": gamma, "parameterization": "mup",
        }
        for phi in w_std for name, gamma in (("1/5", 0.2), ("1", 1.0), ("3", 3.0))
    }  # fmt: skip
    return config
