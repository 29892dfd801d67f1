"""Response functions: how what a matrix gives on answers to what its transpose has carried back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.fields.matrix import Matrix
from limits.fields.taps import LayerUse

NOTED = ("responses_c", "responses_d", "responses_m")  # what `coefficients` says of one time
_SMALLEST = 1e-6  # singular values below this part of the largest: these fields are not independent


def coefficients(
    uses: list[LayerUse], entered: dict[int, Any], backs: dict[int, Any], revealed: Any, scale: Any
) -> dict[str, tuple]:
    """Of every revealed matrix, in the order of use, what enters it and what comes back to it, in its bases.

    Tuples: responses_c [rows, k] with a row for every input and position; responses_d, also for every output;
    responses_m, the strength m s of the initial matrix. `entered`, `backs`: by the number of the call.
    """
    found: dict[str, list] = {name: [] for name in NOTED}
    for path in dict.fromkeys(use.path for use in uses):
        matrix = _at(revealed, path)
        if matrix is None:
            continue
        calls = [i for i, use in enumerate(uses) if use.path == path]
        a, g = (jnp.concatenate([part[i].reshape(-1, part[i].shape[-1]) for i in calls]) for part in (entered, backs))
        found["responses_c"].append(a @ matrix.v.T)
        found["responses_d"].append(scale * g @ matrix.u.T)
        found["responses_m"].append(uses[calls[0]].multipliers["kernel"] * matrix.start)
    return {name: tuple(parts) for name, parts in found.items()}


def _at(revealed: Any, path: tuple[str, ...]) -> Matrix | None:
    for name in path:
        revealed = revealed.get(name, {})
    matrix: Matrix | None = revealed.get("kernel")
    return matrix


def all_responses(revealed: Any, paths: Any, looks: list[dict[str, Any]]) -> dict[str, tuple]:
    """responses_a, responses_b: tuples by matrix (`paths`, in the order of use) of A and B, from what all looks noted."""
    each = []
    for i, path in enumerate(paths):
        matrix: Any = jax.device_get(_at(revealed, path))
        strength = np.array([look["responses_m"][i] for look in looks], np.float64)
        c, d = (_stacked([look[f"responses_{side}"][i] for look in looks], len(matrix.v)) for side in "cd")
        each.append(responses(matrix, strength, c, d))
    return {f"responses_{name}": parts for name, parts in zip("ab", zip(*each, strict=True), strict=True)}


def _stacked(rows: list[Any], capacity: int) -> np.ndarray:
    """[time, rows, capacity]; earlier looks had less room."""
    return np.stack([np.pad(np.asarray(a, np.float64), [(0, 0), (0, capacity - a.shape[1])]) for a in rows])


def responses(matrix: Matrix, strength: np.ndarray, c: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(A, B) of one matrix W⁰, [time, time, rows, rows], from its final state, and c and d [time, rows, k] of all looks.

        W⁰ φ(t) = u(t) + Σ_{s<t} A(t, s) g(s),   W⁰ᵀ g(t) = r(t) + Σ_{s≤t} B(t, s) φ(s),

    (W⁰ with its strength [time]) where u and r are Gaussian and know nothing of each other. A(t, s) is <∂φ(t)/∂r(s)> and
    B(t, s) is <∂g(t)/∂u(s)>, times w_std². They are read off the overlaps <v, W⁰ᵀ u> of directions that the matrix met:
    those with a u that it met before v belong to A, the others to B.

    Where fields of several times and inputs depend on each other linearly (as all do in linear networks), many A give the
    same sum: this is the shortest.
    """
    overlap = np.asarray(matrix.v, np.float64) @ np.asarray(matrix.z, np.float64).T
    index = np.arange(len(overlap))
    u_came_first, v_came_first = index < matrix.then_in[:, None], index < matrix.then_out[:, None]
    forward = strength[:, None, None] * (c @ np.where(u_came_first, overlap, 0))
    backward = strength[:, None, None] * (d @ np.where(v_came_first, overlap.T, 0))
    return _expressed(forward, d, same_time=False), _expressed(backward, c, same_time=True)


def _expressed(terms: np.ndarray, fields: np.ndarray, same_time: bool) -> np.ndarray:
    """x(t, s) with terms(t) = Σ_s x(t, s) fields(s), over s < t, or s ≤ t: [time, time, rows, rows]."""
    times, rows, k = fields.shape
    out = np.zeros((times, times, terms.shape[1], rows))
    for t in range(times):
        until = t + same_time
        if until:
            inverse = np.linalg.pinv(fields[:until].reshape(-1, k), rcond=_SMALLEST)
            out[t, :until] = (terms[t] @ inverse).reshape(-1, until, rows).swapaxes(0, 1)
    return out
