"""Does Adam's learning rate carry over from width 64 to 512? Standard parameterization against muP, on handwritten digits.

    python3 -m launch.transfer --config=configs/transfer_width.py

331 seconds, measured on two CPU cores that did other work beside. Expect: the optimum of `standard` falls as width^−0.65
[−0.84, −0.45], that of `mup` stays (slope +0.13 [−0.06, +0.30]).
"""

import optax
from ml_collections import ConfigDict

from train.data import digits, minibatches
from zoo import MLP, Parameterization, scaled


def get_config() -> ConfigDict:
    """MLPs of three hidden layers, ten digits, 10 seeds."""
    return ConfigDict(
        {
            "name": "transfer_width",
            "widths": (64, 128, 256, 512),
            "depths": (3,),
            "values": tuple(2.0**k for k in range(-14, -2)),
            "seeds": 10,
            "steps": 200,
            "batch": 64,
            "n_train": 1500,
            "seed": 0,
            "variants": {"standard": {"base": 0}, "mup": {"base": 64}},
            "target": {"width": 2048, "depth": 3},
        }
    )


def make(width, depth, base):
    p = Parameterization.mup.based(base) if base else "standard"
    return MLP(width, depth, outputs=10, activation="relu", w_std=2**0.5, parameterization=p)


def optimizer(net, learning_rate):
    return scaled(optax.adam(learning_rate), net)


def loss(outputs, targets):
    return optax.softmax_cross_entropy(outputs, targets).mean()


def batches(n_train, batch, steps, seed):
    task = digits(n_train, 0, classes=range(10), targets="one_hot", loss="cross_entropy", seed=seed)
    return minibatches(task, batch, steps, seed)
