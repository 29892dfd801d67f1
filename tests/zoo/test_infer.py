"""Roles of models that know nothing of this package: a scanned language model, an NNX one, and what is refused."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from zoo import Parameterization, ResNet, ViT, explain, infer_roles, scaled
from zoo.infer import IN_CODE, Place, Roles
from zoo.names import names_of

VOCABULARY, HEADS = 11, 2


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    width: int

    @nn.compact
    def __call__(self, h: Any, _: Any) -> Any:
        a = nn.LayerNorm(name="norm_1")(h)
        h = h + nn.MultiHeadDotProductAttention(HEADS, name="attention")(a, a)
        a = nn.gelu(nn.Dense(4 * self.width, name="up")(nn.LayerNorm(name="norm_2")(h)))
        return h + nn.Dense(self.width, name="down")(a), None


class Language(nn.Module):
    """Scanned blocks on nn.Embed."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        scan = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.depth)
        h, _ = scan(self.width, name="blocks")(nn.Embed(VOCABULARY, self.width, name="embed")(tokens), None)
        return nn.Dense(VOCABULARY, name="readout")(nn.LayerNorm(name="norm")(h))


TOKENS = jnp.zeros((1, 5), int)


def language(key: Any, width: int, depth: int) -> Any:
    return Language(width, depth).init(key, TOKENS)["params"]


BASE, TARGET = {"width": 16, "depth": 2}, {"width": 64, "depth": 8}
OUTPUTS = r"attention\.out|down"


@pytest.mark.slow  # the smaller model of the misuses is scanned too
def test_a_scanned_language_model():
    roles = infer_roles(language, BASE, TARGET, alpha=0.5, branch_outputs=OUTPUTS)
    found = {
        name: (place.role, place.stacked, place.in_block, place.branch_output) for name, place in roles.places.items()
    }
    assert found["embed.embedding"] == ("input", 0, False, False)
    assert found["readout.kernel"] == ("readout", 0, False, False)
    assert found["readout.bias"] == ("constant", 0, False, False)
    assert found["blocks.attention.query.kernel"] == ("hidden", 1, True, False)
    assert found["blocks.attention.query.bias"] == ("bias", 1, True, False)
    assert found["blocks.attention.out.kernel"] == ("hidden", 1, True, True)
    assert found["blocks.down.bias"] == ("bias", 1, True, True)
    assert found["norm.scale"] == ("bias", 0, False, False)
    params = jax.jit(lambda: language(jax.random.key(1), **TARGET))()
    start = roles.rescale(params)
    ratio = {name: float(jnp.std(start[name]["kernel"]) / jnp.std(params[name]["kernel"])) for name in ("readout",)}
    assert ratio["readout"] == pytest.approx(0.5)  # 1/m in place of 1/√m
    down = start["blocks"]["down"]["kernel"] / params["blocks"]["down"]["kernel"]
    np.testing.assert_allclose(down, 0.5, rtol=1e-6)  # m_L^(−1/2)
    np.testing.assert_array_equal(start["blocks"]["up"]["kernel"], params["blocks"]["up"]["kernel"])
    # nn.Embed starts with 1/√width: rescaled to the base's.
    embedding = start["embed"]["embedding"] / params["embed"]["embedding"]
    np.testing.assert_allclose(embedding, 2.0, rtol=1e-6)
    table = roles.factors(params)
    assert table["blocks"]["up"]["kernel"].step == pytest.approx(0.25 * 0.5)
    assert table["blocks"]["down"]["kernel"].step == pytest.approx(0.25 * 0.5 * 0.5)
    assert table["blocks"]["norm_1"]["scale"].step == pytest.approx(0.5)
    assert table["readout"]["kernel"].step == pytest.approx(0.25)
    tx = scaled("adamw", roles, learning_rate=0.1)
    updates = jax.jit(tx.update)(params, tx.init(params), params)[0]
    assert jax.tree.all(jax.tree.map(lambda u: bool(jnp.isfinite(u).all()), updates))


