"""An MLP on handwritten digits: 1,437 to train, 360 to test.

    python3 -m launch.train --config=configs/train_mlp.py

21 to 33 seconds on two CPU cores, with other work beside. Expect a test accuracy of 99.7 % ± 0.1 % (mean of 5 seeds).
"""

import optax
from ml_collections import ConfigDict

from train import losses
from zoo import MLP, Parameterization, scaled


def get_config() -> ConfigDict:
    """Three hidden layers, digits shifted by up to a pixel."""
    return ConfigDict(
        {
            "name": "train_mlp",
            "width": 256,
            "depth": 3,
            "steps": 2000,
            "batch": 64,
            "seed": 0,
            "learning_rate": 2e-3,
            "schedule": "cosine",
            "warmup": 100,
            "weight_decay": 0.02,
            "smoothing": 0.1,
            "data": {
                "name": "digits",
                "train": "train",
                "test": "test",
                "augment": (("crop", {"padding": 1}), ("rotation", {"degrees": 10.0})),
            },
            "evaluate_every": 500,
            "save_every": 500,
            "analysis": 8,
        }
    )


def make(width, depth):
    p = Parameterization.mup.based(width=256)
    return MLP(width, depth, outputs=10, activation="relu", w_std=2**0.5, b_std=0.1, parameterization=p)


def optimizer(net, learning_rate, weight_decay):
    return scaled(optax.adamw(learning_rate, weight_decay=weight_decay), net)


def loss(outputs, targets, smoothing):
    return losses.cross_entropy(outputs, targets, smoothing)
