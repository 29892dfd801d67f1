"""Loss against learning rate under gradient descent, Adam and Muon: finite networks close in on the curve of the limit.

    python3 -m launch.transfer --config=configs/transfer_optimizers.py

5 minutes, measured on two CPU cores. Expect: under each of the three the curves of widths 64 to 512 lie ever closer to
the dashed one, which `twin(net).rich` computes at infinite width with the very same optimiser.
"""

import optax
from ml_collections import ConfigDict

from configs import transfer_limit
from zoo import scaled

task, make, loss, batches = (getattr(transfer_limit, name) for name in ("task", "make", "loss", "batches"))


def get_config() -> ConfigDict:
    """configs/transfer_limit.py, for three optimisers, whose rates end at zero."""
    config = transfer_limit.get_config()
    config.update({"name": "transfer_optimizers", "widths": (64, 128, 256, 512), "steps": 24})
    config.update(
        {"values": tuple(2.0**k for k in range(-10, 0)), "limit": {"samples": 2048, "replicas": 4, "order": 1}}
    )
    config.variants = {name: {"rule": name} for name in ("sgd", "adam", "muon")}
    return config


def optimizer(net, learning_rate, rule, steps):
    return scaled(rule, net, learning_rate=optax.linear_schedule(learning_rate, 0.0, steps))
