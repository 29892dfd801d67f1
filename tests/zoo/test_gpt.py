"""GPT: its forward pass, scanned or not, its cache, and how it is trained at any size."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
from definitions import definitions
from test_layers import HURRY, hurried, init
from test_vit import dense, normalised

from zoo import GPT, Parameterization, factors, infer_roles, roles, scaled
from zoo.definition import Definition, definition_of
from zoo.generate import generate
from zoo.gpt import stack_blocks, unstack_blocks
from zoo.saved import from_json, to_json

X = jnp.array([[1, 2, 3, 4, 5], [0, 0, 6, 1, 2]])
MODERN: dict[str, Any] = {"norm": "rms", "mlp": "swiglu", "positions": "rotary", "kv_heads": 2, "qk_norm": True}
W, B, GAMMA, N = 1.3, 0.4, 2.0, 16  # W and B those of test_vit


def network(**options: Any) -> Any:
    fields: Any = {
        "width": N,
        "depth": 2,
        "vocabulary": 7,
        "context": 8,
        "heads": 4,
        "scan": False,
        "parameterization": "mup",
    }
    return GPT(**(fields | options))


@functools.cache
def variables(net: GPT) -> Any:
    """Random numbers in place of all parameters, in float64."""
    random, shapes = np.random.default_rng(1), jax.eval_shape(net.init, jax.random.key(0), X)
    return jax.tree.map(lambda leaf: random.normal(size=leaf.shape), shapes)


def run(net: Any, given: Any, x: Any = X, **options: Any) -> Any:
    return hurried(lambda given, x: net.apply(given, x, **options), given, x)


def attention(p: Any, h: Any, heads: int, groups: int, power: float) -> np.ndarray:
    """One head and one query at a time, for the tokens of one sequence; `heads` // `groups` queries have the same keys."""
    q, k, v = (dense(p[part], h) for part in ("query", "key", "value"))
    size, out = N // heads, np.zeros((len(h), N))
    for head in range(heads):
        mine, theirs = (slice(i * size, (i + 1) * size) for i in (head, head * groups // heads))
        for a in range(len(h)):
            logits = np.array([q[a, mine] @ k[b, theirs] / size**power for b in range(a + 1)])
            out[a, mine] = scipy.special.softmax(logits) @ v[: a + 1, theirs]
    return dense(p["out"], out)


@pytest.mark.parametrize(
    ("logits", "groups", "tied"),
    [
        ("1/d", 4, False),
        ("1/sqrt(d)", 2, True),
        pytest.param("1/d", 4, True, marks=pytest.mark.slow),
        pytest.param("1/sqrt(d)", 2, False, marks=pytest.mark.slow),
    ],
)
def test_forward_pass_is_the_loop_of_the_docstring(logits, groups, tied):
    net = network(logits=logits, kv_heads=groups, tied=tied, w_std=W, b_std=B, gamma=GAMMA, beta=0.7)
    params, power = variables(net)["params"], 1 if logits == "1/d" else 0.5
    h, s = params["embedding"]["embedding"][X] + params["positions"]["embedding"][: X.shape[1]], 0.7 * 2**-0.5
    for name in ("block_1", "block_2"):
        p = params[name]
        h = h + s * np.stack([attention(p["attention"], each, 4, groups, power) for each in normalised(p["norm_1"], h)])
        a = dense(p["mlp"]["mlp_1"], normalised(p["norm_2"], h))
        h = h + s * dense(p["mlp"]["mlp_2"], a * scipy.special.ndtr(a))
    h = normalised(params["norm"], h)
    readout = params["embedding"]["embedding"].T if tied else W * params["readout"]["kernel"]
    np.testing.assert_allclose(run(net, variables(net)), h @ readout / (GAMMA * N), atol=1e-11)  # N^(−1/2) twice


@pytest.mark.parametrize(
    "options", [pytest.param({"b_std": 0.3}, marks=pytest.mark.slow), MODERN], ids=["plain", "modern"]
)
def test_scanned_is_unrolled_bit_for_bit_and_remat_changes_nothing(options):
    net = network(**options)
    params = variables(net)["params"]

    def both(net: Any) -> Any:
        loss = lambda params: jnp.sum(jnp.sin(net.apply({"params": params}, X)))  # noqa: E731
        f = lambda params: net.apply({"params": params}, X, intermediates=True)  # noqa: E731
        return jax.jit(lambda params: (f(params), jax.grad(loss)(params)))

    with jax.enable_x64(True):
        (f, inside), slopes = both(net)(params)
        assert np.abs(f).max() > 0.1
        for scan, remat in ((True, False),) * (options is not MODERN) + ((True, True), (False, True)):
            given = stack_blocks(params) if scan else params
            (g, other), found = both(net.clone(scan=scan, remat=remat))(given)
            found = unstack_blocks(found) if scan else found
            np.testing.assert_array_equal(g, f)
            np.testing.assert_array_equal(other["h"], inside["h"])
            # Sums of gradients are taken in another order inside a loop.
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13, rtol=1e-12), found, slopes)
        jax.tree.map(np.testing.assert_array_equal, unstack_blocks(stack_blocks(params)), params)


