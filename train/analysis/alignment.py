"""How alike two kernels are, and how well one is aligned with labels."""

from typing import Any

import numpy as np

from zoo import checks


def centred(kernel: Any) -> np.ndarray:
    """H K H with H = I − 1 1ᵀ/n: the kernel of features that have their mean over samples subtracted.

    >>> centred(np.ones((2, 2))).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    k = np.asarray(kernel, np.float64)
    rows = k - k.mean(-1, keepdims=True)
    return rows - rows.mean(-2, keepdims=True)


def _alike(name: str, k: Any, l: Any) -> tuple[np.ndarray, np.ndarray]:
    k, l = np.asarray(k, np.float64), np.asarray(l, np.float64)
    if not k.shape[-1] == k.shape[-2] == l.shape[-1] == l.shape[-2]:
        raise ValueError(
            f"{name}: k and l must be kernels [..., n, n] of the same samples; their shapes are {k.shape}, {l.shape}."
        )
    return k, l


@checks.arguments(k=checks.array(least=2), l=checks.array(least=2), unbiased=checks.flag)
def hsic(k: Any, l: Any, unbiased: bool = False) -> Any:
    """The Hilbert–Schmidt independence criterion of kernels [..., n, n]: tr(K H L H) / (n − 1)².

    unbiased: HSIC₁, with K̃ and L̃ the kernels without their diagonals,

        [tr(K̃L̃) + 1ᵀK̃1 1ᵀL̃1 / ((n − 1)(n − 2)) − 2/(n − 2) 1ᵀK̃L̃1] / (n (n − 3))

    whose mean is 0 for independent data at any n; the biased one is O(1/n) above it.

    Reference: Song, Smola, Gretton, Bedo, Borgwardt (2012), Feature selection via dependence maximization, equation 5.
    """
    k, l = _alike("hsic", k, l)
    n = k.shape[-1]
    if not unbiased:
        if n < 2:
            raise ValueError(f"hsic: at least 2 samples are needed, got {n}.")
        return np.einsum("...ij,...ij->...", centred(k), l) / (n - 1) ** 2
    if n < 4:
        raise ValueError(f"hsic: the unbiased estimate needs at least 4 samples, got {n}.")
    off = 1 - np.eye(n)
    k, l = k * off, l * off
    rows_k, rows_l = k.sum(-1), l.sum(-1)
    products = np.einsum("...ij,...ij->...", k, l) + rows_k.sum(-1) * rows_l.sum(-1) / ((n - 1) * (n - 2))
    return (products - 2 / (n - 2) * np.sum(rows_k * rows_l, axis=-1)) / (n * (n - 3))


@checks.arguments(k=checks.array(least=2), l=checks.array(least=2), unbiased=checks.flag)
def cka(k: Any, l: Any, unbiased: bool = False) -> Any:
    """Centred kernel alignment, HSIC(K, L) / √(HSIC(K, K) HSIC(L, L)): 1 for kernels that agree up to scale and mean.

    The biased one is large for any two kernels of many features on few samples; the unbiased one is not, and may be negative.
    NaN where a centred kernel is zero, up to rounding. To the unbiased one, which leaves diagonals out, that of labels is also
    zero where they are the same for all samples but one.

    >>> float(cka(np.eye(4), 3 * np.eye(4) + 1).round(12))
    1.0

    Reference: Kornblith, Norouzi, Lee, Hinton (2019), Similarity of neural network representations revisited.
    """
    both = hsic(k, l, unbiased)
    with np.errstate(divide="ignore", invalid="ignore"):
        return both / np.sqrt(_size(k, unbiased) * _size(l, unbiased))


def _size(k: Any, unbiased: bool) -> Any:
    """HSIC(K, K), which is never negative; NaN where it is rounding."""
    k = np.asarray(k, np.float64)
    n = k.shape[-1]
    read = k * (1 - np.eye(n)) if unbiased else k
    rounding = 8 * n * np.finfo(float).eps
    rounding = rounding if unbiased else rounding**2  # centred before it is squared
    rounding = rounding * np.einsum("...ij,...ij->...", read, read) / (n - 1) ** 2
    found = hsic(k, k, unbiased)
    return np.where(found > rounding, found, np.nan)


@checks.arguments(k=checks.array(least=2), l=checks.array(least=2))
def kernel_alignment(k: Any, l: Any) -> Any:
    """<K, L> / |K||L| without centring (Cristianini's kernel-target alignment). NaN where one is zero.

    >>> float(kernel_alignment(np.eye(4), np.ones((4, 4))))
    0.5
    """
    k, l = _alike("kernel_alignment", k, l)
    sizes = np.linalg.norm(k, axis=(-2, -1)) * np.linalg.norm(l, axis=(-2, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.einsum("...ij,...ij->...", k, l) / sizes


def label_kernel(targets: Any) -> np.ndarray:
    """y yᵀ, summed over outputs: [n, n].

    >>> label_kernel([1.0, -1.0]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    y = np.asarray(targets, np.float64)
    y = y.reshape(len(y), -1)
    return y @ y.T


@checks.arguments(kernels=checks.kernels & checks.array(least=2), targets=checks.array(least=1))
def label_alignment(kernels: Any, targets: Any) -> dict[str, Any]:
    """Of kernels [..., n, n] with y yᵀ: `cka`, `cka_unbiased` and `uncentred`.

    `cka_unbiased` is NaN for fewer than 4 samples, and where all but one have the same label.

    >>> {name: float(value) for name, value in label_alignment(np.ones((2, 2)), [1.0, 1.0]).items()}
    {'cka': nan, 'cka_unbiased': nan, 'uncentred': 1.0}
    """
    k, l = np.asarray(kernels, np.float64), label_kernel(targets)
    unbiased = cka(k, l, unbiased=True) if len(l) > 3 else np.full(k.shape[:-2], np.nan)
    return {"cka": cka(k, l), "cka_unbiased": unbiased, "uncentred": kernel_alignment(k, l)}
