"""Random bits are those of Threefry, whatever the size of a draw, and are worked out once, in one pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import threefry

# Random123's known answers of threefry2x32 with 20 rounds: counters, keys, words.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize("form", [threefry.words, threefry.apart])
def test_known_answers(form):
    for counters, keys, answer in KNOWN:
        assert tuple(int(each) for each in form(*(jnp.uint32(each) for each in (*keys, *counters)))) == answer


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


def test_they_are_worked_out_once_and_in_one_turn():
    """JAX's own loop has five turns, which XLA knows; and what it fuses would be done again by both that take it."""
    if jax.default_backend() != "cpu":
        pytest.skip("of other devices JAX's own way is kept")

    def taken(key, x):
        bits = jax.random.bits(key, (1, 512))
        return x ^ bits, x[:, ::-1] + bits

    text = jax.jit(taken).lower(jax.random.key(0), jnp.ones((512, 512), jnp.uint32)).compile().as_text()
    assert text.count(" while(") == 1
    assert "known_trip_count" not in text


def test_a_jax_without_the_names_stays_as_it_is(monkeypatch):
    from jax.interpreters import mlir

    monkeypatch.delattr(mlir, "register_lowering")
    threefry.register()
    assert int(jax.random.bits(jax.random.key(1), (600,))[5]) == int(by_numpy(jax.random.key(1), 6)[5])