@pytest.mark.slow
def test_half_precision_is_near():
    net = network(**MODERN, b_std=0.1)
    params = jax.jit(net.init)(jax.random.key(0), X)
    exact, near = (jax.jit(net.clone(dtype=kind).apply)(params, X) for kind in (None, "bfloat16"))
    assert near.dtype == jnp.float32
    np.testing.assert_allclose(near, exact, atol=0.05 * float(jnp.std(exact)))
    assert np.abs(near - exact).max() > 0


def test_no_token_sees_later_ones_nor_padding():
    net = network(**MODERN)
    given = variables(net)
    f = run(net, given)
    np.testing.assert_array_equal(run(net, given, X.at[:, 3:].set(0))[:, :3], f[:, :3])
    assert np.abs(run(net, given, X.at[:, 0].set(4)) - f)[:, 1:].max(-1).min() > 1e-6  # all later ones see the first
    mask = jnp.arange(5)[None] >= jnp.array([[2], [2]])
    padded = run(net, given, mask=mask, positions=jnp.maximum(jnp.arange(5) - 2, 0)[None])
    np.testing.assert_allclose(padded[:, 2:], run(net, given, X[:, 2:]), atol=1e-12)


@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=pytest.mark.slow), MODERN | {"scan": True}], ids=["plain", "modern"]
)
def test_a_cache_gives_what_the_whole_pass_gives(options):
    net, x = network(**options), jnp.concatenate([X, X[:, :3]], axis=1)
    given = jax.tree.map(lambda a: jnp.asarray(a, "float32"), variables(net))

    def in_parts(given: Any) -> Any:
        cache, found = {}, []
        for part in (slice(0, 3), slice(3, 4), slice(4, 5), slice(5, 8)):
            f, cache = net.apply({**given, **cache}, x[:, part], decode=True, mutable=["cache"])
            found.append(f)
        return jnp.concatenate(found, axis=1)

    whole = jax.jit(net.apply)(given, x)
    np.testing.assert_allclose(jax.jit(in_parts)(given), whole, atol=1e-5)
    at = jax.jit(lambda given: net.apply(given, x, at=jnp.array([2, 7])))(given)
    np.testing.assert_allclose(at, [whole[0, 2], whole[1, 7]], atol=1e-5)


