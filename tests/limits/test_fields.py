"""The feature-learning engine: what it computes is a network with a drawn matrix, and that matrix is Gaussian."""

from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from limits import empirical_ntk
from limits.fields.matrix import Matrix, multiply
from limits.fields.measure import measure
from limits.fields.network import REVEALED
from limits.fields.sweep import CausalSweep
from limits.finite.observables import feature_kernels, gradient_kernels
from limits.losses import point_loss
from limits.training import Training
from train.members import slopes
from zoo import CNN, MLP, HeResNet, ResNet, ViT, learning_rate_factors

S, STEPS = 16, 4
ROWS, RATES = np.array([[0, 1], [1, 1], [0, 1], [1, 0]]), [0.1, 0.05, 0.1, 0.02]  # of the steps
COMMON: dict[str, Any] = {"width": S, "parameterization": "mup", "w_std": 1.3}
VIT: dict[str, Any] = {**COMMON, "depth": 1, "patch": 2, "mlp_ratio": 1, "b_std": 0.2}
NETWORKS: dict[str, Any] = {
    "MLP": MLP(**COMMON, depth=3, activation="erf", b_std=0.3, outputs=2),
    "MLP, biases from zero": MLP(**COMMON, depth=2, activation="relu", b_std=0.3, bias_init="zeros"),
    "ResNet": ResNet(**COMMON, depth=3, activation="tanh", branch_layers=2),
    "ResNet, zero start": ResNet(**COMMON, depth=3, activation="relu", zero_init=True),
    "ResNet, stages": ResNet(**COMMON, depth=4, form="conv", stages=2, activation="tanh", readout="average"),
    "CNN": CNN(**COMMON, depth=2, strides=2, activation="tanh", readout="average", padding="CIRCULAR"),
    "CNN, flattened": CNN(**COMMON, depth=2, kernel=2, pool_after=(2,), activation="relu", padding="VALID"),
    "ViT": ViT(**VIT, heads=2),
    "ViT, tied, class token": ViT(**VIT, heads=1, tied=True, pool="class"),
    "ViT, queries from zero": ViT(**VIT, heads=2, query_init="zeros", positions="fixed"),
    "HeResNet": HeResNet(**COMMON, stages=(1, 1), stem="small", norm="layer", order="pre", activation="tanh"),
    "HeResNet, batch norm": HeResNet(**COMMON, stages=(1, 1), stem="small", norm="batch", activation="tanh"),
}


