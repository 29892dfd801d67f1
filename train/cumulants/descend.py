"""Adam on the statistical model or on minibatches of samples, for many initialisations at once."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.progress import track

from limits import Task
from limits.cumulants import Mixture, statistical_loss
from limits.cumulants.model import check_mixture
from limits.inputs import task_of
from train.data import shuffled_batches
from zoo import checks

_PARTS = 20  # of a run, between which progress is shown


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """Networks after training; the first axis of everything is members.

    variables: what `net.apply` takes. times [T]: the steps after which was looked. loss [members, T]: the objective
    there (of a minibatch, before the step). moved [members, T]: |θ(T) − θ(T − every)|², summed over all parameters.
    state: the optimiser's, so that training can go on: hand the whole as `start` to another run. After `restarted()` it is
    None, and the other run begins with a new optimiser.
    """

    net: Any
    variables: Any
    state: Any
    times: np.ndarray
    loss: np.ndarray
    moved: np.ndarray

    @property
    def members(self) -> int:
        """How many networks there are."""
        return len(self.loss)

    def restarted(self) -> "Trained":
        """These networks without the optimiser's memory."""
        return dataclasses.replace(self, state=None)

    def member(self, index: int) -> Any:
        """The variables of one network."""
        return jax.tree.map(lambda leaf: leaf[index], self.variables)

    def outputs(self, x: Any) -> np.ndarray:
        """f(x) of every network itself, [members, n, outputs]."""
        with jax.enable_x64(True):
            run = jax.jit(jax.vmap(self.net.apply, (0, None)))
            return np.asarray(run(self.variables, jnp.asarray(x, jnp.float64)))

    def accuracy(self, x: Any, y: Any) -> np.ndarray:
        """The share of samples in the right class, [members]: by sign with one output, by the largest with several.

        So labels [n] are positive or negative, for one output, and those [n, outputs] one-hot.
        """
        f, y = self.outputs(x), np.asarray(y, np.float64).reshape(len(x), -1)
        if f.shape[-1] != y.shape[1]:
            raise ValueError(
                f"accuracy: the networks have {f.shape[-1]} outputs and the labels {y.shape[1]} columns; class numbers have "
                f"to be one-hot: np.eye({f.shape[-1]})[y]."
            )
        if y.shape[1] == 1 and not y.all():
            raise ValueError(
                f"accuracy: with one output the class is a sign, and {(y == 0).sum()} of {len(y)} labels are 0; take labels ±1, "
                "for 0 and 1: 2 * y - 1."
            )
        right = f[..., 0] * y[:, 0] > 0 if y.shape[1] == 1 else f.argmax(-1) == y.argmax(-1)
        return right.mean(1)


@checks.arguments(
    net=checks.module,
    members=checks.whole,
    steps=checks.whole,
    learning_rate=checks.number(),
    seed=checks.key,
    every=checks.whole,
    start=checks.Check("what train_statistics or train_samples returned", lambda v: isinstance(v, Trained)),
    progress=checks.flag,
)
def train_statistics(
    net: Any,
    data: Mixture,
    members: int = 1,
    steps: int = 2000,
    learning_rate: float = 1e-3,
    seed: int = 0,
    every: int = 10,
    start: Trained | None = None,
    progress: bool = False,
) -> Trained:
    """Adam on `limits.cumulants.statistical_loss`: no sample is seen. The parameters are those of the ordinary networks.

    What the networks then do on data (`accuracy`, `outputs`) is the test: the model's own loss says nothing about it. `start`
    goes on from an earlier run, with its members and its optimiser's state, in place of `members` and `seed`. float64.

    >>> from limits.cumulants import sample, xor_mixture
    >>> from zoo import MLP
    >>> net = MLP(width=10, depth=1, activation="quadratic", parameterization="standard")
    >>> run = train_statistics(net, xor_mixture(), members=2, steps=40)
    >>> run.loss.shape, bool((run.loss[:, -1] < run.loss[:, 0]).all()), run.accuracy(*sample(xor_mixture(), 100)).shape
    ((2, 4), True, (2,))
    """

    def objective(variables: Any, _: Any) -> jax.Array:
        return statistical_loss(net, variables, data)

    check_mixture(data)
    rows = np.zeros((max(steps, 0), 0), int)
    return _train(
        net, objective, rows, np.shape(data.cumulants.mean)[1:], members, learning_rate, seed, every, start, progress
    )