@pytest.mark.slow
def test_generated_tokens_are_those_of_whole_passes_and_of_the_right_frequencies():
    net = network(scan=True, **MODERN)
    params = variables(net)["params"]
    drawn = generate(net, params, X[:, :2], steps=4, temperature=0.0)
    expected, forward = X[:, :2], jax.jit(net.apply)
    for _ in range(4):
        f = forward({"params": params}, jnp.pad(expected, ((0, 0), (0, 6 - expected.shape[1]))))[
            :, expected.shape[1] - 1
        ]
        expected = jnp.concatenate([expected, f.argmax(-1)[:, None]], axis=1)
    np.testing.assert_array_equal(drawn, expected)
    left = generate(net, params, X[:1, :3], 4, temperature=0.0, mask=jnp.array([[False, True, True]]))
    np.testing.assert_array_equal(left[:, 3:], generate(net, params, X[:1, 1:3], 4, temperature=0.0)[:, 2:])
    many = generate(net, params, jnp.tile(X[:1, :2], (4000, 1)), steps=1, key=1, temperature=3.0)[:, 2]
    p = jax.nn.softmax(run(net, {"params": params}, X[:1, :2])[0, -1] / 3.0)
    z = (np.bincount(many, minlength=7) / 4000 - p) / np.sqrt(p * (1 - p) / 4000)
    assert np.abs(z).max() < 3.5  # of seven standard errors, with a fixed seed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tied", "optimizer"),
    [(True, "muon"), (True, "adam"), (False, "adam"), (False, "muon")],
)
def test_optimisers_move_the_scanned_network_as_the_other(optimizer, tied):
    p = Parameterization.mup.replace(alpha=1.0).based(width=8, depth=1)
    net = network(tied=tied, parameterization=p, b_std=0.2, mlp_ratio=1)
    params = net.init(jax.random.key(0), X)["params"]

    def trained(net: Any, params: Any) -> Any:
        tx = scaled(optimizer, net, learning_rate=0.02)

        def loss(params: Any) -> Any:
            f = net.apply({"params": params}, X)
            return optax.softmax_cross_entropy_with_integer_labels(f[:, :-1], X[:, 1:]).mean()  # pyright: ignore

        def step(state: Any, _: Any) -> Any:
            params, kept = state
            value, slopes = jax.value_and_grad(loss)(params)
            updates, kept = tx.update(slopes, kept, params)
            return (optax.apply_updates(params, updates), kept), value

        return jax.lax.scan(step, (params, tx.init(params)), None, length=3)[1]

    run = [functools.partial(trained, each) for each in (net, net.clone(scan=True))]
    unrolled, scanned = (np.asarray(jax.jit(f, compiler_options=HURRY)(given))
                         for f, given in zip(run, (params, stack_blocks(params)), strict=True))  # fmt: skip
    np.testing.assert_allclose(scanned, unrolled, rtol=2e-5)
    assert unrolled[-1] < unrolled[0] - 0.05


def test_members_of_the_family_are_one_function_also_with_a_tied_readout():
    net = network(tied=True, b_std=0.3, gamma=1.5, depth=1)
    outputs = []
    for a in (0.5, 0.25):
        each = net.clone(parameterization=Parameterization.family(a, d=0.5))

        def descended(each: Any = each) -> Any:
            params = init(each, X)["params"]
            rates = jax.tree.map(lambda factor: factor.rate, factors(each, params))
            slopes = jax.grad(lambda params: jnp.sum(each.apply({"params": params}, X) ** 2))(params)
            return each.apply({"params": jax.tree.map(lambda w, r, g: w - 0.1 * r * g, params, rates, slopes)}, X)

        outputs.append(hurried(descended))
    np.testing.assert_allclose(outputs[1], outputs[0], atol=1e-11)


def test_roles_are_said():
    found = roles(network(scan=True, b_std=0.1, **MODERN), X)
    assert found["blocks"]["attention"]["query_norm"] == {"scale": "norm"}
    assert {found["embedding"]["embedding"], found["readout"]["kernel"]} == {"embedding", "readout"}


