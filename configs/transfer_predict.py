"""What will width 256 reach, and at which learning rate? Predicted from widths 8 to 64 before it is trained.

    python3 -m launch.transfer --config=configs/transfer_predict.py
    python3 -m launch.predict --config=configs/transfer_predict.py
    python3 -m launch.transfer --config=configs/transfer_predict.py --config.widths="(256,)" --workdir=runs/transfer_predict
    python3 -m launch.predict --config=configs/transfer_predict.py

195, 26, 158 and 30 seconds on two CPU cores with much other work. Expect, predicted over measured, 90 %
intervals:

               loss                   octaves of the best rate
    adam, relu  −21 % [−40, +8]       +0.14 [−0.71, +0.90]
    adam, tanh   +4 % [−15, +23]      +0.27 [−0.02, +0.59]
    sgd, relu    −9 % [−29, +23]      −0.11 [−0.79, +0.45]
    sgd, tanh    −7 % [−27, +13]      −0.24 [−0.50, +0.05]
"""

import optax
from ml_collections import ConfigDict

from configs.transfer_width import batches, loss  # noqa: F401
from zoo import MLP, Parameterization, scaled


def get_config() -> ConfigDict:
    """MLPs of two hidden layers, ten digits, 8 seeds; learning rates in units that suit each optimiser."""
    return ConfigDict(
        {
            "name": "transfer_predict",
            "widths": (8, 16, 32, 64),
            "depths": (2,),
            "values": tuple(2.0 ** (k / 2) for k in range(-8, 7)),
            "seeds": 8,
            "steps": 100,
            "batch": 32,
            "n_train": 1000,
            "seed": 0,
            "variants": {
                f"{rule}, {activation}": {"rule": rule, "activation": activation, "unit": unit}
                for rule, unit in (("sgd", 0.25), ("adam", 2.0**-6))
                for activation in ("tanh", "relu")
            },
            "target": {"width": 256, "depth": 2},
        }
    )


def make(width, depth, activation):
    return MLP(
        width, depth, outputs=10, activation=activation, w_std=1.4, parameterization=Parameterization.mup.based(8)
    )


def optimizer(net, learning_rate, rule, unit):
    rate = unit * learning_rate
    return scaled(optax.sgd(rate, 0.9) if rule == "sgd" else optax.adam(rate), net)
