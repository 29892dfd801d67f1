"""Networks of finite width whose hidden weights are not normal: the fourth cumulant of their law."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, twin
from limits.fields.matrix import Matrix, from_fourth
from limits.fields.sweeps import Plan, coupled_sweeps
from limits.training import Training
from train import ensemble
from zoo import in_parameterization


@pytest.mark.slow
def test_images_are_moved_as_the_density_asks():
    """E[h Σ He₄(W_ij)/24] = E[∇h · T] for T of κ = 1 and polynomials h of images and of what is known, without mean given that.

    Of drawn matrices W [3, 3], of which a direction of inputs and one of outputs are known. 1,200,000 draws, 10 polynomials: 3.5
    standard errors.
    """
    rng = np.random.default_rng(0)
    turn, other = (jnp.asarray(np.linalg.qr(rng.normal(size=(3, 3)))[0], jnp.float32) for _ in range(2))
    v, q, u = turn[:1], turn[1:], other[:1]
    nothing, free = Matrix.fresh(3, 3, 1, 1.0, "float32"), jnp.eye(3) - u.T @ u

    def draw(key: Any) -> Any:
        w = jax.random.normal(key, (3, 3))
        known = dataclasses.replace(nothing, v=v, y=v @ w, u=u, z=u @ w.T, kurtosis=1.0)
        c, (d, e) = (v @ w)[0, 2], q @ w @ u[0]

        def tried(noise: Any) -> Any:
            a, b = (noise @ free)[:, 2] / jnp.sqrt(free[2, 2])
            s = a * a - 1
            return jnp.stack([
                a**4 - 6 * a * a + 3, (a**3 - 3 * a) * c, s * (c * c - 1), s * b * c, s * c * d, a * c * c * d, a * d**3,
                a * (c**3 - 3 * c), s * (d * d - 1), a * c * d * e,
            ])  # fmt: skip

        h, change = jax.jvp(tried, (q @ w,), (from_fourth(known, q, q @ w),))
        density = jnp.sum(w**4 - 6 * w**2 + 3) / 24
        return h * density - change, h * density

    whole = from_fourth(dataclasses.replace(nothing, v=v, y=other[:1], u=u, z=other[1:2], kurtosis=1.0), q, other[:2])
    np.testing.assert_allclose(whole @ u.T, 0, atol=1e-6)  # of what is known nothing is moved
    assert np.abs(whole).max() > 0.01
    several = jax.jit(jax.vmap(draw))
    parts = [several(jax.random.split(jax.random.key(i), 100_000)) for i in range(12)]
    away, whole = (np.concatenate(each).astype(float) for each in zip(*parts, strict=True))
    error = away.std(0) / np.sqrt(len(away))
    assert np.all(np.abs(away.mean(0)) < 3.5 * error)
    assert np.sum(np.abs(whole.mean(0)) > 6 * error) > 6  # there is something to be found


class Square(nn.Module):
    width: int
    law: Any

    @nn.compact
    def __call__(self, x):
        hidden, last = (nn.initializers.variance_scaling(1.0, "fan_in", law) for law in (self.law, "normal"))
        h = nn.tanh(nn.Dense(self.width, kernel_init=nn.initializers.normal(1.0))(x))
        h = nn.Dense(self.width, kernel_init=hidden, name="second")(h) ** 2
        return nn.Dense(1, kernel_init=last)(h)


@pytest.mark.slow
def test_a_mean_square_has_its_exact_shift():
    """⟨h⁴⟩ = 3 m₂² + [3 (m₄ − m₂²) + κ m₄]/N with moments m of tanh(z): what the readout alone has learnt after a step, over η.

    c = κ m₄ of Flax's truncated normal by 200 pairs of 256 samples: within 4 standard errors and 1/256 of itself, the error below
    a tenth.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    exact = -0.6344632828703 * (weights @ np.tanh(nodes) ** 4) / weights.sum()
    net, task = in_parameterization(Square(64, "truncated_normal"), "mup"), Task([[1.0]], [1.0])
    runs, how = coupled_sweeps(Plan(net, task, Training.of(task, 1, 0.1, trained=("readout",), net=net), np.array([1])),
                               512, 200, finite=True)  # fmt: skip
    assert runs.pair is not None
    assert "second.kernel, not normal, by pairs of 256 samples" in how.detail
    c = 256 * (runs.pair[0]["f"] - runs.pair[1]["f"]).ravel() / 0.1
    error = c.std() / 200**0.5
    assert error < 0.1 * abs(exact)
    assert abs(c.mean() - exact) < 4 * error + abs(exact) / 256
    more = 256 / 10 * (runs.pair[0]["f"] - runs.pair[1]["f"])
    normal = runs._replace(pair=None)
    values = [each.at(10, lambda seen: seen["f"]) for each in (runs, normal)]
    np.testing.assert_allclose(values[0] - values[1], more, atol=1e-12)
    np.testing.assert_array_equal(runs.at(None)["f"], normal.at(None)["f"])


