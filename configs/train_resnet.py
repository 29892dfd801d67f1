"""A residual network on handwritten digits: 1,437 to train, 360 to test.

    python3 -m launch.train --config=configs/train_resnet.py

37 to 48 seconds on two CPU cores, with other work beside. Expect a test accuracy of 98.9 % ± 0.2 % (mean of 5 seeds).
"""

import optax
from ml_collections import ConfigDict

from train import losses
from zoo import HeResNet, Parameterization, scaled


def get_config() -> ConfigDict:
    """Blocks of two convolutions with batch normalisation, digits shifted by up to a pixel."""
    return ConfigDict(
        {
            "name": "train_resnet",
            "width": 32,
            "depth": 2,
            "steps": 2000,
            "batch": 64,
            "seed": 0,
            "learning_rate": 8e-3,
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
    p = Parameterization.mup.based(width=32)
    return HeResNet(width, (depth // 2, depth - depth // 2), outputs=10, norm="batch", parameterization=p)


def optimizer(net, learning_rate, weight_decay):
    return scaled(optax.adamw(learning_rate, weight_decay=weight_decay), net)


def loss(outputs, targets, smoothing):
    return losses.cross_entropy(outputs, targets, smoothing)
