"""Random bits are those of Threefry, whatever the size of a draw, and are worked out once, in one pass."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits.kept.places import ROOT
from zoo import threefry

# Random123's known answers of threefry2x32 with 20 rounds: counters, keys, words.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def test_known_answers():
    for counters, keys, answer in KNOWN:
        found = threefry.words(*(jnp.uint32(each) for each in (*keys, *counters)))
        assert tuple(map(int, found)) == answer


def by_numpy(key, count):
    """What JAX draws of 32 bits: both words of the counters 0, 1, … as one."""
    k, x = (
        [np.uint32(each) for each in jax.random.key_data(key)],
        [np.zeros(count, np.uint32), np.arange(count, dtype="uint32")],
    )
    k.append(k[0] ^ k[1] ^ np.uint32(0x1BD11BDA))
    x[0], x[1] = x[0] + k[0], x[1] + k[1]
    for i in range(20):
        r = np.uint32((13, 15, 26, 6, 17, 29, 16, 24)[i % 8])
        x[0] = x[0] + x[1]
        x[1] = x[0] ^ (x[1] << r | x[1] >> np.uint32(32 - r))
        if i % 4 == 3:
            turn = i // 4 + 1
            x[0], x[1] = x[0] + k[turn % 3], x[1] + k[(turn + 1) % 3] + np.uint32(turn)
    return x[0] ^ x[1]


@pytest.mark.parametrize("shape", [(), (7,), (100, 10), (600, 1), (3, 5, 64)])
def test_bits_are_those_of_jax_at_every_shape(shape):
    key = jax.random.key(3)
    with np.errstate(over="ignore"), jax.threefry_partitionable(True):
        assert jax.random.bits(key, shape).ravel().tolist() == by_numpy(key, int(np.prod(shape))).tolist()
        keys = jax.random.split(key, 5)
        together = jax.jit(jax.vmap(lambda k: jax.random.bits(k, shape)))(keys)
        for one, each in zip(keys, together, strict=True):
            assert each.ravel().tolist() == by_numpy(one, int(np.prod(shape))).tolist()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="of other devices JAX's own way is kept")
def test_they_are_worked_out_once_and_in_one_turn():
    """JAX's own loop has five turns; and what is fused would be done again by both that take it."""

    def taken(key, x):
        bits = jax.random.bits(key, (1, 512))
        return x ^ bits, x[:, ::-1] + bits

    text = jax.jit(taken).lower(jax.random.key(0), jnp.ones((512, 512), jnp.uint32)).compile().as_text() or ""
    assert text.count(" while(") == 1
    assert '"known_trip_count":{"n":"5"}' not in text


ON_DEVICES = """
import sys, jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
if "zoo" in sys.argv:
    import zoo
draw = jax.vmap(lambda key: jax.random.normal(key, (40, 20)))
keys, found = jax.random.split(jax.random.key(5), 4), []
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((2,), ("d",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        over = jax.device_put(keys, NamedSharding(mesh, P("d")))
        found += [jax.jit(draw)(over), jax.jit(jax.shard_map(draw, mesh=mesh, in_specs=P("d"), out_specs=P("d")))(over)]
        found.append(jax.jit(lambda key: jax.random.normal(key, (64, 32)), out_shardings=NamedSharding(mesh, P("d")))(keys[0]))
print(len(jax.devices()), [float(jnp.sum(jnp.abs(each))) for each in found])
"""


@pytest.mark.slow
def test_they_are_the_same_on_several_devices():
    """Of keys that lie on several devices, in each form in which JAX spreads work, beside a process without zoo."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    told = [
        subprocess.run(
            [sys.executable, "-c", ON_DEVICES, who],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for who in ("jax", "zoo")
    ]
    assert told[0].stdout.startswith("2 [")
    assert told[0].stdout == told[1].stdout


def test_a_jax_without_the_names_stays_as_it_is(monkeypatch):
    from jax.interpreters import mlir

    monkeypatch.delattr(mlir, "register_lowering")
    threefry.register()
    assert int(jax.random.bits(jax.random.key(1), (600,))[5]) == int(by_numpy(jax.random.key(1), 6)[5])
