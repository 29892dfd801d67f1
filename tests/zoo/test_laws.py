"""Laws of parameters against draws: n normal entries show their mean to σ/√n, and their variance to σ² √(2/n)."""

import itertools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import MLP, ViT
from zoo.laws import Law, Unknown, law_of, laws
from zoo.roles import Where, placed

I = jax.nn.initializers
SHAPE = (700, 400)
SCALINGS: Any = [*itertools.product(("fan_in", "fan_out", "fan_avg"), ("normal", "truncated_normal", "uniform"))]
INITIALIZERS: dict[str, tuple[Any, str]] = {
    "lecun_normal": (I.lecun_normal(), "truncated normal"),
    "he_normal": (I.he_normal(), "truncated normal"),
    "he_uniform": (I.he_uniform(), "uniform"),
    "glorot_uniform": (I.glorot_uniform(), "uniform"),
    "normal": (I.normal(0.3), "normal"),
    "uniform": (I.uniform(0.4), "uniform"),
    "truncated_normal": (I.truncated_normal(0.2), "truncated normal"),
    "lopsided": (I.truncated_normal(0.2, lower=-0.5, upper=2.5), "truncated normal"),
    "embed": (nn.linear.default_embed_init, "normal"),
    "batched": (I.variance_scaling(3.0, "fan_in", "normal", batch_axis=0), "normal"),
    **{f"{mode}, {law}": (I.variance_scaling(1.7, mode, law), law.replace("_", " ")) for mode, law in SCALINGS},
    "shifted": (lambda key, shape: 1 - jax.random.normal(key, shape) / 8, "normal"),
    "in an interval": (lambda key, shape: jax.random.uniform(key, shape, minval=-0.1, maxval=0.3), "uniform"),
    "reshaped": (lambda key, shape: 0.5 * jax.random.normal(key, shape[::-1]).T[::-1].reshape(shape), "normal"),
    "flax's dtype": (lambda key, shape: I.normal(0.3)(key, shape).astype(jnp.bfloat16), "normal"),
}


def leaves(tree):
    """Leaves by name; a `Law` is one."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in jax.tree.leaves_with_path(tree)
    }


def agree(law, sample):
    """Within five standard errors, of which none is larger than the normal's; float32 knows a constant to 1e-7."""
    x = np.asarray(sample, np.float64).ravel()
    variance = x.var()
    assert abs(x.mean() - law.mean) <= 5 * np.sqrt(law.variance / x.size) + 1e-7 * abs(law.mean)
    assert abs(variance - law.variance) <= 5 * law.variance * np.sqrt(2 / x.size)
    if law.variance and x.size > 8000:  # the kurtosis of n normal numbers is 3 ± √(24/n), of the others at most 2.5
        kurtosis = ((x - x.mean()) ** 4).mean() / variance**2
        assert law.gaussian == (abs(kurtosis - 3) <= 5 * np.sqrt(24 / x.size))


@pytest.mark.parametrize("name", INITIALIZERS)
def test_initializers(name):
    init, kind = INITIALIZERS[name]
    law = law_of(laws(lambda key: init(key, SHAPE)))
    assert law.kind == kind
    agree(law, init(jax.random.key(3), SHAPE))


@pytest.mark.parametrize(("init", "value"), [(I.zeros, 0.0), (I.ones, 1.0), (I.constant(0.7), 0.7)])
def test_constants(init, value):
    assert laws(lambda key: init(key, (3, 4))) == Law(value, 0.0, True, "constant")
    assert laws(lambda key: 0 * jax.random.normal(key, (3,)) + value) == Law(value, 0.0, True, "constant")


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("fan_in", [1, 3, 7, 27, 147, 1000, 3072, 25088, 150528])
def test_variances_are_exact(fan_in, wide):
    with jax.enable_x64(wide):
        shape, store = (fan_in, 5), jax.dtypes.canonicalize_dtype(float)
        exact = {
            1 / fan_in: [I.lecun_normal(), I.lecun_uniform(), I.variance_scaling(1.0, "fan_in", "normal")],
            2 / fan_in: [I.he_normal(), I.he_uniform()],
            2 / (fan_in + 5): [I.glorot_normal(), I.glorot_uniform()],
        }
        for variance, inits in exact.items():
            for init in inits:
                found = laws(lambda key, init=init: init(key, shape, store))
                assert found.variance == pytest.approx(variance, rel=1e-14)
                assert found.mean == 0.0
        for std in (0.3, 0.02, 0.123):
            assert laws(lambda key, std=std: I.normal(std)(key, shape, store)).variance == pytest.approx(
                std**2, rel=1e-14
            )


