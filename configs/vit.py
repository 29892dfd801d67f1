"""Ensembles of vision transformers meet their infinite-width twin, on handwritten digits.

    python3 -m launch.compare --config=configs/vit.py

149 seconds, measured on two CPU cores. Expect: NNGP and tangent kernel agree with the twin at every depth when extrapolated
to infinite width, variances fall as 1/N; trained predictions agree with the lazy limit in `ntk`, and are 6 to 8 % off it in
`mup` with γ₀ = 1. Ends in runs/vit/report.html.
"""

from ml_collections import ConfigDict

from configs import mlp


def get_config() -> ConfigDict:
    """configs/mlp.py, with patches of 4 × 4, one head whose size grows with the width, and gelu."""
    config = mlp.settings()
    config.update(
        {
            "name": "vit",
            "architecture": "vit",
            "activations": ("gelu",),
            "widths": (16, 32, 64, 128),
            "depths": (1, 2),
            # Gains, biases and positions are parameters without a matrix, whose tangent kernel takes long in ensembles.
            "fields": {"patch": 4, "heads": 1, "mlp_ratio": 2, "norm_affine": False, "positions": None},
            "members": 128,
            "net": {"gelu": {"w_std": 1.0}},
        }
    )
    return config