@pytest.mark.slow
def test_a_muon_update_of_stacked_layers_is_one_for_each_layer():
    roles = infer_roles(language, BASE, TARGET, alpha=1.0, branch_outputs=IN_CODE)
    params = jax.jit(lambda: language(jax.random.key(1), **TARGET))()
    tx = scaled("muon", roles, learning_rate=1.0)
    updates = jax.jit(tx.update)(params, tx.init(params), params)[0]["blocks"]["up"]["kernel"]
    norms = np.linalg.norm(updates, ord=2, axis=(1, 2))  # √(fan_out/fan_in) = 2 times an orthogonal matrix
    np.testing.assert_allclose(norms, 2.0, rtol=0.35)  # Newton and Schulz leave singular values between .7 and 1.2


@pytest.mark.slow
def test_at_the_base_size_nothing_changes():
    roles = infer_roles(language, BASE, BASE, branch_outputs=OUTPUTS)
    params = jax.jit(lambda: language(jax.random.key(1), **BASE))()
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), roles.rescale(params), params))
    plain, mine = optax.adamw(0.1, weight_decay=0.1), scaled(optax.adamw(0.1, weight_decay=0.1), roles)
    expected, found = (jax.jit(tx.update)(params, tx.init(params), params)[0] for tx in (plain, mine))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), found, expected))


@pytest.mark.slow
def test_layers_under_names_of_their_own_and_nnx():
    class Net(nnx.Module):
        def __init__(self, width: int, depth: int, rngs: nnx.Rngs) -> None:
            self.first = nnx.Linear(3, width, rngs=rngs)
            self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(depth)])
            self.last = nnx.Linear(width, 1, rngs=rngs)

    def init(key: Any, width: int, depth: int) -> Any:
        return nnx.state(Net(width, depth, nnx.Rngs(key)), nnx.Param)

    roles = infer_roles(init, BASE, TARGET, alpha=1.0, branch_outputs="layers")
    kernel = roles.places["layers.7.kernel"]
    assert (kernel.role, kernel.in_block, kernel.branch_output) == ("hidden", True, True)
    assert not roles.places["first.kernel"].in_block
    params = init(jax.random.key(0), **TARGET)
    tx = scaled(optax.adam(0.1), roles)
    updates = tx.update(params, tx.init(params), params)[0]
    assert jax.tree.structure(updates) == jax.tree.structure(params)
    start = roles.rescale(params)
    np.testing.assert_allclose(start["layers"][7]["kernel"][...], params["layers"][7]["kernel"][...] / 4, rtol=1e-6)


def test_what_cannot_be_inferred_is_refused():
    with pytest.raises(ValueError, match=r"Which of these .*blocks.down.kernel.*branch_outputs=<regular"):
        infer_roles(language, BASE, TARGET)
    with pytest.raises(ValueError, match='branch_outputs="residual" names none of'):
        infer_roles(language, BASE, TARGET, branch_outputs="residual")

    def odd(key: Any, width: int) -> Any:
        return {"w": jax.random.normal(key, (3, width + 5))}

    with pytest.raises(ValueError, match=r"axis 1 of w grows from 21 to 69, by 3.28571, while the width grows by 4"):
        infer_roles(odd, {"width": 16}, {"width": 64})

    def strange(key: Any, width: int) -> Any:
        return {"w": jax.random.exponential(key, (width, width)) / width**0.25}

    with pytest.raises(
        ValueError, match=r"w: the width changes by 4 and its initialisation by .*power -0\.2.*It was drawn"
    ):
        infer_roles(strange, {"width": 64}, {"width": 256})

    def first_axis(key: Any, width: int) -> Any:
        return {"w": jax.random.normal(key, (width, 3, 3))}

    with pytest.raises(ValueError, match="grows along axis 0 only"):
        infer_roles(first_axis, {"width": 16}, {"width": 64})
    assert infer_roles(first_axis, {"width": 16}, {"width": 64}, roles={"w": "readout"}).places["w"].role == "readout"
    roles = Roles({})
    with pytest.raises(ValueError, match="No role is known for the parameter w"):
        roles.rescale({"w": jnp.ones(3)})


def blocks(key: Any, width: int, depth: int, gpt2: bool = False) -> Any:
    """The parameters of a language model without attention, small to compile."""
    normal, keys = jax.random.normal, jax.random.split(key, 4)
    std = (2 * depth) ** -0.5 if gpt2 else 1.0
    up = {"kernel": normal(keys[1], (depth, width, 4 * width)) / width**0.5, "bias": jnp.zeros((depth, 4 * width))}
    down = {"kernel": std * normal(keys[2], (depth, 4 * width, width)) / width**0.5, "bias": jnp.zeros((depth, width))}
    head = normal(keys[3], (width, VOCABULARY)) / width**0.5
    return {"embed": normal(keys[0], (VOCABULARY, width)), "up": up, "down": down, "readout": head}


