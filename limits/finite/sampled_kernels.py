"""Kernels without closed form, by Monte-Carlo through the network's own forward code."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track

from limits.finite.tangent import empirical_ntk
from limits.kept.precision import full_products
from limits.training import Training
from limits.types import Kernels, Provenance
from zoo.abstract import abstract

_AT_ONCE = 8  # networks


@full_products()
def sampled_kernels(
    net: Any,
    x: np.ndarray,
    readout: Any,
    members: int,
    seed: int,
    batch: bool = False,
    trained: tuple[str, ...] | None = None,
) -> Kernels:
    """NNGP and NTK [n, n] of a definition from `members` networks of its width N and as many of width 2N.

        K ≈ 2 <K_2N> − <K_N>,   standard error sqrt(4 s²_2N + s²_N)

    which removes the 1/N correction of finite networks; what is dropped is O(1/N²). `readout` carries the kernel of the
    features that enter the readout through it. `trained`: roles of the parameters
    that the NTK is of. `batch`: the network mixes the inputs of a batch (batch normalisation with
    train=True); the batch is x, whole. In float32, as networks are trained.
    """
    wide = net.clone(width=2 * net.width)
    runs = [
        _measure(each, np.asarray(x, np.float32), members, seed + i, batch, trained)
        for i, each in enumerate((net, wide))
    ]
    values, errors = {}, {}
    for name in ("nngp", "ntk"):
        (narrow, s1), (broad, s2) = ((np.mean(r[name], 0), np.std(r[name], 0, ddof=1) / members**0.5) for r in runs)
        values[name], errors[name] = 2 * broad - narrow, np.sqrt(4 * s2**2 + s1**2)
    how = Provenance.monte_carlo(
        f"{members} networks each of widths {net.width} and {wide.width}, extrapolated: O(1/N²) dropped", members
    )
    values["nngp"], slope = readout(values["nngp"]), readout(1.0) - readout(0.0)
    errors["nngp"] = slope * errors["nngp"]
    return Kernels(values["nngp"], values["ntk"], {"nngp": how, "ntk": how}, errors)


def _measure(
    net: Any, x: np.ndarray, members: int, seed: int, batch: bool, trained: tuple[str, ...] | None
) -> dict[str, np.ndarray]:
    """Kernels of each of `members` networks: [members, n, n]."""
    rates = Training("mse", trained=trained).factors(net, abstract(x.shape, x.dtype))
    how: dict[str, Any] = {"train": True, "mutable": ["batch_stats"]} if batch else {}

    def one(key: jax.Array) -> dict[str, jax.Array]:
        variables = net.init(key, jnp.asarray(x))
        rest = {name: value for name, value in variables.items() if name != "params"}

        def apply(params: Any, x: Any, intermediates: bool = False) -> Any:
            out = net.apply({"params": params, **rest}, x, intermediates=intermediates, **how)
            return out[0] if batch else out

        features = apply(variables["params"], jnp.asarray(x), True)[1]["features"]
        tangent = _of_batch if batch else empirical_ntk
        ntk: Any = tangent(apply, variables["params"], jnp.asarray(x), rates=rates)
        return {"nngp": features @ features.T / features.shape[-1], "ntk": ntk}

    run = jax.jit(jax.vmap(one))
    keys = jax.random.split(jax.random.key(seed), members)
    parts = [
        jax.tree.map(np.asarray, run(keys[i : i + _AT_ONCE]))
        for i in track(
            range(0, members, _AT_ONCE),
            f"networks of width {net.width}",
            console=Console(stderr=True),
            disable=members <= _AT_ONCE,
        )
    ]
    return {name: np.concatenate([part[name] for part in parts]).astype(np.float64) for name in ("nngp", "ntk")}


def _of_batch(apply: Any, params: Any, x: Any, rates: Any) -> Any:
    """The tangent kernel where the output of one input depends on all: by the Jacobian of the whole batch."""
    jacobian = jax.jacrev(apply)(params, x)  # [n, k, *shape]
    shares = jax.tree.map(
        lambda j, rate: rate * jnp.einsum("nkp,mkp->nm", *(2 * [j.reshape(*j.shape[:2], -1)])) / j.shape[1],
        jacobian,
        rates,
    )
    return sum(jax.tree.leaves(shares))
