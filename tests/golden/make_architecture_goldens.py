"""Computes the golden kernels of convolutional, residual and attention networks with neural-tangents.

The environment is that of make_goldens.py; a few minutes; writes architectures.npz here.
"""

import json
import sys
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import architectures
import neural_tangents as nt
import numpy as np
from neural_tangents import stax

HERE = Path(__file__).parent
ACTIVATIONS = {"relu": stax.Relu, "erf": stax.Erf, "gelu": lambda: stax.Gelu(approximate=False)}


def dense(case, factor=1.0):
    return stax.Dense(1, factor * case["w_std"], factor * case["b_std"])


def conv(case, stride=1, factor=1.0):
    window, strides = (case["kernel"],) * 2, (stride,) * 2
    return stax.Conv(1, window, strides, case["padding"], factor * case["w_std"], factor * case["b_std"])


def activation(case):
    return ACTIVATIONS[case["activation"]]()


def residual(*branch):
    """h + branch(h). A factor of the branch is a factor of its last layer's w_std and b_std, in the tangent kernel too."""
    return stax.serial(stax.FanOut(2), stax.parallel(stax.Identity(), stax.serial(*branch)), stax.FanInSum())


def readout(case):
    return [{"flatten": stax.Flatten, "average": stax.GlobalAvgPool}[case["readout"]](), dense(case)]


def cnn(case):
    layers, window = [], (case["pool_size"],) * 2
    strides = case["strides"] if isinstance(case["strides"], tuple) else (case["strides"],) * case["depth"]
    pool = {"average": stax.AvgPool, "sum": stax.SumPool}[case["pool"]]
    for l, stride in enumerate(strides, start=1):
        layers += [conv(case, stride), activation(case)]
        if l in case["pool_after"]:
            layers += [pool(window, window, "VALID")]
    return stax.serial(*layers, *readout(case))


def branch_factors(case):
    """The factor of every branch, in order."""
    depth, beta, stages = case["depth"], case["beta"], case["stages"]
    blocks = depth - max(stages - 1, 1)  # the read-in of one stage, or the layers between stages, count in the depth
    return {
        "uniform": [beta * depth**-0.5] * blocks,
        "decreasing": [beta * (l + 1) ** -0.5 for l in range(1, blocks + 1)],
        "fixed": [beta] * depth,
    }[case["residual"]]


def resnet(case):
    linear = {"dense": dense, "conv": conv}[case["form"]]
    layers = [stax.Flatten(), linear(case)] if case["form"] == "dense" else [linear(case)]
    for stage, factors in enumerate(np.array_split(branch_factors(case), case["stages"])):
        if stage > 0:
            layers += [stax.AvgPool((2, 2), (2, 2), "VALID"), activation(case), linear(case)]
        for factor in factors:
            branch = []
            for k in range(1, case["branch_layers"] + 1):
                branch += [activation(case), linear(case, factor=factor if k == case["branch_layers"] else 1.0)]
            layers += [residual(*branch)]
    return stax.serial(*layers, activation(case), *([dense(case)] if case["form"] == "dense" else readout(case)))


def fixed_bias(std):
    """Adds to every channel one N(0, std²) number, for all positions and inputs, that is not trained."""

    def init_fn(key, shape):
        return shape, jax.random.normal(key, shape[-1:])

    def apply_fn(number, x, **kwargs):
        return x + std * number

    def kernel_fn(k, **kwargs):
        cov2 = None if k.cov2 is None else k.cov2 + std**2
        return k.replace(nngp=k.nngp + std**2, cov1=k.cov1 + std**2, cov2=cov2)

    return init_fn, apply_fn, kernel_fn


def attention(case, factor):
    """Queries, keys and values with biases of their own, which neural-tangents' layer has not.

    w²(Φ + b²/w²) = w²Φ + b² is the covariance of each, and with it the tangent kernel of each one's own parameters; the
    tangent kernel of what came before enters as w²K, without a term in b. So b/w is added before, and not trained.
    """
    w, b = case["w_std"], case["b_std"]
    layer = stax.GlobalSelfAttention(
        1,
        1,
        1,
        1,
        linear_scaling=case["logits"] == "1/d",
        W_key_std=w,
        W_value_std=w,
        W_query_std=w,
        W_out_std=factor * w,
        b_std=factor * b,
        attention_mechanism=case["attention"].upper(),
    )
    return stax.serial(fixed_bias(b / w), layer)


def vit(case):
    assert case["tied"] == (case["logits"] == "1/d")  # the two that neural-tangents has
    patch, factor = (case["patch"],) * 2, case["beta"] * case["depth"] ** -0.5
    layers = [stax.Conv(1, patch, patch, "VALID", case["w_std"], case["b_std"])]
    norm = [stax.LayerNorm(axis=(-1,), eps=case["norm_epsilon"])] if case["norm"] == "layer" else []
    for _ in range(case["depth"]):
        layers += [residual(*norm, attention(case, factor))]
        layers += [residual(*norm, dense(case), activation(case), dense(case, factor))]
    return stax.serial(*layers, *norm, stax.GlobalAvgPool(), dense(case))


NETWORKS = {"CNN": cnn, "ResNet": resnet, "ViT": vit}


def main():
    versions = json.loads((HERE / "versions.json").read_text())
    assert (nt.__version__, jax.__version__, np.__version__) == tuple(
        versions[name] for name in ("neural-tangents", "jax", "numpy")
    ), "the environment is not that of versions.json"
    out = {}
    for key, definition, case in architectures.cases():
        x1, x2 = architectures.inputs(definition)
        fn = NETWORKS[definition](case)[2]
        for tag, other in (("xx", None), ("xz", x2)):
            k = fn(x1, other, ("nngp", "ntk"))
            out[f"{key}/{tag}/nngp"], out[f"{key}/{tag}/ntk"] = np.asarray(k.nngp), np.asarray(k.ntk)
        print(key, np.asarray(k.nngp)[0], flush=True)
    assert all(np.isfinite(value).all() and value.dtype == np.float64 for value in out.values())
    np.savez_compressed(HERE / "architectures.npz", **out)
    print(f"{len(out)} arrays", file=sys.stderr)


if __name__ == "__main__":
    main()
