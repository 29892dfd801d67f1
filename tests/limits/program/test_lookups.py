"""Modules that look entries up by numbers: positions of signals that are not Gaussian, numbers beyond what there is."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stock import GAUSS, Dense
from test_program import reading

from limits import AbsentError, twin
from limits.program.cleared import cleared
from limits.program.nodes import Det, FieldSum, Lookup, Map, Weights
from limits.program.values import NoLimitError
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(2, 4, 3))
AT = np.array([3, 1, 1])
SOME: dict[str, Any] = {
    "take": lambda h: jnp.take(h, AT, axis=1),
    "nearest": lambda h: jnp.take(h, jnp.array([7, 1, 1]), axis=1, mode="clip"),
    "repeat": lambda h: jnp.repeat(h[:, jnp.array([3, 1])], np.array([1, 2]), axis=1, total_repeat_length=3),
    "along": lambda h: jnp.take_along_axis(h, jnp.asarray(AT)[None, :, None], 1),
    "of every input": lambda h: jnp.take_along_axis(h, jnp.broadcast_to(AT[:, None], (len(h), 3, 1)), 1),
}


class Taken(nn.Module):
    """A function of some of the signals."""

    width: int
    way: str
    slices: bool = False

    @nn.compact
    def __call__(self, x):
        h = jnp.sin(Dense(self.width)(x)) + 0.5
        made = sum(jnp.sin(h[:, i]) for i in AT) / 3 if self.slices else jnp.sin(SOME[self.way](h)).mean(1)
        return Dense(1)(made)


@pytest.mark.parametrize("way", SOME)
def test_functions_of_what_is_looked_up(way):
    """JAX's TracerArrayConversionError came, numbers of which the nearest is taken were not, and the last was drawn."""
    found, slices = (reading([Taken(n, way, each) for n in (16, 32)], X) for each in (False, True))
    for a, b in zip(found, slices, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


class Filled(nn.Module):
    """Zeros where there is no such position."""

    width: int
    slices: bool = False

    @nn.compact
    def __call__(self, x):
        h = jnp.sin(Dense(self.width)(x)) + 0.5
        if self.slices:
            return Dense(1)((jnp.sin(h[:, 3] + 1) + np.sin(1.0)) / 2)
        return Dense(1)(jnp.sin(h.at[:, jnp.array([3, 9])].get(mode="fill", fill_value=0) + 1).mean(1))


@pytest.mark.slow
def test_what_is_filled_in_is_zero():
    found, slices = (reading([Filled(n, each) for n in (16, 32)], X) for each in (False, True))
    for a, b in zip(found, slices, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


class Table(nn.Module):
    """Rows of a table of two."""

    width: int
    rows: tuple[int, ...]
    mode: str | None = "clip"

    @nn.compact
    def __call__(self, x):
        table = self.param("table", GAUSS, (2, self.width))
        rows = jnp.take(table, jnp.array(self.rows), axis=0, mode=self.mode)
        return Dense(1)(nn.relu(Dense(self.width)(x) + rows[None]).mean(1))


def test_numbers_beyond_a_table_take_its_last_row():
    """They were rows of their own: kernels up to 19 % too small."""
    found, last = (reading([Table(n, rows) for n in (16, 32)], X) for rows in ((0, 1, 2, 9), (0, 1, 1, 1)))
    for a, b in zip(found, last, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_what_is_no_number_is_said():
    with pytest.raises(NoLimitError, match="where there are none"):
        reading([Table(n, (0, 1, 1, 2), None) for n in (16, 32)], X)


TABLE = jnp.array([1.0, 2.0, 3.0])
BEYOND: dict[str, Any] = {
    "a number of the table": lambda h, x: h * jnp.take(TABLE, rank(x), mode="fill", fill_value=7)[..., None],
    "before the first": lambda h, x: h * TABLE.at[rank(x) - 6].get(mode="fill", fill_value=0)[..., None],
    "positions before the first": lambda h, x: jnp.take(
        h, jnp.array([-7, -2, 1, 4]), axis=1, mode="fill", fill_value=0
    ),
}


def rank(x):
    return jnp.argsort(x[..., 0], -1)


class Beyond(nn.Module):
    """A linear map of what is looked up, also where there is nothing."""

    width: int
    way: str

    @nn.compact
    def __call__(self, x):
        return Dense(1)(BEYOND[self.way](Dense(self.width)(x), x).mean(1))


@pytest.mark.parametrize("way", BEYOND)
def test_numbers_before_the_first_and_what_is_filled_in_are_as_jax_takes_them(way):
    u = np.mean(BEYOND[way](jnp.asarray(X), jnp.asarray(X)), 1)
    expected = u @ u.T
    found = reading([Beyond(n, way) for n in (16, 32)], X)[0]
    np.testing.assert_allclose(found / found[0, 0], expected / expected[0, 0], rtol=1e-6)


ONE: dict[str, Any] = {
    "take": (lambda h: jnp.take(h, jnp.array([0, 0]), axis=1), lambda h: jnp.concatenate([h, h], 1)),
    "from the end": (lambda h: h[:, np.array([0, -1])], lambda h: jnp.concatenate([h, h], 1)),
    "nearest": (lambda h: jnp.take(h, jnp.array([2, 0]), axis=1, mode="clip"), lambda h: jnp.concatenate([h, h], 1)),
    "zeros beyond it": (
        lambda h: jnp.take(h, jnp.array([0, 2]), axis=1, mode="fill", fill_value=0),
        lambda h: jnp.concatenate([h, 0 * h], 1),
    ),
}


class OfOne(nn.Module):
    """Of the one position that is left of several."""

    width: int
    way: str
    plain: bool = False

    @nn.compact
    def __call__(self, x):
        return Dense(1)(jnp.sin(ONE[self.way][self.plain](Dense(self.width)(x)[:, :1]) + 0.5).mean(1))


@pytest.mark.parametrize("way", ONE)
def test_an_axis_of_one_position_is_looked_up_as_any_other(way):
    """They were refused, as if they were along neurons or inputs."""
    found, plain = (reading([OfOne(n, way, each) for n in (16, 32)], X) for each in (False, True))
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


class Words(nn.Module):
    """Flax's embedding of five words; masked: of others zeros."""

    width: int
    masked: bool = False

    @nn.compact
    def __call__(self, tokens):
        h = nn.Embed(5, self.width, embedding_init=nn.initializers.normal(1.0))(tokens)
        h = jnp.where((tokens < 5)[..., None], h, 0.0) if self.masked else h
        return nn.Dense(1)(nn.relu(h).mean(1))


TOKENS = np.array([[0, 1], [-1, 1], [1, 7], [0, -9]])


def test_words_beyond_a_table_are_said():
    """Kernels of them were "exact", as if the table had such rows; Flax makes NaN of them."""
    limit = twin(in_parameterization(Words(64), "ntk"))
    with pytest.raises(FloatingPointError, match="looks up positions beyond the end"):
        limit.kernels(TOKENS)
    np.testing.assert_allclose(limit.kernels(TOKENS[:2]).nngp[0, 1], 0.25 * (0.5 + 3 / (2 * np.pi)))


@pytest.mark.parametrize("masked", [False, True])
def test_under_jit_words_beyond_a_table_are_nan_as_those_of_flax(masked):
    net = in_parameterization(Words(64, masked), "ntk")
    f = net.apply(net.init(jax.random.key(0), TOKENS), TOKENS)
    kernel = twin(net).kernel_function()
    found = jax.jit(lambda tokens: kernel(tokens).ntk)(jnp.asarray(TOKENS[:3]))
    finite = np.isfinite(np.asarray(f[:3, 0]))
    np.testing.assert_array_equal(np.isfinite(found), finite[:, None] & finite)
    assert finite[2] == masked
    if masked:
        np.testing.assert_allclose(twin(net).kernels(TOKENS[:3]).ntk, found, rtol=1e-5)


PADDED: dict[str, Any] = {  # what is done with rows h of words, before those of padding are left out
    "function": lambda mask, h, net: jnp.where(mask, nn.relu(h), 0.0),
    "multiple": lambda mask, h, net: nn.relu(jnp.where(mask, 3.0 * h, 0.0)),
    "layer": lambda mask, h, net: nn.relu(jnp.where(mask, Dense(net.width)(h), 0.0)),
    "norm": lambda mask, h, net: jnp.where(mask, jnp.sin(nn.LayerNorm()(h)), 0.0),
    "side by side": lambda mask, h, net: jnp.where(mask, jnp.concatenate([nn.relu(h), jnp.sin(h)], -1), 0.0),
    "turned": lambda mask, h, net: jnp.where(mask[:, ::-1], nn.relu(h[:, ::-1]), 0.0),
    "neighbours": lambda mask, h, net: jnp.where(mask & jnp.roll(mask, 1, 1), nn.relu(h + jnp.roll(h, 1, 1)), 0.0),
    "skip": lambda mask, h, net: nn.relu(jnp.where(mask, h + nn.relu(h), 0.0)),
}


class PaddedWords(nn.Module):
    """Of five words; what is no word is padding. inside: a row that there is stands for padding, which makes no difference."""

    width: int
    way: str
    inside: bool = False

    @nn.compact
    def __call__(self, tokens):
        mask = (tokens < 5)[..., None]
        at = jnp.minimum(tokens, 4) if self.inside else tokens
        h = nn.Embed(5, self.width, embedding_init=nn.initializers.normal(1.0))(at)
        return Dense(1)(PADDED[self.way](mask, h, self).mean(1))


@pytest.mark.parametrize("way", PADDED)
def test_rows_that_there_are_not_do_not_matter_where_they_are_not_taken(way):
    tokens = np.array([[0, 1], [1, 5], [0, 3]])
    found, plain = (reading([PaddedWords(n, way, each) for n in (16, 32)], tokens) for each in (False, True))
    for a, b in zip(found, plain, strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-12)


class ZeroRows(nn.Module):
    """Rows of a table, zeros where it has none."""

    width: int
    masked: bool = False

    @nn.compact
    def __call__(self, tokens):
        table = self.param("table", GAUSS, (5, self.width))
        h = table.at[tokens].get(mode="fill", fill_value=0)
        h = jnp.where((tokens < 5)[..., None], table[jnp.minimum(tokens, 4)], 0.0) if self.masked else h
        return Dense(1)(jnp.sin(h + 0.5).mean(1))


def test_zeros_that_are_filled_in_are_zeros():
    tokens = np.array([[0, 1], [1, 7], [0, 3]])
    found, plain = (reading([ZeroRows(n, each) for n in (16, 32)], tokens) for each in (False, True))
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_selections_one_after_the_other_do_not_double_what_is_read():
    """Of a stream that each block masks: every copy was copied again."""
    table = Weights("table", (), (), 1.0, 1.0, True, "embedding")
    node: Any = Lookup((2,), 0.0, table, np.array([[0, 7]]), 5)
    ones, stream = Det(np.ones((1, 2))), node
    for _ in range(40):
        block = cleared(Map((2,), 0.0, jnp.sin, "sin", (stream,)), np.array([[True, False]]))
        stream = FieldSum((2,), 0.0, ((ones, stream), (ones, block)))
    met, ahead = set(), [stream]
    while ahead:
        each = ahead.pop()
        if id(each) not in met:
            met.add(id(each))
            ahead += each.parts_of
    assert len(met) < 40**2 + 200


class Stream(nn.Module):
    """Blocks that leave out a token whose row the table lacks, and which is in the stream itself to the end."""

    width: int

    @nn.compact
    def __call__(self, tokens):
        here = (tokens < 5)[..., None]
        h = nn.Embed(5, self.width, embedding_init=GAUSS)(tokens)
        for _ in range(6):
            h = h + jnp.where(here, nn.Dense(self.width)(nn.relu(h)), 0.0)
        return nn.Dense(1)(jnp.where(here, h, 0.0).mean(1))


@pytest.mark.slow
def test_loops_of_what_has_no_closed_kernel_are_refused_with_the_reason():
    kernel = twin(in_parameterization(Stream(16), "ntk")).kernel_function()
    with pytest.raises(AbsentError, match="Gaussian variables"):
        kernel(jnp.array([[0, 1], [1, 5]]))