class Deep(nn.Module):
    width: int
    law: Any
    phi: Any = nn.tanh

    @nn.compact
    def __call__(self, x):
        hidden, last = (nn.initializers.variance_scaling(2.0, "fan_in", law) for law in (self.law, "normal"))
        h = self.phi(nn.Dense(self.width, kernel_init=last)(x))
        for _ in range(2):
            h = self.phi(nn.Dense(self.width, kernel_init=hidden)(h))
        return nn.Dense(1, kernel_init=last)(h)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phi", "how"),
    [
        (lambda h: nn.relu(h) ** 2 / 2, {"learning_rate": 0.001}),
        (lambda h: jnp.tanh(3 * h), {"learning_rate": 0.3}),
        (nn.tanh, {"learning_rate": 0.02, "optimizer": "adam"}),
        (nn.tanh, {"learning_rate": 0.05, "optimizer": "muon"}),
    ],
)
def test_networks_of_other_weights_are_predicted_in_training(phi, how):
    """c = N E[f_N(uniform) − f_N(normal)] of networks with the same random bits, at widths 64 and 128, against that of `rich`.

    20,000 networks each, 16 numbers: 3.7 standard errors.
    """
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(4, 6)), np.sign(rng.normal(size=(4, 1)))
    task, times, found = Task(x[:3], y[:3], x[3:], y[3:]), [0, 1, 2, 4], {}
    by = {"steps": 4, "times": times, "kernels": (), **how}

    def outputs(run: Any) -> dict:
        return {"f": np.concatenate([run.f_train, run.f_test], axis=2)[..., 0]}

    nets = {law: in_parameterization(Deep(64, law, phi), "mup") for law in ("uniform", "normal")}
    for law, net in nets.items():
        run = twin(net).rich(task, **by, samples=256, replicas=200, width=1.0, reduce=outputs)
        assert run.reduced is not None
        found[law] = run.reduced["f"]
    mine = found["uniform"] - found["normal"]
    for width in (64, 128):
        a, b = (
            ensemble(net.clone(width=width), task, members=20_000, **by, reduce=outputs).reduced
            for net in nets.values()
        )
        assert a is not None
        assert b is not None
        theirs = width * (a["f"] - b["f"])
        error = np.hypot(*(each.std(0) / np.sqrt(len(each)) for each in (mine, theirs)))
        assert np.all(np.abs(mine.mean(0) - theirs.mean(0)) < 3.7 * error + 1e-6)


class Skewed(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        def skewed(key: Any, shape: Any, dtype: Any = jnp.float32) -> Any:
            raw = jax.random.truncated_normal(key, -1.0, 3.0, shape, dtype) - 0.28278611072715404
            return raw / (0.6161417353578293 * shape[0]) ** 0.5

        h = nn.tanh(nn.Dense(self.width)(x))
        return nn.Dense(1)(nn.tanh(nn.Dense(self.width, kernel_init=skewed, name="second")(h)))


@pytest.mark.slow
def test_skewed_weights_have_no_expansion_in_the_inverse_width():
    net, task = in_parameterization(Skewed(16), "mup"), Task([[1.0, 0.5]], [1.0])
    with pytest.raises(ValueError, match=r"second.kernel are drawn with skewness 0.539.*leave width out"):
        twin(net).rich(task, 1, 0.1, samples=32, replicas=2, width=16)
    twin(net).rich(task, 1, 0.1, samples=32, replicas=2, kernels=())
