"""Kernels read off forward code: of zoo's networks, of plain Flax modules, and what is refused."""

import json
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from modules import MODULES, NOTE, REFUSED
from note import Plain
from stock import Conv, Dense, readout

from limits import twin
from limits.program import NoLimitError, measured, read
from limits.program.quadrature import root
from zoo import CNN, MLP, ResNet, ViT, learning_rate_factors

MEASURED = json.loads((Path(__file__).parents[2] / "golden" / "modules.json").read_text(encoding="utf-8"))
QUICK = ("Tied", "Scan", "DenseNet", "TiedDepths", "Branches")
NETWORKS = {
    "erf": (MLP(width=32, depth=3, activation="erf", b_std=0.3), (4, 5)),
    "gelu": (MLP(width=32, depth=2, activation="gelu", parameterization="mup", b_std=0.2), (4, 5)),
    "tanh": (MLP(width=32, depth=2, activation="tanh", b_std=0.2, bias_init="zeros"), (4, 5)),
    "relu": (MLP(width=32, depth=6, w_std=2**0.5), (4, 5)),
    "residual": (ResNet(width=32, depth=5, b_std=0.2), (4, 5)),
    "flattened": (CNN(width=16, depth=2, b_std=0.1), (3, 4, 4, 2)),
    "averaged": (CNN(width=16, depth=2, readout="average"), (3, 4, 4, 2)),
    "transformer": (ViT(width=32, depth=2, patch=2, parameterization="mup"), (3, 4, 4, 2)),
}


def marked(names, quick):
    """The others are slow."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def reading(nets, x, rate=None):
    """(NNGP, NTK) of a module, from itself at two widths; without rates, those of its parameters' variances."""
    with jax.enable_x64(True):
        program = read(
            lambda i, key, x: nets[i].init(key, x),
            lambda i, p, x: nets[i].apply(p, x),
            x,
            rate or (lambda _, law: law.variance or 1.0),
        )
        lengths, _ = measured(program, x)
        return tuple(np.asarray(part) for part in jax.jit(lambda a: program(a, a, lengths))(np.asarray(x)).values())


@pytest.mark.parametrize("name", marked(NETWORKS, ("relu", "residual", "flattened")))
def test_the_networks_of_the_zoo_have_the_kernels_of_their_closed_twins(name):
    net, shape = NETWORKS[name]
    x = np.random.default_rng(0).normal(size=shape)
    factors = learning_rate_factors(net, jax.ShapeDtypeStruct((1, *shape[1:]), "float32"))
    rates = {jax.tree_util.keystr(path): float(v) for path, v in jax.tree.leaves_with_path({"params": factors})}
    nngp, ntk = reading((net, net.clone(width=64)), x, lambda path, _: rates[path])
    closed, power = twin(net).kernels(x), net.width if net.parameterization == "mup" else 1
    np.testing.assert_allclose(power * nngp, closed.nngp, rtol=1e-12)
    np.testing.assert_allclose(ntk, closed.ntk, rtol=1e-12)


@pytest.mark.parametrize("name", marked(NOTE, ("MLP", "LNRes", *QUICK)))
def test_ten_plain_modules_have_the_numbers_of_the_theory_to_eight_digits(name):
    make, x = MODULES[name]
    nngp, ntk = reading((make(64), make(128)), x)
    np.testing.assert_allclose(np.r_[nngp[0], ntk[0]], np.ravel(NOTE[name]), atol=1e-8)


@pytest.mark.slow
def test_averages_over_many_variables_are_left_to_draws():
    make, x = MODULES["GRU"]
    with pytest.raises(NoLimitError, match="over 9 Gaussian variables at once"):
        reading((make(64), make(128)), x)


@pytest.mark.parametrize("name", marked([name for name in MODULES if name != "GRU"], QUICK))
def test_plain_modules_have_the_kernels_of_wide_networks(name):
    make, x = MODULES[name]
    narrow, wide = MEASURED[name]
    for what, exact in zip(("nngp", "ntk"), reading((make(64), make(128)), x), strict=True):
        measured = 2 * np.array(wide[f"{what}_mean"]) - np.array(narrow[f"{what}_mean"])  # O(1/N) removed
        error = np.hypot(2 * np.array(wide[f"{what}_sem"]), np.array(narrow[f"{what}_sem"]))
        # A norm before the readout leaves nothing to vary but O(1/N²). Twelve entries of 29 modules are beyond 4.5 errors
        # by chance once in 400 runs.
        assert np.all(np.abs(exact - measured) < 4.5 * error + 1e-5), what


