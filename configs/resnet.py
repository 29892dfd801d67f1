"""Ensembles of residual networks, branches scaled by 1/√L, meet their infinite-width twin, on handwritten digits.

    python3 -m launch.compare --config=configs/resnet.py

142 seconds, measured on two CPU cores that did other work beside. Expect: NNGP and tangent kernel agree with the twin
at every depth when extrapolated to infinite width, variances fall as 1/N and level off in depth; trained predictions
agree with the lazy limit in `ntk`, and do not converge to it in `mup` with γ₀ = 1.
Ends in runs/resnet/report.html.
"""

from ml_collections import ConfigDict

from configs import mlp


def get_config() -> ConfigDict:
    """configs/mlp.py, with residual blocks."""
    config = mlp.settings()
    config.update({"name": "resnet", "architecture": "resnet", "depths": (2, 4, 8), "fields": {"form": "dense"}})
    return config