def task(net: Any, n: int = 3) -> tuple[Any, Any]:
    """Inputs (two to train on) and targets."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 3) if isinstance(net, MLP) or getattr(net, "form", "") == "dense" else (n, 4, 4, 2))
    return jnp.asarray(x), jnp.asarray(rng.normal(size=(2, net.outputs)))


def drawn(net: Any, params: Any, matrices: Any, scale: Any, x: Any) -> Any:
    """The parameters at the start of the network that a sweep is, by revealing what is left of its matrices."""
    shapes: Any = flax.traverse_util.flatten_dict(jax.eval_shape(net.init, jax.random.key(0), x)["params"])
    params, scale = (flax.traverse_util.flatten_dict(tree) for tree in (params, scale))
    for path, matrix in flax.traverse_util.flatten_dict(matrices).items():
        whole = completed(matrix)
        where = (*path[:-1], "kernel")
        params[where] = (scale[path] * whole.v.T @ whole.y).reshape(shapes[where].shape)
    return flax.traverse_util.unflatten_dict(params)


def completed(matrix: Any) -> Matrix:
    """The matrix, revealed along all directions of its inputs."""
    inputs = matrix.v.shape[-1]
    room = matrix.resized(2 * inputs + matrix.v.shape[-2])
    return multiply(jnp.eye(inputs), room, jnp.array([0, 9], "uint32"), 1e-9)[1]


def gradient_descent(net: Any, variables: Any, x: Any, y: Any, training: Training) -> Any:
    """The variables after ordinary training."""
    factors, train = learning_rate_factors(net, x[:1]), {"train": True} if "batch_stats" in variables else {}

    def apply(variables: Any, x: Any) -> Any:
        return net.apply(variables, x, **train, mutable=["batch_stats"])

    params, rest = variables["params"], {k: v for k, v in variables.items() if k != "params"}
    velocity, offset = jax.tree.map(jnp.zeros_like, params), apply(variables, x[:2])[0]

    def step(i: Any, carry: Any) -> Any:
        params, velocity, rest = carry

        def loss(params: Any, rows: Any) -> Any:
            f, after = apply({"params": params, **rest}, x[rows])
            return point_loss(training.loss)(f - offset[rows], y[rows]), after

        gradient, rest = jax.grad(loss, has_aux=True)(params, jnp.asarray(ROWS)[i])
        velocity = jax.tree.map(lambda v, c, g: training.momentum * v + c * g, velocity, factors, gradient)
        rate = jnp.asarray(RATES)[i]
        params = jax.tree.map(lambda p, v: (1 - rate * training.weight_decay) * p - rate * v, params, velocity)
        return params, velocity, rest

    params, _, rest = jax.lax.fori_loop(0, STEPS, step, (params, velocity, rest))
    return {"params": params, **rest}


def what_is_measured(net: Any, variables: Any, x: Any) -> dict[str, Any]:
    """f and kernels of an ordinary network."""
    if "batch_stats" in variables:
        (f, inside), _ = net.apply(variables, x[:2], intermediates=True, train=True, mutable=["batch_stats"])
        g, seen = net.apply(variables, x[2:], intermediates=True)
        phis = [jnp.concatenate(both) for both in zip(inside["phi"], seen["phi"], strict=True)]
        return {"f": jnp.concatenate([f, g]), "phi": feature_kernels(phis)}
    f, inside = net.apply(variables, x, intermediates=True)
    rates, params = learning_rate_factors(net, x[:1]), variables["params"]
    return {
        "f": f,
        "phi": feature_kernels(inside["phi"]),
        "g": gradient_kernels(net, slopes(net, params, x)),
        "ntk": empirical_ntk(lambda p, x: net.apply({"params": p}, x), params, x, rates=rates),
    }


DEFAULT = ("MLP",)


@pytest.mark.parametrize(
    "name", [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_a_sweep_is_gradient_descent_of_the_network_with_the_matrices_that_it_reveals(name):
    net = NETWORKS[name]
    kernels = ("phi",) if getattr(net, "norm", "") == "batch" else ("phi", "g", "ntk")
    with jax.enable_x64(True):
        x, y = task(net)
        training = Training("mse", momentum=0.5, weight_decay=0.3, centred=True)
        sweep = CausalSweep(net, training, x.shape, 2, "float64")
        state: Any = sweep.begin(jax.random.key(3), x)
        start = {name: part for name, part in state.variables.items() if name != REVEALED}
        scale = jax.tree.map(lambda m: m.start, state.variables[REVEALED], is_leaf=lambda m: isinstance(m, Matrix))
        start, scale = jax.tree.map(jnp.copy, (start, scale))  # a step takes its state's memory
        for t in range(STEPS):
            state, _ = sweep.step(state, x, y, ROWS[t], jax.random.key(100 + t), RATES[t])
        variables = sweep.grown(state, 3 * sweep.at_start).variables
        look: Any = jax.jit(lambda held: measure(net, sweep.factors, kernels, held, x, 2, jax.random.key(50)))
        found, after = look(variables)

        @jax.jit
        def reference(start: Any, after: Any, scale: Any) -> Any:
            whole = start | {"params": drawn(net, start["params"], after, scale, x[:1])}
            return what_is_measured(net, gradient_descent(net, whole, x, y, training), x)

        for key, value in reference(start, after, scale).items():
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-7), found[key], value)


@pytest.mark.parametrize("shape", [pytest.param((24, 24), marks=pytest.mark.slow), (18, 30)])
def test_the_revealed_matrix_is_standard_normal_and_one_matrix(shape):
    """Reveals that depend on what was revealed before, forwards and backwards, until nothing is left."""
    with jax.enable_x64(True):
        entries, products = [], []

        def step(a: Any, matrix: Any, key: Any) -> Any:
            (out, after), pull = jax.vjp(lambda a, m: multiply(a, m, key, 1e-9), a, matrix)
            back, after = pull((jnp.tanh(out), after))
            return back, after, jnp.sum(jnp.tanh(out) * out)

        there_and_back: Any = jax.jit(step)

        for seed in range(30):
            matrix = Matrix.fresh(shape[0], shape[1], 64, 1.0, "float64")
            a = jnp.asarray(np.random.default_rng(0).normal(size=(4, shape[0])))
            for i in range(12):
                key = jax.random.key_data(jax.random.key(1000 * seed + i))
                back, matrix, product = there_and_back(a, matrix, key)
                assert float(jnp.sum(back * a)) == pytest.approx(float(product), rel=1e-9)
                a = jnp.tanh(back) + 0.3 * np.random.default_rng(i).normal(size=a.shape)
            assert float(matrix.known_in) == shape[0]
            assert float(matrix.known_out) == shape[1]
            w = np.asarray(matrix.v.T @ matrix.y)
            np.testing.assert_allclose(w, (matrix.u.T @ matrix.z).T, atol=1e-8)
            entries.append(w.ravel())
            products.append(np.linalg.svd(w, compute_uv=False)[0])
        test: Any = scipy.stats.kstest(np.concatenate(entries), "norm")
        assert test.pvalue > 1e-3
        drawn = [np.linalg.svd(np.random.default_rng(s).normal(size=shape), compute_uv=False)[0] for s in range(300)]
        test = scipy.stats.ks_2samp(products, drawn)
        assert test.pvalue > 1e-3


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_bases_stay_orthonormal_with_repeated_vanishing_and_slowly_moving_vectors(dtype):
    with jax.enable_x64(dtype == "float64"):
        matrix, rng = Matrix.fresh(200, 150, 60, 1.0, dtype), np.random.default_rng(0)
        a, least = jnp.asarray(rng.normal(size=(3, 200)), dtype), {"float32": 1e-3, "float64": 1e-6}[dtype]
        revealed: Any = jax.jit(lambda rows, matrix, key: multiply(rows, matrix, key, least))
        for i in range(12):
            rows = jnp.concatenate([a, a[:1], jnp.zeros((1, 200), dtype)])
            _, matrix = revealed(rows, matrix, jnp.array([0, i], "uint32"))
            a = a + 0.01 * jnp.asarray(rng.normal(size=a.shape), dtype)
        known = int(matrix.known_in)
        assert known == 36
        tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
        np.testing.assert_allclose(matrix.v[:known] @ matrix.v[:known].T, np.eye(known), atol=tolerance)
        assert not matrix.v[known:].any()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_directions_at_the_edge_of_rounding_are_orthonormal_too(dtype):
    """Many rows in few dimensions, with lengths down to rounding: as tokens of equal patches, or normalised ones, are."""
    with jax.enable_x64(dtype == "float64"):
        rng, tolerance = np.random.default_rng(0), {"float32": 1e-3, "float64": 1e-8}[dtype]
        matrix = Matrix.fresh(500, 300, 200, 1.0, dtype)
        for i in range(3):
            directions = rng.normal(size=(30, 500)) * np.geomspace(1, tolerance / 30, 30)[:, None]
            a = jnp.asarray(rng.normal(size=(64, 30)) @ directions, dtype)
            key = jnp.array([0, i], "uint32")
            (out, matrix), pull = jax.vjp(lambda a, m, key=key: multiply(a, m, key, tolerance), a, matrix)
            _, matrix = pull((jnp.tanh(out), matrix))
        for basis, known in ((matrix.v, matrix.known_in), (matrix.u, matrix.known_out)):
            found, count = np.asarray(basis)[: int(known)], int(known)
            assert count > 60
            np.testing.assert_allclose(found @ found.T, np.eye(count), atol={"float32": 5e-6, "float64": 1e-12}[dtype])
        agreed = matrix.u @ matrix.y.T - (matrix.v @ matrix.z.T).T
        np.testing.assert_allclose(agreed, 0, atol={"float32": 1e-4, "float64": 1e-10}[dtype])


def test_training_never_makes_a_matrix_of_samples_times_samples():
    net = MLP(width=3000, depth=3, parameterization="mup")
    x, y = jnp.ones((2, 3)), jnp.ones((2, 1))
    sweep = CausalSweep(net, Training("mse"), x.shape, 2, "float32")
    state = jax.eval_shape(sweep._start, jax.random.key(0), x)
    program: Any = jax.jit(sweep._step).lower(state, x, y, np.arange(2), jax.random.key(0), 0.1).compile()
    memory: Any = program.memory_analysis()
    assert memory.temp_size_in_bytes < 3000 * 3000  # a quarter of one matrix
    assert max(leaf.size for leaf in jax.tree.leaves(state)) < 3000 * 100


class Scanned(nn.Module):
    """Residual layers under `nn.scan`, with rematerialisation."""

    width: int = S
    depth: int = 3
    outputs: int = 1
    parameterization: str = "mup"
    gamma: float = 1.0

    @nn.compact
    def __call__(self, x: Any, intermediates: bool = False) -> Any:
        net = ResNet(self.width, 1, parameterization="mup")
        from zoo.layers import Dense, layer, output

        class Block(nn.Module):
            @nn.compact
            def __call__(self, h: Any, _: Any) -> Any:
                return h + 0.5 * layer(net, Dense, net.width, "branch", "w")(jnp.tanh(h)), None

        h = layer(net, Dense, self.width, "input", "read_in")(x)
        blocks = nn.scan(
            nn.remat(Block),
            variable_axes={"params": 0, REVEALED: 0},
            split_rngs={"params": True, "reveal": True},
            length=self.depth,
        )
        h, _ = blocks(name="blocks")(h, None)
        f = output(net, jnp.tanh(h))
        return (f, {"h": (h,), "phi": (jnp.tanh(h),), "features": jnp.tanh(h)}) if intermediates else f


@pytest.mark.slow
def test_scanned_layers_have_matrices_of_their_own():
    with jax.enable_x64(True):
        net = Scanned()
        x, y = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2))), jnp.array([[1.0], [-1.0]])
        training = Training("mse", centred=True)
        sweep = CausalSweep(net, training, x.shape, 2, "float64")
        state = sweep.begin(jax.random.key(0), x)
        start = jax.tree.map(jnp.copy, state)
        for t in range(STEPS):
            state, _ = sweep.step(state, x, y, ROWS[t], jax.random.key(100 + t), RATES[t])
        matrix = state.variables[REVEALED]["blocks"]["w"]["kernel"]
        assert matrix.v.ndim == 3
        whole = jax.jit(jax.vmap(completed))(matrix)
        kernel = jnp.einsum("lki,lko->lio", whole.v, whole.y)
        assert np.abs(np.corrcoef(kernel.reshape(3, -1)) - np.eye(3)).max() < 0.2
        params = start.variables["params"] | {"blocks": {"w": {"kernel": kernel}}}
        end = gradient_descent(net, {"params": params}, x, y, training)
        found = sweep.measure(state, x[:2], jax.random.key(5), ())["f"]
        f: Any = net.apply(end, x[:2])
        np.testing.assert_allclose(found, f, rtol=1e-5)
