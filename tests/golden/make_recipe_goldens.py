"""Computes what neural-tangents' README, examples and cookbook build, on small inputs.

The environment is that of make_goldens.py; a minute; writes recipes.npz here.
"""

from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import neural_tangents as nt
import numpy as np
import recipe_inputs as recipes
from neural_tangents import stax

HERE = Path(__file__).parent
Conv, Dense, FanOut, Relu, parallel, serial = stax.Conv, stax.Dense, stax.FanOut, stax.Relu, stax.parallel, stax.serial


def wide_resnet_block(channels, strides=(1, 1), mismatch=False):
    main = serial(Relu(), Conv(channels, (3, 3), strides, "SAME"), Relu(), Conv(channels, (3, 3), padding="SAME"))
    shortcut = Conv(channels, (3, 3), strides, "SAME") if mismatch else stax.Identity()
    return serial(FanOut(2), parallel(main, shortcut), stax.FanInSum())


def with_closed_form():
    def nngp(cov12, var1, var2):
        return jnp.exp(0.125 * (var1 + var2) + 0.25 * cov12)

    return stax.Elementwise(lambda x: jnp.exp(x / 2), nngp)


NETWORKS = {
    "readme_dense": ("vectors", serial(Dense(512), Relu(), Dense(512), Relu(), Dense(1))),
    "readme_wide_resnet": (
        "images",
        serial(
            Conv(16, (3, 3), padding="SAME"),
            wide_resnet_block(16),
            wide_resnet_block(32, (2, 2), True),
            stax.AvgPool((4, 4)),
            stax.Flatten(),
            Dense(10, 1.0, 0.0),
        ),
    ),
    "infinite_fcn": ("vectors", serial(Dense(1, 2.0, 0.05), Relu(), Dense(1, 2.0, 0.05))),
    "elementwise": ("vectors", serial(Dense(512, 0.7), with_closed_form(), Dense(1))),
    "elementwise_numerical": (
        "vectors",
        serial(Dense(512, 0.8, 0.1), stax.ElementwiseNumerical(jax.nn.sigmoid, deg=60), Dense(1)),
    ),
    "imdb": (
        "sequences",
        serial(Conv(512, (3,), (1,), "VALID"), Relu(), stax.GlobalSumPool(), Dense(1)),
    ),
    "masked": ("ragged", serial(Dense(512, 1.2, 0.3), Relu(), stax.GlobalAvgPool(), Dense(512), stax.Erf(), Dense(1))),
    "myrtle": (
        "images",
        serial(
            *(Conv(1, (3, 3), padding="SAME", W_std=2**0.5), Relu(), stax.AvgPool((2, 2), (2, 2))) * 2,
            Conv(1, (3, 3), padding="SAME", W_std=2**0.5),
            Relu(),
            stax.GlobalAvgPool(),
            Dense(1, 2**0.5),
        ),
    ),
    "cookbook": (
        "vectors",
        serial(Dense(2048, 1.5, 0.05), stax.Erf(), Dense(2048, 1.5, 0.05), stax.Erf(), Dense(1, 1.5, 0.05)),
    ),
    "phase_diagram": (
        "vectors",
        serial(*(Dense(1, 1.7, 0.3), stax.Erf()) * 30, Dense(1, 1.7, 0.3)),
    ),
    "concatenated": (
        "vectors",
        serial(
            FanOut(2), parallel(serial(Dense(64), Relu()), serial(Dense(64), stax.Erf())), stax.FanInConcat(), Dense(1)
        ),
    ),
    "product": (
        "vectors",
        serial(
            FanOut(2),
            parallel(serial(Dense(64, 1.3), stax.Erf(), Dense(64)), Dense(64, 0.9)),
            stax.FanInProd(),
            Dense(1),
        ),
    ),
    "layer_norm": (
        "vectors",
        serial(
            Dense(64, 1.3, 0.2), stax.LayerNorm(), Relu(), Dense(64, 1.1, 0.1), stax.LayerNorm(), stax.Gelu(), Dense(1)
        ),
    ),
    "layers_that_differ": (
        "vectors",
        serial(
            Dense(64, 1.3, 0.2),
            stax.LeakyRelu(0.1),
            Dense(64, 0.7),
            stax.Abs(),
            Dense(64, 1.0, 0.5),
            stax.Sin(),
            Dense(1),
        ),
    ),
    "dropout": (
        "vectors",
        serial(
            Dense(64, 1.3, 0.2),
            Relu(),
            stax.Dropout(0.7, mode="train"),  # their rate is the share that is kept
            Dense(64, 1.1, 0.1),
            stax.Erf(),
            stax.Dropout(0.9, mode="train"),
            Dense(1),
        ),
    ),
    "polynomial": ("vectors", serial(Dense(64, 0.6), stax.Polynomial([0.3, 1.0, 0.2]), Dense(1))),
    "gaussian": ("vectors", serial(Dense(64, 0.8), stax.Rbf(0.7), Dense(1))),
    "circular": (
        "sequences",
        serial(
            Conv(64, (3,), (2,), "CIRCULAR", 1.2, 0.1),
            Relu(),
            Conv(64, (2,), padding="SAME"),
            stax.Erf(),
            stax.Flatten(),
            Dense(1),
        ),
    ),
    "volumes": (
        "volumes",
        serial(Conv(64, (2, 2, 2), padding="SAME", W_std=1.4), Relu(), stax.GlobalAvgPool(), Dense(1)),
    ),
    "graph": (
        "sequences",
        serial(
            Dense(64, 1.2, 0.1), Relu(), stax.Aggregate(1, 0, -1), Dense(64), Relu(), stax.GlobalAvgPool(), Dense(1)
        ),
    ),
}


