"""What is recorded of a network, finite or infinite, along training: kernels of its fields."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo import parameterization
from zoo.definition import definition_of
from zoo.layers import Linear


def as_numbers(a: Any) -> Any:
    """A signal of whole numbers, or of True and False, as numbers, whose products do not overflow; others as they are.

    >>> as_numbers(jnp.array([True])).dtype, as_numbers(jnp.ones(1, "bfloat16")).dtype
    (dtype('float32'), dtype(bfloat16))
    """
    return a if jnp.issubdtype(a.dtype, jnp.inexact) else jnp.asarray(a, jax.dtypes.canonicalize_dtype(float))


def feature_kernels(phis: Any) -> tuple:
    """Φ^l = <φ φ'> over the neurons of each layer, and over its positions.

    >>> feature_kernels([jnp.array([[1.0, 1.0], [1.0, -1.0]])])[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    flat = [as_numbers(a).reshape(len(a), -1) for a in phis]
    return tuple(a @ a.T / a.shape[-1] for a in flat)


def gradient_scale(net: Any) -> Any:
    """g = √N γ ∂f/∂h in the mean-field normalisation, so that G^l is O(1): the factor of ∂f/∂h."""
    p = parameterization(net.parameterization)
    return p.output_scale(net.width, definition_of(net).gamma) * net.width ** ((1 - 2 * p.a - p.b) / 2 + 0.5)


def gradient_kernels(net: Any, slopes: Any) -> tuple:
    """G^l = <g g'> over neurons, of slopes ∂f_k/∂h^l [outputs, n, …, neurons], averaged over outputs and positions.

    With g of `gradient_scale`, the tangent kernel of a dense network is Σ_l G^l (w² Φ^(l−1) + b²).
    """
    scale, out = gradient_scale(net), []
    for g in slopes:
        k, n = g.shape[:2]
        flat = g.reshape(k, n, -1, g.shape[-1])
        square = jnp.asarray(scale**2 / net.width / k, g.dtype) / flat.shape[2]
        out.append(square * jnp.einsum("knpm,kjpm->nj", flat, flat))
    return tuple(out)


def with_features(run: Callable[[], Any]) -> tuple[Any, Any]:
    """(what `run` returns, what enters the layer of role readout while it runs)."""
    entered: list[Any] = []

    def note(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        if isinstance(module, Linear) and module.role == "readout" and context.method_name == "__call__":
            entered.append(args[0])
        return call(*args, **kwargs)

    with nn.intercept_methods(note):
        out = run()
    if not entered:
        raise ValueError("features: no layer of role readout was called, so there is nothing that enters it.")
    return out, entered[-1]


def output_basis(f: Any) -> jax.Array:
    """The cotangents [outputs, n, outputs] that give ∂f_k of all n inputs at once, where inputs do not mix."""
    n, outputs = f.shape
    return jnp.broadcast_to(jnp.eye(outputs, dtype=f.dtype)[:, None, :], (outputs, n, outputs))


@dataclasses.dataclass(frozen=True)
class Inside:
    """What a network shows of itself at one time, each part computed where it is asked for.

    layers: what the network returns of its layers, "h" and "phi", each [n, …, neurons] by layer; features: what enters the
    readout; slopes: ∂f_k/∂h^l [outputs, n, …, neurons] by layer; tangent: the tangent kernel [n, n].
    """

    net: Any
    layers: Callable[[], Any]
    features: Callable[[], Any]
    slopes: Any = None  # a function too, or None where nothing asks for it
    tangent: Any = None


@dataclasses.dataclass(frozen=True)
class Observable:
    """One quantity that `lazy`, `rich` and `ensemble` record, a field of `Trajectory`; `take` is the same for both sides.

    layered: a tuple by layer. inside: the network must return its intermediates. backward: takes gradients of the outputs of
    single inputs, which do not exist where inputs mix.
    """

    symbol: str
    take: Callable[[Inside], Any]
    layered: bool = False
    inside: bool = False
    backward: bool = False


OBSERVABLES = {
    "phi": Observable("Φ", lambda seen: feature_kernels(seen.layers()["phi"]), layered=True, inside=True),
    "g": Observable(
        "G", lambda seen: gradient_kernels(seen.net, seen.slopes()), layered=True, inside=True, backward=True
    ),
    "ntk": Observable("tangent kernel", lambda seen: seen.tangent(), backward=True),
    "features": Observable("Φ before the readout", lambda seen: feature_kernels([seen.features()])[0]),
}
DEFAULT = ("phi", "g", "ntk")  # what is recorded unless `kernels` says otherwise


def take(kernels: tuple[str, ...], inside: Inside) -> dict[str, Any]:
    """These of the kernels."""
    return {name: OBSERVABLES[name].take(inside) for name in kernels if name in OBSERVABLES}
