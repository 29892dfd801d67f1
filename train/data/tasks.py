"""Tasks that need no download: handwritten digits from scikit-learn, and synthetic ones."""

import functools
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from limits import Task
from train.data.stratified import stratified
from zoo import checks
from zoo.messages import did_you_mean

_SIZES = {"n_train": checks.count(1), "n_test": checks.count(0), "seed": checks.seed}


def _cut(x: np.ndarray, y: np.ndarray, n_train: int, name: str, loss: Any = "mse") -> Task:
    """The first points to train on, the others to test on."""
    return Task(x[:n_train], y[:n_train], x[n_train:], y[n_train:], loss, name=name)


@checks.arguments(x=checks.array(least=2))
def on_sphere(x: np.ndarray) -> np.ndarray:
    """Rows scaled to |x|² = D, so that every input has variance 1 a feature; a row of zeros stays."""
    norm = np.linalg.norm(x.reshape(len(x), -1), axis=1)
    return x * (x[0].size ** 0.5 / np.where(norm > 0, norm, 1)).reshape(-1, *[1] * (x.ndim - 1))


def handwritten(
    split: str = "drawn", classes: Sequence[int] = range(10), seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(images [n, 8, 8, 1] of whole numbers 0 … 16, labels [n]) of scikit-learn's 1,797 handwritten digits.

    - "drawn": all of these classes, in an order of the seed's;
    - "train", "test": 1,437 and 360, every class in its proportion in both, whatever the seed, so that accuracies of runs are of
      the same images: `sklearn.model_selection.train_test_split(range(1797), test_size=0.2, stratify=labels, random_state=0)`.

    >>> [len(handwritten(split)[0]) for split in ("drawn", "train", "test")]
    [1797, 1437, 360]
    """
    images, labels = _scans()
    if split == "drawn":
        rows = np.flatnonzero(np.isin(labels, classes))
        rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    else:
        train, test = stratified(labels, 360)
        rows = {"train": train, "test": test}[split]
    return images[rows], labels[rows]


@functools.cache
def _scans() -> tuple[np.ndarray, np.ndarray]:
    """`sklearn.datasets.load_digits` without importing scikit-learn, which takes a second: (images, labels)."""
    spec: Any = importlib.util.find_spec("sklearn")
    lines = np.loadtxt(Path(spec.submodule_search_locations[0]) / "datasets/data/digits.csv.gz", delimiter=",")
    return lines[:, :-1].reshape(-1, 8, 8, 1), lines[:, -1].astype(int)


@checks.arguments(
    **_SIZES,
    classes=checks.several(checks.count(0, 9), least=2, distinct=True),
    targets=checks.choice("signs", "one_hot"),
    loss=checks.choice("mse", "cross_entropy"),
)
def digits(
    n_train: int = 32,
    n_test: int = 32,
    classes: Sequence[int] = (0, 1),
    targets: str = "signs",
    loss: str = "mse",
    seed: int = 0,
) -> Task:
    """8 × 8 handwritten digits (1,797 of them), scaled to |x|² = 64, [n, 8, 8, 1], drawn by the seed.

    targets="signs": ±1, the first half of `classes` against the rest, one output. "one_hot": an output a class
    (centred, 1 − 1/k and −1/k, for "mse"; probabilities for "cross_entropy").

    >>> digits(10, 5).x_train.shape, digits(10, 5, classes=range(10), targets="one_hot").outputs
    ((10, 8, 8, 1), 10)
    """
    classes = list(classes)
    images, labels = handwritten("drawn", classes, seed)
    if n_train + n_test > len(images):
        raise ValueError(
            f"digits: n_train + n_test = {n_train + n_test}, but {classes} have {len(images)} samples: ask for fewer."
        )
    x, rank = on_sphere(images[: n_train + n_test]), np.array([classes.index(l) for l in labels[: n_train + n_test]])
    if targets == "one_hot":
        y = np.eye(len(classes))[rank] - (1 / len(classes) if loss == "mse" else 0)
    elif loss == "mse":
        y = np.where(rank < len(classes) // 2, 1.0, -1.0)[:, None]
    else:
        raise ValueError('digits: cross-entropy needs targets="one_hot".')
    return _cut(x, y, n_train, f"digits {classes}", loss)


@checks.arguments(**_SIZES, dim=checks.count(), noise=checks.number())
def gaussian_teacher(n_train: int = 32, n_test: int = 32, dim: int = 16, noise: float = 0.0, seed: int = 0) -> Task:
    """x ~ N(0, 1)^dim and y = tanh(2 u·x) + (v·x)² − 1 + noise, u and v random unit vectors.

    >>> gaussian_teacher(8, 4, dim=3).x_test.shape
    (4, 3)
    """
    random = np.random.default_rng(seed)
    u, v = (w / np.linalg.norm(w) for w in random.normal(size=(2, dim)))
    x = random.normal(size=(n_train + n_test, dim))
    y = np.tanh(2 * x @ u) + (x @ v) ** 2 - 1 + noise * random.normal(size=len(x))
    return _cut(x, y, n_train, "gaussian teacher")


@checks.arguments(**_SIZES, variance=checks.number(0))
def xor_mixture(n_train: int = 64, n_test: int = 64, variance: float = 0.05, seed: int = 0) -> Task:
    """Four Gaussians in the plane at (±½, ±½); y = +1 where the signs agree. The best classifier gets 97.5 %.

    >>> sorted(set(xor_mixture(20, 0).y_train.ravel().tolist()))
    [-1.0, 1.0]
    """
    random = np.random.default_rng(seed)
    signs = random.choice([-1.0, 1.0], size=(n_train + n_test, 2))
    x = 0.5 * signs + variance**0.5 * random.normal(size=signs.shape)
    y = signs[:, 0] * signs[:, 1]
    return _cut(x, y, n_train, "xor mixture")


@checks.arguments(**_SIZES, dim=checks.count(2), variance=checks.number(0))
def xor_clusters(n_train: int = 12, n_test: int = 0, dim: int = 100, variance: float = 0.4, seed: int = 0) -> Task:
    """Four Gaussian clusters in many dimensions: means ±√dim e₁ with y = +1, ±√dim e₂ with y = −1; variance per coordinate.

    Every cluster has a quarter of the training points and of the test points (to within one), in turn.

    >>> task = xor_clusters(8, 4)
    >>> task.y_train.ravel().tolist(), task.x.shape
    ([1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0], (12, 100))

    Reference: after Refinetti et al. (2021), Classifying high-dimensional Gaussian mixtures.
    Divergence: papers that use it do not all print its means; here the overlaps x·x'/dim of clusters stay O(1).
    """
    cluster = np.concatenate([np.arange(n_train) % 4, np.arange(n_test) % 4])
    x = variance**0.5 * np.random.default_rng(seed).normal(size=(n_train + n_test, dim))
    x[np.arange(len(x)), cluster // 2] += np.where(cluster % 2 == 0, 1.0, -1.0) * dim**0.5
    y = np.where(cluster < 2, 1.0, -1.0)
    return _cut(x, y, n_train, "xor clusters")


@checks.arguments(**_SIZES, dim=checks.count(), degree=checks.count(0))
def sphere(n_train: int = 32, n_test: int = 32, dim: int = 10, degree: int = 2, seed: int = 0) -> Task:
    """Uniform on |x|² = dim, with y the Chebyshev polynomial T_degree of x₁/√dim.

    >>> bool(np.allclose((sphere(5, 0, dim=3).x_train ** 2).sum(1), 3))
    True
    """
    x = on_sphere(np.random.default_rng(seed).normal(size=(n_train + n_test, dim)))
    y = np.cos(degree * np.arccos(x[:, 0] / dim**0.5))
    return _cut(x, y, n_train, "sphere")


TASKS: dict[str, Callable[..., Task]] = {
    "digits": digits,
    "gaussian_teacher": gaussian_teacher,
    "xor_mixture": xor_mixture,
    "xor_clusters": xor_clusters,
    "sphere": sphere,
}


@checks.arguments(name=checks.word)
def make_task(name: str, **options: object) -> Task:
    """The task of that name.

    >>> make_task("sphere", n_train=4, n_test=2, dim=3).name
    'sphere'
    """
    if name not in TASKS:
        raise ValueError(f'Unknown task "{name}". {did_you_mean(name, TASKS)}')
    return TASKS[name](**options)
