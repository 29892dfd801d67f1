"""Ensembles of GPTs meet their infinite-width twin, on sentences of the random hierarchy model.

    python3 -m launch.compare --config=configs/gpt.py

13 minutes on two CPU cores with eight times as much other work beside. Ends in runs/gpt/report.html. Expect: the kernel between
positions at initialisation agrees with the twin at both depths, predictions of next tokens agree with the lazy limit in `ntk`
when extrapolated to infinite width (0.7 % ± 0.6 %), and are 24 to 26 % off it in `mup` with γ₀ = 1, which learns features
(configs/gpt_rich.py has its limit).
"""

from ml_collections import ConfigDict

from configs import gpt_rich
from zoo import GPT


def get_config() -> ConfigDict:
    """configs/gpt_rich.py in both parameterizations, at one block and two, without its limit."""
    config = gpt_rich.get_config()
    config.update({"name": "gpt", "depths": (1, 2)})
    config.variants = ConfigDict({"ntk": {"parameterization": "ntk"}, "mup": {"parameterization": "mup"}})
    config.rich = ConfigDict()
    return config


def make(width, depth, outputs, gamma, parameterization):
    return GPT(width, depth, outputs, context=4, heads="grow", parameterization=parameterization, gamma=gamma)
