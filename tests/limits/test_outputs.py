"""Outputs are held against targets where a definition meets a task, and nothing is broadcast."""

import flax.linen as nn
import numpy as np
import pytest
from same_law import values

from limits import Task, Trajectory, twin
from limits.types import Provenance
from train import ensemble, sample_posterior
from train.evaluate import compare
from zoo import MLP, Dense, parameterization

X = np.array([[1.0, 0.0], [0.6, 0.8]])
THREE = Task(X, np.eye(3)[:2], X, np.eye(3)[:2])
ONE = Task(X, [1.0, -1.0], X, [1.0, -1.0])


class Own(nn.Module):
    """One output, whatever its fields are called; `flat` forgets the axis of outputs."""

    width: int
    parameterization: str = "ntk"
    flat: bool = False

    @nn.compact
    def __call__(self, x):
        p = parameterization(self.parameterization)
        f = Dense(1, "readout", self.width, p)(nn.relu(Dense(self.width, "input", self.width, p)(x)))
        return f[:, 0] if self.flat else f


def net(p="ntk", **fields):
    return MLP(8, 2, activation="erf", parameterization=p, **fields)


USES = {
    "lazy": lambda make, task: twin(make("ntk")).lazy(task, 2, 0.1),
    "rich": lambda make, task: twin(make("mup")).rich(task, 2, 0.1, samples=64),
    "ensemble": lambda make, task: ensemble(make("ntk"), task, 2, 0, 0.1),
    "sample_posterior": lambda make, task: sample_posterior(make("ntk"), task, 0.1, "langevin", steps=10),
    "compare": lambda make, task: compare({"a": lambda n, d: make("ntk").clone(width=n)}, (8, 16), (2,), task, 1, 0.1, 8, 8),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_other_numbers_of_outputs_and_targets_are_refused(use):
    who = "lazy" if use == "compare" else use
    for make, task, outputs, targets in ((net, THREE, 1, 3), (lambda p: net(p, outputs=2), ONE, 2, 1)):
        with pytest.raises(
            ValueError, match=f"{who}: the network has {outputs} outputs and the task {targets} .*MLP outp"
        ):
            USES[use](make, task)


@pytest.mark.parametrize("use", ["lazy", "rich", "ensemble", "sample_posterior"])
def test_modules_of_ones_own_are_held_against_the_targets(use):
    with pytest.raises(ValueError, match=f"{use}: the network has 1 outputs and the task 3"):
        USES[use](lambda p: Own(8, p), THREE)
    with pytest.raises(
        ValueError, match=rf"{use}: Own must return .*\[n, outputs\]; for one sample \[1, 2\] .* \[1\]\."
    ):
        USES[use](lambda p: Own(8, p, flat=True), ONE)


def test_trajectories_of_other_shapes_are_not_subtracted():
    times = np.arange(2)
    wide, narrow = (Trajectory(times, f_train=np.zeros((2, 3, k)), loss=np.zeros(2)) for k in (3, 1))
    with pytest.raises(ValueError, match=r"f_train of other shapes, \(2, 3, 3\) and \(2, 3, 1\): subtract runs of one"):
        _ = wide - narrow
    two, three = (Trajectory(times, phi=tuple(np.zeros((2, 3, 3)) for _ in range(n))) for n in (2, 3))
    with pytest.raises(ValueError, match=r"hold phi of other shapes"):
        _ = two - three
    absent = Trajectory(times, f_train=Provenance("absent", "none"), loss=np.zeros(2))
    assert (wide - absent).has("loss")  # what one of them lacks is left out, as before
    assert not (wide - absent).has("f_train")
    with pytest.raises(ValueError, match="subtract a Trajectory from a Trajectory; got 3"):
        _ = wide - 3  # pyright: ignore[reportOperatorIssue]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "seeds"), [(4, 1000), (6, 400)])
def test_the_tangent_kernel_of_several_outputs_has_the_mean_of_networks_of_the_same_width(size, seeds):
    wide = MLP(16, size, outputs=size, activation="linear", parameterization="mup")
    (_, mine), (_, theirs) = values(wide, Task([[1.0]], np.ones((1, size))), 0.1, "ntk", seeds=seeds, steps=0)
    error = np.hypot(np.std(mine), np.std(theirs)) / seeds**0.5  # 2 and 6 % of the mean
    # Backward passes that share their draws, one for each output, are 5 and 9 standard errors off.
    assert abs(np.mean(mine) - np.mean(theirs)) < 3.5 * error
