"""Inputs of neural-tangents' recipes: NumPy only, so that both environments can import it."""

import numpy as np

PADDING = 100.0  # in place of features, where a sequence has ended
REG, RATE, TIMES = 1e-3, 0.4, (0.0, 2.0, 60.0)


def waves(n: int, shape: tuple[int, ...], phase: float = 0.0) -> np.ndarray:
    """n inputs of this shape with different norms."""
    i, *places = np.ogrid[(slice(n), *map(slice, shape))]
    total = sum((0.9 + 0.4 * k) * place for k, place in enumerate(places))
    return (1 + 0.2 * i) * np.sin(0.8 * (i + 1) * total + 1.9 * i + phase) + 0.4 * np.cos(total * total + 0.3 * i)


SHAPES = {"vectors": (4,), "images": (8, 8, 3), "volumes": (3, 4, 3, 2), "sequences": (6, 3)}


def inputs(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of inputs, 4 and 3; "ragged" sequences have ended after 6, 4, … places."""
    shape = SHAPES.get(kind, SHAPES["sequences"])
    x1, x2 = waves(4, shape), waves(3, shape, 1.0)
    if kind == "ragged":
        for x in (x1, x2):
            for i, length in zip(range(len(x)), (6, 4, 3, 5), strict=False):
                x[i, length:] = PADDING
    return x1, x2


def adjacency(x: np.ndarray) -> np.ndarray:
    """A graph for each input, [n, nodes, nodes]: weights of edges, and none for far apart nodes."""
    a = np.cos(np.arange(x.shape[1])[:, None] - np.arange(x.shape[1]) + x.mean(-1)[:, None, :1])
    return np.where(a > -0.3, np.abs(a), 0.0) / 3


# The task of the examples that train: a sine, seen at seven points.
ANGLES = np.linspace(-2.6, 2.6, 7)[:, None] + 0.1 * np.cos(np.arange(7.0))[:, None]
TARGETS = np.sin(ANGLES)
GRID = np.linspace(-3.0, 3.0, 5)[:, None]
LABELS = np.eye(2)[(TARGETS[:, 0] > 0).astype(int)]


def weights() -> list[np.ndarray]:
    """A small network x → tanh(x W) V with two outputs."""
    i, j = np.arange(3)[:, None], np.arange(3)[None, :]
    return [np.sin(1.0 + np.arange(3.0))[None], np.cos(2.0 * i + 0.7 * j)[:, :2]]
