"""Training dynamics with a constant kernel under the squared loss, in closed form."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from limits.predict.steps import Momentum, Rule, descended
from limits.predict.symmetry import check_symmetric
from zoo import checks

_COUNTS = 1e-3  # of λ t, at which what is not known of an eigenvalue λ would be seen
ONE_RATE = "Gradient flow has one rate and uses all points: leave out `flow`, batches, the schedule or the optimiser."
# What all dynamics take.
OF_TIME = {
    "times": checks.several(checks.real),
    "learning_rate": checks.number() | checks.array(None),
    "momentum": checks.number(0, 1),
    "flow": checks.flag,
    "weights": checks.array(None, None),
    "rule": checks.Check("a rule, as limits.predict.LinearRule", lambda v: hasattr(v, "start") and hasattr(v, "step")),
}


@checks.arguments(**OF_TIME)
def response(
    k_train: Float[np.ndarray, "n n"],
    times: Sequence[float] | np.ndarray,
    learning_rate: float | np.ndarray,
    momentum: float = 0.0,
    flow: bool = False,
    weights: np.ndarray | None = None,
    rule: Rule | None = None,
) -> Float[np.ndarray, "t n n"]:
    """B_t such that training from f₀ gives f_t(x) = f₀(x) + K(x, X) B_t (y − f₀(X)), at every recorded time.

    Gradient descent on the mean over samples of ½ (f − y)², with Optax's momentum, acts on each eigenvector of K
    (eigenvalue λ) alone:  v ← μ v + 1 − λ b,  b ← b + (η/n) v  from b = v = 0. Any step counts: three-by-three matrix
    powers. Gradient flow (`flow`) has b = (1 − exp(−λ η t/n)) / λ, with `times` in steps, so that η t is the flow's time;
    times may be inf. Then, and wherever λ η t/n counts of a λ that is rounding, 4 n ε of the largest, b is 0: nothing is learned
    along directions that the kernel has not, as the difference of inputs that recur (which learn their targets' mean).

    A learning rate that changes is given as an array, one entry a step, and minibatches by `weights` [steps, n], how much
    each point counts (1: as in the mean over all points):  V ← μ V + W_t (1 − K B),  B ← B + (η_t/n) V, step by step.
    `rule`, in place of learning rate and momentum: another linear rule (`LinearRule`, of an Optax transformation).

    >>> response(np.eye(1), [0, 1, 2], learning_rate=0.5).ravel().tolist()
    [0.0, 0.5, 0.75]
    """
    k_train, weights = checked(
        "response", times, learning_rate, flow, k_train=(k_train, "n n"), weights=(weights, "steps n")
    )
    check_symmetric("response", k_train=k_train)
    return _response(k_train, times, learning_rate, momentum, flow, weights, rule)


def _response(
    k_train: np.ndarray, times: Any, learning_rate: Any, momentum: float, flow: bool, weights: Any, rule: Rule | None
) -> np.ndarray:
    if weights is not None or np.ndim(learning_rate) or rule is not None:
        if flow:
            raise ValueError(ONE_RATE)
        rule = rule or momentum_rule(learning_rate, momentum, times, len(k_train))
        one = np.eye(len(k_train))
        return descended(lambda b: one - k_train @ b, one.shape, rule, times, weights)
    eigenvalues, vectors = np.linalg.eigh(k_train)
    eigenvalues = np.maximum(eigenvalues, 0)
    rate = float(learning_rate) / len(k_train)
    if flow:
        if momentum:
            raise ValueError("Gradient flow has no momentum: its limit is flow at rate learning_rate / (1 − momentum).")
        factors = [_flow_factor(eigenvalues, rate * t) for t in times]
    else:
        largest = float(eigenvalues[-1]) * rate
        if largest > 2 * (1 + momentum):
            warnings.warn(
                f"learning_rate {learning_rate:g} is beyond the largest stable one, "
                f"{2 * (1 + momentum) / (eigenvalues[-1] / len(k_train)):g} for this kernel: the dynamics diverge.",
                stacklevel=3,
            )
        factors = _discrete_factors(eigenvalues, rate, momentum, times)
    return np.stack([(vectors * factor) @ vectors.T for factor in factors])


def checked(owner: str, times: Any, learning_rate: Any, flow: bool, **arrays: tuple[Any, str]) -> list[Any]:
    """The arrays, once they fit one another and the steps that are to be recorded."""
    found = checks.dimensions(owner, **arrays)
    last = np.max(np.asarray(times))
    if flow:
        return found
    if (
        not np.isfinite(last)
        or np.any(np.asarray(times) != np.round(times))
        or np.min(times) < 0
        or last > checks.LARGEST
    ):
        raise ValueError(
            f"{owner}: times: gradient descent is recorded at whole, ascending numbers of steps; got {checks.shown(list(times))}."
            " Gradient flow (flow=True) has times of any kind, and inf."
        )
    for name, rows in (("learning_rate", np.shape(learning_rate)), ("weights", np.shape(found[-1]))):
        if rows and rows[0] < last:
            raise ValueError(f"{owner}: {name} has {rows[0]} rows, one a step, and times go to step {last:g}.")
    return found


def _flow_factor(eigenvalues: np.ndarray, time: float) -> np.ndarray:
    """(1 − exp(−λ t)) / λ, λ ascending; 0 of eigenvalues that are rounding, once t is so long that they would count."""
    rounding = 4 * len(eigenvalues) * np.finfo(float).eps * eigenvalues.max(initial=0)
    known = eigenvalues > rounding
    safe = np.where(known, eigenvalues, 1)
    early = time if np.isfinite(time) and rounding * time < _COUNTS else 0.0
    with np.errstate(over="ignore"):
        return np.where(known, -np.expm1(-safe * time) / safe, early)


def _discrete_factors(eigenvalues: np.ndarray, rate: float, momentum: float, times: Any) -> list[np.ndarray]:
    steps = np.asarray(times)
    if np.any(steps != np.round(steps)) or np.any(np.diff(steps) < 0) or np.any(steps < 0):
        raise ValueError(f"Gradient descent is recorded at whole, ascending numbers of steps; got {list(times)}.")
    step = np.zeros((len(eigenvalues), 3, 3))  # acts on (b, v, 1)
    step[:, 1] = np.stack([-eigenvalues, np.full_like(eigenvalues, momentum), np.ones_like(eigenvalues)], axis=1)
    step[:, 0] = rate * step[:, 1]
    step[:, 0, 0] += 1
    step[:, 2, 2] = 1
    state, now, factors = np.tile([0.0, 0.0, 1.0], (len(eigenvalues), 1)), 0, []
    for t in steps.astype(int):
        state = np.einsum("eij,ej->ei", np.linalg.matrix_power(step, int(t) - now), state)
        now = int(t)
        factors.append(state[:, 0].copy())
    return factors


def momentum_rule(learning_rate: Any, momentum: float, times: Any, n: int) -> Momentum:
    """Gradient descent on a mean over n points, with one rate or one for every step."""
    rates = np.asarray(learning_rate) / n
    return Momentum(rates if rates.ndim else np.broadcast_to(rates, int(max(times))), momentum)


@checks.arguments(**OF_TIME)
def mse_dynamics(
    k_train: Float[np.ndarray, "n n"],
    y: Float[np.ndarray, "n k"],
    times: Sequence[float] | np.ndarray,
    learning_rate: float | np.ndarray,
    k_test_train: Float[np.ndarray, "m n"] | None = None,
    f0_train: Float[np.ndarray, "n k"] | None = None,
    f0_test: Float[np.ndarray, "m k"] | None = None,
    momentum: float = 0.0,
    flow: bool = False,
    weights: np.ndarray | None = None,
    rule: Rule | None = None,
) -> tuple[Float[np.ndarray, "t n k"], Any]:
    """(f_t on the training points, f_t on the test points or None) of one network that starts at f₀ (default 0).

    >>> mse_dynamics(np.eye(1), np.ones((1, 1)), [0, 1], learning_rate=0.5)[0].ravel().tolist()
    [0.0, 0.5]
    """
    k_train, y, k_test_train, f0_train, f0_test, weights = checked(
        "mse_dynamics", times, learning_rate, flow, k_train=(k_train, "n n"), y=(y, "n k"), k_test_train=(k_test_train, "m n"),
        f0_train=(f0_train, "n k"), f0_test=(f0_test, "m k"), weights=(weights, "steps n"),
    )  # fmt: skip
    check_symmetric("mse_dynamics", k_train=k_train)
    f0_train = np.zeros_like(y) if f0_train is None else f0_train
    weights = _response(k_train, times, learning_rate, momentum, flow, weights, rule) @ (y - f0_train)
    f_train = f0_train + k_train @ weights
    if k_test_train is None:
        return f_train, None
    return f_train, (0 if f0_test is None else f0_test) + k_test_train @ weights


@checks.arguments(**OF_TIME)
def mse_ensemble(
    nngp: Float[np.ndarray, "p p"],
    ntk: Float[np.ndarray, "p p"],
    y: Float[np.ndarray, "n k"],
    times: Sequence[float] | np.ndarray,
    learning_rate: float | np.ndarray,
    momentum: float = 0.0,
    flow: bool = False,
    weights: np.ndarray | None = None,
    rule: Rule | None = None,
) -> tuple[Float[np.ndarray, "t p k"], Float[np.ndarray, "t p p"]]:
    """(mean, covariance) over initialisations f₀ ~ N(0, nngp), at all points: the first n are the training points.

        f_t = M_t f₀ + K(·, X) B_t y  with  M_t = 1 − K(·, X) B_t P_X,  so  cov = M_t nngp M_tᵀ.

    >>> mean, cov = mse_ensemble(np.eye(1), np.eye(1), np.ones((1, 1)), [1], learning_rate=0.5)
    >>> mean.item(), cov.item()
    (0.5, 0.25)
    """
    nngp, ntk, y, weights = checked(
        "mse_ensemble",
        times,
        learning_rate,
        flow,
        nngp=(nngp, "p p"),
        ntk=(ntk, "p p"),
        y=(y, "n k"),
        weights=(weights, "steps n"),
    )
    check_symmetric("mse_ensemble", nngp=nngp, ntk=ntk)
    n = len(y)
    if n > len(ntk):
        raise ValueError(
            f"mse_ensemble: y has {n} rows and the kernels have {len(ntk)} points, of which the first are those of y."
        )
    gain = ntk[:, :n] @ _response(ntk[:n, :n], times, learning_rate, momentum, flow, weights, rule)
    keep = np.tile(np.eye(len(ntk)), (len(gain), 1, 1))
    keep[:, :, :n] -= gain
    return gain @ y, keep @ nngp @ keep.transpose(0, 2, 1)