def test_explain_names_the_misuses():
    heads = Roles(
        {"query": Place("hidden", (2, 64, 2, 32), (1, 3), 1, True), "out": Place("readout", (64, 1), (0,))}, 4.0, 4.0
    )
    assert "query: d_head grows with the width" in explain(heads, "adamw", show=False).warnings[0]
    twice = infer_roles(functools.partial(blocks, gpt2=True), BASE, TARGET, branch_outputs="down")
    assert "down.kernel: its initialisation falls as depth^(-0.5)" in explain(twice, show=False).warnings[0]
    once = {name: dataclasses.replace(place, init=(place.init[0], 0.0)) for name, place in twice.places.items()}
    assert not explain(dataclasses.replace(twice, places=once), show=False).warnings
    outside = once | {"down.bias": dataclasses.replace(once["down.bias"], branch_output=False)}
    said = explain(dataclasses.replace(twice, places=outside), show=False).warnings
    assert "down.bias: a bias of a layer whose weights" in said[0]
    tied = dataclasses.replace(twice, places={name: place for name, place in once.items() if name != "readout"})
    with pytest.raises(ValueError, match=r"embed: no parameter.*write logits = h @ embed.T / 4"):
        explain(tied, show=False)
    assert explain(tied, tied=True, show=False).rows
    net = ViT(16, 1, logits="1/sqrt(d)", heads=2, parameterization=Parameterization.mup.based(8))
    assert "d_head grows" in explain(net, show=False).warnings[0]
    dense = ResNet(16, 3, parameterization=Parameterization.mup.based(8, 3))
    assert "adamw" in explain(dense, "adam", weight_decay=0.1, show=False).warnings[0]
    with pytest.raises(ValueError, match=r'explain: unknown optimiser "adma".*"adam"'):
        explain(dense, "adma", show=False)
    with pytest.raises(ValueError, match="√max"):
        explain(dense, "muon", show=False, consistent_rms=0.2)


@pytest.mark.slow
def test_explain_sees_whether_an_optimiser_of_the_users_own_is_linear():
    dense = ResNet(16, 3, parameterization=Parameterization.mup.based(8, 3))
    warmup = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)
    own = optax.chain(optax.clip_by_global_norm(1.0), optax.add_decayed_weights(0.1), optax.sgd(warmup, momentum=0.9))
    pairs = ((own, "sgd"), (optax.lion(0.1), "adam"), (optax.adagrad(0.1), "adam"), (optax.lbfgs(), "adam"))
    for optimizer, like in pairs:
        assert explain(dense, optimizer, show=False).rows == explain(dense, like, show=False).rows


@pytest.mark.slow
def test_explain_looks_into_a_muon_of_the_users_own():
    dense = ResNet(16, 3, parameterization=Parameterization.mup.based(8, 3))
    under = explain(dense, optax.contrib.muon(0.1), show=False).warnings
    assert [each.split(" ")[0] for each in under] == ["read_in.kernel", "readout.kernel"]
    with pytest.raises(ValueError, match="√max"):
        explain(dense, optax.contrib.muon(0.1, consistent_rms=0.2), show=False)
    assert not explain(dense, optax.adam(0.1), show=False).warnings


def test_explain_shows_its_table(capsys):
    net = ResNet(64, 8, b_std=0.1, parameterization=Parameterization.mup.replace(alpha=1.0).based(16, 4))
    found = explain(net, "adamw", learning_rate=0.1, weight_decay=0.2)
    rows = {row.name: row for row in found.rows}
    block, readout = rows["block_1_1.kernel"], rows["readout.kernel"]
    assert (block.rate, block.decay, block.epsilon) == pytest.approx((0.05, 0.4, 1e-8 / 4**1.5 / 2))
    assert (readout.multiplier, readout.rate, readout.std) == pytest.approx((0.5, 0.1, readout.std))
    assert readout.std == "0.25"  # N(0, 1/16) as at the base: 1/√64 √4
    assert "block_#_#.kernel (7)" in capsys.readouterr().out