@pytest.mark.parametrize("wide", [False, True])
def test_other_deviations_keep_the_precision_of_their_type(wide):
    with jax.enable_x64(wide):
        for std in (0.1234567, np.pi, 17.3205):
            found = laws(lambda key, std=std: jnp.asarray(std) * jax.random.normal(key, (3,), float))
            assert found.variance == pytest.approx(std**2, rel=1e-14 if wide else 2.5e-7)


X, IMAGE, TOKENS = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((2, 7), (2, 8, 8, 3), (2, 5, 8)))
FLAT = {"kernel": Law(0.0, 1 / 7, False, "truncated normal"), "bias": Law(0.0, 0.0, True, "constant")}


class Layer(nn.Module):
    """A layer of a stack, with parameters that are drawn in ways of their own."""

    @nn.compact
    def __call__(self, x, _=None):
        gain = self.param("gain", lambda key: jax.random.normal(key, (300,)) * 0.1 + 1.0)
        return nn.Dense(7)(x) + gain.mean(), None


class Stack(nn.Module):
    """nn.scan over layers with rematerialisation."""

    shared: bool = False

    @nn.compact
    def __call__(self, x):
        how: Any = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
        if self.shared:
            how = {"variable_broadcast": "params", "split_rngs": {"params": False}}
        return nn.scan(nn.remat(Layer), length=60, **how)()(x, None)[0]


class Copies(nn.Module):
    """nn.vmap, with or without keys of their own."""

    split: bool

    @nn.compact
    def __call__(self, x):
        how: Any = {"variable_axes": {"params": 0}, "in_axes": None, "axis_size": 50}
        return nn.vmap(nn.Dense, split_rngs={"params": self.split}, **how)(40)(x)


MODULES = {
    "dense": (nn.Dense(300), X),
    "conv": (nn.Conv(64, (3, 3)), IMAGE),
    "embed": (nn.Embed(50, 400), jax.ShapeDtypeStruct((2, 3), "int32")),
    "layer norm": (nn.LayerNorm(), X),
    "batch norm": (nn.BatchNorm(use_running_average=False), IMAGE),
    "attention": (nn.MultiHeadDotProductAttention(4, qkv_features=64, use_bias=True), TOKENS),
    "scan of remat": (Stack(), X),
    "scan of one layer": (Stack(shared=True), X),
    "vmap": (Copies(split=True), X),
    "mlp": (MLP(width=200, depth=3, b_std=0.5), X),
    "vit": (ViT(width=64, depth=2, patch=4), IMAGE),
}


def values(module, x):
    """A draw of all variables."""
    return jax.jit(module.init)(jax.random.key(5), jnp.ones(x.shape, x.dtype))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in ("mlp", "vit", "scan of one layer") else n for n in MODULES],
)
def test_modules(name):
    module, x = MODULES[name]
    found, drawn = leaves(laws(module.init, x)), leaves(values(module, x))
    assert found.keys() == drawn.keys()
    for path, law in found.items():
        agree(law_of(law), drawn[path])
    assert leaves(laws(jax.jit(module.init), x)) == found


