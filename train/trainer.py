"""A program on a mesh of devices: where its state lives, its compiled step, and evaluation."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import InvalidRngError
from jax.sharding import Mesh

from train.loss_kind import alone, kinds
from train.mesh import Placement, rows_here, to_devices
from train.step import Numbers, Program, TrainingState, in_full, share_counted
from train.variables import draws, forward, loss_of, mode
from zoo.abstract import abstract
from zoo.checks import is_array, parts
from zoo.layers import synchronised

DEVICES = "devices"  # the axis of `jax.pmap`


class Trainer:
    """Compiled `initial`, `step` and `evaluate` of a `Program`, for one network or `members` of them at once.

    `inputs` is the shape of a whole batch of numbers, or its shape and type. Parameters are placed by `rules` (see
    `train.mesh.Placement`; those with fewer than `least` entries are copied), batches divided over the data axis, members
    over the ensemble axis. Member i is the network of seed + i; all see the same batches. The program under `pmap` has no
    mesh of its own: a copy on each device.

    >>> import optax
    >>> from train.mesh import make_mesh
    >>> from zoo import MLP
    >>> program = Program(MLP(8, 1), optax.sgd(0.1), lambda f, y: ((f - y) ** 2).mean())
    >>> trainer = Trainer(program, make_mesh(), (4, 3), members=2)
    >>> state, numbers = trainer.step(trainer.initial(), (np.ones((4, 3)), np.ones((4, 1))))
    >>> numbers["loss"].shape
    (2,)
    """

    def __init__(
        self,
        program: Program,
        mesh: Mesh,
        inputs: tuple[int, ...] | jax.ShapeDtypeStruct,
        rules: Any = "replicate",
        members: int = 0,
        seed: int = 0,
        pmap: bool = False,
        least: int = 1024,
    ) -> None:
        if pmap and members:
            raise ValueError("The step under pmap trains one network: take members away, or pmap.")
        if not members and mesh.shape["ensemble"] > 1:
            raise ValueError(
                f"The mesh has {mesh.shape['ensemble']} devices for an ensemble, and there is one network: set members."
            )
        if members and seed + members > 2**32:
            raise ValueError(
                f"seed={seed}: {members} members have the seeds from it on, which must be below 2**32; lower it."
            )
        if isinstance(inputs, tuple):
            inputs = abstract(inputs, float)
        self.program, self.size, self.members = program, inputs.shape[0], members
        self.placement = Placement(mesh, rules, bool(members), least)
        dtype, sample = inputs.dtype, (1, *inputs.shape[1:])
        self.sample = jax.ShapeDtypeStruct(sample, dtype)

        def initial() -> TrainingState:
            one = functools.partial(program.initial, x=jnp.zeros(sample, dtype))
            return jax.vmap(one)(np.uint32(seed) + jnp.arange(members, dtype=jnp.uint32)) if members else one(seed)

        self.shapes = jax.eval_shape(initial)
        self.shardings = self.placement.of(self.shapes)
        self.initial = jax.jit(initial, out_shardings=self.shardings)
        step = jax.vmap(program.step, in_axes=(0, None)) if members else program.step
        shard = self.placement.batch
        self.compiled_step = pmap_step(program) if pmap else jax.jit(
            step, in_shardings=(self.shardings, shard), out_shardings=(self.shardings, self.placement.copied), donate_argnums=0
        )  # fmt: skip
        several = functools.partial(_several, step, self.shardings)
        self._several = jax.jit(several, out_shardings=(self.shardings, self.placement.copied), donate_argnums=0)
        self._pmap = pmap
        self._evaluate = jax.jit(self._sums, static_argnums=3, out_shardings=self.placement.copied)
        self._evaluate_whole = jax.jit(self._whole_sums, static_argnums=(3, 4), out_shardings=self.placement.copied)
        self._below = jax.jit(_below, out_shardings=self.placement.copied)
        self._count = jax.jit(lambda mask: jnp.sum(mask > 0), out_shardings=self.placement.copied)
        self.by_batches = False  # whether an evaluation has shown that the loss is no mean over samples

    @functools.cached_property
    def said(self) -> list[str]:
        """What is otherwise than it may be expected, in sentences."""
        apart = self._pmap and jax.device_count() > 1 and "batch_stats" in self.shapes.collections
        each = (
            f"batch statistics are of each device's {self.size // jax.device_count()} samples under --pmap, then averaged: give "
            f'the normalisation axis_name="{DEVICES}", or leave out --pmap'
            if apart and not self._synchronised()
            else ""
        )
        return [*(f"not sharded: {line}" for line in self.placement.log), *([each] if each else [])]

    def _synchronised(self) -> bool:
        """Whether the forward pass of a mapped step speaks with other devices."""

        def after(state: TrainingState, x: Any) -> Any:
            with synchronised(DEVICES):
                options = draws(self.program.net, jax.random.wrap_key_data(state.key), state.step)
                return forward(self.program.net, state.trained, state.collections, x, **options)[1]

        return "psum" in str(jax.make_jaxpr(after, axis_env=[(DEVICES, jax.device_count())])(self.shapes, self.sample))

    @property
    def abstract(self) -> TrainingState:
        """Shapes and shardings of the state, for restoring one."""
        return jax.tree.map(
            lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), self.shapes, self.shardings
        )

    @property
    def one(self) -> TrainingState:
        """Shapes of the state of one network, of several members too."""
        return jax.tree.map(lambda a: abstract(a.shape[bool(self.members) :], a.dtype), self.shapes)

    def outputs(self, x: Any) -> Any:
        """Shapes of a network's outputs for inputs like x, in training."""

        def of(state: TrainingState, x: Any) -> Any:
            options = draws(self.program.net, jax.random.wrap_key_data(state.key), state.step)
            return in_full(forward(self.program.net, state.trained, state.collections, x, **options)[0])

        return jax.eval_shape(of, self.one, x)

    def place(self, batch: Any) -> Any:
        """The global batch on the devices, from the rows that this process has."""
        return batch if self._pmap else to_devices(batch, self.placement.batch, self.size)

    def step(self, state: TrainingState, batch: Any) -> tuple[TrainingState, Numbers]:
        """The state after this process's rows of a batch, and numbers about the step."""
        if jax.process_count() == 1:  # the compiled step divides a whole batch itself, in a tenth of the time
            with jax.transfer_guard_host_to_device("allow"):
                return self.compiled_step(state, batch)
        return self.compiled_step(state, self.place(batch))

    def several(self, state: TrainingState, chunk: Any, begin: int, count: int) -> tuple[TrainingState, Numbers]:
        """The state after `count` steps on the batches of a chunk (inputs and targets [batch, chunk, …]) from `begin` on, in one
        dispatch of one program whatever their number; numbers about each step, [chunk, …], of which the first `count` are set."""
        with jax.transfer_guard_host_to_device("allow"):
            return self._several(state, chunk, np.int32(begin), np.int32(count))

    def compiled(self, state: TrainingState, batch: Any) -> Any:
        """The compiled step, which says what memory it takes and how many operations."""
        step: Any = self.compiled_step
        return step.lower(state, self.place(batch)).compile()

    def evaluate(self, state: TrainingState, batches: Iterable[Any]) -> dict[str, Any]:
        """Means over all samples of (inputs, targets, mask) batches: {"loss", "accuracy" where there are classes}, by member.

        Where some targets are no classes (below 0), the accuracy is a mean over those that are, and the loss over them or over
        samples, as the config's loss of most batches is. Where that is no mean over either (`by_batches`), it is that of each
        batch, a mean weighted by their masks.
        """
        total, left_out, kind = None, False, np.zeros((0,))
        for batch, placed in self._in_turn(batches):
            left_out = left_out or self._signs(batch, placed)[0]
            sums = None if self.by_batches else self._evaluate(state, placed, total, left_out)
            if sums and not kind.size:  # of each evaluation: losses that are equal at the start may show it later
                kind = np.reshape(jax.device_get(sums.pop("kinds")), (-1, 2, 2)).min(axis=0)
            self.by_batches = self.by_batches or not kind[int(left_out)].any()
            if self.by_batches and (count := int(jax.device_get(self._count(placed[2])))):
                sums = self._evaluate_whole(state, placed, total, left_out, count)
            total = sums or total
        if total is None:
            raise ValueError("There are no samples to evaluate on.")
        found = jax.device_get(total)
        count = of_loss = found.pop("count")
        if left_out:
            which = 0 if self.by_batches or kind[1][0] > kind[1][1] else 1
            of_loss, count, found["loss"] = count[..., which], count[..., 1], found["loss"][..., which]
            if not count.all():
                raise ValueError("All targets to evaluate on are below 0, so none counts: give some that are classes.")
        return {
            name: np.asarray(value, np.float64) / (of_loss if name == "loss" else count)
            for name, value in found.items()
        }

    def _in_turn(self, batches: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Batches and they on the devices, first the one that has a target that counts: it says what the loss is."""
        rows, before = self.placement.batch, []
        _, parts = rows_here(rows, rows.mesh.shape["data"])
        # One after the other: collectives of programs side by side could meet in different orders on different hosts.
        place = lambda batch: to_devices(batch, rows, len(batch[0]) * parts)  # noqa: E731
        for batch in batches:
            placed = place(batch)
            if before is not None and not self._signs(batch, placed)[1]:
                before.append(batch)
                continue
            yield batch, placed
            yield from ((batch, place(batch)) for batch in before or ())
            before = None
        yield from ((batch, place(batch)) for batch in before or ())

    def _signs(self, batch: Any, placed: Any) -> tuple[bool, bool]:
        """Whether some targets are whole numbers below 0, and whether some are not."""
        if not (is_array(batch[1]) and jnp.issubdtype(np.asarray(batch[1]).dtype, jnp.signedinteger)):
            return False, True
        if jax.process_count() == 1:
            return bool(np.min(batch[1]) < 0), bool(np.max(batch[1]) >= 0)
        below, above = jax.device_get(self._below(*placed[1:]))  # those of other processes are known to the devices
        return bool(below), bool(above)

    def _sums(
        self, state: TrainingState, batch: Any, total: dict[str, Any] | None, left_out: bool = False
    ) -> dict[str, Any]:
        """Of the first batch also of which "kinds" the loss is. With left_out, of the loss and the "count" those over samples and
        over targets that count, [2]."""
        x, y, mask = batch

        def one(variables: Any) -> dict[str, Any]:
            outputs = self._outputs(variables, x)
            each = self._each(outputs, y)
            sums = _summed(each, mask, share_counted(outputs, y) if left_out else None)
            kind = {} if total is not None else {"kinds": kinds(self.program.loss, self.program.net, outputs, y)}
            return sums | kind

        return self._added(state, one, mask, total, left_out)

    def _whole_sums(
        self, state: TrainingState, batch: Any, total: dict[str, Any] | None, left_out: bool, count: int
    ) -> dict[str, Any]:
        """The same with the loss of all samples of a batch at once, of which `count` are in the mask."""
        x, y, mask = batch
        there = jnp.argsort(mask <= 0, stable=True)[:count]

        def one(variables: Any) -> dict[str, Any]:
            outputs = self._outputs(variables, x)
            found = _summed(self._each(outputs, y), mask, share_counted(outputs, y) if left_out else None)
            loss = self.program.loss(*jax.tree.map(lambda a: a[there], (outputs, y))) * mask.sum()
            return found | {"loss": jnp.stack([loss, loss]) if left_out else loss}

        return self._added(state, one, mask, total, left_out)

    def _outputs(self, variables: Any, x: Any) -> Any:
        try:
            outputs = self.program.net.apply(variables, x, **mode(self.program.net, False))
        except InvalidRngError as error:
            raise ValueError(
                f"The model draws random numbers in evaluation too, where there are none ({str(error).split(' (')[0]}): "
                "draw where an argument `train` says that it is trained, or set evaluate_every=0."
            ) from None
        if any(len(np.shape(each)) == 0 or len(each) != len(x) for each in jax.tree.leaves(outputs)) and not is_array(
            outputs
        ):
            raise ValueError(
                f"The model returns {parts(outputs)}, and not all of them by sample, [n, …], as evaluation needs: set "
                "evaluate_every=0."
            )
        return in_full(outputs)

    def _each(self, outputs: Any, targets: Any) -> dict[str, jax.Array]:
        """Sample by sample."""
        losses = jax.vmap(lambda f, y: loss_of(self.program.loss, self.program.net, *alone(f, y)))(outputs, targets)
        return {"loss": losses, **jax.vmap(lambda f, y: self.program.hits(*alone(f, y)))(outputs, targets)}

    def _added(
        self, state: TrainingState, one: Callable, mask: Any, total: dict[str, Any] | None, left_out: bool
    ) -> dict[str, Any]:
        found = jax.vmap(one)(state.variables) if self.members else one(state.variables)
        sums = {"count": mask.sum(), **found}
        if total is not None and total["loss"].ndim < sums["loss"].ndim:  # in the batches before, all targets counted
            both = lambda a: jnp.stack([a, a], axis=-1)  # noqa: E731
            count = jnp.broadcast_to(total["count"], total["loss"].shape)
            total = {**total, "loss": both(total["loss"]), "count": both(count)}
        return sums if total is None else jax.tree.map(jnp.add, total, sums)


def _below(y: Any, mask: Any) -> tuple[Any, Any]:
    return jnp.any((y.T < 0) & (mask > 0)), jnp.any((y.T >= 0) & (mask > 0))


def _summed(each: dict[str, jax.Array], mask: Any, share: Any) -> dict[str, Any]:
    """Sums over samples; with the share of each one's targets that counts over these targets, of the loss and their "count"
    over both, [2]."""
    if share is None:
        return {name: jnp.sum(value * mask) for name, value in each.items()}
    both, found = (
        jnp.stack([mask, mask * share], axis=-1),
        {name: jnp.sum(v * mask * share) for name, v in each.items()},
    )
    losses = jnp.stack([each["loss"], jnp.where(share > 0, each["loss"], 0)], axis=-1)  # without a target it may be 0/0
    return found | {"loss": jnp.sum(losses * both, axis=0), "count": both.sum(axis=0)}


def no_mean(batch: int, parts: int) -> str:
    """What is said where `Trainer.by_batches`, of batches of so many samples in so many parts."""
    return (
        f"the loss is no mean over samples: test loss is that of {batch} samples at a time, weighted by their number"
        + f", and a step's loss and gradient are means over those of its accumulate={parts} parts" * (parts > 1)
    )


def _several(step: Callable[[Any, Any], Any], shardings: Any, state: Any, chunk: Any, begin: Any, count: Any) -> Any:
    def batch(at: Any) -> Any:
        return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, at, 1, keepdims=False), chunk)

    def one(i: Any, carry: Any) -> Any:
        state, values = carry
        state, numbers = step(state, batch(begin + i))
        return jax.lax.with_sharding_constraint(state, shardings), values.at[i].set(numbers.values)

    about = jax.eval_shape(step, state, batch(0))[1]
    length = jax.tree.leaves(chunk)[0].shape[1]
    nothing = jnp.zeros((length, *about.values.shape), about.values.dtype)
    state, values = jax.lax.fori_loop(0, count, one, (state, nothing))
    return state, Numbers(values, about.names)


def pmap_step(program: Program) -> Callable[[Any, Any], tuple[Any, Numbers]]:
    """step(state, batch) of `program` under `jax.pmap`, gradients averaged by hand: one program a device, a batch divided over
    this process's devices, the state a copy on each. `jax.jit` on a mesh is the trainer; they agree.

    >>> import jax.numpy as jnp, optax
    >>> from zoo import MLP
    >>> program = Program(MLP(8, 1), optax.sgd(0.1), lambda f, y: ((f - y) ** 2).mean())
    >>> state, numbers = pmap_step(program)(program.initial(0, jnp.ones((4, 3))), (np.ones((4, 3)), np.ones((4, 1))))
    >>> int(state.step)
    1
    """
    mapped = dataclasses.replace(program, mapped=DEVICES)
    step = jax.pmap(mapped.step, axis_name=DEVICES, in_axes=(None, 0), out_axes=(None, None))

    def run(state: Any, batch: Any) -> tuple[Any, Numbers]:
        return step(state, jax.tree.map(_divided, batch))

    return run


def _divided(a: Any) -> Any:
    count = jax.local_device_count()
    if len(a) % count:
        raise ValueError(f"A batch of {len(a)} does not divide over {count} devices: change its size.")
    return np.reshape(a, (count, len(a) // count, *np.shape(a)[1:]))
