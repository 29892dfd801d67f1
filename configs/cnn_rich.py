"""Convolutional networks that learn features meet the limit that does, on handwritten digits.

    python3 -m launch.compare --config=configs/cnn_rich.py

104 seconds, measured on two CPU cores. Expect: predictions at the end and along training and the tangent kernel after it
agree with the limit with feature learning, while predictions are off the lazy one by a half; N·E|f_N − f|² is level over
three octaves of width. Ends in runs/cnn_rich/report.html.

configs/cnn_rich.py:adam and configs/cnn_rich.py:muon: the same with another optimiser, against its own limit; two to two and a
half minutes. Muon lifts small singular values to the size of the large ones. Those of the gradient are many and close to one
another where a global average follows, and what they become at finite width is not of order 1/N before N is in the thousands
(the tangent kernel is 3 % off in the extrapolation from widths 32 to 256); so Muon's has weights for every position.
"""

from ml_collections import ConfigDict

from configs import cnn, mlp


def get_config(optimizer: str = "") -> ConfigDict:
    """configs/cnn.py, in `mup` alone, against dynamical mean-field theory."""
    config = cnn.get_config()
    config.update({"name": "cnn_rich", "parameterizations": ("mup",), "depths": (2,), "steps": 8})
    config.update({"rich": {"samples": 2048, "replicas": 32}, "members": 512, "gamma": 4.0})
    config.task.update({"n_train": 6, "n_test": 4})  # every point has 16 positions: that many vectors a matrix meets
    if optimizer == "adam":  # moves matrices entry by entry: samples squared, so that few and their halves are cheaper
        config.rich.update({"samples": 1152, "replicas": 16, "order": 2})
    if (
        optimizer == "muon"
    ):  # under a global average gradients at neighbouring positions are nearly the same: see the header
        config.update({"gamma": 1.0, "widths": (32, 64, 128, 256), "members": 256})
        config.fields.readout = "flatten"
    return mlp.under(config, optimizer, adam=0.01, muon=0.02)
