"""Does a learning rate carry over from 2 to 32 residual blocks? Branches times L^(−α), for Adam and Muon, on handwritten digits.

    python3 -m launch.transfer --config=configs/transfer_depth.py

405 seconds, measured on two CPU cores that did other work beside. Expect: from 2 to 32 blocks the optimum of α = 0 moves by −2.4
(Adam) and −1.2 octaves (Muon) and the loss ends six times higher; that of α = 1 moves by −0.7 and −0.3, of α = 1/2 by −1.0, −0.9.
"""

from ml_collections import ConfigDict

from configs.transfer_width import batches, loss  # noqa: F401
from zoo import Parameterization, ResNet, scaled

BASE_WIDTH, BASE_DEPTH = 32, 3


def get_config() -> ConfigDict:
    """Residual networks of two-layer blocks (depth counts the read-in: 2, 8 and 32 blocks), 16 seeds."""
    return ConfigDict(
        {
            "name": "transfer_depth",
            "widths": (32,),
            "depths": (3, 9, 33),
            "values": tuple(2.0**k for k in range(-13, -1)),
            "seeds": 16,
            "steps": 100,
            "batch": 64,
            "n_train": 1500,
            "seed": 0,
            "variants": {
                f"{name}, α = {words}": {"optimizer_name": name, "alpha": alpha}
                for name in ("adam", "muon")
                for words, alpha in (("0", 0.0), ("1/2", 0.5), ("1", 1.0))
            },
        }
    )


def make(width, depth, alpha):
    p = Parameterization.mup.replace(alpha=alpha).based(BASE_WIDTH, BASE_DEPTH)
    return ResNet(width, depth, outputs=10, branch_layers=2, parameterization=p)


def optimizer(net, learning_rate, optimizer_name):
    return scaled(optimizer_name, net, learning_rate=learning_rate)
