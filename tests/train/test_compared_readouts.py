"""Networks that do more with their readout than multiply it by a number."""

import io

import flax.linen as nn
import numpy as np
from rich.console import Console

from limits import Task
from train.evaluate import compare
from zoo import in_parameterization


class Averaged(nn.Module):
    """A mean over positions behind the readout."""

    width: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.relu(nn.Dense(self.width)(x[..., None]))).mean(1)


def test_a_mean_behind_the_readout_is_compared_without_its_nngp():
    x, shown = np.random.default_rng(0).normal(size=(4, 3)), io.StringIO()
    task = Task(x[:3], [1.0, -1.0, 0.5], x[3:], [0.0])
    families = {"own": lambda width, depth: in_parameterization(Averaged(width), "ntk")}
    found = compare(families, (8, 16), (1,), task, steps=1, learning_rate=0.1, members=8, init_members=8,
                    console=Console(file=shown))  # fmt: skip
    assert [verdict.observable for verdict in found.verdicts] == ["ntk", "f", "ntk_end"]
    assert "own: its NNGP is not compared" in shown.getvalue()
