"""A GPT on bytes: the sources of Python's standard library, 50 modules to train on and 5 to test on, without a download.

    python3 -m launch.train --config=configs/train_gpt.py
    python3 -m launch.sample --workdir=runs/train_gpt --prompt="def "

The loss is in bits a byte; the report has it beside those of gzip, xz and n-grams on the same held-out bytes, with samples of
text at checkpoints. Expect X in M minutes.
"""

import math

from ml_collections import ConfigDict

from train import losses
from train.evaluate.compressors import other_models
from train.writing import write
from zoo import GPT, Parameterization, scaled


def get_config() -> ConfigDict:
    """Another text: --config.data.name=text --set=…, or a copy of this file."""
    return ConfigDict(
        {
            "name": "train_gpt",
            "width": 128,
            "depth": 4,
            "steps": 1500,
            "batch": 8,
            "learning_rate": 0.02,
            "schedule": "linear",
            "warmup": 50,
            "seed": 0,
            "data": {"name": "python", "train": "train", "test": "test", "context": 256},
            "evaluate_every": 250,
            "save_every": 250,
            "analysis": 8,
            "prompt": "def ",
        }
    )


def make(width, depth, data):
    mup = Parameterization.mup.based(128, 4)  # the size whose learning rate was tuned
    return GPT(
        width, depth, 256, data.context, heads=2, norm="rms", qk_norm=True, mlp="relu2", positions="rotary", scan=False,
        parameterization=mup,
    )  # fmt: skip


def optimizer(net, learning_rate):
    return scaled("muon", net, learning_rate=learning_rate)


def loss(outputs, targets):
    return losses.cross_entropy(outputs, targets) / math.log(2)


def references(train, test):
    return other_models(test.stream.tobytes(), train.stream.tobytes())


def sample(net, variables, prompt):
    return write(net, variables["params"], prompt, tokens=300)[0]
