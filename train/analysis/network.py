"""A network as analysis sees it: in inference mode, a function of what is trained, compiled once; and what it does not tell."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from limits import empirical_ntk, linearize
from limits.finite.forward import shows_inside
from limits.finite.observables import feature_kernels, gradient_kernels
from limits.kept.quickly import quickly
from limits.kept.remembered import remembered
from limits.losses import point_loss
from limits.types import Loss
from train.members import slopes
from train.variables import mode
from zoo import checks, learning_rate_factors
from zoo.abstract import abstract

CHUNK = 256  # samples at a time


@dataclasses.dataclass(frozen=True)
class Inference:
    """apply(trained, x) in inference mode: other collections (running averages of batch normalisation) stay as `state`.

    So samples do not mix, and kernels of pairs of inputs exist. net: a Flax module, told that it is not trained where it asks,
    or a function apply(variables, x).

    >>> Inference(lambda w, x: x @ w, {}).apply(2.0 * jax.numpy.eye(2), jax.numpy.ones((1, 2))).tolist()
    [[2.0, 2.0]]
    """

    net: Any
    state: Any

    def apply(self, trained: Any, x: Any, **options: Any) -> Any:
        """The network's outputs; options go to the network."""
        if isinstance(self.net, nn.Module) and not isinstance(trained, Mapping):
            raise ValueError(
                f"The variables (also start and reference) must be what {type(self.net).__name__}.init returns, a dictionary; "
                f"got {checks.shown(trained)}."
            )
        variables = {**trained, **self.state} if self.state else trained
        return getattr(self.net, "apply", self.net)(variables, x, **{**mode(self.net, False), **options})


def is_definition(net: Any) -> bool:
    """Whether the network says its width and parameterization, as definitions of the zoo do."""
    return isinstance(net, nn.Module) and {"width", "parameterization"} <= {f.name for f in dataclasses.fields(net)}


def missing(net: Any) -> dict[str, str]:
    """Which quantities this network cannot give, and why.

    >>> missing(nn.Dense(1))["phi"]
    'Dense has no argument `intermediates` to return its layers with (see zoo/mlp.py).'
    """
    name = type(net).__name__
    absent: dict[str, str] = {}
    if not isinstance(net, nn.Module):
        reason = "A function does not show its layers: pass a module that returns its intermediates (see zoo/mlp.py)."
        absent |= dict.fromkeys(("phi", "g", "nngp"), reason)
    elif not shows_inside(net):
        reason = f"{name} has no argument `intermediates` to return its layers with (see zoo/mlp.py)."
        absent |= dict.fromkeys(("phi", "g", "nngp"), reason)
    if not is_definition(net):
        who = name if isinstance(net, nn.Module) else "A function"
        reason = f"{who} has no fields `width` and `parameterization`, from which {{}} would follow."
        absent.setdefault("g", reason.format("the scale of gradients"))
        absent.setdefault("nngp", reason.format("the readout's scale"))
        absent["preconditioned"] = reason.format("learning-rate factors") + " Pass them as `rates`."
    return absent


def rates_of(net: Any, trained: Any, x: Any, rates: Any = None) -> Any:
    """Learning-rate factors, a tree like `trained`: the user's `rates`, or the definition's, or 1 for what is no definition."""
    leaves, tree = jax.tree.leaves(rates), jax.tree.structure(trained)
    if rates is not None:
        if len(leaves) != tree.num_leaves or min(leaves, default=0.0) < 0:
            raise ValueError(
                f"rates must be one number ≥ 0 for each of {tree.num_leaves} parameters; got {len(leaves)}, the smallest "
                f"{float(min(leaves, default=0.0)):g}."
            )
    elif is_definition(net):
        leaves = jax.tree.leaves(learning_rate_factors(net, abstract((1, *x.shape[1:]), x.dtype)))
        if len(leaves) != tree.num_leaves:
            raise ValueError(
                f"This {type(net).__name__} has {len(leaves)} parameters and the variables have {tree.num_leaves}: give the "
                "definition that they were initialised with."
            )
    else:
        leaves = [1.0] * tree.num_leaves
    return jax.tree.unflatten(tree, [float(leaf) for leaf in leaves])


# --- what is compiled, once a network and loss, for all checkpoints and all runs of a size


