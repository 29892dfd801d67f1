"""Layer time: with L residual branches of size L^(−1/2), the recursion over layers becomes an equation in time."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import chebyshev

from limits import kernels as algebra
from limits.kernels.propagation import Walk
from limits.kernels.special import safe_sqrt
from limits.types import AbsentError, Provenance
from zoo import parameterization
from zoo.definition import definition_of

PIECES = 8  # of layer time, at whose ends kernels are recorded
_STEPS = 4096  # at most
_MEASURED = 32  # inputs on which the solver's error is measured
_TABULATED = 20_000  # pairs, from which on a series is summed for a table only
Direct = Callable[[Any, Any], Any]  # (inputs [n, D], inputs [m, D]) → kernels [n, m]
_SIZES = ((8, 24), (16, 48), (28, 96))  # polynomials in r and in θ
_CHECKED = 24  # inputs whose pairs are worked out as well


def layer_time(net: Any) -> float:
    """T = Σ_l s_l² of the branches as L → ∞, the time that signals spend in the blocks: β², times the base depth if there is one.

    With α > 1/2 the sum vanishes, but the learning rate of branches grows by as much: T is that of their updates.
    Raises where there is no limit.

    >>> from zoo import ResNet
    >>> layer_time(ResNet(width=8, depth=4, beta=0.5))
    0.25
    """
    p, residual = parameterization(net.parameterization), definition_of(net).residual
    alpha, beta, why = float(p.alpha), float(net.beta), ""
    use = 'residual="uniform" in a parameterization with alpha ≥ 1/2, as ntk and mup are'
    if residual == "fixed":
        why = (
            f"L branches of fixed size β = {beta:g} add up, and signals grow as (1 + β² c)^L for a relu-like activation, "
            "without bound for any"
        )
    elif residual == "decreasing" and alpha <= 0.5:
        why = (
            f"branches of size β l^(−α), α = {alpha:g}, have Σ_l s_l² = β² Σ_l l^(−{2 * alpha:g}) = ∞ (as log L at "
            "α = 1/2), and covariances grow without bound with it"
        )
    elif residual == "decreasing":
        why = (
            f"branches of size β l^(−α), α = {alpha:g}, add up to a finite Σ_l s_l², while their learning rate has the "
            f"factor L^(2α − 1) = L^{2 * alpha - 1:g}: the tangent kernel grows with it"
        )
    elif alpha < 0.5:
        why = (
            f"in the {p.name} parameterization branches have the factor L^(−α) with α = {alpha:g} < 1/2, so that "
            f"Σ_l s_l² = β² L^{1 - 2 * alpha:g} and covariances grow without bound"
        )
        use = 'parameterization="ntk" or "mup", which have alpha = 1/2'
    if why:
        raise AbsentError(f"{type(net).__name__} has no infinite-depth limit: {why}. Use {use}.")
    return beta**2 * float(p.base_depth or 1.0)


@dataclasses.dataclass
class LayerTime(Walk):
    """A walk through infinitely many blocks: `scales` holds the layer time of each run of blocks, in place of branch scales.

    A block h ← h + s F(h) moves covariances and tangent kernels by s² times those of F, to first order in s², whatever the
    block: so a definition's own block is the equation. For dense blocks of one layer, with C = w² E φφ' + b²,

        dH/dτ = C(H),   dK/dτ = w² E[φ'φ'] K + C(H),   0 ≤ τ ≤ β².

    (The gradient kernel runs backwards, dG/dτ = −w² E[φ'φ'] G; K carries ∫ G C dτ forwards, so one pass does.) Blocks of several
    branches add theirs. With α > 1/2 (`still`) signals stay as they are, and K grows by what the branches' own parameters add,
    as learning rates L^(2α − 1) make up for their size: dK/dτ = C(H(0)) for the block above.

    It is `solved` to `numbers["tolerance"]`.

    Reference: Bordelon, Noci, Li, Hanin, Pehlevan (2023), Depthwise hyperparameter transfer in residual networks,
    proposition 2, which leaves the boundary G(1) = E[φ'φ'] unsaid; theory notes 4.7.
    """

    still: bool = False
    met: list[Any] | None = None  # branches of the block that is being walked through

    def add(self, state: Any, branch: Any, scale: Any) -> Any:
        """Notes the branch; the signal itself moves by infinitely little."""
        del scale
        assert self.met is not None, "a branch outside of `repeat`"
        self.met.append(branch)
        return state

    def mark(self, state: Any) -> Any:
        """Blocks are not marked one by one."""
        return state if self.met is not None else super().mark(state)

    def repeat(self, step: Callable[[Any, Any], Any], state: Any, over: Any) -> Any:
        """The state after infinitely many blocks, for so long a layer time each."""
        for i in range(len(over)):
            state = self._recorded(step, state, over[i]) if self.unrolled else self._advance(step, state, over[i])
            self._branches(step, state, watched=True)  # signals only grow: the largest ones are met at the end
        return state

    def _recorded(self, step: Callable, state: Any, time: Any) -> Any:
        """The same, marked at equal distances."""
        first, shifts = len(self.marks), None
        if self.shifts is not None:
            shifts = jnp.stack(self.shifts[first : first + PIECES])

        def piece(state: Any, shift: Any) -> tuple[Any, Any]:
            state = self._advance(step, state, time / PIECES)
            if shift is not None:
                state = dataclasses.replace(state, ntk=state.ntk + shift)
            return state, state

        state, marked = jax.lax.scan(piece, state, shifts, length=PIECES)
        self.marks += [jax.tree.map(lambda a, i=i: a[i], marked) for i in range(PIECES)]
        return state

    def _branches(self, step: Callable, state: Any, watched: bool = False) -> list[Any]:
        """Covariances and tangent kernels of a block's branches."""
        self.met, largest = [], self.largest
        step(state, 1.0)
        found, self.met = self.met, None
        self.largest = self.largest if watched else largest
        return found

    def _advance(self, step: Callable, state: Any, time: Any) -> Any:
        if self.still:
            resting = dataclasses.replace(state, ntk=jnp.zeros_like(state.ntk))
            own = sum(branch.ntk for branch in self._branches(step, resting))
            return dataclasses.replace(state, ntk=state.ntk + time * own)

        def velocity(y: Any) -> Any:
            now = unpack(state, y)
            return rate(now, self._branches(step, now))

        return unpack(state, solved(velocity, pack(state), time, self.numbers["tolerance"]))


