"""Predictions that are written down before the networks that they are of are trained: three optimisers, two tasks each.

    python3 -m launch.transfer --config=configs/transfer_blind.py:mlp
    python3 -m launch.predict --config=configs/transfer_blind.py:mlp
    python3 -m launch.transfer --config=configs/transfer_blind.py:mlp --config.widths="(256,)" --workdir=runs/transfer_blind
    python3 -m launch.predict --config=configs/transfer_blind.py:mlp

and the same with :resnet (256), :vit and :gpt (128), in runs/transfer_blind_resnet and so on. The second command writes
predictions, the fourth checks them and says whether they are those that were written. Two cores with eight times as much other
work beside: 15, 2, 22 and 2 minutes for :mlp, 30, 2 and more than 30 for :resnet; one core: 8 minutes for :gpt, 20 for :vit.
--only="sgd, parity" takes one variant. Expect: train/README.md has a table of what was found.
"""

import optax
from ml_collections import ConfigDict

from train import losses
from train.data import Batches, digits, minibatches, source
from zoo import GPT, MLP, Parameterization, ResNet, ViT, scaled
from zoo.messages import did_you_mean

SIZES = {
    "mlp": ((16, 32, 64), 256),
    "resnet": ((16, 32, 64), 256),
    "vit": ((8, 16, 32), 128),
    "gpt": ((8, 16, 32), 128),
}
IMAGES = {  # ten classes by cross-entropy, even against odd digits by squares
    "digits": {"classes": range(10), "targets": "one_hot", "loss": "cross_entropy"},
    "parity": {"classes": (0, 2, 4, 6, 8, 1, 3, 5, 7, 9), "targets": "signs", "loss": "mse"},
}
TOKENS = {  # sentences of eight tokens below 8
    "hierarchy": {"name": "random_hierarchy", "n_train": 4096, "n_test": 1},
    "recall": {
        "name": "associative_recall",
        "n_train": 4096,
        "n_test": 1,
        "pairs": 2,
        "queries": 2,
        "keys": 4,
        "values": 4,
    },
}
UNITS = {  # log₂ of the learning rate that counts as 1: of a pilot at the smallest width with another seed (not "sgd, recall")
    "mlp": {"sgd, digits": 0, "sgd, parity": -4, "adam, digits": -5, "adam, parity": -6, "muon, digits": -4, "muon, parity": -6},
    "resnet": {
        "sgd, digits": -2, "sgd, parity": -3, "adam, digits": -6, "adam, parity": -5, "muon, digits": -6, "muon, parity": -6,
    },
    "vit": {"sgd, digits": 0, "sgd, parity": -3, "adam, digits": -4, "adam, parity": -6, "muon, digits": -4, "muon, parity": -6},
    "gpt": {
        "sgd, hierarchy": 1, "sgd, recall": 1, "adam, hierarchy": -4, "adam, recall": -4, "muon, hierarchy": -3,
        "muon, recall": -4,
    },
}  # fmt: skip


def get_config(network: str = "mlp") -> ConfigDict:
    """Two hidden layers or blocks, four seeds, 100 steps; learning rates in units that suit each variant."""
    if network not in SIZES:
        raise ValueError(f'No such study, "{network}". {did_you_mean(network, SIZES)}')
    widths, target = SIZES[network]
    return ConfigDict(
        {
            "name": "transfer_blind" if network == "mlp" else f"transfer_blind_{network}",
            "network": network,
            "widths": widths,
            "depths": (2,),
            "values": tuple(2.0**k for k in range(-4, 4)),
            "seeds": 4,
            "steps": 100,
            "batch": 32,
            "seed": 26,
            "variants": {
                f"{rule}, {task}": {"rule": rule, "task": task, "unit": 2.0 ** UNITS[network][f"{rule}, {task}"]}
                for rule in ("sgd", "adam", "muon")
                for task in (TOKENS if network == "gpt" else IMAGES)
            },
            "target": {"width": target, "depth": 2},
        }
    )


def make(width, depth, network, task):
    outputs, p = 1 if task == "parity" else 10, Parameterization.mup.based(SIZES[network][0][0])
    if network == "gpt":
        return GPT(width, depth, 8, 8, heads=width // 8, mlp_ratio=2, parameterization=p)
    if network == "vit":
        return ViT(width, depth, outputs=outputs, heads=width // 8, mlp_ratio=2, parameterization=p)
    if network == "resnet":
        return ResNet(width, depth + 1, outputs=outputs, activation="relu", parameterization=p)
    return MLP(width, depth, outputs=outputs, activation="tanh", w_std=1.4, parameterization=p)


def optimizer(net, learning_rate, rule, unit, steps):
    return scaled(rule, net, learning_rate=optax.linear_schedule(unit * learning_rate, 0.0, steps))


def loss(outputs, targets, task):
    return losses.mse(outputs, targets) if task == "parity" else losses.cross_entropy(outputs, targets)


def batches(task, batch, steps, seed):
    if task in IMAGES:
        return minibatches(digits(1600, 0, **IMAGES[task], seed=seed), batch, steps, seed)
    stream = Batches(source(split="train", **TOKENS[task]), batch, seed)
    return (stream.at(step) for step in range(steps))
