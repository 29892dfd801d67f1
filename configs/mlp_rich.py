"""Ensembles of MLPs that learn features meet the limit that does, on handwritten digits.

    python3 -m launch.compare --config=configs/mlp_rich.py

158 seconds, measured on two CPU cores that did other work beside. Expect: predictions in `mup` agree with the limit with
feature learning at every depth, while configs/mlp.py:lazy finds them 5 to 41 % off the lazy limit. Ends in
runs/mlp_rich/report.html.

configs/mlp_rich.py:adam and configs/mlp_rich.py:muon: the same at depth 2 with another optimiser, against its own limit and its
prediction to first order in 1/N; half a minute and two minutes.
"""

from ml_collections import ConfigDict

from configs import mlp


def get_config(optimizer: str = "") -> ConfigDict:
    """configs/mlp.py, in `mup` alone, against dynamical mean-field theory."""
    config = mlp.settings()
    config.update({"name": "mlp_rich", "parameterizations": ("mup",), "rich": {"samples": 4096, "replicas": 8}})
    if optimizer:
        config.update({"depths": (2,), "members": 192, "rich": {"samples": 256, "replicas": 96, "order": 2}})
    return mlp.under(config, optimizer, adam=0.02, muon=0.05)