@pytest.mark.parametrize("scan", [pytest.param(True, marks=pytest.mark.slow), False])
def test_roles_are_inferred(scan):
    def start(key: Any, width: int, depth: int) -> Any:
        return network(width=width, depth=depth, scan=scan, parameterization="standard").init(key, X)["params"]

    deep = 3 if scan else 2
    sizes: Any = {
        "base": {"width": 8, "depth": 1},
        "target": {"width": 16, "depth": deep},
        "branch_outputs": r"out|mlp_2",
    }
    inferred = infer_roles(start, **sizes)
    last = [inferred.init_factor(place) for place in inferred.places.values() if place.branch_output]
    np.testing.assert_allclose(last, deep**-0.5)  # also of blocks that the shallow network has not
    assert {place.role for name, place in inferred.places.items() if "kernel" in name} == {"hidden", "readout"}


def test_it_is_a_definition():
    net = network(**MODERN)
    assert isinstance(net, Definition)
    assert (definition_of(net).outputs, net.branches, GPT in definitions()) == (7, 4, False)
    assert from_json(to_json(net)) == net
    assert network(width=64, heads="grow", head_dim=16).head_count == 4
    assert [network(width=width, heads="grow").head_count for width in (16, 64)] == [4, 8]


@pytest.mark.parametrize(
    ("fields", "x", "message"),
    [
        ({"heads": 5}, X, "GPT: width 16 does not divide into 5 heads"),
        ({"heads": "grow", "head_dim": 5}, X, "GPT: width 16 does not divide into heads of 5"),
        ({"kv_heads": 3}, X, "GPT: 4 heads do not divide into 3 groups"),
        ({"positions": "rotary", "heads": 16}, X, "rotary positions turn pairs of features; heads have 1"),
        ({"qk_norm": True, "norm": None}, X, "qk_norm is of the kind that norm says"),
        ({"mlp": "rleu"}, X, "GPT: mlp must be one of \"gelu\", .* got 'rleu'"),
        ({}, X.astype(float), r"GPT needs tokens \[n, t\], whole numbers below 7; .* entries float32"),
        ({}, X[0], r"the input has shape \(5,\)"),
        ({}, jnp.tile(X, (1, 2)), "10 tokens are more than its context of 8"),
        ({}, X + 1, "tokens go from 1 to 7 and must be from 0 to 6"),
    ],
)
def test_a_bad_field_or_input_is_named_with_its_numbers(fields, x, message):
    with pytest.raises(ValueError, match=message):
        network(**fields).init(jax.random.key(0), x)


def test_a_bad_prompt_is_named():
    net = network()
    with pytest.raises(
        ValueError, match="5 tokens and 4 more are beyond the context of 8: ask for fewer, or keep the last 4"
    ):
        generate(net, variables(net)["params"], X, steps=4)
    with pytest.raises(ValueError, match="pad prompts on the left"):
        generate(net, variables(net)["params"], X, steps=1, mask=jnp.arange(5)[None] < jnp.array([[5], [3]]))
    with pytest.raises(ValueError, match=r"prompt must be tokens .*, at least one a row; got an array of shape"):
        generate(net, variables(net)["params"], X[:, :0], steps=1)


@pytest.mark.slow
def test_tokens_in_bytes_are_those_of_whole_numbers():
    # As bytes 300 is 44, and no token that is drawn is above 255.
    net = GPT(8, 1, vocabulary=301, context=4, heads=2, separator=300, norm=None, mlp="relu")
    x = np.array([[5, 44]])
    variables = jax.jit(net.init)(jax.random.key(0), x)
    small, whole = (jax.jit(net.apply)(variables, jnp.asarray(x, kind)) for kind in ("int8", "int32"))
    np.testing.assert_array_equal(small, whole)
    net.check_tokens(np.asarray(x, "int8"))
    table = variables["params"]["readout"]["kernel"]
    params = variables["params"] | {"readout": {"kernel": table.at[:, :256].set(0)}}
    drawn = generate(net, params, np.asarray(x, "uint8"), steps=2, temperature=0.0)[0, 2:]
    assert drawn.min() > 255
