"""The recipes of neural-tangents' README, examples and cookbook, against its own numbers (tests/golden)."""

import functools
import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recipes import RECIPES, Cookbook

from limits import Task, empirical_ntk, linearize, predict, twin
from zoo import MLP

_FOLDER = Path(__file__).resolve().parents[1] / "golden"
GOLDEN = np.load(_FOLDER / "recipes.npz", allow_pickle=False)
GIVEN = runpy.run_path(str(_FOLDER / "recipe_inputs.py"))
BY_DEFAULT = ("infinite_fcn", "imdb", "masked", "product", "volumes", "graph", "dropout")


def check(found, name, rtol=1e-6):
    """Rounding alone differs; of theirs, 1e-8 of an entry at coinciding inputs."""
    expected = GOLDEN[name]
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-9 * np.abs(expected).max(), err_msg=name)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in BY_DEFAULT else pytest.mark.slow) for n in RECIPES])
def test_kernels_of_a_recipe(name):
    module, kind = RECIPES[name]
    x1, x2 = GIVEN["inputs"](kind)
    if name == "graph":
        x1, x2 = (np.concatenate([x, GIVEN["adjacency"](x)], axis=-1) for x in (x1, x2))
    for tag, other in (("xx", None), ("xz", x2)):
        kernels = twin(module(8)).kernels(x1, other)
        assert kernels.provenance["ntk"].kind == "exact"
        for which in ("nngp", "ntk"):
            check(getattr(kernels, which), f"{name}/{tag}/{which}")


def test_infinite_ensembles():
    """gradient_descent_mse_ensemble after any time, and at the end with diag_reg."""
    x, y, grid = GIVEN["ANGLES"], GIVEN["TARGETS"], GIVEN["GRID"]
    limit, n = twin(Cookbook(8)), len(x)
    task = Task(x, y, grid)
    run = limit.lazy(task, 60, GIVEN["RATE"], times=[int(t) for t in GIVEN["TIMES"]], flow=True)
    check(run.f_test, "ensemble/flow/mean")
    check(run.f_test_cov, "ensemble/flow/cov", rtol=1e-5)
    k = limit.kernels(task.x)
    nngp, ntk = k.nngp, k.ntk
    posterior = predict.posterior(
        nngp[:n, :n], y, nngp[n:, :n], nngp[n:, n:], GIVEN["REG"] * np.trace(nngp[:n, :n]) / n
    )
    check(posterior.mean, "ensemble/nngp/mean")
    check(posterior.cov, "ensemble/nngp/cov", rtol=1e-5)
    ridge = GIVEN["REG"] * np.trace(ntk[:n, :n]) / n
    check(predict.kernel_regression(ntk[:n, :n], y, ntk[n:, :n], ridge), "ensemble/ntk/mean")


def test_weight_space_and_function_space():
    """linearize; empirical kernels; gradient descent on cross-entropy with them."""
    x, grid = GIVEN["ANGLES"], GIVEN["GRID"]

    def f(params, x):
        return jnp.tanh(x @ params[0]) @ params[1]

    with jax.enable_x64(True):
        params = [jnp.asarray(w) for w in GIVEN["weights"]()]
        moved = [w + 0.1 * jnp.cos(jnp.arange(w.size, dtype=float)).reshape(w.shape) for w in params]
        ntk = jax.jit(functools.partial(empirical_ntk, f), static_argnames="outputs")
        check(jax.jit(linearize(f, params))(moved, x), "weight_space/linear")
        check(ntk(params, x, grid), "function_space/ntk")
        check(ntk(params, x, grid, outputs="full"), "function_space/full")
        train, cross = (np.asarray(ntk(params, a, x)) for a in (x, grid))
        start = [np.asarray(f(params, a)) for a in (x, grid)]
    # Their loss is a mean over samples too; ours counts time the same.
    times: Any = GIVEN["TIMES"][1:]
    found = predict.cross_entropy_dynamics(
        train, GIVEN["LABELS"], times, GIVEN["RATE"], cross, start[0], start[1], flow=True
    )
    for each, name in zip(found, ("train", "test"), strict=True):
        check(each, f"function_space/{name}", rtol=1e-5)


@pytest.mark.slow
def test_gradients_of_a_kernel():
    """jax.jacfwd of a kernel by its standard deviation of weights."""
    k = twin(MLP(8, depth=2, activation="relu", w_std=1.3, b_std=0.2)).kernel_function()
    with jax.enable_x64(True):
        x, grid = jnp.asarray(GIVEN["ANGLES"]), jnp.asarray(GIVEN["GRID"])
        check(jax.jacfwd(lambda w: k(x, grid, w_std=w).ntk)(1.3), "gradients/ntk")


def test_every_golden_of_a_recipe_is_compared():
    kernels = {f"{name}/{tag}/{which}" for name in RECIPES for tag in ("xx", "xz") for which in ("nngp", "ntk")}
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(key in kernels or f'"{key.rpartition("/")[0]}/' in text for key in GOLDEN.files)
    assert kernels <= set(GOLDEN.files)
