"""Ensembles of convolutional networks meet their infinite-width twin, on handwritten digits.

    python3 -m launch.compare --config=configs/cnn.py

142 seconds, measured on two CPU cores. Expect: NNGP and tangent kernel agree with the twin when extrapolated to infinite
width, variances fall as 1/N; trained predictions agree with the lazy limit in `ntk`, and in `mup` with γ₀ = 1 are 5 % off
it at depth 2. Ends in runs/cnn/report.html.
"""

from ml_collections import ConfigDict

from configs import mlp


def get_config() -> ConfigDict:
    """configs/mlp.py, with conv layers of stride 2 and a global average."""
    config = mlp.settings()
    config.update(
        {
            "name": "cnn",
            "architecture": "cnn",
            "widths": (16, 32, 64, 128),
            "members": 256,
            "init_members": 384,
            "depths": (1, 2),
            "fields": {"strides": 2, "readout": "average"},
            "learning_rate": 0.05,
        }
    )
    return config
