"""GPTs that learn features meet the limit that does, on sentences of the random hierarchy model.

    python3 -m launch.compare --config=configs/gpt_rich.py

7 minutes, measured on two CPU cores that ran tests beside. Ends in runs/gpt_rich/report.html. Expect: the kernel between
positions at initialisation, predictions of next tokens at the end and along training agree with the limit, and N·E|f_N − f|² is
level over three octaves of width.
"""

from ml_collections import ConfigDict

from zoo import GPT


def get_config() -> ConfigDict:
    """Two blocks of gelu MLPs and attention with 1/d logits; eight sentences of four tokens."""
    return ConfigDict(
        {
            "name": "gpt_rich",
            "widths": (32, 64, 128, 256),
            "depths": (2,),
            "gamma": 1.0,
            "task": {"name": "random_hierarchy", "depth": 2, "n_train": 4, "n_test": 4, "seed": 0},
            "steps": 8,
            "learning_rate": 0.2,
            "centred": True,
            "members": 128,
            "init_members": 256,
            "rich": {"samples": 1024, "replicas": 16},
            "optimizer": "",
            "seed": 0,
        }
    )


def make(width, depth, outputs, gamma):
    return GPT(width, depth, outputs, context=4, heads="grow", parameterization="mup", gamma=gamma)