def test_a_stack_has_the_laws_of_its_layer():
    assert laws(Stack().init, X)["params"]["ScanCheckpointLayer_0"]["Dense_0"] == FLAT
    assert laws(nn.Dense(4).init, X)["params"] == FLAT
    assert laws(Stack().init, X)["params"]["ScanCheckpointLayer_0"]["gain"] == Law(1.0, 0.01, True, "normal")


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("parameterization", ["standard", "ntk", "mup"])
@pytest.mark.parametrize("kind", [MLP, ViT])
def test_zoo(kind, parameterization, wide):
    options: dict[str, Any] = {"b_std": 0.3} if kind is MLP else {"patch": 4, "query_init": "zeros"}
    net, x = kind(width=24, depth=2, parameterization=parameterization, **options), X if kind is MLP else IMAGE
    with jax.enable_x64(wide):
        found = leaves(laws(lambda key, x: net.init(key, x)["params"], x))
    said = jax.tree.leaves_with_path(placed(net, x), is_leaf=lambda leaf: isinstance(leaf, Where))
    assert len(said) == len(found)
    for (path, where), law in zip(said, found.values(), strict=True):
        if where.role == "norm":
            continue
        assert law.variance == pytest.approx(float(where.std) ** 2, rel=1e-14), path
        assert law.mean == 0
        assert law.gaussian
    assert sum(law.variance > 0 for law in found.values()) >= len(found) // 3


@pytest.mark.parametrize(("shape", "gain"), [((30, 30), 1.0), ((20, 60), 1.5), ((3, 3, 8, 16), 1.0)])
def test_orthogonal_matrices(shape, gain):
    """Entries are those of unit vectors; moments of 2,000 matrices."""
    draw = nn.initializers.orthogonal(gain)
    law, size = law_of(laws(lambda key: draw(key, shape))), max(math.prod(shape[:-1]), shape[-1])
    assert (law.mean, law.kind, law.gaussian) == (0.0, "orthogonal", False)
    assert law.variance == pytest.approx(gain**2 / size, rel=1e-12)
    drawn = np.array(jax.jit(jax.vmap(lambda key: draw(key, shape)))(jax.random.split(jax.random.key(0), 2000)))
    assert np.mean(drawn**4) / law.variance**2 - 3 == pytest.approx(law.kurtosis, abs=0.02)
    cell = laws(nn.GRUCell(7).init, jax.ShapeDtypeStruct((2, 7), "float32"), X)["params"]
    assert law_of(cell["hz"]["kernel"]).variance == pytest.approx(1 / 7)


def twice(key, f):
    """f of two draws from one key."""
    return f(jax.random.normal(key, (3, 3)), jax.random.normal(key, (3, 3)))


@jax.jit
def _normal(key):
    return 2 * jax.random.normal(key, (500, 500))


REFUSED = {
    'through "qr"': lambda key: jnp.linalg.qr(jax.random.normal(key, (3, 3)))[0],
    'through "exp"': lambda key: jnp.exp(jax.random.normal(key, (3,))),
    'through "lt"': lambda key: jax.random.bernoulli(key, 0.5, (3,)).astype(float),
    "random_gamma": lambda key: jax.random.gamma(key, 2.0),
    "random_bits": lambda key: jax.random.bits(key, (3,)),
    "made of random bits": lambda key: key,
    "entries differ, from 0 to 2": lambda key: jnp.arange(3),
    "entries differ, from -1": lambda key: jnp.cos(jnp.linspace(0, np.pi, 5)),
    "constant array whose entries differ": lambda key: jax.random.normal(key, (3,)) * jnp.arange(3.0),
    "two different draws from the same key": lambda key: twice(key, lambda a, b: a + b.T),
    "takes two draws": lambda key: twice(key, lambda a, b: a * b),
    "divides by a draw": lambda key: 1 / jax.random.normal(key, (3,)),
    "one draw, repeated": lambda key: jnp.tile(jax.random.normal(key, (3,)), (2, 1)),
    "share one draw": lambda key: jax.random.normal(key) * jnp.arange(3.0) * 0,
    "same key": lambda key: jax.vmap(lambda key: jax.random.normal(key, (3,)))(jnp.stack([key, key])),
    "parts have different laws": lambda key: pair(key, lambda a, b: jnp.concatenate([a, 2 * b])),
    "parts are drawn with the same key": lambda key: twice(key, lambda a, b: jnp.concatenate([a, b])),
    "drawn in bfloat16": lambda key: jax.random.normal(key, (3,), "bfloat16"),
    "cast to int32": lambda key: jax.random.normal(key, (3,)).astype(int),
}


def pair(key, f):
    """f of draws from two keys."""
    first, second = jax.random.split(key)
    return f(jax.random.normal(first, (400, 400)), jax.random.normal(second, (400, 400)))


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_independent_or_not_known_is_refused(reason):
    found = laws(lambda key: {"kernel": REFUSED[reason](key)})["kernel"]
    assert isinstance(found, Unknown)
    with pytest.raises(ValueError, match=r"The law of kernel at initialisation is not known: ") as told:
        law_of(found)
    assert reason in str(told.value)


