"""With which power of the width the outputs of a module of one's own answer to its readout: seen from two widths."""

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state

from limits.kept.precision import computing_in
from limits.kept.remembered import remembered
from zoo import parameterization
from zoo.layers import Linear

_RATIO = 16  # of the two widths
_SMALLEST = 64
_NETWORKS, _INPUTS = 8, 8
_MARGIN = 0.25  # of a power; those that occur are multiples of 1/2


@remembered(maxsize=256)
def check_output_power(net: Any, shape: tuple[int, ...], kind: str = "float32") -> None:
    """Raises unless outputs are the readout's over γ = γ₀ N^d, with the d of the parameterization; shape, kind: of an input.

    Seen are ∂f/∂(readout) and, only where that is off, the size of the features too: a factor may stand before the readout
    as well. Both are the same from width to width up to what random networks vary, far less than a factor 2. Where there is
    no such readout, or no such width, nothing is said.
    """
    p, pair = parameterization(net.parameterization), _two_widths(net, shape, kind)
    if pair is None:
        return
    slope = _power(net, pair, shape, kind, drawn=False)
    if _near(slope, p):
        return
    whole = _power(net, pair, shape, kind, drawn=True)
    if whole is None or _near(whole, p):
        return
    found = whole if slope is None else slope
    if p.d:
        remedy = f"Return f / p.output_scale(self.width, gamma), which is γ₀ N^{p.d:g}, once, with"
        remedy += " p = parameterization(self.parameterization)."
    else:
        remedy = "p.output_scale(self.width, gamma) is γ₀ there: divide by no power of the width after the readout."
    raise ValueError(
        f"{type(net).__name__}: its outputs go as N^{round(2 * found) / 2 + 0.0:g} times what its readout gives (from widths "
        f"{pair[0]} and {pair[1]}), and must go as N^{0.0 - p.d:g} in the {p.name} parameterization, or its kernels "
        f"are off by a power of N. {remedy}"
    )


def _near(power: float | None, p: Any) -> bool:
    return power is not None and abs(power + p.d) < _MARGIN


def _power(net: Any, pair: tuple[int, int], shape: tuple[int, ...], kind: str, drawn: bool) -> float | None:
    """The power of N of ∂f/∂(readout), or of that times the features in drawn networks; None where one of them is 0."""
    narrow, wide = (_size(net.clone(width=width), shape, kind, drawn) for width in pair)
    finite = math.isfinite(narrow) and math.isfinite(wide) and narrow > 0 < wide
    return math.log(wide / narrow) / math.log(_RATIO) if finite else None


def _two_widths(net: Any, shape: tuple[int, ...], kind: str) -> tuple[int, int] | None:
    """A width that the module takes with these inputs, and one 16 times as large."""
    x = jax.ShapeDtypeStruct((1, *shape), _kind(kind))
    own = [width for width in range(_SMALLEST // 4, net.width + 1) if net.width % width == 0]
    for width in [_SMALLEST, *own[:4]]:
        try:
            for each in (width, _RATIO * width):
                wide = net.clone(width=each)
                jax.eval_shape(lambda key, x, wide=wide: wide.init(key, x), jax.random.key(0), x)
        except Exception:  # a module may refuse a width with any error
            continue
        return width, _RATIO * width
    return None


def _size(net: Any, shape: tuple[int, ...], kind: str, drawn: bool) -> float:
    """The root mean square of ∂f/∂(readout) along ones, of a network of zeros; or times that of the features, of drawn ones.

    With zeros, what is left to compute is what follows the readout.
    """

    def sizes(key: Any, x: Any) -> Any:
        variables = net.init(key, x)
        variables = variables if drawn else jax.tree.map(jnp.zeros_like, variables)

        def f(shift: Any) -> Any:
            features: list[Any] = []
            with nn.intercept_methods(_shifted(shift, features)):
                return net.apply(variables, x, mutable=True, rngs={"dropout": key})[0], features

        _, slope, features = jax.jvp(f, (0.0,), (1.0,), has_aux=True)
        return jnp.mean(jnp.square(slope)), sum(jnp.mean(jnp.square(a)) for a in features)

    def mean_size(keys: Any, x: Any) -> Any:
        slope, features = (jnp.mean(part) for part in jax.vmap(sizes, (0, None))(keys, x))
        return jnp.sqrt(slope * features if drawn else slope)

    whole = _kind(kind) != "float32"  # of words the first: there is one in every vocabulary
    x = np.zeros((_INPUTS, *shape), "int32") if whole else np.random.default_rng(0).normal(size=(_INPUTS, *shape))
    x = x.astype(_kind(kind))
    options = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    with computing_in(np.float32):
        keys = jax.random.split(jax.random.key(0), _NETWORKS if drawn else 1)
        return float(jax.jit(mean_size, compiler_options=options)(keys, x))


def _kind(kind: str) -> str:
    return "int32" if np.dtype(kind).kind in "iu" else "float32"


def _shifted(shift: Any, features: list[Any]) -> Callable:
    """An interceptor that adds a shift to what the readout gives, and notes what enters it."""
    trace = get_opaque_trace_state(convention="flax")

    def add(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        out, module = run(*args, **kwargs), context.module
        if context.method_name != "__call__" or not isinstance(module, Linear) or module.role != "readout":
            return out
        if get_opaque_trace_state(convention="flax") == trace:  # nothing can be taken out of an inner one
            features.append(args[0])
        return out + shift

    return add
