"""The compiled programs of an analysis: one set a network and loss, for all checkpoints and all runs of a size."""

import dataclasses
from collections.abc import Callable
from typing import Any, get_args

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from limits import empirical_ntk, linearize
from limits.losses import point_loss
from limits.observables import feature_kernels, gradient_kernels
from limits.remembered import remembered
from limits.types import Loss
from train.analysis.chunks import in_chunks, mean_over_chunks
from train.analysis.network import Inference, missing
from train.members import _jit, slopes


@dataclasses.dataclass(frozen=True)
class Programs:
    """Jitted functions of (trained, state, …); everything else that they need is fixed."""

    outputs: Callable  # (trained, state, x) → f
    inside: Callable  # (trained, state, x) → kernels of the layers by name
    tangent: Callable  # (trained, state, x1, x2 or None, rates) → [n1, n2]
    linear: Callable  # (start, trained, state, x) → f of the network linearised at start


def programs(net: Any, chunk: int) -> Programs:
    """The programs for this network (a module, or a function apply(variables, x)), `chunk` samples at a time.

    They are kept by the network: give the same function every time, not a new lambda.
    """
    return _programs(net, chunk)


def hessian_program(net: Any, loss: Any, chunk: int) -> Callable:
    """(trained, state, (x, y), flat vector, roots) → D^{1/2} H D^{1/2} vector, H the Hessian of a loss (see `loss_function`)."""
    loss_function(loss)
    return _hessian_program(net, loss, chunk)


def loss_function(loss: Any) -> Callable:
    """ "mse" or "cross_entropy" (see `limits.Task`), or the function of (outputs, targets) itself, a mean over samples.

    >>> float(loss_function("mse")(jnp.zeros((2, 1)), jnp.ones((2, 1))))
    0.5
    """
    if callable(loss):
        return loss
    if loss not in get_args(Loss):
        raise ValueError(f'loss must be one of {", ".join(get_args(Loss))}, or a function; got "{loss}".')
    return lambda f, y: point_loss(loss)(f, probabilities(y, f.shape))


def probabilities(targets: Any, outputs: tuple[int, ...]) -> Any:
    """Targets; whole numbers that say classes, [n] or [n, positions] where outputs have one more axis, as 0 and 1.

    >>> probabilities(jnp.array([1, 0]), (2, 3)).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    said = jnp.issubdtype(targets.dtype, jnp.integer) and targets.shape == outputs[:-1]
    return jax.nn.one_hot(targets, outputs[-1]) if said else targets


@remembered(maxsize=64)
def _programs(net: Any, chunk: int) -> Programs:
    absent = missing(net)

    def outputs(trained: Any, state: Any, x: Any) -> Any:
        return in_chunks(lambda part: Inference(net, state).apply(trained, part), x, chunk)

    def inside(trained: Any, state: Any, x: Any) -> dict[str, Any]:
        seen, fixed = {}, Inference(net, state)
        if "phi" not in absent:
            f, layers = fixed.apply(trained, x, intermediates=True)
            wide = jax.tree.map(lambda a: jnp.asarray(a, f.dtype), layers)  # sums over bf16 features in full precision
            seen = {"phi": feature_kernels(wide["phi"]), "features": feature_kernels([wide["features"]])[0]}
        if "g" not in absent:
            seen["g"] = gradient_kernels(net, slopes(fixed, trained["params"], x))
        return seen

    def tangent(trained: Any, state: Any, x1: Any, x2: Any, rates: Any) -> Any:
        return empirical_ntk(Inference(net, state).apply, trained, x1, x2, rates=rates)

    def linear(start: Any, trained: Any, state: Any, x: Any) -> Any:
        straight = linearize(Inference(net, state).apply, start)
        return in_chunks(lambda part: straight(trained, part), x, chunk)

    return Programs(*(_jit(program) for program in (outputs, inside, tangent, linear)))


@remembered(maxsize=64)
def _hessian_program(net: Any, loss: Any, chunk: int) -> Callable:
    objective = loss_function(loss)

    def hessian(trained: Any, state: Any, data: Any, vector: Any, roots: Any) -> Any:
        def times_roots(tree: Any) -> Any:
            return jax.tree.map(lambda leaf, root: leaf * jnp.asarray(root, leaf.dtype), tree, roots)

        along = times_roots(ravel_pytree(trained)[1](vector))

        def part(x: Any, y: Any) -> Any:
            gradient = jax.grad(lambda p: objective(Inference(net, state).apply(p, x), y))
            return jax.jvp(gradient, (trained,), (along,))[1]

        return ravel_pytree(times_roots(mean_over_chunks(part, data, chunk)))[0]

    return _jit(hessian)
