"""A GPT on bytes: the sources of Python's standard library, 50 modules to train on and 5 to test on, without a download.

    python3 -m launch.train --config=configs/train_gpt.py
    python3 -m launch.sample --workdir=runs/train_gpt --prompt="def "

The loss is in bits a byte; the report has it beside those of gzip, xz and n-grams on the same held-out bytes, with samples of
text at checkpoints. Expect 2.11 (gzip 2.56, xz 2.49, 4-grams 2.50; xz with all of the training text before it 1.89) in 9 minutes
of processor time, on two cores or more. With --config.documents=True attention stays inside a document, and positions count from
its first byte. `train_gpt.py:pod` has 1,007,768,064 parameters: what they take on each device, without making any, says

    JAX_NUM_CPU_DEVICES=256 python3 -m launch.train --config=configs/train_gpt.py:pod --dry_run
"""

import math

from ml_collections import ConfigDict

from train import losses
from train.data.text import END
from train.evaluate.compressors import other_models
from train.writing import write
from zoo import GPT, Parameterization, scaled
from zoo.messages import did_you_mean

SIZES = {
    "small": {"name": "train_gpt", "width": 128, "depth": 4, "context": 256, "batch": 8, "steps": 1000},
    "pod": {"name": "train_gpt_pod", "width": 2048, "depth": 20, "context": 2048, "batch": 512, "steps": 20000},
}


def get_config(size: str = "small") -> ConfigDict:
    """`small`, or a billion parameters for a `pod`."""
    if size not in SIZES:
        raise ValueError(f'No such size, "{size}". {did_you_mean(size, SIZES)}')
    chosen, pod = SIZES[size], size == "pod"
    return ConfigDict(
        {
            **{field: value for field, value in chosen.items() if field != "context"},
            "learning_rate": 0.02,
            "schedule": "linear",
            "warmup": 50,
            "seed": 0,
            "data": {"name": "python", "train": "train", "test": "test", "context": chosen["context"]},
            "sharding": "fsdp" if pod else "replicate",
            "documents": False,
            "blocks": {"dtype": "bfloat16", "remat": True} if pod else {"scan": False},
            "evaluate_every": 250,
            "save_every": 250,
            "analysis": 8,
            "prompt": "def ",
        }
    )


def make(width, depth, data, documents, blocks):
    mup = Parameterization.mup.based(128, 4)  # the size that `learning_rate` is of
    return GPT(
        width, depth, 256, data.context, heads=max(width // 64, 1), norm="rms", qk_norm=True, mlp="relu2", positions="rotary",
        parameterization=mup, separator=END[0] if documents else None, **blocks,
    )  # fmt: skip


def optimizer(net, learning_rate):
    return scaled("muon", net, learning_rate=learning_rate)


def loss(outputs, targets):
    return losses.cross_entropy(outputs, targets) / math.log(2)


def references(train, test):
    return other_models(test.stream.tobytes(), train.stream.tobytes())


def sample(net, variables, prompt):
    return write(net, variables["params"], prompt, tokens=300)[0]
