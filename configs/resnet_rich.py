"""Residual networks that learn features meet the limit that does, on handwritten digits.

    python3 -m launch.compare --config=configs/resnet_rich.py

9 minutes, measured on two CPU cores that did other work beside (6 for the networks and 12 sweeps, 3 for 24 sweeps). Expect:
predictions at the end and along training and the tangent kernel after it agree with the limit, N·E|f_N − f|² is level over
three octaves of width. With --config.depths="(64,)" --config.members=96: 18 minutes, the same but for the tangent kernel,
whose standard error is 2.3 %. Ends in runs/resnet_rich/report.html.

configs/resnet_rich.py:adam and configs/resnet_rich.py:muon: the same at L = 4 with another optimiser, against its own limit and
its prediction to first order in 1/N; one to two and a half minutes.
"""

from ml_collections import ConfigDict

from configs import mlp, resnet


def get_config(optimizer: str = "") -> ConfigDict:
    """configs/resnet.py, in `mup` alone, against dynamical mean-field theory."""
    config = resnet.get_config()
    config.update(
        {"name": "resnet_rich", "parameterizations": ("mup",), "depths": (4, 16), "widths": (32, 64, 128, 256)}
    )
    config.update({"rich": {"samples": 2048, "replicas": 24}, "members": 256})
    config.task.update({"n_train": 10, "n_test": 10})
    if optimizer:
        config.update({"depths": (4,), "members": 384, "init_members": 384})
        config.update({"rich": {"samples": 256, "replicas": 96, "order": 2}})
    return mlp.under(config, optimizer, adam=0.01, muon=0.05)