def parts_of(n: int, chunk: int) -> list[slice]:
    """n samples in parts of at most `chunk`, so that memory does not grow with n; as equal as possible, for another size
    compiles again.

    >>> parts_of(5, chunk=4)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    size = -(-n // -(-n // chunk))
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Jitted functions of (trained, state, …); everything else that they need is fixed."""

    outputs: Callable  # (trained, state, x) → f
    inside: Callable  # (trained, state, x) → kernels of the layers by name
    tangent: Callable  # (trained, state, x1, x2 or None, rates) → [n1, n2]
    linear: Callable  # (start, trained, state, x) → f of the network linearised at start


@remembered(maxsize=64)
def compiled(net: Any) -> Compiled:
    """Of this network (a module, or a function apply(variables, x)): give the same function every time, not a new lambda."""
    absent = missing(net)

    def outputs(trained: Any, state: Any, x: Any) -> Any:
        return Inference(net, state).apply(trained, x)

    def inside(trained: Any, state: Any, x: Any) -> dict[str, Any]:
        seen, fixed, positions = {}, Inference(net, state), False
        if "phi" not in absent:
            f, layers = fixed.apply(trained, x, intermediates=True)
            positions = f.ndim > 2
            wide = jax.tree.map(lambda a: jnp.asarray(a, f.dtype), layers)  # sums over bf16 features in full precision
            seen = {"phi": feature_kernels(wide["phi"]), "features": feature_kernels([wide["features"]])[0]}
        if "g" not in absent and not positions:
            seen["g"] = gradient_kernels(net, slopes(fixed, trained["params"], x))
        return seen

    def tangent(trained: Any, state: Any, x1: Any, x2: Any, rates: Any) -> Any:
        return empirical_ntk(Inference(net, state).apply, trained, x1, x2, rates=rates)

    def linear(start: Any, trained: Any, state: Any, x: Any) -> Any:
        return linearize(Inference(net, state).apply, start)(trained, x)

    return Compiled(*(quickly(function) for function in (outputs, inside, tangent, linear)))


@remembered(maxsize=64)
def hessian_product(net: Any, loss: Any) -> Callable:
    """(trained, state, (x, y), flat vector, roots) → D^{1/2} H D^{1/2} vector, H the Hessian of a loss (see `loss_function`)."""
    objective = loss_function(loss)

    def product(trained: Any, state: Any, data: Any, vector: Any, roots: Any) -> Any:
        def times_roots(tree: Any) -> Any:
            return jax.tree.map(lambda leaf, root: leaf * jnp.asarray(root, leaf.dtype), tree, roots)

        x, y = data
        along = times_roots(ravel_pytree(trained)[1](vector))
        gradient = jax.grad(lambda p: objective(Inference(net, state).apply(p, x), y))
        return ravel_pytree(times_roots(jax.jvp(gradient, (trained,), (along,))[1]))[0]

    return quickly(product)


def loss_function(loss: Any) -> Callable:
    """ "mse" or "cross_entropy" (see `limits.Task`), or the function of (outputs, targets) itself, a mean over samples.

    >>> float(loss_function("mse")(jnp.zeros((2, 1)), jnp.ones((2, 1))))
    0.5
    """
    if callable(loss):
        return loss
    if loss not in get_args(Loss):
        raise ValueError(f'loss must be one of {", ".join(get_args(Loss))}, or a function; got "{loss}".')
    return lambda f, y: point_loss(loss)(f, probabilities(y, f.shape), counted(y, f.shape))


def counted(targets: Any, outputs: tuple[int, ...]) -> Any:
    """Which positions [n, t] have a class; None where there is nothing to leave out.

    >>> counted(jnp.array([[1, -1]]), (1, 2, 3)).tolist(), counted(jnp.array([1, 0]), (2, 3))
    ([[True, False]], None)
    """
    return targets >= 0 if _are_classes(targets, outputs) and targets.ndim > 1 else None


def probabilities(targets: Any, outputs: tuple[int, ...]) -> Any:
    """Targets; whole numbers that say classes, [n] or [n, positions] where outputs have one more axis, as 0 and 1.

    >>> probabilities(jnp.array([1, 0]), (2, 3)).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    if not _are_classes(targets, outputs):
        return targets
    return jax.nn.one_hot(jnp.asarray(targets, "int32"), outputs[-1])  # which counts classes in the type of the targets


def _are_classes(targets: Any, outputs: tuple[int, ...]) -> bool:
    return bool(jnp.issubdtype(targets.dtype, jnp.integer)) and targets.shape == outputs[:-1]
