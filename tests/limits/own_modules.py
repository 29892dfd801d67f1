"""Modules built from zoo's layers that use their parameters in all the ways there are: shared, unbatched, scanned."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from limits.fields.network import REVEALED
from zoo import Dense, Norm, parameterization
from zoo.vit import Embedding

rng = np.random.default_rng(0)
VECTORS, TOKENS = rng.normal(size=(3, 4)), rng.normal(size=(3, 3, 4))  # [n, d]; [n, tokens, d]


class Own(nn.Module):
    """Features from `hidden`, then a readout scaled as the parameterization says."""

    width: int
    parameterization: str = "mup"

    def dense(self, role: str, **options: Any) -> Dense:
        """A layer of the width."""
        return Dense(self.width, role, self.width, self.p, **options)

    @property
    def p(self) -> Any:
        """The parameterization's numbers."""
        return parameterization(self.parameterization)

    @nn.compact
    def __call__(self, x):
        features = jnp.tanh(self.hidden(x))
        return Dense(2, "readout", self.width, self.p)(features) / self.p.output_scale(self.width, 1.0)


class Offset(Own):
    """What does not depend on the input, added to what does."""

    def hidden(self, x):
        return self.dense("hidden")(jnp.tanh(self.dense("input")(x) + self.dense("input", b_std=0.3)(jnp.ones((1, 1)))))


class Through(Own):
    """One matrix for the inputs, for an offset without any axis beside the neurons, and for both again."""

    def hidden(self, x):
        shared, offset = self.dense("hidden", b_std=0.4), jnp.tanh(self.dense("input")(jnp.ones(2)))
        h = shared(jnp.tanh(self.dense("input")(x))) + shared(offset)[None]
        return h + 0.5 * shared(jnp.tanh(h))


class Positions(Own):
    """Learned positions that are drawn once, and once more as a row; one of the tables is used twice."""

    def hidden(self, x):
        table = Embedding((x.shape[1],), self.width, self.p)
        h = self.dense("input")(x) + table(1) + 0.5 * jnp.sin(table(len(x)))
        return self.dense("hidden")(jnp.tanh(h) * (1 + Embedding((), self.width, self.p)(1)[None])).mean(1)


class Broadcast(Own):
    """The mean over tokens goes to every token through the matrix that the tokens meet, and a norm serves constants too."""

    def hidden(self, x):
        norm, mix, h = Norm("layer", self.width, self.p), self.dense("hidden"), self.dense("input")(x)
        constant = norm(self.dense("input")(jnp.arange(1.0, 3.0)[None, None]))
        return (mix(norm(h)) + mix(jnp.tanh(h.mean(1, keepdims=True))) + constant).mean(1)


class Rows(Own):
    """Constants with as many rows as there are inputs, which all inputs share."""

    def hidden(self, x):
        rows = self.dense("input")(jnp.ones((len(x), 2))).mean(0, keepdims=True)
        return self.dense("hidden")(jnp.tanh(self.dense("input")(x) + rows))


class TokensFirst(Own):
    """Inputs along the second axis, as many as tokens."""

    def hidden(self, x):
        return self.dense("hidden")(jnp.tanh(self.dense("input")(x.swapaxes(0, 1)))).mean(0)


class Block(nn.Module):
    """A residual layer with its bias."""

    width: int
    p: Any

    @nn.compact
    def __call__(self, h, _):
        return h + 0.5 * Dense(self.width, "hidden", self.width, self.p, b_std=0.5)(jnp.tanh(h)), None


class Scanned(Own):
    """Layers under `nn.scan` with rematerialisation, which an offset enters too."""

    def hidden(self, x):
        axes: dict[str, Any] = {"variable_axes": {"params": 0, REVEALED: 0}}
        blocks = nn.scan(nn.remat(Block), **axes, split_rngs={"params": True, "reveal": True}, length=2)
        h = self.dense("input")(x) + self.dense("input")(jnp.ones((1, 1)))
        return blocks(self.width, self.p)(h, None)[0]


class Remat(Own):
    """A layer whose call is traced a second time, met before and after."""

    def hidden(self, x):
        h = self.dense("input")(x) + nn.remat(Dense)(self.width, "input", self.width, self.p)(jnp.ones((1, 1)))
        return nn.remat(Dense)(self.width, "hidden", self.width, self.p)(jnp.tanh(h))


class Mapped(Own):
    """One matrix over the tokens by Flax's vmap."""

    def hidden(self, x):
        axes: dict[str, Any] = {"variable_axes": {"params": None, REVEALED: None}, "in_axes": 1, "out_axes": 1}
        shared = nn.vmap(Dense, **axes, split_rngs={"params": False, "reveal": False})
        h = shared(self.width, "hidden", self.width, self.p)(jnp.tanh(self.dense("input")(x)))
        return h.mean(1)


class Squared(Dense):
    """A child of zoo's layer that does something else with its weights."""

    def product(self, x, kernel):
        return jnp.tanh(x @ kernel)


class Bare(Own):
    """Weights that are used as an array too, and a layer of another kind."""

    def hidden(self, x):
        first = self.dense("input")
        h = first(x) + Squared(self.width, "input", self.width, self.p)(x)
        kernel = first.variables["params"]["kernel"]
        return self.dense("hidden")(jnp.tanh(h + 0.5 * x[:, ::-1] @ kernel))


MODULES: dict[str, tuple[type[Own], Any]] = {
    "offset": (Offset, VECTORS),
    "offset through a shared matrix": (Through, VECTORS),
    "positions": (Positions, TOKENS),
    "broadcast": (Broadcast, TOKENS),
    "as many rows as inputs": (Rows, VECTORS),
    "tokens first": (TokensFirst, TOKENS),
    "scan": (Scanned, VECTORS),
    "remat": (Remat, VECTORS),
    "vmap": (Mapped, TOKENS),
    "bare weights": (Bare, VECTORS),
}


def by_definition(apply, params, x, rates):
    """Σ rate ∂f ∂f' over parameters, the mean over outputs; every input by itself."""

    def one(sample):
        jacobian = jax.jacrev(lambda params: apply(params, sample[None])[0])(params)
        return [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(jacobian)]

    parts = zip(jax.vmap(one)(x), jax.tree.leaves(rates), strict=True)
    return sum(rate * jnp.einsum("ikp,jkp->ij", j, j) / j.shape[1] for j, rate in parts)
