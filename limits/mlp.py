"""The infinite-width twin of `zoo/mlp.py`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from limits import kernels as algebra
from limits.inputs import as_rows, check_same_width
from limits.twin import Twin, register_twin
from limits.types import Kernels, Provenance
from zoo import MLP, activation_function, parameterization

_NTK_GROWS = (
    "the tangent kernel of the {name} parameterization grows as N^{power:g} with the width: it has no limit. "
    'Use parameterization="ntk" or "mup".'
)


@register_twin(MLP)
class MLPTwin(Twin):
    """NNGP and NTK of a fully connected network:

        q¹ = w² x·x'/D + b²,   q^(l+1) = w² E φφ' + b²,   K^(l+1) = w² E[φ'φ'] K^l + q^(l+1),

    with Gaussian averages over q^l, w = w_std, b = b_std. In `ntk` the output is divided by γ, so nngp = q/γ²; in `mup`
    nngp is the kernel of the last features times the readout's scale, and f(0) = 0. The tangent kernel is that of the
    parameterization's learning rate: df = −η₀ K ∂loss/∂f.

    >>> from limits import twin
    >>> k = twin(MLP(width=8, depth=1, activation="linear", w_std=2.0)).kernels(np.array([[1.0, 1.0]]))
    >>> k.nngp.item(), k.ntk.item()
    (16.0, 32.0)

    Reference: Lee et al. (2018), Deep neural networks as Gaussian processes; Jacot et al. (2018), Neural tangent kernel.
    """

    net: MLP

    @property
    def _output_variance(self) -> float:
        """nngp over the covariance of the last pre-activation: 1/γ² where the output stays random, else 1."""
        p = parameterization(self.net.parameterization)
        return 1 / float(self.net.gamma) ** 2 if p.d == 0 else 1.0

    def _affine(self) -> tuple[algebra.Affine, algebra.Affine, Provenance | None]:
        """First layer, the later ones, and why there is no tangent kernel (if so)."""
        net, p = self.net, parameterization(self.net.parameterization)
        if 2 * p.a + p.b != 1 or 2 * p.a_in + p.b_in != 0:
            raise ValueError(
                f"The {p.name} parameterization has no infinite-width limit: pre-activations are O(1) only if 2a + b = 1 "
                f"and 2 a_in + b_in = 0, here {2 * p.a + p.b:g} and {2 * p.a_in + p.b_in:g}."
            )
        powers = {role: float(p.tangent_exponent(role)) for role in ("input", "hidden", "bias")}
        w, b = float(net.w_std) ** 2, float(net.b_std) ** 2
        weight = {role: 1.0 if power == 0 else 0.0 for role, power in powers.items()}  # power < 0: frozen in the limit
        first, later = (
            algebra.Affine(w, 0.0 if net.bias_init == "zeros" else b, weight[role] * w, weight["bias"] * b)
            for role in ("input", "hidden")
        )
        largest = max(powers.values())
        absent = Provenance("absent", _NTK_GROWS.format(name=p.name, power=largest)) if largest > 0 else None
        return first, later, absent

    def _static(self, *inputs: np.ndarray) -> tuple[Any, Provenance]:
        """The compiled recursion's static choices, and what they make of the result."""
        net, (first, later, _) = self.net, self._affine()
        phi, has_bias = activation_function(net.activation), later.b > 0 or later.b_tangent > 0
        if getattr(phi, "__hash__", None) is None:
            raise ValueError(
                f"The activation {phi!r} cannot be hashed, so it cannot be compiled for: wrap it in a function."
            )
        if algebra.closed_form(phi) is None:  # a Hermite series must be long enough for the largest signal it meets
            sizes = np.concatenate([np.sqrt(np.mean(np.square(x, dtype=np.float64), axis=1)) for x in inputs])
            spread = jnp.linspace(sizes.min(), sizes.max(), 33)
            largest = float(_largest_r(phi, spread, first, later, net.depth))
        else:
            largest = 0.0
        orders, provenance = algebra.dual_for(phi, largest)
        return functools.partial(_recursion, phi, orders, has_bias), provenance

    def kernels(
        self,
        x1: Any,
        x2: Any = None,
        diagonal: bool = False,
        block: int | None = None,
        dtype: Any = np.float64,
    ) -> Kernels:
        """NNGP and NTK between x1 and x2 (or x1 and itself), or of each input with itself (`diagonal`).

        Computed in blocks of `block` rows, in float64 whatever the caller's jax settings (dtype=np.float32 for speed).
        """
        x1 = as_rows(x1, "x1", dtype)
        if x2 is not None:
            x2 = as_rows(x2, "x2", dtype)
            check_same_width(x1, x2)
            if diagonal:
                raise ValueError("kernels: the diagonal is that of x1 with itself; leave x2 out.")
        with jax.enable_x64(dtype == np.float64):
            first, later, absent = self._affine()
            recursion, provenance = self._static(x1, *([] if x2 is None else [x2]))
            tail = (first, later, self.net.depth)
            if diagonal:
                arrays = [np.asarray(part) for part in recursion(True, x1, x1, *tail)]
            else:
                arrays = algebra.pairwise(lambda a, b: _x64_call(recursion, dtype, a, b, tail), x1, x2, 2, block)
        nngp, ntk = arrays[0], arrays[1]
        if self._output_variance != 1:
            nngp = nngp * self._output_variance
        return Kernels(nngp, ntk if absent is None else absent, {"nngp": provenance, "ntk": absent or provenance})

    def initial_covariance(self, x: Any) -> Float[np.ndarray, "n n"]:
        """Covariance of f(0) over initialisations: the NNGP where d = 0, zero where the output scale grows with N."""
        nngp = self.kernels(x).nngp
        return nngp if parameterization(self.net.parameterization).d == 0 else np.zeros_like(nngp)

    def readout(self, features: Any) -> Any:
        """A feature kernel Φ^L, of the limit or of a finite network, carried through the readout: w² Φ + b²."""
        bias = 0.0 if self.net.bias_init == "zeros" else float(self.net.b_std) ** 2
        return (float(self.net.w_std) ** 2 * features + bias) * self._output_variance

    def layers(self, x: Any) -> tuple[list[Float[np.ndarray, "n n"]], list[Float[np.ndarray, "n n"]]]:
        """(Φ^l, G^l) at initialisation for l = 1 … depth: features <φφ'> and gradients <g g'>, G^L = w² E[φ'φ']."""
        x = as_rows(x, "x")
        with jax.enable_x64(True):
            first, later, _ = self._affine()
            recursion, _ = self._static(x)
            phi, orders, has_bias = recursion.args
            state = algebra.dense(algebra.inputs(jnp.asarray(x), jnp.asarray(x)), first, has_bias)
            features, slopes = [], []
            for _ in range(self.net.depth):
                r1, r2, gap, slope = algebra.dual(phi, orders)(state.r1, state.r2, state.gap)
                features.append(np.asarray(r1 * r2 * (1 - gap)))
                slopes.append(np.asarray(later.w * slope))
                state = algebra.dense(algebra.State(r1, r2, gap, state.ntk), later, has_bias)
        gradients = [np.ones((len(x), len(x)))]
        for slope in reversed(slopes):
            gradients.append(gradients[-1] * slope)
        return features, gradients[:0:-1]


