"""One step of training: what is carried from step to step, and how a batch changes it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from train.variables import draws, forward, initial, loss_of, update
from zoo import fused_attention
from zoo.checks import is_array
from zoo.layers import synchronised


@flax.struct.dataclass
class TrainingState:
    """Everything that a step changes: with the data's order and the number of the step, all there is to continue from."""

    step: Any
    trained: Any  # what the optimiser changes
    collections: Any  # what the forward pass changes: batch statistics
    memory: Any  # the optimiser's
    average: Any  # exponential moving average of `trained`, in float32 at least, or None
    key: Any  # of random numbers in the forward pass

    @property
    def variables(self) -> Any:
        """What `apply` takes: averaged parameters where they are averaged."""
        trained = self.trained if self.average is None else _with_types_of(self.trained, self.average)
        return {**trained, **self.collections} if self.collections else trained


@flax.struct.dataclass
class Numbers:
    """Numbers about a step by name, in one array [members…, names], which comes to the host in one piece.

    >>> Numbers.of({"loss": jnp.zeros(()), "accuracy": jnp.ones(())})["accuracy"]
    Array(1., dtype=float32)
    """

    values: Any
    names: tuple[str, ...] = flax.struct.field(pytree_node=False)

    @classmethod
    def of(cls, numbers: Mapping[str, Any]) -> "Numbers":
        """Of scalars."""
        return cls(jnp.stack(list(numbers.values())), tuple(numbers))

    def __getitem__(self, name: str) -> Any:
        return self.values[..., self.names.index(name)]


