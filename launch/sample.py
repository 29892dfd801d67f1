"""Writes on, from a prompt, with a GPT that launch.train trained; keys and values are kept from token to token.

    python3 -m launch.sample --workdir=RUN [--prompt="def "] [--tokens=300] [--temperature=0.8] [--seed=0] [--draws=1] [--step=…]

RUN is the folder of a run (default: runs/train_gpt). A network with 256 tokens reads and writes bytes, another one numbers
("0 1 2"). Where the context is full, its latest half is kept. Parameters are those of evaluation: averaged ones where the run has
`average`. Nothing in RUN is executed, and nothing is written there.
"""

import functools
import math

import jax
from absl import flags

from launch import common
from train.analysis.runs import TrainedRun
from train.checkpoints import load_model
from train.writing import write
from zoo import GPT

_PROMPT = flags.DEFINE_string("prompt", "", "What the text begins with.")
_TOKENS = flags.DEFINE_integer("tokens", 300, "How many tokens more.", lower_bound=1)
_TEMPERATURE = flags.DEFINE_float("temperature", 0.8, "Of softmax(f / temperature); 0: the likeliest.", lower_bound=0.0)
_SEED = flags.DEFINE_integer("seed", 0, "Of the draws.", lower_bound=0)
_DRAWS = flags.DEFINE_integer("draws", 1, "How many texts.", lower_bound=1)
_STEP = flags.DEFINE_integer("step", None, "Of which checkpoint; by default the latest.", lower_bound=0)
_MEMBER = flags.DEFINE_integer("member", 0, "Which network of several that were trained at once.", lower_bound=0)

flags.register_validator("temperature", math.isfinite, "It must be a finite number of at least 0.")


def main() -> None:
    """Prints the texts."""
    run = TrainedRun.read(common.WORKDIR.value or "runs/train_gpt")
    net = run.definition()
    if not isinstance(net, GPT):
        raise ValueError(f"{run.name} is a run of {type(net).__name__}, and samples are drawn from a GPT.")
    _, variables, _ = load_model(run.folder, _STEP.value)
    if not run.members and _MEMBER.value:
        raise ValueError(f"{run.name} has one network: leave out --member={_MEMBER.value}.")
    if run.members:
        if _MEMBER.value >= run.members:
            raise ValueError(f"{run.name} has {run.members} networks, numbered from 0: --member={_MEMBER.value}.")
        variables = jax.tree.map(lambda a: a[_MEMBER.value], variables)
    texts = write(net, variables["params"], _PROMPT.value, _TOKENS.value, _SEED.value, _TEMPERATURE.value, _DRAWS.value)
    for text in texts:
        print(text, end="\n\n" if len(texts) > 1 else "\n")


run = functools.partial(common.start, main, __doc__)

if __name__ == "__main__":
    run()