def test_roles_inside_a_traced_function_and_a_traced_gamma():
    def init(key: Any, width: int) -> dict:
        a, b = jax.random.split(key)
        return {"in": jax.random.normal(a, (3, width)), "out": jax.random.normal(b, (width, 1)) / width**0.5}

    def rates(gamma: Any) -> Any:
        roles = infer_roles(init, base={"width": 8}, target={"width": 32}, gamma=gamma)
        params = roles.rescale(init(jax.random.key(0), 32))
        tx = scaled(optax.sgd(1.0), roles)
        updates: Any = tx.update(jax.tree.map(jnp.ones_like, params), tx.init(params), params)[0]
        return updates["in"], params["out"]

    for traced, plain in zip(jax.jit(rates)(2.0), rates(2.0), strict=True):
        np.testing.assert_allclose(traced, plain, rtol=1e-6)


def test_a_read_in_that_is_counted_with_the_blocks_is_not_in_a_block():
    def init(key: Any, width: int, depth: int) -> dict:
        shapes = [(8, width), *[(width, width)] * depth]  # as many inputs as the base width
        layers = {f"layer_{l}": jax.random.normal(key, shape) / shape[0] ** 0.5 for l, shape in enumerate(shapes)}
        return {**layers, "out": jax.random.normal(key, (width, 1)) / width**0.5}

    sizes: dict = {"base": {"width": 8, "depth": 2}, "target": {"width": 32, "depth": 4}}
    roles = infer_roles(init, **sizes, branch_outputs="layer")
    assert {name for name, place in roles.places.items() if place.in_block} == {f"layer_{l}" for l in (1, 2, 3, 4)}
    assert not roles.places["layer_0"].branch_output


@pytest.mark.parametrize("name", ["sgd", "adamw", pytest.param("muon", marks=pytest.mark.slow)])
def test_explain_says_what_the_optimiser_does(name: str):
    net = ResNet(32, 4, parameterization=Parameterization.mup.replace(alpha=1.0).based(8, 2))
    params = jax.jit(net.init)(jax.random.key(0), jnp.ones((1, 5)))["params"]
    slopes = jax.tree.map(lambda w: jax.random.normal(jax.random.key(1), w.shape), params)
    decay: dict = {"sgd": {}, "adamw": {"weight_decay": 0.2}, "muon": {"weight_decay": 0.2, "adam_weight_decay": 0.1}}[
        name
    ]
    rows = {row.name: row for row in explain(net, name, learning_rate=0.1, show=False, **decay).rows}
    options = {} if name == "sgd" else {"weight_decay": 0.0}

    def moved(tx: Any) -> Any:
        return tx.update(slopes, tx.init(params), params)[0]

    plain = getattr(optax.contrib if name == "muon" else optax, name)
    ours, theirs = moved(scaled(name, net, learning_rate=0.1, **options)), moved(plain(1.0, **options))
    decayed = moved(scaled(name, net, learning_rate=0.1, **decay)) if decay else ours
    for block, part in (("read_in", "kernel"), ("block_1_1", "kernel"), ("readout", "kernel")):
        row, w = rows[f"{block}.{part}"], params[block][part]
        if not (name == "muon" and block != "block_1_1"):  # the rest is under Adam
            np.testing.assert_allclose(ours[block][part], row.rate * theirs[block][part], rtol=2e-3, atol=1e-6)
        if decay:
            by_decay = decayed[block][part] - ours[block][part]
            np.testing.assert_allclose(by_decay, -row.rate * row.decay * w, rtol=1e-3, atol=1e-6)


class Twice(nn.Module):
    """Logits from the embedding itself."""

    width: int

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        embed = nn.Embed(VOCABULARY, self.width, name="embed")
        h = nn.Dense(self.width, name="mix")(embed(tokens))
        return embed.attend(nn.Dense(self.width, name="value")(h))


def twice(key: Any, width: int) -> Any:
    return Twice(width).init(key, TOKENS)["params"]


SMALL: dict[str, Any] = {"base": {"width": 8}, "target": {"width": 16}}


def test_a_tied_embedding_is_refused_with_the_remedy():
    for init in (twice, jax.jit(twice, static_argnames="width"), lambda key, width: {"model": twice(key, width)}):
        with pytest.raises(
            ValueError, match=r"embed.embedding: this matrix .* also the readout.*embedding.T / 2 \(width"
        ):
            infer_roles(init, **SMALL)
    roles = infer_roles(twice, **SMALL, tied=True)
    assert explain(roles, show=False).rows
    assert roles.places["value.kernel"].role == "hidden"


