"""Layers that know the role of their parameters."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo.parameterization import ROLES, Parameterization


def scaled_normal(std: Any) -> nn.initializers.Initializer:
    """N(0, std²) entries: standard normals times std, so that one key gives one network in every parameterization."""

    def init(key: jax.Array, shape: Any, dtype: Any = None) -> jax.Array:
        return jnp.asarray(std, dtype) * jax.random.normal(key, shape, dtype)

    return init


class Dense(nn.Module):
    """y = m_w x W + m_b b, with initial scales and multipliers m from the parameterization and the layer's role.

    `width` is the definition's N: what the exponents are powers of. b_std = 0 means no bias; `bias_init="zeros"` gives
    a bias that starts at zero and is trained with its multiplier. Parameters have the default float type (float64
    under `jax.enable_x64`).

    >>> layer = Dense(3, role="input", width=3, parameterization=Parameterization.ntk)
    >>> layer.init(jax.random.key(0), jnp.ones((1, 4)))["params"]["kernel"].shape
    (4, 3)
    """

    features: int
    role: str
    width: int
    parameterization: Parameterization
    w_std: Any = 1.0
    b_std: Any = 0.0
    use_bias: bool | None = None  # None: where b_std is not 0 (say it where b_std is traced)
    bias_init: str = "normal"

    @property
    def param_roles(self) -> dict[str, str]:
        """The role of each parameter, by its name."""
        return {"kernel": self.role, **({"bias": "bias"} if self.has_bias else {})}

    @property
    def has_bias(self) -> bool:
        """Whether there is a bias."""
        return bool(self.b_std != 0) if self.use_bias is None else self.use_bias

    def multipliers(self, fan_in: int) -> dict[str, Any]:
        """The forward multiplier of each parameter."""
        return {name: self._scales(name, fan_in)[1] for name in self.param_roles}

    def _scales(self, name: str, fan_in: int) -> tuple[Any, Any]:
        if name == "bias":
            return self.parameterization.scales("bias", 1, self.width, self.b_std)
        return self.parameterization.scales(self.role, fan_in, self.width, self.w_std)

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:  # noqa: D102
        if self.role not in ROLES:
            raise ValueError(f'Dense: role must be one of {", ".join(ROLES)}, got "{self.role}".')
        dtype = jax.dtypes.canonicalize_dtype(float)
        std, multiplier = self._scales("kernel", x.shape[-1])
        kernel = self.param("kernel", scaled_normal(std), (x.shape[-1], self.features), dtype)
        y = jnp.asarray(multiplier, dtype) * (x @ kernel)
        if self.has_bias:
            std, multiplier = self._scales("bias", 1)
            init = nn.initializers.zeros if self.bias_init == "zeros" else scaled_normal(std)
            bias = self.param("bias", init, (self.features,), dtype)
            y = y + jnp.expand_dims(jnp.asarray(multiplier, dtype) * bias, range(y.ndim - 1))
        return y


def field(module: nn.Module, name: str, value: jax.Array) -> jax.Array:
    """Marks an intermediate by name: adds the entry of collection "perturbations" of that name, if there is one.

    The gradient with respect to that entry, at zero, is the gradient with respect to the intermediate.
    """
    if module.has_variable("perturbations", name):
        return value + module.get_variable("perturbations", name)
    return value
