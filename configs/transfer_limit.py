"""Learning curves of finite networks close in on that of their limit: the optimum that all widths share is the limit's own.

    python3 -m launch.transfer --config=configs/transfer_limit.py

35 seconds, measured on two CPU cores. Expect: the curve of loss against learning rate at width 512 lies on the dashed one,
which `twin(net).rich` computes at infinite width.
"""

from ml_collections import ConfigDict

from limits.losses import point_loss
from train.data import digits
from zoo import MLP, Parameterization, scaled


def get_config() -> ConfigDict:
    """MLPs of three hidden layers, gradient descent on 8 digits, 8 seeds."""
    return ConfigDict(
        {
            "name": "transfer_limit",
            "widths": (32, 128, 512),
            "depths": (3,),
            "values": tuple(2.0 ** (k / 2) for k in range(-14, -3)),
            "seeds": 8,
            "steps": 32,
            "n_train": 8,
            "limit": {"samples": 1024, "replicas": 4},
            "target": {"width": 2048, "depth": 3},
        }
    )


def task(n_train):
    return digits(n_train, 0, classes=range(10))


def make(width, depth):
    return MLP(width, depth, activation="tanh", w_std=1.2, parameterization=Parameterization.mup.based(32))


def optimizer(net, learning_rate):
    return scaled("sgd", net, learning_rate=learning_rate)


def loss(outputs, targets):
    return point_loss("mse")(outputs, targets)


def batches(n_train, steps):
    whole = task(n_train)
    return [(whole.x_train, whole.y_train)] * steps
