"""Roles and factors of parameters that names and shapes alone would place wrongly."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from zoo import infer_roles
from zoo.infer import IN_CODE

DEPTHS: dict[str, Any] = {"base": {"width": 8, "depth": 2}, "target": {"width": 8, "depth": 8}}
TOKENS = jnp.ones((1, 5, 3))


class Mixer(nn.Module):
    """Token mixing, whose sizes are fixed: of every block its own, or one for all."""

    width: int
    depth: int
    shared: bool = False

    @nn.compact
    def __call__(self, x: Any) -> Any:
        h = nn.Dense(self.width, name="embed")(x)
        one = (nn.Dense(4, name="in"), nn.Dense(5, name="out")) if self.shared else None
        for i in range(self.depth):
            first, last = one or (nn.Dense(4, name=f"in_{i}"), nn.Dense(5, name=f"out_{i}"))
            h = h + last(nn.gelu(first(h.swapaxes(1, 2)))).swapaxes(1, 2)
        return nn.Dense(2, name="readout")(h.mean(1))


@pytest.mark.parametrize(("alpha", "inner"), [(0.5, 0.5), (1.0, 1.0)])
def test_weights_of_fixed_size_in_blocks_have_the_factors_in_depth(alpha, inner):
    """At m_L = 4: what hidden weights of the same place have, and their biases too; the branch's last layer holds m_L^(−α)."""

    def found(shared: bool, outputs: str) -> Any:
        def init(key: Any, **sizes: Any) -> Any:
            return Mixer(**sizes, shared=shared).init(key, TOKENS)["params"]

        roles = infer_roles(init, **DEPTHS, alpha=alpha, branch_outputs=outputs)
        return roles.factors(jax.eval_shape(lambda: init(jax.random.key(0), **DEPTHS["target"])))

    own, one = found(False, "out_"), found(True, IN_CODE)
    for part in ("kernel", "bias"):
        assert own["in_3"][part].step == pytest.approx(inner)
        assert (own["out_3"][part].step, own["out_3"][part].rate) == (pytest.approx(0.25), pytest.approx(0.25))
        assert (one["in"][part].step, one["in"][part].rate) == (pytest.approx(inner), pytest.approx(inner**2))
    for table in (own, one):
        assert (table["readout"]["bias"].step, table["readout"]["kernel"].step) == (1.0, 1.0)