def test_a_tied_embedding_without_its_forward_pass():
    """Of a function that makes parameters, no more is known than that no parameter is a readout; or what `apply` shows."""

    def init(key: Any, width: int, head: bool = False) -> Any:
        a, b = jax.random.split(key)
        found = {"embed": jax.random.normal(a, (5, width)), "mix": jax.random.normal(b, (width, width)) / width**0.5}
        return {**found, "head": jax.random.normal(a, (width, 5)) / width**0.5} if head else found

    def attend(params: Any, width: int) -> Any:
        return params["embed"][jnp.arange(3)] @ params["mix"] @ params["embed"].T

    with pytest.raises(ValueError, match=r"embed: no parameter maps features to outputs.*tied=True.*tied=False"):
        infer_roles(init, **SMALL)
    with pytest.raises(ValueError, match="embed: this matrix makes features from inputs, and is also the readout"):
        infer_roles(functools.partial(init, head=True), **SMALL, apply=attend)  # whatever else there is
    encoder = infer_roles(init, **SMALL, apply=lambda p, width: p["embed"][jnp.arange(3)] @ p["mix"])
    assert encoder.tied is False
    by_hand = dataclasses.replace(encoder, tied=None)
    with pytest.raises(ValueError, match="also the readout"):
        scaled(optax.sgd(0.1), by_hand).init(init(jax.random.key(0), 16))
    assert infer_roles(init, **SMALL, tied=False).places["embed"].role == "input"


def test_no_word_of_a_path_is_dropped():
    """A layer named "value" is no box; boxes of Linen and of NNX are."""
    plain = {"query": {"kernel": 1}, "value": {"kernel": 2}, "kernel": 3}
    assert names_of(plain) == ["kernel", "query.kernel", "value.kernel"]
    assert names_of({"value": nn.Partitioned(jnp.ones(2), names=(None,)), "value_2": {"value": 1}}) == [
        "value", "value_2.value",
    ]  # fmt: skip

    class Net(nnx.Module):
        def __init__(self) -> None:
            self.value = nnx.Linear(2, 3, rngs=nnx.Rngs(0))

    assert names_of(nnx.state(Net(), nnx.Param)) == ["value.bias", "value.kernel"]
    with pytest.raises(ValueError, match=r"Two parameters have the name a\.b"):
        names_of({"a": {"b": 1}, "a.b": 2})


def test_layers_that_are_numbered_through_are_to_be_named():
    class Net(nn.Module):
        width: int
        depth: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(self.depth):
                x = nn.tanh(nn.Dense(self.width)(x))
            return nn.Dense(1)(x)

    def init(key: Any, width: int, depth: int) -> Any:
        return Net(width, depth).init(key, jnp.ones((1, 3)))["params"]

    with pytest.raises(ValueError, match=r"Dense_2.kernel changes from \(16, 1\) to \(16, 16\).*Name your layers"):
        infer_roles(init, BASE, TARGET, branch_outputs="Dense")


def test_the_warning_of_head_dimensions_comes_once_and_of_attention_alone():
    attention = {
        f"blocks.attention.{name}.kernel": Place("hidden", (3, 64, 2, 32), (1, 3), 1)
        for name in ("query", "key", "value")
    }
    others = {
        "blocks.attention.out.kernel": Place("hidden", (3, 2, 32, 64), (2, 3), 1),
        "blocks.up.kernel": Place("hidden", (3, 64, 128), (1, 2), 1),
        "unvaried.up.kernel": Place("hidden", (3, 64, 128), (1, 2)),  # scanned too, but nobody said so
        "split.kernel": Place("hidden", (64, 2, 32), (0, 2)),
        "readout.kernel": Place("readout", (64, 1), (0,)),
    }
    assert not explain(Roles(others, 4.0), show=False).warnings
    (said,) = explain(Roles(attention | others, 4.0), show=False).warnings
    assert said.startswith("blocks.attention.query.kernel: d_head grows with the width (so do 2 more), so logits must")
    grown = {name: Place("hidden", (64, 16, 4), (0, 1)) for name in ("query.kernel", "key.kernel")}
    assert not explain(Roles(grown | others, 4.0), show=False).warnings  # heads of one size


