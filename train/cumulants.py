"""Networks trained on what `limits.cumulants` says of their data, or on the data; and the cumulants of networks' own signals.

Adam on the statistical model or on minibatches of samples, in float64, for many initialisations at once.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.progress import track

from limits import Task, inputs
from limits.cumulants import Mixture, higher_cumulants, statistical_loss
from limits.cumulants.cumulants import mixture_of
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


OPTIONS = {
    "net": checks.module,
    "members": checks.count(),
    "steps": checks.count(),
    "learning_rate": checks.number(),
    "seed": checks.key,
    "every": checks.count(),
    "start": checks.a(Trained, "what train_statistics or train_samples returned"),
    "progress": checks.flag,
}


@checks.arguments(data=mixture_of, **OPTIONS)
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

    begun = _begin(net, np.shape(data.cumulants.mean)[1:], members, seed, start)
    return _descend(begun, objective, np.zeros((steps, 0), int), learning_rate, every, progress)


@checks.arguments(task=task_of, batch=checks.whole, **OPTIONS)
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
    inputs.check_whole("train_samples", task)
    x, y = inputs.as_fed(net, task).x_train, task.y_train

    def objective(variables: Any, rows: Any) -> jax.Array:
        f = net.apply(variables, jnp.asarray(x)[rows])
        if f.shape[-1] != task.outputs:
            raise ValueError(
                f"train_samples: the network has {f.shape[-1]} outputs and the task {task.outputs} targets a sample; give it "
                f"outputs={task.outputs}, or the task other targets."
            )
        return ((f - jnp.asarray(y)[rows]) ** 2).sum(1).mean()

    begun = _begin(net, x.shape[1:], members, seed, start)
    return _descend(begun, objective, shuffled_batches(len(x), batch, steps, seed), learning_rate, every, progress)


def _begin(net: Any, shape: tuple[int, ...], members: int, seed: int, start: Trained | None) -> Trained:
    """`start` if it is of this network, or else random networks without a past."""
    with jax.enable_x64(True):
        keys, one = jax.random.split(jax.random.key(seed), members), jnp.ones((1, *shape))
        if start is not None:
            _check_start(jax.eval_shape(net.init, keys[0], one), start)
            return dataclasses.replace(start, net=net)
        variables = jax.tree.map(np.asarray, jax.jit(jax.vmap(net.init, (0, None)))(keys, one))
    return Trained(net, variables, None, np.zeros(0, int), *np.zeros((2, members, 0)))


def _descend(
    start: Trained, objective: Callable, rows: np.ndarray, learning_rate: float, every: int, progress: bool
) -> Trained:
    """Adam on objective(variables, rows of the step), a step for every entry of `rows`."""
    steps = len(rows)
    if steps % every:
        raise ValueError(f"steps must be a multiple of every = {every}; got {steps} steps.")
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
        state = jax.vmap(optimizer.init)(start.variables) if start.state is None else start.state
        carry, seen = (start.variables, state), []
        for part in track(looks, f"{steps} steps of Adam", disable=not progress):
            carry, found = advance(carry, part)
            seen.append(jax.tree.map(np.asarray, found))
            _check_finite(seen[-1][0], learning_rate)
        loss, moved = (np.concatenate(each, axis=1) for each in zip(*seen, strict=True))
        variables, state = jax.tree.map(np.asarray, carry)
    return Trained(start.net, variables, state, every * np.arange(1, steps // every + 1), loss, moved)


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


@checks.arguments(
    net=checks.module, x=checks.array(None, None), layer=checks.count(), members=checks.count(), seed=checks.key
)
def signal_cumulants(net: Any, x: Any, layer: int, members: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(mean |skewness|, mean excess kurtosis) over the neurons of z^(layer), layer = 1 … depth, [members] random networks.

    Over the inputs x [n, D]. Independent weights give O(N^(−1/2)) for the first and O(1/N) for the second at most.

    >>> from zoo import MLP
    >>> x = np.random.default_rng(0).normal(size=(500, 8))
    >>> signal_cumulants(MLP(width=8, depth=2, parameterization="standard"), x, layer=2, members=3)[1].shape
    (3,)
    """
    if not 1 <= layer <= net.depth:
        raise ValueError(f"signal_cumulants: layer must lie between 1 and {net.depth}, got {layer}.")

    @jax.jit
    def signals(key: Any) -> jax.Array:
        return net.apply(net.init(key, inputs[:1]), inputs, intermediates=True)[1]["h"][layer - 1]

    with jax.enable_x64(True):
        inputs = jnp.asarray(x, jnp.float64)
        found = [higher_cumulants(signals(key)) for key in jax.random.split(jax.random.key(seed), members)]
    return np.array([np.abs(skew).mean() for skew, _ in found]), np.array([kurtosis.mean() for _, kurtosis in found])
