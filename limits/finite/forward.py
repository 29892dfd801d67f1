"""How a network is run on training and test points, also where the inputs of a batch are normalised together."""

import inspect
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from limits.finite.observables import OBSERVABLES
from limits.kept.remembered import remembered
from limits.types import Provenance
from zoo import checks
from zoo.abstract import abstract
from zoo.definition import name_of

STATISTICS = "batch_stats"
_MIXED = (
    "batch normalisation makes every output depend on all inputs of the batch, so that no gradient kernel of a pair of inputs "
    'exists; use norm="layer", or kernels=("phi",)'
)
AT_POSITIONS = (
    "outputs at each of {positions} positions have gradients of their own, which are not recorded along training; the tangent "
    "kernel between positions is that of twin(net).kernels(x), and of `lazy`"
)
_SILENT = "this network has no argument `intermediates` to return its layers with (see zoo/mlp.py)"


def mixes_inputs(variables: Any) -> bool:
    """Whether the network normalises over the inputs of a batch (it keeps running averages)."""
    return STATISTICS in variables


def check_train(net: nn.Module) -> None:
    """Raises unless a network that normalises over batches can be told when it trains."""
    if "train" not in inspect.signature(net.__call__).parameters:  # pyright: ignore[reportFunctionMemberAccess]
        raise ValueError(
            f"{name_of(net)} normalises over the inputs of a batch and has no argument `train`: give its __call__ one, "
            "train=False, and pass it on to the Norm layers."
        )


def on_all_points(run: Callable, x: Any, n: int, mixes: bool) -> Any:
    """run(x, **options) for all points, the first n of them training points; leaves are [points, …].

    Where inputs mix, the training points are one batch in training mode, and the test points are normalised by the
    running averages that training has left so far.

    >>> on_all_points(lambda x, train=False: x + train, jnp.zeros(3), 2, True).tolist()
    [1.0, 1.0, 0.0]
    """
    if not mixes:
        return run(x)
    parts = [run(x[:n], train=True)] + ([run(x[n:])] if len(x) > n else [])
    return jax.tree.map(lambda *each: jnp.concatenate(each), *parts)


def shows_inside(net: nn.Module) -> bool:
    """Whether the network returns its intermediates where asked to, as those of the zoo do."""
    return "intermediates" in inspect.signature(net.__call__).parameters  # pyright: ignore[reportFunctionMemberAccess]


def checked_kernels(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of kernels to record, if they are some.

    >>> checked_kernels(("phi", "ntk"))
    ('phi', 'ntk')
    """
    checks.choices(*OBSERVABLES)("kernels", names)
    return tuple(names)


def absent_kernels(net: nn.Module, x: Any) -> dict[str, Provenance]:
    """Which of phi, g, ntk do not exist of a network and inputs of this shape, and why."""
    missing = dict[str, Provenance]()
    if not shows_inside(net):
        inside = [name for name, each in OBSERVABLES.items() if each.inside]
        missing |= dict.fromkeys(inside, Provenance("absent", _SILENT))
    if mixes_inputs(abstract_run(net, x)[1]):
        backward = [name for name, each in OBSERVABLES.items() if each.backward]
        missing |= dict.fromkeys(backward, Provenance("absent", _MIXED))
    return missing


def unrecorded(net: nn.Module, x: Any) -> dict[str, Provenance]:
    """Which of phi, g, ntk are not recorded along training on inputs of this shape, and why."""
    shape = getattr(abstract_run(net, x)[0], "shape", ())
    backward = [name for name, each in OBSERVABLES.items() if each.backward]
    why = Provenance("absent", AT_POSITIONS.format(positions=" × ".join(map(str, shape[1:-1]))))
    return absent_kernels(net, x) | (dict.fromkeys(backward, why) if len(shape) > 2 else {})


def abstract_run(net: nn.Module, x: Any) -> tuple[Any, Any]:
    """(what the network returns of one input like x, its variables), as shapes."""
    kind = x.dtype if np.dtype(x.dtype).kind in "iu" else jnp.asarray(0.0).dtype
    return _abstract_run(net, (1, *x.shape[1:]), kind)


@remembered(maxsize=64)
def _abstract_run(net: nn.Module, shape: tuple[int, ...], kind: Any) -> tuple[Any, Any]:
    return jax.eval_shape(net.init_with_output, jax.random.key(0), abstract(shape, kind))
