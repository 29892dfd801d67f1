"""Training dynamics with a constant kernel under the cross-entropy loss, from given outputs at the start."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from jaxtyping import Float

from limits.predict.mse import OF_TIME, ONE_RATE, checked, momentum_rule
from limits.predict.steps import Rule, descended
from zoo import checks

if TYPE_CHECKING:
    import scipy.integrate
    import scipy.special


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

    def slope(w: np.ndarray) -> np.ndarray:
        return y - scipy.special.softmax(f0_train + k_train @ w, axis=-1)

    if flow:
        w = _flow(slope, f0_train.shape, float(np.asarray(learning_rate)) / len(k_train), times)
    else:
        rule = rule or momentum_rule(learning_rate, momentum, times, len(k_train))
        w = descended(slope, f0_train.shape, rule, times, weights)
    return f0_train + k_train @ w, f0_test + k_test_train @ w


def _flow(slope: Any, shape: tuple, rate: float, times: Any) -> np.ndarray:
    ends = np.asarray(times, float) * rate
    solution = scipy.integrate.solve_ivp(
        lambda _, w: slope(w.reshape(shape)).ravel(),
        (0, max(ends[-1], 1e-300)),
        np.zeros(int(np.prod(shape))),
        method="LSODA",
        t_eval=ends,
        rtol=1e-9,
        atol=1e-11,
    )
    if not solution.success:
        raise ValueError(f"The flow could not be integrated to time {ends[-1]:g}: {solution.message}")
    return solution.y.T.reshape(-1, *shape)