def solved(velocity: Callable[[Any], Any], start: Any, time: Any, tolerance: Any) -> Any:
    """dy/dτ = velocity(y) from y = start to τ = time, by Dormand and Prince's method of order 8; NaN where that fails.

    The error of a step is below `tolerance` relative to the largest entry of its kind.
    """
    kind = jax.tree.leaves(start)[0].dtype
    time, tolerance = (jnp.asarray(a, kind) for a in (time, tolerance))
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda tau, y, arguments: velocity(y)),  # pyright: ignore[reportArgumentType]
        diffrax.Dopri8(),
        t0=jnp.zeros_like(time),
        t1=time,
        dt0=time / 4,
        y0=start,
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance * 1e-3, norm=_largest),
        max_steps=_STEPS,
        throw=False,  # what was not solved becomes NaN, and is found with other overflows
    )
    good = solution.result == diffrax.RESULTS.successful
    return jax.tree.map(lambda a: jnp.where(good, a[-1], jnp.nan), solution.ys)


def _largest(error: Any) -> jax.Array:
    """Of all entries: no pair of inputs may be worse than the tolerance."""
    return functools.reduce(jnp.maximum, [jnp.max(jnp.abs(a)) for a in jax.tree.leaves(error)])


def pack(state: Any) -> dict[str, jax.Array]:
    """What the equation moves: for samples variances and 1 − c, so that nearly equal inputs keep their digits."""
    if isinstance(state, algebra.Positions):
        return {name: getattr(state, name) for name in ("k", "ntk", "k1", "k2")}
    return {"q1": state.r1**2, "q2": state.r2**2, "gap": state.gap, "ntk": state.ntk}


