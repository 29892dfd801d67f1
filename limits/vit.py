"""The infinite-width twin of `zoo/vit.py`."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits import kernels as algebra
from limits.kernel_twin import KernelTwin
from limits.kernels.propagation import Walk
from limits.kernels.random_logits import normal_draws
from limits.twin import register_twin
from limits.types import Provenance
from zoo import ViT

_REPEATS = 4  # scramblings, for the standard error


@register_twin(ViT)
@dataclasses.dataclass(frozen=True)
class ViTTwin(KernelTwin):
    """NNGP and NTK of a vision transformer: covariances Φ_aa' and tangent kernels Θ_aa' between tokens.

    Patches enter as Φ_aa' = x_a·x'_a' / D; learned positions and the class token add their variance at a = a' to Φ and Θ;
    a branch adds s² times its kernels. `limits.kernels.layer_norm` and `limits.kernels.attention` have the equations of
    the parts. Logits scaled by 1/d vanish at initialisation (independent queries and keys) or are
    deterministic (tied): exact. Logits scaled by 1/√d stay random over heads: with heads="grow" kernels are averages over
    them, quasi-Monte-Carlo with a standard error (closed without softmax, and for queries that start at zero); with a
    fixed number of heads the kernels differ from one initialisation to the next, and are absent.

    >>> from limits import twin
    >>> twin(ViT(width=16, depth=2, patch=4)).kernels(np.ones((2, 8, 8, 3))).ntk.shape
    (2, 2)
    """

    net: ViT
    deepens = True

    def _prepare(self, x: np.ndarray) -> np.ndarray:
        return self.net.patches(x)

    def _shallow(self) -> tuple[Any, int]:
        return self.net.clone(depth=1), 1

    def _shape(self) -> Any:
        return super()._shape().clone(outputs=1, beta=1.0, position_std=1.0)

    def _positions(self, x: Any) -> int:
        return (x.shape[1] + (self.net.pool == "class")) ** 2

    def _numbers(self) -> dict[str, Any]:
        in_branch = self._branch_rate
        norm = self._tangent_weight("norm") if self.net.norm_affine else 0.0
        return {
            "position": float(self.net.position_std) ** 2,
            "embedding": self._tangent_weight("embedding"),
            "norm": norm,
            "branch_norm": norm * in_branch,
        }

    @property
    def _absent(self) -> dict[str, Provenance]:
        net = self.net
        if net.logits == "1/sqrt(d)" and net.tied:
            reason = 'tied queries and keys with 1/√d logits make logits that grow as √d: there is no limit. Use logits="1/d".'
            return {"nngp": Provenance("absent", reason)}
        if net.logits == "1/sqrt(d)" and net.heads != "grow":
            reason = (
                f"with 1/√d logits each of the {net.heads} heads keeps random attention however wide it is, so the kernel "
                'differs from one initialisation to the next. Use heads="grow", or logits="1/d".'
            )
            if net.query_init == "normal":
                return {"nngp": Provenance("absent", reason)}
            return {"ntk": Provenance("absent", reason)} | super()._absent
        return super()._absent

    @property
    def _rule(self) -> algebra.AttentionRule:
        net = self.net
        moving = net.logits == "1/sqrt(d)"
        logits = "fixed" if net.tied else "random" if moving and net.query_init == "normal" else "none"
        return algebra.AttentionRule(logits, net.attention == "softmax", moving)

    def _draws(self, x: np.ndarray, samples: int, seed: int) -> list[Any]:
        if self._rule.logits != "random" or not self._rule.softmax:
            return [None]
        tokens = x.shape[1] + (self.net.pool == "class")
        return [normal_draws(tokens, samples, seed * _REPEATS + i).astype(x.dtype) for i in range(_REPEATS)]

    def _start(self, x1: jax.Array, x2: jax.Array) -> Any:
        return algebra.images(x1, x2, cross=True, within=True)

    def _walk(self, state: Any, walk: Walk) -> tuple[Any, Any]:
        net, numbers = self.net, walk.numbers
        state, mean = self._embed(walk.dense(state, "input"), numbers)

        def normed(state: Any, speed: Any) -> Any:
            if net.norm is None:
                return state
            return algebra.layer_norm(state, net.norm_epsilon, speed, speed, mean)

        def block(state: Any, scale: Any) -> Any:
            branch, query = walk.layers["branch"], walk.layers["zero" if net.query_init == "zeros" else "branch"]
            a = normed(state, numbers["branch_norm"])
            a = algebra.attend(a, self._rule, query, branch, branch, walk.has_bias, numbers["draws"])
            state = walk.add(state, walk.dense(a, "branch"), scale)
            a = walk.dense(normed(state, numbers["branch_norm"]), "branch")
            return walk.mark(walk.add(state, walk.dense(walk.activate(a), "branch"), scale))

        state = walk.repeat(block, walk.mark(state), walk.scales[::2])
        state = normed(state, numbers["norm"])
        if net.pool == "class":
            return state.k[:, :, 0, 0], state.ntk[:, :, 0, 0]
        return tuple(algebra.over_positions(a, True, False) for a in (state.k, state.ntk))  # pyright: ignore

    def _embed(self, state: Any, numbers: dict[str, Any]) -> tuple[Any, Any]:
        """Class token and positions; and the mean over neurons of what is not centred."""
        net = self.net
        if net.pool == "class":
            state = state.linear(lambda a, _: jnp.pad(a, [(0, 0), (0, 0), (1, 0), (1, 0)]))
            token = jnp.zeros(state.k.shape[-2:]).at[0, 0].set(1.0).astype(state.k.dtype)[None, None]
            state = _shifted(state, token, numbers["embedding"] * token)
        if net.positions is None:
            return state, None
        if net.positions == "learned":
            own = numbers["position"] * jnp.eye(state.k.shape[-1], dtype=state.k.dtype)[None, None]
            return _shifted(state, own, numbers["embedding"] * own), None
        covariance, mean = _sine_kernels(state.k.shape[-1])
        root = jnp.sqrt(numbers["position"])
        return _shifted(state, numbers["position"] * covariance[None, None], 0.0), root * mean

    def _recorded(self, state: Any, dual: Any) -> Any:
        """The tokens themselves: a branch's activations are inside it."""
        return state


def _shifted(state: Any, covariance: Any, tangent: Any) -> Any:
    """Something independent of the inputs added to the tokens."""
    k, k1, k2 = (a + covariance for a in (state.k, state.k1, state.k2))
    return dataclasses.replace(state, k=k, ntk=state.ntk + tangent, k1=k1, k2=k2)


def _sine_kernels(tokens: int) -> tuple[jax.Array, jax.Array]:
    """Second moments [T, T] and means [T] over neurons of `zoo.vit.sines`, in the limit of many frequencies.

    Averages over u in [0, 1] of cos((a − b) 10^(−4u)) and of (sin + cos)(a 10^(−4u)) / √2.
    """
    points, weights = np.polynomial.legendre.leggauss(max(64, 4 * tokens))
    frequency, weights = 1e4 ** -((points + 1) / 2), weights / 2
    a = np.arange(tokens)
    covariance = np.cos((a[:, None] - a[None, :])[..., None] * frequency) @ weights
    phase = a[:, None] * frequency
    return jnp.asarray(covariance), jnp.asarray(((np.sin(phase) + np.cos(phase)) @ weights) / np.sqrt(2))