@dataclasses.dataclass(frozen=True)
class Program:
    """A model, its optimiser and its loss: `initial` and `step` are pure functions of arrays.

    loss(outputs, targets) is a mean over samples, or over positions that have a class. accumulate: a batch is divided into so
    many parts, one after the other, whose gradients are averaged, each as often as it has such positions (batch statistics
    are then those of each part). average: the decay of an exponential
    moving average of the parameters, used in evaluation; 0 for none. mapped: the name of the axis when the step runs
    under `jax.pmap`. labels: how many classes targets tell apart at least, so that there is an accuracy; 0: they say none.

    >>> from zoo import MLP
    >>> program = Program(MLP(8, 1), optax.sgd(0.1), lambda f, y: ((f - y) ** 2).mean())
    >>> x, y = jnp.ones((4, 3)), jnp.ones((4, 1))
    >>> state, numbers = program.step(program.initial(0, x), (x, y))
    >>> int(state.step), numbers.names
    (1, ('loss', 'gradient_norm', 'update_norm', 'parameter_norm'))
    """

    net: Any
    tx: optax.GradientTransformation
    loss: Callable[[Any, Any], Any]
    accumulate: int = 1
    average: float = 0.0
    mapped: str | None = None
    labels: int = 2

    def initial(self, seed: Any, x: Any) -> TrainingState:
        """The state before the first step; the same seed gives `launch.transfer`'s network of that seed."""
        key = jax.random.fold_in(jax.random.key(0), seed)
        trained, collections = initial(self.net, key, x)
        average = jax.tree.map(_kept, trained) if self.average else None
        draws = jax.random.key_data(jax.random.fold_in(key, 1))
        return TrainingState(jnp.zeros((), jnp.int32), trained, collections, self.tx.init(trained), average, draws)

    def step(self, state: TrainingState, batch: Any) -> tuple[TrainingState, Numbers]:
        """(the state after a batch (inputs, targets), numbers about the step; the loss is the one before it)."""
        loss, collections, right, gradient = self._gradients(state, batch)
        value_fn = (
            None
            if self.mapped
            else lambda trained: self._gradients(dataclasses.replace(state, trained=trained), batch)[0]
        )
        updates, memory = update(self.tx, gradient, state.memory, state.trained, value=loss, value_fn=value_fn)
        trained = optax.apply_updates(state.trained, updates)
        average = state.average
        if average is not None:
            weight = jnp.minimum(self.average, (1 + state.step) / (10 + state.step))  # short memory in the beginning
            mean = optax.incremental_update(trained, average, 1 - weight)
            average = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), mean, average)
        norms = {"gradient_norm": gradient, "update_norm": updates, "parameter_norm": trained}
        numbers = Numbers.of(
            {"loss": loss, **right, **{name: optax.tree.norm(in_full(tree)) for name, tree in norms.items()}}
        )
        return TrainingState(state.step + 1, trained, collections, memory, average, state.key), numbers

    def _gradients(self, state: TrainingState, batch: Any) -> Any:
        if self.accumulate == 1:
            return self._gradient(state.trained, state.collections, self._draws(state, 0), batch)[0]
        parts = jax.tree.map(self._apart, batch)

        def one(carry: Any, part: Any) -> Any:
            collections, total, i = carry
            found, count = self._gradient(state.trained, collections, self._draws(state, i), part)
            loss, collections, right, gradient = found
            sums = jax.tree.map(lambda a: count.astype(a.dtype) * a, in_full((loss, right, gradient)))
            return (collections, jax.tree.map(jnp.add, total, (*sums, count)), i + 1), None

        first = jax.tree.map(lambda a: a[0], parts)
        (loss, _, *others), count = jax.eval_shape(
            self._gradient, state.trained, state.collections, self._draws(state, 0), first
        )
        nothing = in_full(jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), (loss, *others, count)))
        start = state.collections, nothing, jnp.zeros((), jnp.int32)
        (collections, (*sums, count), _), _ = jax.lax.scan(one, start, parts)
        means = jax.tree.map(lambda a: a / jnp.maximum(count, 1).astype(a.dtype), sums)
        loss, right, gradient = jax.tree.map(lambda a, like: a.astype(like.dtype), means, [loss, *others])
        return loss, collections, right, gradient

    def hits(self, outputs: Any, targets: Any) -> dict[str, Any]:
        """{"accuracy": …} where there are at least two outputs, and as many as `labels`, for targets that are a class for each of
        their rows, a whole number (where ≥ 0), or rows that are 1 in its column and 0 in others; else nothing."""
        if (
            not self.labels
            or not (is_array(outputs) and is_array(targets))
            or not outputs.ndim
            or outputs.shape[-1] < max(self.labels, 2)
        ):
            return {}
        if are_classes(outputs, targets):
            right = jnp.sum(outputs.argmax(-1) == targets)
            return {"accuracy": right / jnp.maximum(jnp.sum(targets >= 0), 1)}
        if jnp.issubdtype(targets.dtype, jnp.floating) and targets.shape == outputs.shape:
            return {"accuracy": jnp.mean(outputs.argmax(-1) == targets.argmax(-1))}
        return {}

    def _apart(self, a: jax.Array) -> jax.Array:
        """[samples, …] as [parts, samples / parts, …], where every part has samples of every device."""
        if len(a) % self.accumulate:
            raise ValueError(f"A batch of {len(a)} does not divide into accumulate = {self.accumulate} parts.")
        return a.reshape(len(a) // self.accumulate, self.accumulate, *a.shape[1:]).swapaxes(0, 1)

    def _draws(self, state: TrainingState, part: Any) -> Any:
        key = jax.random.wrap_key_data(state.key)
        if self.mapped is not None:  # else every device would drop the same
            key = jax.random.fold_in(key, jax.lax.axis_index(self.mapped))
        return draws(self.net, key, state.step, part)

    def _gradient(self, trained: Any, collections: Any, options: Any, batch: Any) -> Any:
        """((loss, collections, numbers about it, gradient), how many targets these are means over)."""

        def objective(trained: Any) -> Any:
            x, y = batch
            outputs, after = forward(self.net, trained, collections, x, (), **options)
            outputs = in_full(outputs)
            return loss_of(self.loss, self.net, outputs, y), (after, self.hits(outputs, y), counted(outputs, y))

        if self.mapped is None:
            with fused_attention():
                (loss, (after, right, count)), gradient = jax.value_and_grad(objective, has_aux=True)(trained)
            return (loss, after, right, gradient), count
        with synchronised(self.mapped), fused_attention():
            (loss, (after, right, count)), gradient = jax.value_and_grad(objective, has_aux=True)(trained)
        total = jax.lax.psum(count, self.mapped)
        share = count / jnp.maximum(total, 1)
        parts = jax.tree.map(lambda a: share.astype(a.dtype) * a, (loss, right, gradient))
        loss, right, gradient = jax.lax.psum(parts, self.mapped)
        return (loss, jax.lax.pmean(after, self.mapped), right, gradient), total


def _kept(a: jax.Array) -> jax.Array:
    """A copy in float32 at least: small changes of an average are lost in half precision."""
    return jnp.array(a, jnp.promote_types(a.dtype, jnp.float32) if jnp.issubdtype(a.dtype, jnp.floating) else a.dtype)


def in_full(outputs: Any) -> Any:
    """Outputs in float32 at least, in which losses are taken; of several, those that are no whole numbers."""
    alone = is_array(outputs)
    return jax.tree.map(
        lambda a: (
            jnp.asarray(a, jnp.promote_types(a.dtype, jnp.float32))
            if alone or jnp.issubdtype(a.dtype, jnp.inexact)
            else a
        ),
        outputs,
    )


def _with_types_of(wanted: Any, tree: Any) -> Any:
    same = jax.tree.map(lambda a, t: a.dtype == t.dtype, tree, wanted)
    return tree if jax.tree.all(same) else jax.tree.map(lambda a, t: a.astype(t.dtype), tree, wanted)


def counted(outputs: Any, targets: Any) -> jax.Array:
    """How many targets a mean is over: samples, or rows of outputs that have a class, a whole number that is not negative.

    >>> int(counted(jnp.ones((2, 2, 5)), jnp.array([[1, -1], [0, 2]]))), int(counted(jnp.ones((2, 1)), jnp.array([1, -1])))
    (3, 2)
    """
    if not are_classes(outputs, targets):
        return jnp.asarray(len(jax.tree.leaves(targets)[0]))
    return jnp.sum(targets >= 0)


def share_counted(outputs: Any, targets: Any) -> jax.Array:
    """Of the targets of each sample, the share that `counted` counts, in float32: exactly 1 where it is all of them.

    >>> share_counted(jnp.ones((2, 2, 5)), jnp.array([[1, -1], [0, 2]])).tolist()
    [0.5, 1.0]
    """
    if not are_classes(outputs, targets):
        return jnp.ones(len(jax.tree.leaves(targets)[0]), jnp.float32)
    each = (targets >= 0).reshape(len(targets), -1)
    return jnp.where(each.all(1), 1.0, each.mean(1, dtype=jnp.float32))


def are_classes(outputs: Any, targets: Any) -> bool:
    """Whether targets are whole numbers, one for each row of outputs."""
    if not (is_array(outputs) and is_array(targets)):
        return False
    integer = jnp.issubdtype(targets.dtype, jnp.integer)
    return integer and targets.shape == outputs.shape[:-1] and outputs.shape[-1] > 1