def unpack(like: Any, y: dict[str, jax.Array]) -> Any:
    """The state from `pack`."""
    if isinstance(like, algebra.Positions):
        return dataclasses.replace(like, **y)
    return algebra.State(safe_sqrt(y["q1"]), safe_sqrt(y["q2"]), jnp.clip(y["gap"], 0, 2), y["ntk"])


def rate(state: Any, branches: list[Any]) -> dict[str, jax.Array]:
    """Its velocity: covariances add those of the branches. Of 1 − c, with B a branch's standard deviation over the signal's,

    ½ (B1 − B2)² + B1 B2 (1 − c_F) − ½ (B1² + B2²) (1 − c), which is `kernels.add` to first order in scale².
    """
    moved = [pack(branch) for branch in branches]
    if isinstance(state, algebra.State):
        for branch, velocity in zip(branches, moved, strict=True):
            b1, b2 = (b / jnp.where(r > 0, r, 1) for b, r in ((branch.r1, state.r1), (branch.r2, state.r2)))
            velocity["gap"] = ((b1 - b2) ** 2 - (b1**2 + b2**2) * state.gap) / 2 + b1 * b2 * branch.gap
    return jax.tree.map(lambda *parts: sum(parts), *moved)


def in_layer_time(
    solve: Callable[[Any, Any, float], Any],
    x1: np.ndarray,
    x2: np.ndarray | None,
    rows: int,
    tolerance: float,
    base: Provenance,
    series: bool,
) -> tuple[Callable[[Any, Any], Any], Provenance]:
    """(the kernels of a pair of blocks, where they come from) from a solver (x1, x2, tolerance) → kernels.

    The error is measured: on some inputs the equations are solved again, a hundred times more precisely. `series`: the
    activation has no closed form, so that each solution is costly; then many pairs are interpolated
    (`ChebyshevKernel`). `rows` is how many inputs are solved for at a time.
    """

    def direct(a: Any, b: Any) -> Any:
        return solve(a, b, tolerance)

    count = min(len(x1), rows, _MEASURED)
    error = solver_error(solve, x1, tolerance, count)
    detail = (
        f"layer-time equations, adaptive solver: error {error:.0e} of the largest entry, measured on {count} inputs"
    )
    pair: Callable = direct
    if series and len(x1) * len(x1 if x2 is None else x2) > _TABULATED:
        table = ChebyshevKernel.of(direct, x1, x2, tolerance=10 * tolerance)
        pair = table
        detail += f"; tabulated over |x|, |x'| and their angle: error {table.error:.0e}, measured on pairs worked out directly"
    kind = base.kind if base.kind == "monte_carlo" else "approximate"
    return pair, Provenance(kind, f"{base.detail}; {detail}" if base.detail else detail)


def solver_error(solve: Callable[[Any, Any, float], Any], x: np.ndarray, tolerance: float, count: int) -> float:
    """The largest difference to a solution a hundred times more precise, relative to the largest entry, on `count` inputs."""
    some = x
    if len(x) > count:  # of all sizes, the smallest and the largest among them
        order = np.argsort([np.linalg.norm(a) for a in x])
        some = x[order[np.linspace(0, len(x) - 1, count).round().astype(int)]]
    pairs = zip(solve(some, some, tolerance), solve(some, some, tolerance / 100), strict=True)
    away = [(np.abs(np.asarray(a) - np.asarray(b)).max(), np.abs(np.asarray(b)).max()) for a, b in pairs]
    found = max(float(difference / size) if size else 0.0 for difference, size in away)
    return found if math.isfinite(found) else float("nan")


