"""What a module does to the output of its readout: times a number, or more."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from limits.fields.measure import measure
from limits.fields.sweeps import compiled_sweep
from limits.kept.precision import computing_in
from limits.kept.remembered import remembered
from limits.training import Training
from limits.types import AbsentError
from zoo.definition import name_of
from zoo.roles import placed

_INPUTS = 3
_MARGIN = 1e-3  # of float32
MORE = (
    "the outputs of {name} are not those of its readout, or a multiple: {what}. Their covariance is not that of what enters the "
    "readout, and is not drawn. Apply such functions outside of the network, or end with the readout."
)


@remembered(maxsize=64)
def multiple(net: nn.Module, shape: tuple[int, ...], kind: str) -> Any:
    """(K, Φ) of a network drawn, for a few inputs of this shape; raises where f is not linear in its readout's weights W.

    K = Σ σ² ∂f/∂W ∂f/∂Wᵀ, of one output and weights of variance σ², is the covariance of f over W; Φ is the kernel of what
    enters the readout. None of outputs at positions.
    """
    words = np.dtype(kind).kind in "iu"  # the first of every vocabulary
    x = (
        np.zeros((_INPUTS, *shape), kind)
        if words
        else np.random.default_rng(0).normal(size=(_INPUTS, *shape)).astype(kind)
    )
    with computing_in(np.float32):
        sweep = compiled_sweep(net, Training("mse"), x.shape, len(x), str(x.dtype), steps=0)
        state, look = sweep.begin(jax.random.key(0), x), jax.random.key(1)
        phi = np.asarray(sweep.measure(state, x, look, ("features",))["features"], float)  # raises without one readout
        variables = sweep.grown(state, sweep.at_start).variables
        std, f = _of_readout(sweep, net, x)
        params: Any = flatten_dict(variables["params"])
        readout = {path: params[path] for path in std}

        @jax.jit
        def times(variables: Any, x: Any, look: Any) -> Any:
            return [f({path: a * leaf for path, leaf in readout.items()}, variables, x, look) for a in (1, 2, -1, 0)]

        once, twice, turned, none = (np.asarray(value, float) for value in times(variables, x, look))
        least = _MARGIN * np.abs(once).max()
        if np.abs(none).max() > least:
            raise AbsentError(MORE.format(name=name_of(net), what="without its weights they are not 0"))
        if max(np.abs(turned + once).max(), np.abs(twice - 2 * once).max()) > least:
            raise AbsentError(MORE.format(name=name_of(net), what="they are no linear function of its weights"))
        if once.ndim != 2 or phi.shape != 2 * (len(once),):  # outputs at positions
            return None
        return over_readout(sweep, net, x)(state, x, look), phi


def over_readout(sweep: Any, net: nn.Module, x: Any) -> Callable[[Any, Any, Any], np.ndarray]:
    """K(state, x, look) = Σ σ² ∂f/∂W ∂f/∂Wᵀ of drawn networks linear in the readout's weights W: Cov f over W, of one output."""
    std, f = _of_readout(sweep, net, x)

    @jax.jit
    def kernel(variables: Any, x: Any, look: Any) -> Any:
        params: Any = flatten_dict(variables["params"])
        # Of a linear function alone: these weights stand behind all matrices, whose bases have room for one gradient an input.
        slopes = jax.jacrev(lambda readout: f(readout, variables, x, look)[..., 0])(
            {path: params[path] for path in std}
        )
        rows = [std[path] * s.reshape(len(x), -1) for path, s in slopes.items()]
        return sum(row @ row.T for row in rows)

    return lambda state, x, look: np.asarray(kernel(sweep.grown(state, sweep.at_start).variables, x, look), float)


def _of_readout(sweep: Any, net: nn.Module, x: Any) -> tuple[dict[tuple, Any], Any]:
    """(σ by path, f(W, variables, x, look)) of the readout's weights W, and of its own random bias with them."""
    where: Any = flatten_dict(placed(net, x))

    def f(readout: Any, variables: Any, x: Any, look: Any) -> Any:
        params: Any = flatten_dict(variables["params"])
        held = variables | {"params": unflatten_dict({**params, **readout})}
        return measure(net, sweep.factors, (), held, x, len(x), look)[0]["f"]

    its_bias = {path for path, each in where.items() if each.of_outputs and np.any(each.std)}
    return {
        path: each.std
        for path, each in where.items()
        if (each.role == "readout" and not each.inner) or path in its_bias
    }, f
