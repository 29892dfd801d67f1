"""Solving the forward–backward equations: damped sweeps, and annealing in the width where these do not converge."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from limits.posterior.averages import Draws, pair_averages
from limits.posterior.equations import Stack, force_back, kernel_ahead, output_force, prior_kernels, stack_of
from limits.posterior.tilted import check_smooth, tilted_force, tilted_kernel
from limits.types import AbsentError
from zoo import checks

ANNEALING = (32.0, 16.0, 8.0, 5.6, 4.0, 2.8, 2.0, 1.7, 1.4, 1.2, 1.0)  # widths, in units of the one that is asked for
_PATIENCE = 20  # iterations in which the residual must halve


order_of = checks.choice("leading", "full")
damping_of = checks.number(0, 1)
tolerance_of = checks.Check(
    "a relative residual from 1e-14 to 0.01", lambda v: checks.number(1e-14).holds(v) and v <= 0.01
)


class DivergenceError(ValueError):
    """The iteration does not settle; the message has the numbers and what to change."""


@checks.arguments(damping=damping_of, tolerance=tolerance_of, limit=checks.count())
@dataclasses.dataclass(frozen=True)
class Sweeps:
    """How to iterate: C̃ ← damping · C̃ + (1 − damping) · C̃_new until the residual is below `tolerance`, `limit` times at most."""

    damping: float = 0.5
    tolerance: float = 1e-7
    limit: int = 200


@dataclasses.dataclass(frozen=True)
class Solution:
    """C^(l) and C̃^(l), l = 0 … L, on the training points, and how they were found.

    residual: by how much the equations are still off, relative to the largest entry of the matrix that is furthest off.
    iterations: of every width that was solved on the way, in their order. residuals: at the last width, by iteration.
    """

    kernels: list[np.ndarray]
    forces: list[np.ndarray]
    residual: float
    widths: tuple[float, ...]
    iterations: tuple[int, ...]
    residuals: tuple[float, ...]


@checks.arguments(
    stack=stack_of,
    y=checks.array(None) | checks.array(None, None),
    noise=checks.number(0),
    width=checks.number(positive=True),
    draws=checks.a(Draws, "Draws"),
    order=order_of,
    sweeps=checks.a(Sweeps, "Sweeps"),
    start=checks.a(Solution, "a Solution"),
)
def solve(
    stack: Stack,
    y: np.ndarray,
    noise: float,
    width: float,
    draws: Draws,
    order: str = "leading",
    sweeps: Sweeps = Sweeps(),
    widths: Sequence[float] | None = None,
    start: Solution | None = None,
) -> Solution:
    """The kernels of a posterior network of this width and their conjugates, at P training points with targets y [P, outputs].

    From infinite width (or `start`): forward C^(l) with C̃^(l), the output's C̃^(L), backward C̃^(l), damped, and again. Where
    that does not settle: with half the step; and then at a falling list of widths, each from the solution before (`widths`, if
    given, is that list).

    >>> stack = Stack(np.eye(2), [1.2, 1.2], [0.05, 0.05], "linear")
    >>> found = solve(stack, np.ones((2, 1)), 0.1, 100, Draws("linear", np.zeros((1, 2))))
    >>> found.kernels[2].round(3).tolist(), found.residual < 1e-7
    ([[1.538, 0.125], [0.125, 1.538]], True)
    """
    if len(y) != len(stack.k0):
        raise ValueError(f"solve: y has {len(y)} rows, and the stack's k0 is of {len(stack.k0)} points.")
    if order == "full":
        check_smooth(draws)
    problem = _Problem(stack, y, noise, draws, order)
    if widths is not None:
        return _annealed(problem, falling(widths, width), sweeps, start)
    try:
        return _annealed(problem, [width], sweeps, start or problem.coarse(width, sweeps))
    except (DivergenceError, AbsentError):
        if start is not None:
            raise
        return _annealed(problem, [factor * width for factor in ANNEALING], sweeps, None)


def _annealed(problem: "_Problem", widths: list[float], sweeps: Sweeps, start: Solution | None) -> Solution:
    """Each width from the solution at the one before; where sweeps do not settle, once more with half the step."""
    iterations: tuple[int, ...] = ()
    careful = dataclasses.replace(sweeps, damping=(1 + sweeps.damping) / 2)
    for i, width in enumerate(widths):
        try:
            try:
                start = problem.settle(width, sweeps, start)
            except (DivergenceError, AbsentError):
                start = problem.settle(width, careful, start)
        except (DivergenceError, AbsentError) as error:
            if len(widths) == 1:
                raise
            reached = f"they do down to width {widths[i - 1]:g}" if i else "they fail at the first width"
            raise DivergenceError(
                f"{error} Annealing from width {widths[0]:g} to the {widths[-1]:g} that is asked for, {reached}."
            ) from error
        iterations += start.iterations
    assert start is not None
    return dataclasses.replace(start, widths=tuple(widths), iterations=iterations)


def falling(widths: Sequence[float], width: float) -> list[float]:
    """The widths to anneal over, ending in the one that is asked for.

    >>> falling((400, 200), 100)
    [400.0, 200.0, 100.0]
    """
    listed = checks.several(checks.number(), least=0)
    values = [*map(float, widths), float(width)] if listed.holds(widths) else []
    if not values or (np.diff(values) >= 0).any():
        raise ValueError(
            f"posterior: widths is a falling list of widths above the {width:g} that is asked for, such as "
            f"({4 * width:g}, {2 * width:g}); got {widths!r}."
        )
    return values


def _last(residuals: Sequence[float]) -> str:
    return ", ".join(f"{r:.1e}" for r in residuals[-3:]) or "none yet"


def _change(old: np.ndarray, new: np.ndarray) -> float:
    """Relative to the largest entry."""
    scale = np.abs(new).max()
    return float(np.abs(new - old).max() / scale) if scale > 0 else 0.0


@dataclasses.dataclass(frozen=True)
class _Problem:
    """The equations of one stack and its data."""

    stack: Stack
    y: np.ndarray
    noise: float
    draws: Draws
    order: str

    def settle(self, width: float, sweeps: Sweeps, start: Solution | None) -> Solution:
        """Sweeps at one width until they change nothing."""
        kernels = prior_kernels(self.stack) if start is None else list(start.kernels)
        forces = [np.zeros_like(k) for k in kernels] if start is None else list(start.forces)
        size, residuals = max(np.abs(k).max() for k in kernels), []

        def diverged(what: str) -> DivergenceError:
            finite = [k for k in kernels if np.isfinite(k).all()]
            smallest = min((float(np.linalg.eigvalsh(k)[0]) for k in finite), default=np.nan)
            return DivergenceError(
                f"The kernel equations do not converge at width {width:g}: {what} (residuals {_last(residuals)}; smallest "
                f"eigenvalue of the kernels {smallest:.2e}, noise {self.noise:g}). They expand in P/N = "
                f"{len(self.y) / width:.3g}: take a larger width or noise, a larger w_std, fewer training points, more "
                "`samples` for the averages, or damping closer to 1."
            )

        while len(residuals) < sweeps.limit:
            try:
                residuals.append(self.sweep(kernels, forces, width, 1 - sweeps.damping, 1e3 * size))
            except _OutOfRangeError as error:
                raise diverged(str(error)) from error
            if residuals[-1] < sweeps.tolerance:
                if np.linalg.eigvalsh(kernels[-1])[0] + self.noise <= 0:
                    raise diverged("the solution's C^(L) + noise is not positive definite")
                return Solution(kernels, forces, residuals[-1], (width,), (len(residuals),), tuple(residuals))
            if len(residuals) > 2 * _PATIENCE and min(residuals[-_PATIENCE:]) > 0.5 * min(residuals[:-_PATIENCE]):
                raise diverged(f"the residual has stopped falling at {residuals[-1]:.1e}")
        raise DivergenceError(
            f"The kernel equations have not converged at width {width:g} after {sweeps.limit} iterations: the residual is "
            f"{residuals[-1]:.1e}, above the tolerance of {sweeps.tolerance:g} (residuals {_last(residuals)}). It may still "
            "be falling: raise `iterations` first."
        )

    def coarse(self, width: float, sweeps: Sweeps) -> Solution | None:
        """Where to start from: a rough solution with an eighth of the draws, if that is still many and settles."""
        few = self.draws.z[::8]
        if len(few) < max(2000, 20 * len(self.y)):
            return None
        rough = dataclasses.replace(self, draws=Draws(self.stack.activation, few))
        try:
            return rough.settle(width, dataclasses.replace(sweeps, tolerance=max(1e-4, sweeps.tolerance)), None)
        except (DivergenceError, AbsentError):
            return None

    def sweep(self, kernels: list, forces: list, width: float, step: float, largest: float) -> float:
        """Forward and backward once, in place; by how much the most changed matrix changes.

        Kernels follow from the forces in one pass, so that damping these is enough, and faster than damping both.
        """
        stack, averages, off = self.stack, [], []
        for l, (w, b) in enumerate(zip(stack.weights, stack.biases, strict=True)):
            averages.append(pair_averages(stack.activation, kernels[l]))
            ahead = kernel_ahead if self.order == "leading" else tilted_kernel
            new = ahead(averages[l][0], self.draws, kernels[l], forces[l + 1], w, b, width)
            diagonal = np.diagonal(new)
            if not np.isfinite(new).all() or diagonal.min() < 0 or diagonal.max() > largest:
                raise _OutOfRangeError(f"C^({l + 1}) leaves the range of a covariance")
            off.append(_change(kernels[l + 1], new))
            kernels[l + 1] = new
        new = output_force(kernels[-1], self.y, self.noise)
        for l in range(stack.depth, -1, -1):
            if l < stack.depth:
                _, own, across = averages[l]
                new = force_back(forces[l + 1], own, across, stack.weights[l])
            if l < stack.depth and self.order == "full":
                new = tilted_force(new, self.draws, kernels[l], forces[l + 1], stack.weights[l], width)
            off.append(_change(forces[l], new))
            forces[l] = forces[l] + step * (new - forces[l])
        return max(off)


class _OutOfRangeError(ValueError):
    """A kernel that is none."""