def _x64_call(recursion: Any, dtype: Any, a: np.ndarray, b: np.ndarray, tail: tuple) -> Any:
    with jax.enable_x64(dtype == np.float64):  # the setting belongs to a thread, and blocks run in several
        return recursion(False, a, b, *tail)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _recursion(
    phi: Any, orders: int, has_bias: bool, diagonal: bool, x1: Any, x2: Any, first: Any, later: Any, depth: Any
) -> Any:
    """(covariance, tangent kernel) of the last pre-activation. The depth is traced: one compilation serves all."""
    state = algebra.diagonal_inputs(x1) if diagonal else algebra.inputs(x1, x2)
    state = algebra.dense(state, first, has_bias)
    layer = algebra.dual(phi, orders)
    state = jax.lax.fori_loop(0, depth, lambda _, s: algebra.dense(algebra.activate(s, layer), later, has_bias), state)
    return state.covariance, state.ntk


@functools.partial(jax.jit, static_argnums=0)
def _largest_r(phi: Any, r: Any, first: Any, later: Any, depth: Any) -> Any:
    """The largest standard deviation of any pre-activation in any layer, of inputs with standard deviations r [n]."""

    def step(_: Any, carry: tuple) -> tuple:
        r, largest = carry
        r = jnp.sqrt(later.w * algebra.rms(phi, r) ** 2 + later.b)
        return r, jnp.maximum(largest, r.max())

    r = jnp.sqrt(first.w * r**2 + first.b)
    return jax.lax.fori_loop(0, depth, step, (r, r.max()))[1]