def test_copies_with_one_key_are_refused():
    found = laws(Copies(split=False).init, X)["params"]["VmapDense_0"]
    assert isinstance(found["kernel"], Unknown)
    assert found["bias"] == FLAT["bias"]


def test_what_depends_on_the_inputs_is_refused():
    found = laws(lambda key, x: {"a": x.mean() * jax.random.normal(key, (3,)), "b": jnp.ones(3)}, X)
    assert found["b"].mean == 1
    assert "depends on the arguments of init" in found["a"].reason


SUMS = {
    "different keys": lambda key: pair(key, lambda a, b: a - 3 * b),
    "the same draw": lambda key: (lambda a: a + 2 * a)(jax.random.normal(key, (400, 400))),
    "the same key twice": lambda key: jax.random.normal(key, (400, 400)) + jax.random.normal(key, (400, 400)),
    "what cancels": lambda key: (lambda a: a - a + 1)(jax.random.normal(key, (400, 400))),
    "joined": lambda key: pair(key, lambda a, b: jnp.concatenate([a, b])),
    "side by side": lambda key: pair(key, lambda a, b: jnp.stack([a, b], 1)),
    "apart": lambda key: pair(key, lambda a, b: jnp.unstack(a)[3] + 3 * jnp.split(b, 2)[1][5]),
    "a function called as jax's": _normal,
    "a fixed seed": lambda key: 0.5 * jax.random.normal(jax.random.key(7), (400, 400)),
    "old keys": lambda key: jax.random.normal(jax.random.split(jax.random.PRNGKey(3))[1], (400, 400)),
    "a checkpoint": jax.checkpoint(lambda key: 2 * jax.random.normal(key, (400, 400))),
    "mapped": lambda key: jax.vmap(lambda key: 3 * jax.random.normal(key, (400,)))(jax.random.split(key, 400)),
    "looped": lambda key: jax.lax.scan(step, key, None, length=400)[1],
}


def step(key, _):
    """A key, and a draw from another."""
    key, own = jax.random.split(key)
    return key, jax.random.normal(own, (400,)) + 1


@pytest.mark.parametrize("name", SUMS)
def test_sums_stacks_and_calls(name):
    agree(law_of(laws(SUMS[name])), SUMS[name](jax.random.key(11)))


def test_means_that_cancel_but_for_rounding_are_zero():
    half = np.float32(3**0.5 / 2)
    assert laws(lambda key: jax.random.uniform(key, (3,)) * jnp.sqrt(3.0) - half) == Law(0.0, 0.25, False, "uniform")


def test_sums_of_different_kinds():
    def init(key):
        first, second = jax.random.split(key)
        return jax.random.normal(first, SHAPE) + jax.random.uniform(second, SHAPE, minval=-4.0, maxval=4.0)

    law = laws(init)
    assert law.kind == "normal + uniform"
    agree(law, init(jax.random.key(1)))


def loop(scales):
    """Layers in a loop, each with a scale of its own."""
    scales = jnp.asarray(scales)

    def init(key):
        return jax.lax.scan(lambda c, s: (c, s[1] * jax.random.normal(s[0])), 0, (jax.random.split(key, 3), scales))[1]

    return init


def test_layers_of_a_loop_with_laws_of_their_own_are_refused():
    assert "different laws" in laws(loop([1.0, 2.0, 3.0])).reason
    assert laws(loop([2.0, 2.0, 2.0])).variance == 4


def test_integers_and_empty_arrays():
    found = laws(lambda key: (jnp.full(3, 2), jnp.zeros((0, 4)), jax.random.normal(key, (0, 4)), jnp.array(True)))
    assert [law.mean for law in found] == [2, 0, 0, 1]
    assert found[2].variance == 1


def test_nothing_is_drawn():
    # More numbers than any memory holds.
    assert (
        laws(nn.Dense(2**20).init, jax.ShapeDtypeStruct((1, 2**20), "float32"))["params"]["kernel"].variance == 2**-20
    )
