"""Loss against learning rate under gradient descent, Adam and Muon: finite networks close in on the curve of the limit.

    python3 -m launch.transfer --config=configs/transfer_optimizers.py

SECONDS, measured on two CPU cores. Expect: under each of the three the curves of widths 64 to 512 lie ever closer to
the dashed one, which `twin(net).rich` computes at infinite width with the very same optimiser.
"""

from ml_collections import ConfigDict

from configs import transfer_limit
from zoo import scaled

task, make, loss, batches = (getattr(transfer_limit, name) for name in ("task", "make", "loss", "batches"))


def get_config() -> ConfigDict:
    """configs/transfer_limit.py, for three optimisers."""
    config = transfer_limit.get_config()
    config.update({"name": "transfer_optimizers", "widths": (64, 128, 256, 512), "steps": 16})
    config.update({"values": tuple(2.0**k for k in range(-10, 0)), "limit": {"replicas": 4}})
    config.variants = {name: {"rule": name} for name in ("sgd", "adam", "muon")}
    return config


def optimizer(net, learning_rate, rule):
    return scaled(rule, net, learning_rate=learning_rate)
