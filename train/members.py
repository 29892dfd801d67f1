"""The compiled programs of an ensemble: initialise, advance and observe all members at once.

Everything that does not change a shape is an argument: seeds, learning rate, γ₀ and the exponents of the
parameterization. So a sweep over them compiles once for each (width, depth, number of points).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from limits import Task, empirical_ntk
from limits.finite.forward import STATISTICS, abstract_run, mixes_inputs, on_all_points
from limits.finite.observables import Inside, output_basis, take, with_features
from limits.finite.watched import watched
from limits.kept.exported import exported
from limits.kept.quickly import quickly
from limits.kept.remembered import remembered
from limits.losses import point_loss
from limits.program.run import features_of
from limits.training import Training
from zoo import parameterization
from zoo.definition import definition_of, in_form
from zoo.plain import PlainNetwork


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Dials:
    """What is traced."""

    parameterization: Any
    gamma: Any

    @classmethod
    def of(cls, net: Any) -> "Dials":
        """The dials of this definition."""
        named = parameterization(net.parameterization).replace()
        # As arrays of the default float type, so that their values do not enter the compiled program.
        return cls(*jax.tree.map(lambda number: jnp.asarray(number, float), (named, definition_of(net).gamma)))

    def on(self, net: Any) -> Any:
        """The definition with these dials."""
        return in_form(net, self.parameterization, self.gamma)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Data:
    """Inputs [n, …] (train points, then test points), training targets, and which of their positions count (None: all)."""

    x: Any
    y: Any
    mask: Any = None

    @classmethod
    def of(cls, task: Task) -> "Data":
        """The task's arrays, in the default float type but for whole numbers."""
        x = jnp.asarray(task.x, None if task.x.dtype.kind in "iu" else float)
        return cls(
            x, jnp.asarray(task.y_train, float), None if task.mask_train is None else jnp.asarray(task.mask_train)
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Steps:
    """The learning rate of every step of the run, its training points [steps, size], and which steps to make."""

    rates: Any
    rows: Any
    first: Any
    last: Any

    @classmethod
    def of(cls, training: Training, n: int, first: int, last: int) -> "Steps":
        """The steps from `first` on, before `last`; the arrays' length is a power of two, so that few are compiled."""
        more = 2 ** (max(len(training.rates), 16) - 1).bit_length() - len(training.rates)
        rates, rows = np.pad(training.rates, (0, more)), np.pad(training.rows(n), ((0, more), (0, 0)))
        return cls(jnp.asarray(rates, float), jnp.asarray(rows), first, last)


@dataclasses.dataclass(frozen=True)
class Programs:
    """The jitted functions of one shape; the first axis of keys, variables and states is members."""

    start: Callable
    advance: Callable
    outputs: Callable
    kernels: Callable
    state: Callable

    def init(self, keys: Any, dials: Dials, data: Data) -> tuple[Any, Any]:
        """(variables, states of the optimiser)."""
        variables = self.start(keys, dials, data)
        return variables, self.state(variables, dials, data)


def programs(net: nn.Module, task: Task, training: Training, kernels: tuple[str, ...], observe: Any) -> Programs:
    """The programs for this definition's shape (its parameterization and γ₀ are dials)."""
    known = None if training.optimizer is None else net  # its factors are numbers: one compilation for each form
    form, n, step = in_form(net, "ntk", 1.0), len(task.x_train), training.step
    state, advance = _training(form, n, step, known)
    moved = Training("", trained=step.trained)
    return Programs(_start(form), advance, _outputs(form, n), _kernels(form, n, moved, kernels, observe), state)


# Each remembered by no more than it depends on: ensembles that train otherwise, or record other kernels, share the rest.


@remembered(maxsize=64)
def _start(net: Any) -> Callable:
    def init(key: Any, dials: Dials, data: Data) -> Any:
        return dict(dials.on(net).init(key, data.x[:1]))

    def names(keys: Any, dials: Dials, data: Data) -> str:
        del keys, dials
        return str(jax.tree.structure(abstract_run(net, data.x)[1]))

    return exported(jax.vmap(init, (0, None, None)), "init", net, names=names)


@remembered(maxsize=64)
def _outputs(net: Any, n_train: int) -> Callable:
    return exported(jax.vmap(_Applied(net, n_train).everywhere, (0, None, None)), "outputs", net, n_train)


@remembered(maxsize=64)
def _training(net: Any, n_train: int, training: Training, known: Any) -> tuple[Callable, Callable]:
    """(variables → the optimiser's state, both after some steps)."""
    apply = _Applied(net, n_train)

    def optimiser(dials: Dials, x: Any, rate: Any) -> optax.GradientTransformation:
        return training.optimiser(dials.on(net) if known is None else known, x, rate)

    def state(variables: Any, dials: Dials, data: Data) -> Any:
        return optimiser(dials, data.x[:1], 1.0).init(variables["params"])

    def advance(variables: Any, state: Any, start: Any, dials: Dials, data: Data, steps: Steps) -> Any:
        mixes = mixes_inputs(variables)
        train = {"train": True} if mixes else {}
        # The starting outputs do not change: one forward pass, not one a step.
        offset = apply(start, data.x[:n_train], dials, **train)[0] if training.centred else jnp.zeros_like(data.y)

        def objective(params: Any, rest: Any, rows: Any) -> Any:
            f, rest = apply({"params": params, **rest}, data.x[rows], dials, **train)
            mask = None if data.mask is None else data.mask[rows]
            return point_loss(training.loss)(f - offset[rows], data.y[rows], mask), rest

        def step(i: Any, carry: Any) -> Any:
            variables, state = carry
            params, rest = variables["params"], {k: v for k, v in variables.items() if k != "params"}
            gradient, rest = jax.grad(objective, has_aux=True)(params, rest, steps.rows[i])
            updates, state = optimiser(dials, data.x[:1], steps.rates[i]).update(gradient, state, params)
            return {"params": optax.apply_updates(params, updates), **rest}, state

        return jax.lax.fori_loop(steps.first, steps.last, step, (variables, state))

    def leaves(*args: Any) -> Any:
        return jax.tree.leaves(jax.vmap(advance, (0, 0, 0, None, None, None))(*args))

    flat = exported(leaves, "advance", net, n_train, training, known)

    def advanced(variables: Any, state: Any, *rest: Any) -> Any:
        return jax.tree.unflatten(jax.tree.structure((variables, state)), flat(variables, state, *rest))

    return quickly(jax.vmap(state, (0, None, None))), advanced


@remembered(maxsize=64)
def _kernels(net: Any, n_train: int, moved: Training, kernels: tuple[str, ...], user: Any) -> Callable:
    apply = _Applied(net, n_train)

    def measure(variables: Any, dials: Dials, data: Data) -> dict[str, Any]:
        wide, params = dials.on(net), variables["params"]

        def entering(x: Any, **train: Any) -> Any:
            if isinstance(wide, PlainNetwork):
                return features_of(wide, variables, x, **train)
            return with_features(lambda: apply(variables, x, dials, **train))[1]

        inside = Inside(
            wide,
            layers=lambda: apply.everywhere(variables, dials, data, intermediates=True)[1],
            features=lambda: on_all_points(entering, data.x, n_train, mixes_inputs(variables)),
            slopes=lambda: slopes(wide, params, data.x),
            tangent=lambda: empirical_ntk(
                lambda p, x: wide.apply({"params": p}, x), params, data.x, rates=moved.factors(wide, data.x[:1])
            ),
        )
        seen = take(kernels, inside)
        if user is not None:
            seen["observed"] = watched(user, dials.on(net), variables, data.x)
        return seen

    return exported(jax.vmap(measure, (0, None, None)), "kernels", net, n_train, moved, kernels, user)


@dataclasses.dataclass(frozen=True)
class _Applied:
    """One network's forward pass."""

    net: Any
    n_train: int

    def __call__(self, variables: Any, x: Any, dials: Dials, **options: Any) -> Any:
        """(what the network returns, its collections but for the parameters afterwards)."""
        mutable = [STATISTICS] if options.get("train") else False
        out: Any = dials.on(self.net).apply(variables, x, mutable=mutable, **options)
        return out if mutable else (out, {name: part for name, part in variables.items() if name != "params"})

    def everywhere(self, variables: Any, dials: Dials, data: Data, **options: Any) -> Any:
        """What the network returns at all points."""

        def run(x: Any, **more: Any) -> Any:
            return self(variables, x, dials, **options, **more)[0]

        return on_all_points(run, data.x, self.n_train, mixes_inputs(variables))


def slopes(net: Any, params: Any, x: Any) -> list[Any]:
    """∂f_k/∂h^l [outputs, n, …] of every h^l that the definition returns."""
    f, inside = net.apply({"params": params}, x, intermediates=True)
    shifts = {f"h{l}": jnp.zeros_like(h) for l, h in enumerate(inside["h"], start=1)}
    passed: Any = jax.vjp(lambda s: net.apply({"params": params, "perturbations": s}, x), shifts)
    found = jax.vmap(passed[1])(output_basis(f))[0]
    return [found[name] for name in shifts]


def member_sharding() -> NamedSharding:
    """Members spread over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("members",), axis_types=(AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec("members"))


def member_keys(seed: int, first: int, count: int) -> Any:
    """One key a member, the same whatever the chunk it is computed in."""
    root = jax.random.key(seed)
    keys = jax.vmap(lambda m: jax.random.fold_in(root, m))(np.arange(first, first + count))
    return jax.device_put(keys, member_sharding())
