"""Kernels whose tiles the devices of a mesh share."""

import json
import os
import subprocess
import sys
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from limits import twin
from limits.kernels.on_mesh import _rows, symmetric
from zoo import CNN, MLP

MESH = jax.make_mesh((1,), ("rows",), axis_types=(AxisType.Auto,))
PROGRAM = """
import json, jax, numpy as np
from limits import twin
from zoo import CNN
mesh = jax.make_mesh((2, 2), ("other", "rows"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
k = twin(CNN(8, 1, readout="average")).kernel_function()
found = k.on_mesh(np.cos(np.arange(4 * 9.0)).reshape(4, 3, 3, 1).astype("float32"), mesh, "rows", w_std=1.2)
print(json.dumps({"rows": [s.data.shape[0] for s in found.ntk.addressable_shards], "nngp": found.nngp.tolist(),
    "ntk": found.ntk.tolist()}))
"""


def tile(a, b):
    """Not symmetric in a way that a forgotten transpose would go unseen: entries of positions s, t of inputs i, j."""
    b = a if b is None else b
    return jnp.einsum("isd,jtd->ijst", a, b), jnp.einsum("isd,jtd->ij", a, b) ** 3


@pytest.mark.usefixtures("full_products")
@pytest.mark.parametrize("count", [1, 4, 5, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 6))])
def test_every_tile_is_where_it_belongs(count):
    """Each device is an entry of a mapped axis, which has the same collective operations."""
    x, asked = jnp.asarray(np.random.default_rng(count).normal(size=(2 * count, 3, 4)), "float32"), []

    def counted(a, b):
        asked.append(b is None)
        return tile(a, b)

    for i, positions in enumerate((1, 0)):
        parts = jax.vmap(
            lambda mine, i=i, positions=positions: _rows(
                lambda a, b: (counted(a, b)[i],), mine, "rows", count, positions
            )[0],
            axis_name="rows",
        )(x.reshape(count, 2, 3, 4))
        np.testing.assert_allclose(
            parts.reshape(2 * count, 2 * count, *parts.shape[3:]), tile(x, x)[i], rtol=1e-5, atol=1e-5
        )
    assert asked.count(True) == 2  # the tile of an input's own rows; the others are one loop, traced once or twice
    assert len(asked) <= 6


@pytest.mark.slow
def test_a_kernel_function_on_a_mesh_inside_jit_and_its_derivative():
    k, x = twin(MLP(width=8, depth=1, activation="erf")).kernel_function(), jnp.eye(3)
    found = jax.jit(lambda x: k.on_mesh(x, MESH))(x)
    np.testing.assert_allclose(found.ntk, k(x).ntk, rtol=1e-6)
    slope = jax.grad(lambda w: k.on_mesh(x, MESH, w_std=w).nngp.sum())(1.5)
    np.testing.assert_allclose(slope, jax.grad(lambda w: k(x, w_std=w).nngp.sum())(1.5), rtol=1e-5)


def test_a_combination_of_kernels_on_a_mesh():
    both, x = 0.3 * twin(MLP(8, 1)) + twin(MLP(8, 1, activation="erf")), np.cos(np.arange(12.0)).reshape(4, 3)
    found = both.kernel_function().on_mesh(x, MESH, scale_1=0.6)
    exact = (0.6 * twin(MLP(8, 1)) + twin(MLP(8, 1, activation="erf"))).kernels(x)
    np.testing.assert_allclose(found.nngp, exact.nngp, rtol=2e-6)
    np.testing.assert_allclose(found.ntk, exact.ntk, rtol=2e-6)


def test_what_on_mesh_refuses():
    k = twin(MLP(width=8, depth=1)).kernel_function()
    with pytest.raises(ValueError, match=r"no axis 'row'.*rows"):
        k.on_mesh(jnp.eye(3), MESH, "row")

    four = Mock(spec=Mesh, shape={"rows": 4})
    with pytest.raises(ValueError, match=r"6 inputs.*4 devices.*leave 2 out, or add 2"):
        symmetric(tile, jnp.eye(6), four, "rows")


@pytest.mark.slow
def test_four_devices_give_what_one_gives():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**os.environ, "JAX_NUM_CPU_DEVICES": "4"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["rows"] == [2] * 4
    want = twin(CNN(8, 1, readout="average", w_std=1.2)).kernels(np.cos(np.arange(4 * 9.0)).reshape(4, 3, 3, 1))
    np.testing.assert_allclose(found["nngp"], want.nngp, rtol=1e-5)
    np.testing.assert_allclose(found["ntk"], want.ntk, rtol=1e-5)
