"""Kernels of dense networks as functions of three numbers: worked out at some, interpolated at the rest."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Direct = Callable[[Any, Any], Any]  # (inputs [n, D], inputs [m, D]) → kernels [n, m]
_SIZES = ((8, 24), (16, 48), (28, 96))  # polynomials in r and in θ
_CHECKED = 24  # inputs whose pairs are worked out as well


@dataclasses.dataclass(frozen=True)
class Table:
    """A kernel K(r, r', θ) of inputs of size r = |x| / √D and r' at angle θ, as Chebyshev polynomials between its extreme values.

    Kernels of dense networks depend on their inputs through these alone. In θ, unlike cos θ, those of relu-like activations
    are smooth at θ = 0. `coefficients` are [kernel, r, r', θ]; `error` is the largest found on pairs worked out directly,
    relative to the largest entry.
    """

    r: tuple[float, float]
    theta: tuple[float, float]
    coefficients: np.ndarray
    error: float = float("nan")

    @classmethod
    def of(cls, direct: Direct, x1: np.ndarray, x2: np.ndarray | None, tolerance: float = 1e-9) -> "Table":
        """For all pairs of these inputs; polynomials get longer until the error is below `tolerance`.

        >>> x = np.random.default_rng(0).normal(size=(30, 4))
        >>> direct = lambda a, b: [np.cos(a @ b.T / a.shape[1])]
        >>> table = Table.of(direct, x, None)
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
            table = cls._made(direct, r, (0.0, np.pi), 1 if r[0] == r[1] else count_r, count_theta)
            away = np.abs(np.stack(table(some, some)) - expected)
            scale = np.abs(expected).max((1, 2), keepdims=True)
            table = dataclasses.replace(table, error=float((away / np.where(scale > 0, scale, 1)).max()))
            if table.error < tolerance:
                break
        return table  # pyright: ignore[reportPossiblyUnboundVariable]

    @classmethod
    def _made(cls, direct: Direct, r: Any, theta: Any, count_r: int, count_theta: int) -> "Table":
        rs, thetas = _nodes(count_r, r), _nodes(count_theta, theta)
        first = np.sqrt(2) * np.stack([rs, 0 * rs], axis=1)  # in the plane: |x|² / D = r²
        turned = np.sqrt(2) * rs[:, None, None] * np.stack([np.cos(thetas), np.sin(thetas)], axis=1)
        values = np.stack([np.asarray(part) for part in direct(first, turned.reshape(-1, 2))])
        c = values.reshape(len(values), count_r, count_r, count_theta)
        to_r, to_theta = (np.linalg.inv(_basis(_nodes(n), n)) for n in (count_r, count_theta))
        return cls(r, theta, np.einsum("ia,jb,kc,nabc->nijk", to_r, to_r, to_theta, c, optimize=True))

    def __call__(self, x1: np.ndarray, x2: np.ndarray) -> list[np.ndarray]:
        """The kernels of these inputs, [n1, n2] each."""
        n_r, n_theta = self.coefficients.shape[2:]
        size1, size2 = _sizes(x1), _sizes(x2)
        basis1, basis2 = (_basis(_inside(size, self.r), n_r) for size in (size1, size2))
        t = _inside(_angles(x1, x2), self.theta)
        rows = np.einsum("ai,nijk->najk", basis1, self.coefficients, optimize=True)
        terms = np.einsum("bj,najk->nkab", basis2, rows, optimize=True)
        return [_clenshaw(part, t) for part in terms.reshape(len(self.coefficients), n_theta, *t.shape)]


def _nodes(count: int, span: tuple[float, float] = (-1.0, 1.0)) -> np.ndarray:
    """Chebyshev points of `span`."""
    t = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    return (span[0] + span[1]) / 2 + (span[1] - span[0]) / 2 * t


def _inside(a: np.ndarray, span: tuple[float, float]) -> np.ndarray:
    """`span` to [−1, 1]."""
    return np.clip((2 * a - span[0] - span[1]) / ((span[1] - span[0]) or 1.0), -1, 1)


def _basis(t: np.ndarray, count: int) -> np.ndarray:
    return np.polynomial.chebyshev.chebvander(t, count - 1)


def _clenshaw(c: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Σ_k c_k T_k(t), for coefficients [k, *t.shape]."""
    ahead, further = np.zeros_like(t), np.zeros_like(t)
    for k in range(len(c) - 1, 0, -1):
        ahead, further = c[k] + 2 * t * ahead - further, ahead
    return c[0] + t * ahead - further


def _sizes(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(x * x, axis=1))


def _angles(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    """Angles [n1, n2]; that of equal rows is 0 to rounding."""
    u1, u2 = (x / np.maximum(np.linalg.norm(x, axis=1), 1e-300)[:, None] for x in (x1, x2))
    c = np.clip(u1 @ u2.T, -1, 1)
    return np.where(c > 1 - 16 * np.finfo(c.dtype).eps, 0.0, np.arccos(c))
