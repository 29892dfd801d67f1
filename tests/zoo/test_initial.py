"""How initialisations scale with the size: by laws that are read, or by draws."""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from zoo import Rescaled, infer_roles, initial


@pytest.mark.slow
def test_initialisations_are_drawn_as_often_as_needed(monkeypatch):
    """Never where no size differs or laws are read; else one program a size, run until a fiftieth of a power is known."""
    kept: dict = {}
    monkeypatch.setattr(initial, "_KEPT", kept)

    def read(key: Any, width: int) -> Any:
        drawn = jax.random.normal(key, (width, 1)) / width
        return {"in": jax.random.normal(key, (3, width)), "out": drawn, "norm": jnp.ones(width)}

    def init(key: Any, width: int) -> Any:
        return {
            "in": jnp.exp(jax.random.normal(key, (3, width)) / 2),
            "out": jnp.zeros((width, 1)),
            "ramp": jnp.linspace(1, 2, width),
        }

    infer_roles(init, {"width": 64}, {"width": 64})
    found = infer_roles(read, {"width": 16}, {"width": 64}).places
    assert {name: place.init for name, place in found.items()} == {"in": (0, 0), "out": (-1, 0), "norm": (0, 0)}
    assert not kept
    infer_roles(init, {"width": 2**14}, {"width": 2**16})
    assert [len(each.found) for each in kept.values()] == [2, 2]  # two draws tell that the others are fixed
    infer_roles(lambda key, width: init(key, width), {"width": 2**14}, {"width": 2**15})
    assert len(kept) == 3  # the base is the same program
    assert len(next(iter(kept.values())).found) > 1


class Counted(nn.Module):
    """Glorot's laws, and numbers of Python among parameters and variables."""

    width: int
    held: Any = 0

    @nn.compact
    def __call__(self, x):
        self.variable("counters", "calls", lambda: self.held)
        h = self.param("gain", lambda key: 1.0) * nn.Dense(self.width)(x)
        return nn.Dense(1, kernel_init=nn.initializers.xavier_uniform())(h)


@pytest.mark.parametrize("held", [0, "a word"])
def test_what_is_nearly_a_power_or_no_array(held):
    """√(2 / (N + 1)) goes as N^(−.4958) between these widths."""
    x = jnp.ones((2, 3))
    found = infer_roles(lambda key, width: Counted(width, held).init(key, x)["params"], {"width": 64}, {"width": 256})
    assert found.places["Dense_1.kernel"].init == pytest.approx((math.log(65 / 257, 16), 0))
    assert found.places["Dense_1.kernel"].role == "readout"


def test_xavier_readout_and_probe_start_at_any_width_as_asked():
    """√(2/(fan_in + fan_out)) is no power of the width where one side grows; at the target a readout has 1/m of the base's."""

    class Probed(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            probe = self.param("probe", nn.initializers.xavier_uniform(), (1, 1, self.width))
            h = nn.Dense(self.width, kernel_init=nn.initializers.xavier_normal(), name="first")(x)
            return nn.Dense(20, kernel_init=nn.initializers.xavier_uniform(), name="readout")(nn.relu(h + probe).sum(1))

    x = jnp.zeros((2, 3, 5))
    net = Rescaled.of(Probed, x, base={"width": 64}, target={"width": 256})
    fans = {"first.kernel": (5 + 64, 5 + 256), "probe": (1 + 64, 1 + 256), "readout.kernel": (64 + 20, 256 + 20)}
    for name, (base, target) in fans.items():
        wanted = 1 / 4 if name == "readout.kernel" else 1.0  # of the base's
        assert float(net.roles.init_factor(net.roles.places[name])) == pytest.approx(wanted * (target / base) ** 0.5)
    drawn = net.init(jax.random.key(0), x)["params"]["readout"]["kernel"]
    assert float(drawn.std()) == pytest.approx(
        (2 / 84) ** 0.5 / 4, rel=0.03
    )  # of 5120 entries: a standard error of 0.6 %