class Running(Plain):
    """Sums over the tokens up to each one, or from each one on; as they are written, or by a table of zeros and ones."""

    written: bool = True

    @nn.compact
    def __call__(self, x):
        def sums(h, backwards):
            table = np.tril(np.ones((3, 3)), 0)
            table = table.T if backwards else table
            return jax.lax.cumsum(h, 1, backwards) if self.written else jnp.einsum("ab,nbd->nad", table, h)

        h = nn.relu(sums(Dense(self.width)(x), False) / jnp.arange(1, 4).reshape(1, 3, 1))
        return readout(nn.relu(Dense(self.width)(sums(h, True))).mean(1))


@pytest.mark.slow
def test_running_sums_are_sums():
    x = np.random.default_rng(0).normal(size=(3, 3, 2))
    written, summed = (reading([Running(n, written=how) for n in (16, 32)], x) for how in (True, False))
    for a, b in zip(written, summed, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert np.abs(written[0] - np.diag(written[0])[:, None]).max() > 0.01


@pytest.mark.parametrize(
    "name", marked([name for name in REFUSED if name != "NormTwice"], ("RandomLogits", "Transposed"))
)
def test_what_has_no_limit_is_refused_by_the_name_of_its_place(name):
    make, x, _ = REFUSED[name]
    with pytest.raises(NoLimitError) as error:
        reading((make(64), make(128)), x)
    assert len(str(error.value)) > 40
    assert "e-1" not in str(error.value)  # powers are said to two decimals
    assert ("still fluctuates, as much at every width" in str(error.value)) == (name == "RandomLogits")


class Padded(nn.Module):
    """Positions taken and repeated, by `jnp.pad` or by their numbers."""

    width: int
    by_number: bool = False

    @nn.compact
    def __call__(self, x):
        h = nn.relu(Dense(self.width)(x))
        around = np.clip(np.arange(-2, 6), 0, 3)
        h = h[:, around] if self.by_number else jnp.pad(h, ((0, 0), (2, 2), (0, 0)), mode="edge")
        return readout(nn.relu(Conv(self.width, (3,), padding="VALID")(h)).mean(1))


@pytest.mark.slow
def test_repeated_edges_are_positions():
    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    padded, taken = (reading((Padded(8, how), Padded(16, how)), x) for how in (False, True))
    for mine, known in zip(padded, taken, strict=True):
        np.testing.assert_allclose(mine, known, rtol=1e-12)


def test_near_inputs_keep_their_digits():
    """Inputs 1e-6 apart through 8 layers: Θ − Θ′ against the twin's, which carries 1 − c."""
    net = MLP(width=16, depth=8, w_std=2**0.5)
    x = np.array([[1.0, 0.3], [1.0, 0.3 + 1e-6]])
    factors = learning_rate_factors(net, jax.ShapeDtypeStruct((1, 2), "float32"))
    rates = {jax.tree_util.keystr(path): float(v) for path, v in jax.tree.leaves_with_path({"params": factors})}
    _, ntk = reading((net, net.clone(width=32)), x, lambda path, _: rates[path])
    closed = twin(net).kernels(x).ntk
    np.testing.assert_allclose(ntk[0, 0] - ntk[0, 1], closed[0, 0] - closed[0, 1], rtol=1e-7)


@pytest.mark.parametrize("n", [3, 6])
def test_the_root_of_a_covariance_is_that_of_cholesky_and_has_its_derivatives(n):
    a = np.random.default_rng(0).normal(size=(2, 7, n, n))
    with jax.enable_x64(True):
        covariance, way = (jnp.asarray(part @ part.swapaxes(1, 2)) for part in a)

        def lower(c):
            rows = root([[c[:, i, j] for j in range(n)] for i in range(n)])
            return jnp.stack([jnp.stack([*row, *[jnp.zeros(len(c))] * (n - len(row))], -1) for row in rows], 1)

        found, slope = jax.jvp(lower, (covariance,), (way,))
        expected, other = jax.jvp(jnp.linalg.cholesky, (covariance,), (way,))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(slope, other, rtol=1e-8, atol=1e-10)
        barriers = str(jax.make_jaxpr(lower)(covariance)).count("optimization_barrier")
        assert barriers == (
            0 if n == 3 else n * (n + 1) // 2
        )  # without them compilers repeat what is held, for minutes
