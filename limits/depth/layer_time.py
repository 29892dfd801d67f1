"""Layer time: with L residual branches of size L^(−1/2), the recursion over layers becomes an equation in time."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp

from limits import kernels as algebra
from limits.kernels.propagation import Walk
from limits.kernels.special import safe_sqrt
from limits.types import AbsentError
from zoo import parameterization
from zoo.definition import definition_of

PIECES = 8  # of layer time, at whose ends kernels are recorded
_STEPS = 4096  # at most
_ABSENT = "{name} has no infinite-depth limit: {why}. Use {instead}."


def layer_time(net: Any) -> float:
    """T = Σ_l s_l² of the branches as L → ∞, the time that signals spend in the blocks: β², times the base depth if there is one.

    With α > 1/2 the sum vanishes, but the learning rate of branches grows by as much: T is that of their updates.
    Raises where there is no limit.

    >>> from zoo import ResNet
    >>> layer_time(ResNet(width=8, depth=4, beta=0.5))
    0.25
    """
    p, name = parameterization(net.parameterization), type(net).__name__
    residual, alpha = definition_of(net).residual, float(p.alpha)
    beta, use = float(net.beta), 'residual="uniform" in a parameterization with alpha ≥ 1/2, as ntk and mup are'
    if residual == "fixed":
        why = (
            f"L branches of fixed size β = {beta:g} add up, and signals grow as (1 + β² c)^L for a relu-like activation, "
            "without bound for any"
        )
        raise AbsentError(_ABSENT.format(name=name, why=why, instead=use))
    if residual == "decreasing" and alpha <= 0.5:
        why = f"branches of size β l^(−α), α = {alpha:g}, have Σ_l s_l² = β² Σ_l l^(−{2 * alpha:g}) = ∞ (as log L at α = 1/2), " \
            "and covariances grow without bound with it"  # fmt: skip
        raise AbsentError(_ABSENT.format(name=name, why=why, instead=use))
    if residual == "decreasing":
        why = (
            f"branches of size β l^(−α), α = {alpha:g}, add up to a finite Σ_l s_l², while their learning rate has the "
            f"factor L^(2α − 1) = L^{2 * alpha - 1:g}: the tangent kernel grows with it"
        )
        raise AbsentError(_ABSENT.format(name=name, why=why, instead=use))
    if alpha < 0.5:
        why = (
            f"in the {p.name} parameterization branches have the factor L^(−α) with α = {alpha:g} < 1/2, so that "
            f"Σ_l s_l² = β² L^{1 - 2 * alpha:g} and covariances grow without bound"
        )
        raise AbsentError(
            _ABSENT.format(name=name, why=why, instead='parameterization="ntk" or "mup", which have alpha = 1/2')
        )
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

    Solved by Dormand and Prince's method of order 8 with adaptive steps, whose error a step is below `numbers["tolerance"]`
    relative to the largest entry of its kind.

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

        def velocity(tau: Any, y: Any, arguments: Any) -> Any:
            del tau, arguments
            now = unpack(state, y)
            return rate(now, self._branches(step, now))

        tolerance = jnp.asarray(self.numbers["tolerance"], state.ntk.dtype)
        start = pack(state)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(velocity),  # pyright: ignore[reportArgumentType]
            diffrax.Dopri8(),
            t0=jnp.zeros_like(time),
            t1=time,
            dt0=time / 4,
            y0=start,
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance * 1e-3, norm=_largest),
            max_steps=_STEPS,
            throw=False,  # what was not solved becomes NaN, and is found with other overflows
        )
        solved = solution.result == diffrax.RESULTS.successful
        return unpack(state, jax.tree.map(lambda a: jnp.where(solved, a[-1], jnp.nan), solution.ys))


def _largest(error: Any) -> jax.Array:
    """Of all entries: no pair of inputs may be worse than the tolerance."""
    return functools.reduce(jnp.maximum, [jnp.max(jnp.abs(a)) for a in jax.tree.leaves(error)])


@functools.singledispatch
def pack(state: Any) -> Any:
    """What the equation moves: variances and 1 − c, so that nearly equal inputs keep their digits."""
    return {"q1": state.r1**2, "q2": state.r2**2, "gap": state.gap, "ntk": state.ntk}


@functools.singledispatch
def unpack(like: Any, y: Any) -> Any:
    """The state from `pack`."""
    del like
    return algebra.State(safe_sqrt(y["q1"]), safe_sqrt(y["q2"]), jnp.clip(y["gap"], 0, 2), y["ntk"])


@functools.singledispatch
def rate(state: Any, branches: list[Any]) -> Any:
    """Its velocity: of 1 − c, with B the branch's standard deviation over the signal's and c_F its correlation,

    ½ (B1 − B2)² + B1 B2 (1 − c_F) − ½ (B1² + B2²) (1 − c), which is `kernels.add` to first order in scale².
    """
    moved = []
    for branch in branches:
        b1, b2 = (b / jnp.where(r > 0, r, 1) for b, r in ((branch.r1, state.r1), (branch.r2, state.r2)))
        gap = ((b1 - b2) ** 2 - (b1**2 + b2**2) * state.gap) / 2 + b1 * b2 * branch.gap
        moved.append({"q1": branch.r1**2, "q2": branch.r2**2, "gap": gap, "ntk": branch.ntk})
    return jax.tree.map(lambda *parts: sum(parts), *moved)


@pack.register
def _(state: algebra.Positions) -> Any:
    return {name: getattr(state, name) for name in ("k", "ntk", "k1", "k2")}


@unpack.register
def _(like: algebra.Positions, y: Any) -> Any:
    return dataclasses.replace(like, **y)


@rate.register
def _(state: algebra.Positions, branches: list[Any]) -> Any:
    del state
    return jax.tree.map(lambda *parts: sum(parts), *[pack(branch) for branch in branches])
