"""An engine of S samples is in law exactly the network of width S: thousands of seeds of both, no asymptotics."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task
from limits.fields.measure import measure
from limits.fields.network import REVEALED
from limits.fields.sweep import CausalSweep
from limits.training import Training
from train.ensemble import run_members
from zoo import CNN, Dense, Norm, ResNet, ViT, parameterization

pytestmark = pytest.mark.slow
S, SEEDS, STEPS = 64, 2000, 3
COMMON: dict[str, Any] = {"width": S, "parameterization": "mup", "w_std": 1.3, "gamma": 2.0}


class Recurrent(nn.Module):
    """One matrix met three times a pass, under `nn.scan` or written out; batch normalisation on request."""

    width: int = S
    parameterization: str = "mup"
    gamma: float = 2.0
    shared: bool = True
    batch_norm: bool = False
    outputs: int = 1

    @nn.compact
    def __call__(self, x: Any, intermediates: bool = False, train: bool = False) -> Any:
        p = parameterization(self.parameterization)
        h = Dense(self.width, "input", self.width, p)(x)
        if self.shared:
            again = Dense(self.width, "hidden", self.width, p)
            for _ in range(3):
                h = h + 0.5 * again(jnp.tanh(h))
        else:
            h = _scanned(self.width, p)(h)
        if self.batch_norm:
            h = Norm("batch", self.width, p)(h, train)
        a = jnp.tanh(h)
        f = Dense(1, "readout", self.width, p)(a) / p.output_scale(self.width, self.gamma)
        return (f, {"h": (h,), "phi": (a,), "features": a}) if intermediates else f


def _scanned(width: int, p: Any) -> Any:
    class Block(nn.Module):
        @nn.compact
        def __call__(self, h: Any, _: Any) -> Any:
            return h + 0.5 * Dense(width, "hidden", width, p)(jnp.tanh(h)), None

    axes = {"variable_axes": {"params": 0, REVEALED: 0}, "split_rngs": {"params": True, "reveal": True}}
    blocks = nn.scan(nn.remat(Block), **axes, length=3)()
    return lambda h: blocks(h, None)[0]


NETWORKS: dict[str, Any] = {
    "residual": ResNet(**COMMON, depth=4, activation="tanh"),
    "ViT, 1 head": ViT(**COMMON, depth=1, patch=2, mlp_ratio=1, heads=1),
    "ViT, 2 heads": ViT(**COMMON, depth=1, patch=2, mlp_ratio=1, heads=2),
    "conv": CNN(**COMMON, depth=2, activation="tanh", readout="average", strides=2),
    "batch norm": Recurrent(batch_norm=True),
    "shared matrix": Recurrent(),
    "scanned layers": Recurrent(shared=False),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_means_and_spreads_of_loss_and_kernel_are_those_of_networks_of_the_same_width(name):
    net, rng = NETWORKS[name], np.random.default_rng(0)
    shape = (4, 4, 2) if isinstance(net, (CNN, ViT)) else (3,)
    task = Task(rng.normal(size=(3, *shape)), [1.0, -1.0, 0.5])
    rate = 0.1 if isinstance(net, ViT) else 0.4  # with 0.4 some of these transformers diverge, and spreads mean little
    x, y, rows = jnp.asarray(task.x, "float32"), jnp.asarray(task.y_train, "float32"), np.arange(3)
    sweep = CausalSweep(net, Training("mse", centred=True), x.shape, 3, "float32")

    def one(key: Any) -> Any:
        state = sweep._start(key, x)

        def step(t: Any, state: Any) -> Any:
            return sweep._step(state, x, y, rows, jax.random.fold_in(key, 10 + t), rate)[0]

        state = jax.lax.fori_loop(0, STEPS, step, state)
        found, _ = measure(net, sweep.factors, ("phi",), state.variables, x, 3, jax.random.fold_in(key, 99))
        f = found["f"] - state.offset
        return 0.5 * jnp.mean((f - y) ** 2), jnp.trace(found["phi"][-1]) / 3

    keys = jax.vmap(lambda m: jax.random.fold_in(jax.random.key(11), m))(jnp.arange(SEEDS))
    # One after the other: jaxlib 0.10 on two cores was seen to stop for ever in batches of eigendecompositions.
    engine = jax.block_until_ready(jax.jit(lambda keys: jax.lax.map(one, keys))(keys))
    training = Training.of(task, STEPS, rate, centred=True)
    chunks = list(run_members(net, task, training, SEEDS, [STEPS], seed=12, kernels=("phi",)))
    f = np.concatenate([chunk["f"][:, 0] for chunk in chunks])
    phi = np.concatenate([chunk["phi"][-1][:, 0] for chunk in chunks])
    dense = 0.5 * np.mean((f - task.y_train) ** 2, axis=(1, 2)), np.einsum("mii->m", phi) / 3
    for mine, theirs in zip(map(np.asarray, engine), dense, strict=True):
        error = np.hypot(mine.std(), theirs.std()) / SEEDS**0.5
        assert abs(mine.mean() - theirs.mean()) < 3.5 * error  # 14 such numbers: once in 150 runs by chance
        # A spread's own standard error: by its fourth moment, about 2 % for SEEDS = 2000.
        spreads = [a.std() for a in (mine, theirs)]
        own = [np.std((a - a.mean()) ** 2) / (2 * a.var() * SEEDS**0.5) for a in (mine, theirs)]
        assert abs(np.log(spreads[0] / spreads[1])) < 3.5 * np.hypot(*own)
        assert np.hypot(*own) < 0.06