@checks.arguments(
    net=checks.module,
    task=task_of,
    members=checks.whole,
    steps=checks.whole,
    batch=checks.whole,
    learning_rate=checks.number(),
    seed=checks.key,
    every=checks.whole,
    start=checks.Check("what train_statistics or train_samples returned", lambda v: isinstance(v, Trained)),
    progress=checks.flag,
)
def train_samples(
    net: Any,
    task: Task,
    members: int = 1,
    steps: int = 2000,
    batch: int = 10,
    learning_rate: float = 1e-3,
    seed: int = 0,
    every: int = 10,
    start: Trained | None = None,
    progress: bool = False,
) -> Trained:
    """Adam on minibatches of samples: the mean over the batch of |f(x) − y|², without ½, as in `statistical_loss`.

    All members see the same batches (`train.data.shuffled_batches` of this seed). `start` as in `train_statistics`.

    >>> from train.data import xor_mixture
    >>> from zoo import MLP
    >>> net = MLP(width=10, depth=1, activation="quadratic", parameterization="standard")
    >>> train_samples(net, xor_mixture(100, 0), members=2, steps=20).times.tolist()
    [10, 20]
    """
    if task.loss != "mse":
        raise ValueError(f'train_samples minimises the mean squared error; this task has loss "{task.loss}".')
    x, y = np.asarray(task.x_train), np.asarray(task.y_train)

    def objective(variables: Any, rows: Any) -> jax.Array:
        f = net.apply(variables, jnp.asarray(x)[rows])
        if f.shape[-1] != task.outputs:
            raise ValueError(
                f"train_samples: the network has {f.shape[-1]} outputs and the task {task.outputs} targets a sample; give it "
                f"outputs={task.outputs}, or the task other targets."
            )
        return ((f - jnp.asarray(y)[rows]) ** 2).sum(1).mean()

    rows = shuffled_batches(len(x), batch, steps, seed)
    return _train(net, objective, rows, x.shape[1:], members, learning_rate, seed, every, start, progress)


def _train(
    net: Any,
    objective: Callable,
    rows: np.ndarray,
    shape: tuple[int, ...],
    members: int,
    learning_rate: float,
    seed: int,
    every: int,
    start: Trained | None,
    progress: bool,
) -> Trained:
    steps = len(rows)
    if every < 1 or steps < 1 or steps % every:
        raise ValueError(f"steps must be a multiple of every = {every}, and both at least 1; got {steps} steps.")
    if members < 1:
        raise ValueError(f"members is a number of networks, at least 1; got {members}.")
    optimizer = optax.adam(learning_rate)

    def one_step(carry: Any, rows: Any) -> Any:
        variables, state = carry
        loss, slopes = jax.value_and_grad(objective)(variables, rows)
        updates, state = optimizer.update(slopes, state, variables)
        return (optax.apply_updates(variables, updates), state), loss

    def look(carry: Any, rows: Any) -> Any:
        before = carry[0]
        carry, losses = jax.lax.scan(one_step, carry, rows)
        return carry, (losses[-1], optax.tree.norm(optax.tree.sub(carry[0], before), squared=True))

    advance = jax.jit(jax.vmap(lambda carry, rows: jax.lax.scan(look, carry, rows), (0, None)))
    looks = np.array_split(rows.reshape(steps // every, every, -1), _parts(steps // every))
    with jax.enable_x64(True):
        keys, draw = jax.random.split(jax.random.key(seed), members), jax.vmap(net.init, (0, None))
        if start is None:
            variables = jax.jit(draw)(keys, jnp.ones((1, *shape)))
            carry = variables, jax.vmap(optimizer.init)(variables)
        else:
            _check_start(jax.eval_shape(net.init, keys[0], jnp.ones((1, *shape))), start)
            fresh = start.state is None
            carry = start.variables, jax.vmap(optimizer.init)(start.variables) if fresh else start.state
        seen = []
        for part in track(looks, f"{steps} steps of Adam", disable=not progress):
            carry, found = advance(carry, part)
            seen.append(jax.tree.map(np.asarray, found))
            _check_finite(seen[-1][0], learning_rate)
        loss, moved = (np.concatenate(each, axis=1) for each in zip(*seen, strict=True))
        variables, state = jax.tree.map(np.asarray, carry)
    return Trained(net, variables, state, every * np.arange(1, steps // every + 1), loss, moved)


def _check_start(own: Any, start: Trained) -> None:
    own, other = (
        {jax.tree_util.keystr(path): np.shape(leaf)[skip:] for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
        for tree, skip in ((own, 0), (start.variables, 1))
    )
    if own != other:
        name = next(name for name in {**own, **other} if own.get(name) != other.get(name))
        raise ValueError(
            f"start: this is a run of another network; its parameters {name} have the shape {other.get(name)}, those here "
            f"{own.get(name)}. Go on with the network of the earlier run, start.net."
        )


def _parts(looks: int) -> int:
    """The largest number of equal parts up to `_PARTS`: every part has the same shape, and compiles once."""
    return next(n for n in range(min(_PARTS, looks), 0, -1) if looks % n == 0)


def _check_finite(loss: np.ndarray, learning_rate: float) -> None:
    broken = np.flatnonzero(~np.isfinite(loss).all(axis=1))
    if len(broken):
        raise FloatingPointError(
            f"The loss of {len(broken)} of {len(loss)} members became infinite or NaN (first: member {broken[0]}); lower "
            f"learning_rate (now {learning_rate:g}) or w_std."
        )