def test_what_grows_is_seen_at_the_base_size_too():
    def init(key: Any, width: int, depth: int) -> Any:
        return {"stack": jax.random.normal(key, (depth, width, width)), "out": jnp.zeros((width, 1))}

    for target in (BASE, TARGET):
        place = infer_roles(init, BASE, target, branch_outputs="stack").places["stack"]
        assert (place.role, place.grows, place.stacked, place.matrix) == ("hidden", (1, 2), 1, ((1,), (2,)))

    def table(key: Any, width: int) -> Any:
        return {"out": jax.random.normal(key, ({8: 8, 12: 12}[width], 1))}

    size: Any = {"width": 8}
    with pytest.raises(ValueError, match=r"no model of the sizes \{'width': 16\} \(KeyError: 16\).*compare="):
        infer_roles(table, size, size)
    assert infer_roles(table, size, size, compare={"width": 12}).places["out"].role == "readout"


def test_muon_asks_for_stacks_that_nothing_tells():
    def init(key: Any, width: int) -> Any:
        return {"blocks": jax.random.normal(key, (3, width, width)) / width**0.5, "out": jnp.ones((width, 1))}

    def apply(params: Any, width: int) -> Any:
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), jnp.ones((2, width)), params["blocks"])
        return h @ params["out"]

    def sides(**how: Any) -> Any:
        roles = infer_roles(init, **SMALL, **how)
        assert scaled("muon", roles, learning_rate=0.1).init(params)
        return roles.factors(params)["blocks"].sides

    params = init(jax.random.key(0), 16)
    assert scaled("adam", infer_roles(init, **SMALL), learning_rate=0.1).init(params)
    with pytest.raises(ValueError, match=r"blocks of shape \(3, 16, 16\) is 3 layers.*layers="):
        sides()
    assert sides(layers="blocks") == sides(apply=apply) == ((1,), (2,))
    assert sides(layers="$^") == ((0, 1), (2,))


def test_print_says_a_table():
    roles = Roles({"readout": Place("readout", (4, 1), (0,), init=(-0.5, 0.0))}, width=4.0)
    assert "Place(" not in str(roles)
    for word in ("Roles at width × 4", "readout", "4×1", "× 0.5"):
        assert word in str(roles)


class Shared(nn.Module):
    """One block, used at every depth: by Python's loop, or by nn.scan."""

    width: int
    depth: int
    scanned: bool = False

    @nn.compact
    def __call__(self, x):
        h, block = nn.Dense(self.width, name="in")(x), nn.Dense(self.width, name="block")
        if self.scanned:
            step = nn.scan(lambda b, h, _: (h + b(nn.tanh(h)), None), variable_broadcast="params", split_rngs={"params": False},
                           length=self.depth)  # fmt: skip
            h, _ = step(block, h, None)
        else:
            for _ in range(self.depth):
                h = h + block(nn.tanh(h))
        return nn.Dense(1, name="out")(h)


@pytest.mark.parametrize("scanned", [False, True])
def test_a_layer_that_all_blocks_share_lies_in_them(scanned):
    """The gradient is a sum over its uses: Adam's rate has the L^(α − 1) of separate layers, SGD's another 1/L."""

    def init(key, width, depth):
        return Shared(width, depth, scanned).init(key, jnp.ones((1, 3)))["params"]

    sizes: Any = {"base": {"width": 8, "depth": 2}, "target": {"width": 8, "depth": 8}}
    for alpha, step, rate in ((0.5, 0.5, 0.25), (1.0, 1.0, 1.0)):
        roles = infer_roles(init, **sizes, branch_outputs="in code", alpha=alpha)
        found = roles.factors(jax.eval_shape(lambda: init(jax.random.key(0), **sizes["target"])))
        for part in ("kernel", "bias"):
            block = found["block"][part]
            assert (block.step, block.rate) == (pytest.approx(step), pytest.approx(rate))
            assert (found["in"][part].step, found["out"][part].step) == (1, 1)
    with pytest.raises(ValueError, match=r"write to the residual stream: block\.kernel\?"):
        infer_roles(init, **sizes)
    with pytest.raises(ValueError, match="no hidden matrix is seen in layers that the deeper model has more of"):
        infer_roles(lambda key, width, depth: {"in": jnp.ones((3, width)), "out": jnp.ones((width, 1))}, **sizes)
