"""Vision transformers that learn features meet the limit that does, on handwritten digits.

    python3 -m launch.compare --config=configs/vit_rich.py

168 seconds, measured on two CPU cores. Expect: predictions at the end and along training and the tangent kernel after it
agree with the limit, N·E|f_N − f|² is level over three octaves of width. Ends in runs/vit_rich/report.html.

configs/vit_rich.py:adam and configs/vit_rich.py:muon: the same with another optimiser, against its own limit and its prediction
to first order in 1/N; two to three minutes.
"""

from ml_collections import ConfigDict

from configs import mlp, vit


def get_config(optimizer: str = "") -> ConfigDict:
    """configs/vit.py, in `mup` alone, against dynamical mean-field theory."""
    config = vit.get_config()
    config.update({"name": "vit_rich", "parameterizations": ("mup",), "depths": (1,), "steps": 8})
    config.update({"rich": {"samples": 2048, "replicas": 24}, "members": 384})
    config.task.update({"n_train": 8, "n_test": 8})  # every point has 4 tokens: that many vectors a matrix meets
    if optimizer:
        config.rich.update({"samples": 512, "replicas": 32, "order": 2})
    return mlp.under(config, optimizer, adam=0.01, muon=0.05)
