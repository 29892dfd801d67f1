"""Ensembles of GPTs meet their infinite-width twin, on sentences of the random hierarchy model.

    python3 -m launch.compare --config=configs/gpt.py

13 minutes on two CPU cores with eight times as much other work beside. Ends in runs/gpt/report.html. Expect: the kernel between
positions at initialisation agrees with the twin at both depths, predictions of next tokens agree with the lazy limit in `ntk`
when extrapolated to infinite width (0.7 % ± 0.6 %), and are 24 to 26 % off it in `mup` with γ₀ = 1, which learns features
(configs/gpt_rich.py has its limit).
"""

from ml_collections import ConfigDict

from zoo import GPT


def get_config() -> ConfigDict:
    """Gelu MLPs and attention with 1/d logits; eight sentences of four tokens."""
    return ConfigDict(
        {
            "name": "gpt",
            "variants": {"ntk": {"parameterization": "ntk"}, "mup": {"parameterization": "mup"}},
            "widths": (32, 64, 128, 256),
            "depths": (1, 2),
            "gamma": 1.0,
            "task": {"name": "random_hierarchy", "depth": 2, "n_train": 4, "n_test": 4, "seed": 0},
            "steps": 8,
            "learning_rate": 0.2,
            "centred": True,
            "members": 128,
            "init_members": 256,
            "rich": {},
            "optimizer": "",
            "seed": 0,
        }
    )


def make(width, depth, outputs, gamma, parameterization):
    return GPT(width, depth, outputs, context=4, heads="grow", parameterization=parameterization, gamma=gamma)
