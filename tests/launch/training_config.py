"""A small network on digits, for launch.train."""

import optax
from ml_collections import ConfigDict

from train import losses
from zoo import MLP, scaled


def get_config() -> ConfigDict:
    return ConfigDict(
        {
            "name": "small", "width": 16, "depth": 1, "steps": 12, "batch": 16, "seed": 1, "learning_rate": 0.5,
            "schedule": "cosine", "warmup": 2, "data": {"name": "digits", "test": "test", "augment": ("crop",)},
            "evaluate_every": 6, "save_every": 5, "keep": 2, "analysis": 3, "members": 0, "average": 0.9, "slow": 0.0,
            "sharding": "replicate",
        }
    )  # fmt: skip


def make(width, depth):
    return MLP(width, depth, outputs=10, parameterization="mup")


def optimizer(net, learning_rate):
    return scaled(optax.sgd(learning_rate, momentum=0.9), net)


def loss(outputs, targets):
    return losses.cross_entropy(outputs, targets)
