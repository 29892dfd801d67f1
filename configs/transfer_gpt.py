"""Does a GPT's learning rate carry over, on bytes of Python's standard library? Widths 64 to 256, or 2 to 16 blocks.

    python3 -m launch.transfer --config=configs/transfer_gpt.py
    python3 -m launch.transfer --config=configs/transfer_gpt.py:depth

Three to twenty minutes a variant on two cores. Octaves that the optimum moves a doubling of the size, measured, 95 % intervals:

                      Adam                      Muon
    width, mup        −.10 [−.30, +.15]         −.19 [−.50, +.15]
    width, standard   −1.09 [−1.40, −.74]       −.25 [−.60, +.01]
    depth, α = 1      −.08 [−.23, +.11]         +.04 [−.16, +.23]

To width 512 Adam's optimum moves by −.13 [−.26, +.05] in mup. Muon's updates have one spectral norm
whatever the width, so that little is left for parameterizations to mend.
"""

import math

from ml_collections import ConfigDict

from train import losses
from train.data import Batches, source
from zoo import GPT, Parameterization, scaled
from zoo.messages import did_you_mean

BASE_WIDTH, BASE_DEPTH, HEAD = 64, 2, 8
_NAMES = ("adam", "muon")
OVER = {
    "width": {
        "name": "transfer_gpt",
        "widths": (64, 128, 256),
        "depths": (2,),
        "variants": {
            f"{name}, {rules}": {"optimizer_name": name, "rules": rules, "alpha": 0.0}
            for name in _NAMES
            for rules in ("standard", "mup")
        },
    },
    "depth": {
        "name": "transfer_gpt_depth",
        "widths": (64,),
        "depths": (2, 4, 8, 16),
        "variants": {
            f"{name}, α = {alpha:g}": {"optimizer_name": name, "rules": "mup", "alpha": alpha}
            for name in _NAMES
            for alpha in (0.0, 1.0)
        },
    },
}


def get_config(over: str = "width") -> ConfigDict:
    """Heads of 8, windows of 32 bytes; the loss is in bits a byte."""
    if over not in OVER:
        raise ValueError(f'No such study, "{over}". {did_you_mean(over, OVER)}')
    return ConfigDict(
        {
            **OVER[over],
            "values": tuple(2.0**k for k in range(-11, -2)),
            "seeds": 3,
            "steps": 100,
            "batch": 8,
            "context": 32,
            "seed": 0,
        }
    )


def make(width, depth, context, rules, alpha):
    mup = Parameterization.mup.replace(alpha=alpha).based(BASE_WIDTH, BASE_DEPTH)
    p, logits = (mup, "1/d") if rules == "mup" else ("standard", "1/sqrt(d)")
    return GPT(width, depth, 256, context, heads=width // HEAD, logits=logits, parameterization=p)


def optimizer(net, learning_rate, optimizer_name):
    return scaled(optimizer_name, net, learning_rate=learning_rate)


def loss(outputs, targets):
    return losses.cross_entropy(outputs, targets) / math.log(2)


def batches(batch, steps, context, seed):
    stream = Batches(source("python", "train", context=context), batch, seed)
    return (stream.at(step) for step in range(steps))
