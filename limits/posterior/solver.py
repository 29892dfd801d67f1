"""Solving the forward–backward equations: damped sweeps, and annealing in the width where these do not converge."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from limits.posterior.averages import Draws, pair_averages
from limits.posterior.equations import Stack, backward, forward, output_force, prior_kernels
from limits.posterior.tilted import tilted_backward, tilted_forward
from limits.types import AbsentError

Order = str  # "leading" or "full"
ANNEALING = (32.0, 16.0, 8.0, 5.6, 4.0, 2.8, 2.0, 1.7, 1.4, 1.2, 1.0)  # widths, in units of the one that is asked for


class DivergenceError(ValueError):
    """The sweeps do not settle; the message has the numbers and what to change."""


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


@dataclasses.dataclass(frozen=True)
class Sweeps:
    """How to iterate: C̃ ← damping · C̃ + (1 − damping) · C̃_new until the residual is below `tolerance`."""

    damping: float = 0.5
    tolerance: float = 1e-7
    limit: int = 200


def solve(
    stack: Stack,
    y: np.ndarray,
    noise: float,
    width: float,
    draws: Draws,
    order: Order = "leading",
    sweeps: Sweeps = Sweeps(),
    widths: Sequence[float] | None = None,
    start: Solution | None = None,
) -> Solution:
    """The kernels of a posterior network of this width and their conjugates, at P training points with targets y [P, outputs].

    From infinite width (or `start`): forward C^(l) with C̃^(l), the output's C̃^(L), backward C̃^(l), damped, and again. Where
    that diverges: the same at a falling list of widths, each from the solution before (`widths`, if given, is that list).

    >>> stack = Stack(np.eye(2), [1.2, 1.2], [0.05, 0.05], "linear")
    >>> found = solve(stack, np.ones((2, 1)), 0.1, 100, Draws("linear", np.zeros((1, 2))))
    >>> found.kernels[2].round(3).tolist(), found.residual < 1e-7
    ([[1.538, 0.125], [0.125, 1.538]], True)
    """
    if order not in ("leading", "full"):
        raise ValueError(f'order must be "leading" or "full", got "{order}".')
    if widths is not None:
        return _annealed(stack, y, noise, [*widths, width], draws, order, sweeps, start)
    try:
        return _settle(stack, y, noise, width, draws, order, sweeps, start)
    except (DivergenceError, AbsentError) as error:
        if start is not None or (isinstance(error, AbsentError) and "kink" in str(error)):
            raise
        return _annealed(stack, y, noise, [factor * width for factor in ANNEALING], draws, order, sweeps, None)


def _annealed(stack: Stack, y: Any, noise: float, widths: list, draws: Draws, order: Order, sweeps: Sweeps, start: Any):
    iterations: tuple[int, ...] = ()
    for i, width in enumerate(widths):
        try:
            start = _settle(stack, y, noise, width, draws, order, sweeps, start)
        except (DivergenceError, AbsentError) as error:
            reached = f"they do down to width {widths[i - 1]:g}" if i else "they fail at the first width"
            raise DivergenceError(
                f"{error} Annealing from width {widths[0]:g} to the {widths[-1]:g} that is asked for, {reached}."
            ) from error
        iterations += start.iterations
    return dataclasses.replace(start, widths=tuple(widths), iterations=iterations)


def _settle(
    stack: Stack, y: Any, noise: float, width: float, draws: Draws, order: Order, sweeps: Sweeps, start: Any
) -> Solution:
    """Sweeps at one width."""
    kernels = prior_kernels(stack) if start is None else [k.copy() for k in start.kernels]
    forces = [np.zeros_like(k) for k in kernels] if start is None else [f.copy() for f in start.forces]
    size, residuals = max(np.abs(k).max() for k in kernels), []
    step = 1 - sweeps.damping

    def towards(parts: list[np.ndarray], l: int, new: np.ndarray) -> float:
        change, scale = np.abs(new - parts[l]).max(), np.abs(new).max()
        # Kernels follow from the forces in one pass, so that damping these is enough, and faster than damping both.
        parts[l] = new if parts is kernels else parts[l] + step * (new - parts[l])
        return float(change / scale) if scale > 0 else 0.0

    while len(residuals) < sweeps.limit:
        averages, off = [], []
        for l, (w, b) in enumerate(zip(stack.weights, stack.biases, strict=True)):
            averages.append(pair_averages(stack.activation, kernels[l]))
            ahead = forward if order == "leading" else tilted_forward
            off.append(towards(kernels, l + 1, ahead(averages[l][0], draws, kernels[l], forces[l + 1], w, b, width)))
            diagonal = np.diagonal(kernels[l + 1])
            if not np.isfinite(kernels[l + 1]).all() or diagonal.min() <= 0 or diagonal.max() > 1e3 * size:
                raise _diverged(
                    stack, kernels, noise, width, residuals, f"C^({l + 1}) leaves the range of a covariance"
                )
        off.append(towards(forces, stack.depth, output_force(kernels[-1], y, noise)))
        for l in range(stack.depth - 1, -1, -1):
            _, own, across = averages[l]
            back = backward(forces[l + 1], own, across, stack.weights[l])
            if order == "full":
                back = tilted_backward(back, draws, kernels[l], forces[l + 1], stack.weights[l], width)
            off.append(towards(forces, l, back))
        residuals.append(max(off))
        if residuals[-1] < sweeps.tolerance:
            return _checked(stack, kernels, forces, noise, width, residuals)
    raise _diverged(
        stack,
        kernels,
        noise,
        width,
        residuals,
        f"after {sweeps.limit} iterations the residual is above {sweeps.tolerance:g}",
    )


def _checked(stack: Stack, kernels: list, forces: list, noise: float, width: float, residuals: list) -> Solution:
    if np.linalg.eigvalsh(kernels[-1])[0] + noise <= 0:
        raise _diverged(
            stack, kernels, noise, width, residuals, "the solution's C^(L) + noise is not positive definite"
        )
    return Solution(kernels, forces, residuals[-1], (width,), (len(residuals),), tuple(residuals))


def _diverged(stack: Stack, kernels: list, noise: float, width: float, residuals: list, what: str) -> DivergenceError:
    samples = len(stack.k0)
    finite = [k for k in kernels if np.isfinite(k).all()]
    smallest = min((float(np.linalg.eigvalsh(k)[0]) for k in finite), default=np.nan)
    last = ", ".join(f"{r:.1e}" for r in residuals[-3:]) or "none yet"
    return DivergenceError(
        f"The kernel equations do not converge at width {width:g}: {what} (residuals {last}; smallest eigenvalue of the kernels "
        f"{smallest:.2e}, noise {noise:g}). They expand in P/N = {samples / width:.3g}: take a larger width or noise, a larger "
        "w_std, fewer training points, more `samples` for the averages, or damping closer to 1."
    )
