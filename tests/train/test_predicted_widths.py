"""Ensembles at their own widths against the prediction to first order in 1/N; and comparisons under other optimisers."""

import functools
from typing import Any

import numpy as np
import optax
import pytest

from limits import AbsentError, Provenance, Task, Trajectory
from train import data
from train.evaluate import compare, compare_report
from train.evaluate.finite_width import FiniteWidth
from train.evaluate.grid import Limit, Predicted
from train.evaluate.projections import Projections
from train.evaluate.verdict import Observed
from zoo import MLP, scaled

WIDTHS, LIMIT, SHIFT = (16, 32, 64, 128), np.array([1.0, -0.5]), np.array([2.0, 1.0])


def found(shift: np.ndarray, noise: float = 0.05, second: float = 0.0, members: int = 400) -> FiniteWidth:
    """Networks with the mean LIMIT + SHIFT/N + second/N², and sweeps that say `shift`."""
    random = np.random.default_rng(0)

    def sweeps(mean: np.ndarray) -> dict[str, np.ndarray]:
        return {"f": mean[:, None] + noise / 4 * random.normal(size=(50, 2, 1))}

    said = {n: Predicted(sweeps(LIMIT + shift / n), np.zeros(1), np.zeros(1)) for n in WIDTHS}
    functional = {"f": Projections(("first", "second"), np.eye(2)[:, :, None])}
    limit = Limit(np.eye(2), np.eye(2), np.arange(2), None, sweeps(LIMIT), said, True, functional, lambda a: a)
    samples = [LIMIT + SHIFT / n + second / n**2 + noise * random.normal(size=(members, 2)) for n in WIDTHS]
    return FiniteWidth.of(Observed("f", "mup", 2, limit, samples), WIDTHS, 1e-3)


def test_a_right_prediction_explains_the_deviation():
    finite = found(SHIFT)
    assert finite.since == 16
    assert "from width 16 on, the correction of order 1/N explains the deviation" in finite.sentence
    np.testing.assert_allclose(
        finite.predicted, np.linalg.norm(SHIFT) / np.linalg.norm(LIMIT) / np.array(WIDTHS), rtol=0.2
    )


def test_a_wrong_prediction_is_found_out():
    finite = found(-SHIFT)
    assert finite.since is None
    assert "more than the correction of order 1/N is left at width 128" in finite.sentence


def test_what_is_of_second_order_is_left_at_small_widths():
    finite = found(SHIFT, second=40.0)
    assert finite.verdict(0) == "more is left"
    assert finite.since in (64, 128)


def test_large_errors_decide_nothing():
    finite = found(SHIFT, noise=0.5, members=40)
    assert finite.since is None
    assert "undecided at width 128: the standard error of means less predictions is" in finite.sentence


def test_no_deviation_is_no_explanation():
    assert "means agree with the limit corrected to order 1/N" in found(SHIFT / 100, noise=0.2, members=2000).sentence


def test_squared_errors_are_shift_and_spread():
    """Σ over points and steps after the first: shift² + variance = 2 · (0.1² + 0.04)."""
    path = np.zeros((30, 3, 2, 1))
    seen = path + np.array([0.0, 0.1, 0.1])[:, None, None]
    value, error = Predicted({"path": seen}, np.array([9.0, 0.08, 0.08]), np.array([9.0, 0.01, 0.01])).squared_error(
        path
    )
    assert value == pytest.approx(2 * 2 * 0.01 + 0.16)
    assert error == pytest.approx(0.02)
    each: Any = {"f_train_cov": np.eye(2)[None], "f_test_cov": 3 * np.eye(1)[None]}
    outputs: Any = {"f_train": np.zeros((1, 2, 4)), "f_test": np.zeros((1, 1, 4))}
    errors = {"f_train_cov": 0.1 * np.ones((1, 2, 2)), "f_test_cov": 0.2 * np.ones((1, 1, 1))}
    how = {"provenance": dict.fromkeys(each, Provenance.monte_carlo("", 2)), "errors": errors}
    run = Trajectory(np.array([0]), loss=np.zeros(1), **outputs, **each, **how, source="")
    predicted = Predicted.of(run)
    assert predicted.variance.tolist() == [4 * 5.0]
    assert predicted.variance_sem == pytest.approx(4 * 0.4)


def build(parameterization: str, width: int, depth: int) -> MLP:
    return MLP(width, depth, activation="tanh", w_std=1.3, parameterization=parameterization)


TASK: Task = data.digits(4, 2)
SETTINGS: dict[str, Any] = {"steps": 4, "learning_rate": 0.03, "members": 8, "init_members": 8}


@pytest.mark.slow
def test_without_a_limit_of_training_there_is_no_comparison():
    with pytest.raises(AbsentError, match="not linear in the gradients"):
        compare({"ntk": functools.partial(build, "ntk")}, (8, 16), (1,), TASK, optimizer="adam", **SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer", ["adam", lambda net, rate: scaled(optax.adam(rate), net)], ids=["name", "function"]
)
def test_networks_under_adam_agree_with_their_limit_and_their_correction(optimizer):
    settings = SETTINGS | {"members": 256, "rich": {"samples": 128, "replicas": 64, "order": 2}}
    result = compare(
        {"mup": functools.partial(build, "mup")}, (32, 64, 128), (2,), TASK, optimizer=optimizer, **settings
    )
    assert result.find("f", "mup", 2).verdict == "agrees"
    assert not result.limits  # there is no lazy one
    assert [each.observable for each in result.finite] == ["f", "path", "ntk_end"]
    assert all(each.verdict(2) == "agrees" for each in result.finite[:2]), [e.sentence for e in result.finite]
    assert all(each.verdict(i) != "more is left" for each in result.finite for i in range(3))
    measured, said = result.products["mup", 2], result.predicted["mup", 2]
    assert all(abs(a - b) < 3 * error + 0.1 * a for a, (b, error) in zip(measured, said, strict=True))
    page = compare_report.report(result, {}).html()
    assert "Networks of finite width" in page
    assert "Distance from the lazy limit" not in page