@dataclasses.dataclass(frozen=True)
class ChebyshevKernel:
    """A kernel K(r, r', θ) of inputs of size r = |x| / √D and r' at angle θ, as Chebyshev polynomials between its extreme values.

    Kernels of dense networks depend on their inputs through these alone. In θ, unlike cos θ, those of relu-like activations
    are smooth at θ = 0. `coefficients` are [kernel, r, r', θ]; `error` is the largest found on pairs worked out directly,
    relative to the largest entry.
    """

    r: tuple[float, float]
    coefficients: np.ndarray
    error: float = float("nan")

    @classmethod
    def of(cls, direct: Direct, x1: np.ndarray, x2: np.ndarray | None, tolerance: float = 1e-9) -> "ChebyshevKernel":
        """For all pairs of these inputs; polynomials get longer until the error is below `tolerance`.

        >>> x = np.random.default_rng(0).normal(size=(30, 4))
        >>> direct = lambda a, b: [np.cos(a @ b.T / a.shape[1])]
        >>> table = ChebyshevKernel.of(direct, x, None)
        >>> table.error < 1e-9, bool(np.allclose(table(x, x)[0], direct(x, x)[0], atol=1e-8))
        (True, True)
        """
        both = x1 if x2 is None else np.concatenate([x1, x2])
        size = _sizes(both)
        r, random = (float(size.min()), float(size.max())), np.random.default_rng(0)
        order = np.argsort(size)
        some = both[np.unique(np.r_[order[:2], order[-2:], random.permutation(len(both))[: _CHECKED - 4]])]
        expected = np.stack([np.asarray(part) for part in direct(some, some)])
        for count_r, count_theta in _SIZES:
            table = cls._made(direct, r, 1 if r[0] == r[1] else count_r, count_theta)
            away = np.abs(np.stack(table(some, some)) - expected)
            scale = np.abs(expected).max((1, 2), keepdims=True)
            table = dataclasses.replace(table, error=float((away / np.where(scale > 0, scale, 1)).max()))
            if table.error < tolerance:
                break
        return table  # pyright: ignore[reportPossiblyUnboundVariable]

    @classmethod
    def _made(cls, direct: Direct, r: tuple[float, float], count_r: int, count_theta: int) -> "ChebyshevKernel":
        t_r, t_theta = (chebyshev.chebpts1(n) for n in (count_r, count_theta))
        rs, thetas = (r[0] + r[1]) / 2 + (r[1] - r[0]) / 2 * t_r, np.pi / 2 * (1 + t_theta)
        first = np.sqrt(2) * np.stack([rs, 0 * rs], axis=1)  # in the plane: |x|² / D = r²
        turned = np.sqrt(2) * rs[:, None, None] * np.stack([np.cos(thetas), np.sin(thetas)], axis=1)
        values = np.stack([np.asarray(part) for part in direct(first, turned.reshape(-1, 2))])
        c = values.reshape(len(values), count_r, count_r, count_theta)
        to_r, to_theta = (np.linalg.inv(chebyshev.chebvander(t, len(t) - 1)) for t in (t_r, t_theta))
        return cls(r, np.einsum("ia,jb,kc,nabc->nijk", to_r, to_r, to_theta, c, optimize=True))

    def __call__(self, x1: np.ndarray, x2: np.ndarray) -> list[np.ndarray]:
        """The kernels of these inputs, [n1, n2] each."""
        n_r, n_theta = self.coefficients.shape[2:]
        middle, half = (self.r[0] + self.r[1]) / 2, (self.r[1] - self.r[0]) / 2 or 1.0
        t1, t2 = (np.clip((_sizes(x) - middle) / half, -1, 1) for x in (x1, x2))
        basis1, basis2 = (chebyshev.chebvander(t, n_r - 1) for t in (t1, t2))
        rows = np.einsum("ai,nijk->najk", basis1, self.coefficients, optimize=True)
        terms = np.einsum("bj,najk->nkab", basis2, rows, optimize=True)
        t = 2 / np.pi * _angles(x1, x2) - 1
        return [chebyshev.chebval(t, part, tensor=False) for part in terms.reshape(-1, n_theta, *t.shape)]


def _sizes(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(x * x, axis=1))


def _angles(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    """Angles [n1, n2]; that of equal rows is 0 to rounding, and that of opposite ones π."""
    u1, u2 = (x / np.maximum(np.linalg.norm(x, axis=1), 1e-300)[:, None] for x in (x1, x2))
    c = np.clip(u1 @ u2.T, -1, 1)
    near = 1 - 16 * np.finfo(c.dtype).eps
    return np.where(c > near, 0.0, np.where(c < -near, np.pi, np.arccos(c)))