def kernels(out):
    for name, (kind, (_, _, kernel_fn)) in NETWORKS.items():
        x1, x2 = recipes.inputs(kind)
        for tag, other in (("xx", None), ("xz", x2)):
            more = {"mask_constant": recipes.PADDING} if kind == "ragged" else {}
            if name == "graph":
                pattern = [recipes.adjacency(x) for x in (x1, x1 if other is None else other)]
                more = {"pattern": tuple(pattern)}
            k = kernel_fn(x1, other, ("nngp", "ntk"), **more)
            out[f"{name}/{tag}/nngp"], out[f"{name}/{tag}/ntk"] = np.asarray(k.nngp), np.asarray(k.ntk)


def predictions(out):
    x, y, grid = recipes.ANGLES, recipes.TARGETS, recipes.GRID
    kernel_fn = NETWORKS["cookbook"][1][2]
    ensemble = nt.predict.gradient_descent_mse_ensemble(kernel_fn, x, y, diag_reg=recipes.REG)
    out["ensemble/nngp/mean"], out["ensemble/nngp/cov"] = ensemble(None, grid, "nngp", compute_cov=True)
    out["ensemble/ntk/mean"] = ensemble(None, grid, "ntk", compute_cov=False)
    flow = nt.predict.gradient_descent_mse_ensemble(kernel_fn, x, y, recipes.RATE)
    mean, cov = flow(np.array(recipes.TIMES), grid, "ntk", compute_cov=True)
    out["ensemble/flow/mean"], out["ensemble/flow/cov"] = mean, cov

    def f(params, x):
        return jnp.tanh(x @ params[0]) @ params[1]

    params = [jnp.asarray(w) for w in recipes.weights()]
    moved = [w + 0.1 * jnp.cos(jnp.arange(w.size, dtype=float)).reshape(w.shape) for w in params]
    out["weight_space/linear"] = nt.linearize(f, params)(moved, x)
    kernel = nt.empirical_kernel_fn(f, trace_axes=(-1,))
    out["function_space/ntk"] = kernel(x, grid, "ntk", params)
    out["function_space/full"] = nt.empirical_ntk_fn(f, trace_axes=())(x, grid, params)

    def loss(f, y):
        return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(f), 1))

    train, cross = kernel(x, None, "ntk", params), kernel(grid, x, "ntk", params)
    follow = nt.predict.gradient_descent(loss, train, recipes.LABELS, recipes.RATE)
    out["function_space/train"], out["function_space/test"] = follow(
        np.array(recipes.TIMES[1:]), f(params, x), f(params, grid), cross
    )

    def of_w(w):
        return serial(Dense(8, w, 0.2), Relu(), Dense(8, w, 0.2), Relu(), Dense(1, w, 0.2))[2](x, grid, "ntk")

    out["gradients/ntk"] = jax.jacfwd(of_w)(1.3)


out = {}
kernels(out)
predictions(out)
np.savez_compressed(HERE / "recipes.npz", **{key: np.asarray(value, np.float64) for key, value in out.items()})
