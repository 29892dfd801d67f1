"""Computes the golden numbers with neural-tangents.

python3.11 -m venv /tmp/oracle && /tmp/oracle/bin/pip install -r tests/golden/requirements.txt
/tmp/oracle/bin/python tests/golden/make_goldens.py        # about a minute; writes fc.npz and versions.json here
"""

import json
import sys
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import cases
import jax.numpy as jnp
import neural_tangents as nt
import numpy as np
from neural_tangents import stax

HERE = Path(__file__).parent
LAYERS = {
    "relu": stax.Relu,
    "leaky_relu": lambda: stax.LeakyRelu(0.01),
    "erf": stax.Erf,
    "gelu": lambda: stax.Gelu(approximate=False),
    "sin": lambda: stax.Sin(1.0, 1.0, 0.0),
    "quadratic": lambda: stax.Polynomial([0.0, 1.0, 0.5]),
    "linear": lambda: stax.Identity(),
}


def kernel_fn(name, depth, w_std, b_std):
    layers = []
    for _ in range(depth):
        layers += [stax.Dense(8, w_std, b_std), LAYERS[name]()]
    return stax.serial(*layers, stax.Dense(1, w_std, b_std))[2]


def kernels(out):
    for key, name, depth, w_std, b_std in cases.kernel_cases():
        fn = kernel_fn(name, depth, w_std, b_std)
        for tag, other in (("xx", None), ("xz", cases.X2)):
            k = fn(cases.X1, other, ("nngp", "ntk"))
            out[f"{key}/{tag}/nngp"], out[f"{key}/{tag}/ntk"] = np.asarray(k.nngp), np.asarray(k.ntk)


def predictions(out):
    fn = kernel_fn("relu", 2, 1.4, 0.3)
    train, cross, test = (
        fn(a, b) for a, b in ((cases.X_TRAIN, None), (cases.X_TEST, cases.X_TRAIN), (cases.X_TEST, None))
    )
    rate, reg, times = cases.PREDICTION_RATE, cases.DIAG_REG, np.array(cases.PREDICTION_TIMES)
    for name, y in (("one", cases.Y1), ("three", cases.Y3)):
        f0, f0_test = 0.1 * y**2, 0.2 * np.ones((len(cases.X_TEST), y.shape[1]))
        mse = nt.predict.gradient_descent_mse(train.ntk, y, rate, diag_reg=0.0)
        out[f"{name}/flow/train"], out[f"{name}/flow/test"] = mse(times, f0, f0_test, cross.ntk)
        mse = nt.predict.gradient_descent_mse(train.ntk, y, rate, diag_reg=reg)
        out[f"{name}/ridge/train"], out[f"{name}/ridge/test"] = mse(None, f0, f0_test, cross.ntk)
        ensemble = nt.predict.gradient_descent_mse_ensemble(fn, cases.X_TRAIN, y, rate, diag_reg=0.0)
        mean, cov = ensemble(times, cases.X_TEST, "ntk", compute_cov=True)
        out[f"{name}/ensemble/mean"], out[f"{name}/ensemble/cov"] = mean, cov
        ensemble = nt.predict.gradient_descent_mse_ensemble(fn, cases.X_TRAIN, y, rate, diag_reg=reg)
        for which in ("nngp", "ntk"):
            mean, cov = ensemble(None, cases.X_TEST, which, compute_cov=True)
            out[f"{name}/ensemble_end/{which}/mean"], out[f"{name}/ensemble_end/{which}/cov"] = mean, cov
        gp = nt.predict.gp_inference(train, y, diag_reg=reg)("nngp", cross, test.nngp)
        out[f"{name}/gp/mean"], out[f"{name}/gp/cov"] = gp

    def cross_entropy(f, y):
        return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(f), axis=1))

    y = cases.LABELS3
    flow = nt.predict.gradient_descent(cross_entropy, train.ntk, y, rate)
    out["cross_entropy/train"], out["cross_entropy/test"] = flow(
        times[1:], 0.1 * y, np.zeros((len(cases.X_TEST), 3)), cross.ntk
    )


out = {}
kernels(out)
predictions(out)
np.savez_compressed(HERE / "fc.npz", **{key: np.asarray(value) for key, value in out.items()})
versions = {
    "python": sys.version.split()[0],
    "neural-tangents": nt.__version__,
    "jax": jax.__version__,
    "numpy": np.__version__,
}
(HERE / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")
print(f"{len(out)} arrays", versions)
