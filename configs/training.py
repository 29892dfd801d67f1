"""An MLP, a CNN, a residual network or a vision transformer on handwritten digits: 1,437 to train, 360 to test.

    python3 -m launch.train --config=configs/training.py:vit        (or :mlp, :cnn, :resnet)

Expect this test accuracy (mean of 5 seeds), on two CPU cores with other work beside:

    mlp     three hidden layers                                     99.7 % ± 0.1 %   9 to 18 seconds
    cnn     three convolutions, an average over positions           99.4 % ± 0.1 %   42 to 63 seconds
    resnet  blocks of two convolutions with batch normalisation     98.9 % ± 0.2 %   37 to 48 seconds
    vit     tokens of 2 × 2 pixels                                  97.9 % ± 0.3 %   71 seconds (158 with other work)
"""

import optax
from ml_collections import ConfigDict

from train import losses
from zoo import CNN, MLP, HeResNet, Parameterization, ViT, scaled
from zoo.messages import did_you_mean

SIZES = {
    "mlp": {"width": 256, "depth": 3, "steps": 2000, "learning_rate": 2e-3},
    "cnn": {"width": 64, "depth": 3, "steps": 800, "learning_rate": 4e-3},
    "resnet": {"width": 32, "depth": 2, "steps": 2000, "learning_rate": 8e-3},
    "vit": {"width": 64, "depth": 4, "steps": 1500, "learning_rate": 2e-3},
}


def get_config(architecture: str = "mlp") -> ConfigDict:
    """Digits shifted by up to a pixel, and turned a little."""
    if architecture not in SIZES:
        raise ValueError(f'No such architecture, "{architecture}". {did_you_mean(architecture, SIZES)}')
    return ConfigDict(
        {
            "name": f"train_{architecture}",
            "architecture": architecture,
            **SIZES[architecture],
            "batch": 64,
            "seed": 0,
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


def make(width, depth, architecture):
    base = SIZES[architecture]  # of muP: the size whose learning rate was tuned
    mup = Parameterization.mup.based(base["width"], base["depth"] if architecture == "vit" else 1)
    if architecture == "mlp":
        return MLP(width, depth, outputs=10, activation="relu", w_std=2**0.5, b_std=0.1, parameterization=mup)
    if architecture == "cnn":
        return CNN(width, depth, outputs=10, w_std=2**0.5, b_std=0.1, readout="average", parameterization=mup)
    if architecture == "resnet":
        return HeResNet(width, (depth // 2, depth - depth // 2), outputs=10, norm="batch", parameterization=mup)
    return ViT(width, depth, outputs=10, patch=2, heads=4, parameterization=mup)


def optimizer(net, learning_rate, weight_decay):
    return scaled(optax.adamw(learning_rate, weight_decay=weight_decay), net)


def loss(outputs, targets, smoothing):
    return losses.cross_entropy(outputs, targets, smoothing)
