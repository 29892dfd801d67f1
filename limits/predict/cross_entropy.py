"""Training dynamics with a constant kernel under the cross-entropy loss, from given outputs at the start."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from jaxtyping import Float

from limits.predict.mse import OF_TIME, ONE_RATE, checked, momentum_rule
from limits.predict.steps import Rule, descended
from limits.predict.symmetry import check_symmetric
from zoo import checks

if TYPE_CHECKING:
    import scipy.integrate
    import scipy.special

_TOGETHER = 256  # numbers in one equation, of several starting points: fewer calls, and a Jacobian that stays small
_DENSE = 2000  # LSODA keeps the square of what it integrates


@checks.arguments(**OF_TIME)
def cross_entropy_dynamics(
    k_train: Float[np.ndarray, "n n"],
    y: Float[np.ndarray, "n k"],
    times: Sequence[float] | np.ndarray,
    learning_rate: float | np.ndarray,
    k_test_train: Float[np.ndarray, "m n"],
    f0_train: Float[np.ndarray, "*s n k"],
    f0_test: Float[np.ndarray, "*s m k"],
    momentum: float = 0.0,
    flow: bool = False,
    weights: np.ndarray | None = None,
    rule: Rule | None = None,
) -> tuple[Any, Any]:
    """(f_t on the training points, f_t on the test points): [time, *s, n, k], for any number of starting points *s.

        f_t(x) = f₀(x) + K(x, X) w_t,   v ← μ v + y − softmax(f_t(X)),   w ← w + (η/n) v,

    or, for gradient flow, dw/dt = (η/n) (y − softmax f) by an adaptive solver at relative tolerance 1e-9.
    A learning rate that changes, minibatches and other linear rules are given as in `response`.

    >>> start = np.zeros((1, 2))
    >>> f, _ = cross_entropy_dynamics(np.eye(1), np.array([[1.0, 0.0]]), [0, 1], 1.0, np.eye(1), start, start)
    >>> f[1].tolist()
    [[0.5, -0.5]]
    """
    if flow and momentum:
        raise ValueError("Gradient flow has no momentum: its limit is flow at rate learning_rate / (1 − momentum).")
    if flow and (weights is not None or np.ndim(learning_rate) or rule is not None):
        raise ValueError(ONE_RATE)
    k_train, y, k_test_train, f0_train, f0_test, weights = checked(
        "cross_entropy_dynamics", times, learning_rate, flow, k_train=(k_train, "n n"), y=(y, "n k"),
        k_test_train=(k_test_train, "m n"), f0_train=(f0_train, "* n k"), f0_test=(f0_test, "* m k"),
        weights=(weights, "steps n"),
    )  # fmt: skip
    check_symmetric("cross_entropy_dynamics", k_train=k_train)
    if flow:
        w = _flow(k_train, y, f0_train, float(np.asarray(learning_rate)) / len(k_train), times)
    else:
        rule = rule or momentum_rule(learning_rate, momentum, times, len(k_train))
        w = descended(lambda w: _slope(k_train, y, f0_train, w), f0_train.shape, rule, times, weights)
    return f0_train + k_train @ w, f0_test + k_test_train @ w


def _slope(k: np.ndarray, y: np.ndarray, f0: np.ndarray, w: np.ndarray) -> np.ndarray:
    return y - scipy.special.softmax(f0 + k @ w, axis=-1)


def _flow(k: np.ndarray, y: np.ndarray, f0: np.ndarray, rate: float, times: Any) -> np.ndarray:
    """w at the times, [time, *s, n, k]; starting points know nothing of one another and are integrated in small groups."""
    asked = np.asarray(times, float)
    if not np.isfinite(asked).all() or asked.min() < 0:
        raise ValueError(
            f"cross_entropy_dynamics: times of a flow must be finite and ≥ 0, got {checks.shown(list(times))}: logits of "
            "separable classes grow without end."
        )
    ends, place = np.unique(asked * abs(rate), return_inverse=True)
    starts = f0.reshape(-1, *y.shape)
    many = max(1, _TOGETHER // y.size)
    parts = [_integrated(k, y, starts[i : i + many], ends, np.sign(rate)) for i in range(0, len(starts), many)]
    return np.concatenate(parts, axis=1)[place].reshape(-1, *f0.shape)


def _integrated(k: np.ndarray, y: np.ndarray, f0: np.ndarray, ends: np.ndarray, sign: float) -> np.ndarray:
    """The same for one group, at ascending ends."""
    if ends[-1] == 0:
        return np.zeros((len(ends), *f0.shape))
    solution = scipy.integrate.solve_ivp(
        lambda _, w: sign * _slope(k, y, f0, w.reshape(f0.shape)).ravel(),
        (0, ends[-1]),
        np.zeros(f0.size),
        method="LSODA" if f0.size <= _DENSE else "DOP853",
        t_eval=ends,
        rtol=1e-9,
        atol=1e-11,
    )
    if not solution.success:
        raise ValueError(f"The flow could not be integrated to time {ends[-1]:g}: {solution.message}")
    return solution.y.T.reshape(-1, *f0.shape)
