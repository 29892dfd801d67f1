"""Spectra of kernels and of weights: effective ranks, and what a random matrix would have."""

from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from train.analysis.network import Inference
from train.variables import split
from zoo import checks
from zoo.held import Entrywise, Use
from zoo.names import by_name
from zoo.role_of import VECTORS
from zoo.roles import example_input
from zoo.uses import uses

_TRACY_WIDOM = 2.0234  # its 99 % quantile, for real matrices


def eigenvalues(kernels: Any) -> np.ndarray:
    """Eigenvalues of symmetric kernels [..., n, n], largest first: [..., n].

    Of a kernel that was computed in float32, those below about 1e-7 of the largest are rounding.

    >>> eigenvalues(np.diag([1.0, 3.0, 2.0])).tolist()
    [3.0, 2.0, 1.0]
    """
    return np.linalg.eigvalsh(np.asarray(kernels, np.float64))[..., ::-1]


@checks.arguments(values=checks.array(least=1))
def effective_rank(values: Any) -> Any:
    """exp(−Σ p log p) with p = λ / Σλ, of eigenvalues [..., n] (negative ones, which are rounding, count as 0).

    >>> float(effective_rank([2.0, 2.0, 0.0]).round(12))
    2.0

    Reference: Roy, Vetterli (2007), The effective rank.
    """
    p = _shares(values)
    return np.exp(-np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=-1))


@checks.arguments(values=checks.array(least=1))
def participation_ratio(values: Any) -> Any:
    """(Σλ)² / Σλ², of eigenvalues [..., n].

    >>> float(participation_ratio([2.0, 2.0, 0.0]).round(12))
    2.0
    """
    return 1 / np.sum(_shares(values) ** 2, axis=-1)


def _shares(values: Any) -> np.ndarray:
    positive = np.maximum(np.asarray(values, np.float64), 0.0)
    with np.errstate(invalid="ignore"):
        return positive / positive.sum(-1, keepdims=True)


@checks.arguments(kernels=checks.kernels & checks.array(least=2))
def spectrum(kernels: Any) -> dict[str, Any]:
    """`eigenvalues`, `effective_rank` and `participation_ratio` of kernels [..., n, n].

    >>> {name: value.tolist() for name, value in spectrum(np.diag([1.0, 0.0])).items()}
    {'eigenvalues': [1.0, 0.0], 'effective_rank': 1.0, 'participation_ratio': 1.0}
    """
    values = eigenvalues(kernels)
    return {
        "eigenvalues": values,
        "effective_rank": effective_rank(values),
        "participation_ratio": participation_ratio(values),
    }


def marchenko_pastur(rows: int, columns: int, variance: float = 1.0) -> tuple[float, float]:
    """The smallest and the largest singular value of a large matrix of independent entries: s |√rows ∓ √columns|.

    >>> marchenko_pastur(9, 4)
    (1.0, 5.0)
    """
    return variance**0.5 * abs(rows**0.5 - columns**0.5), variance**0.5 * (rows**0.5 + columns**0.5)


def outliers(singular: Any, rows: int, columns: int) -> int:
    """How many singular values a random matrix with entries of the same mean square would not have.

    The largest of a matrix with independent Gaussian entries of variance s² is √(μ + σ T) s with μ = (√(r − 1) + √c)²,
    σ = √μ (1/√(r − 1) + 1/√c)^{1/3} and T of Tracy and Widom's law: those above its 99 % quantile are counted.
    Large outliers are themselves part of the mean square, so that the count errs on the low side.

    Reference: Johnstone (2001), On the distribution of the largest eigenvalue in principal components analysis.
    """
    squares = np.asarray(singular, np.float64) ** 2
    r, c = max(rows, columns), min(rows, columns)
    if c < 2 or not squares.any():
        return 0  # one singular value is its own mean square
    root = (r - 1) ** 0.5 + c**0.5
    largest = root**2 + _TRACY_WIDOM * root * ((r - 1) ** -0.5 + c**-0.5) ** (1 / 3)
    return int(np.sum(squares / (squares.sum() / (rows * columns)) > largest))


Sides = tuple[tuple[int, ...], tuple[int, ...]]  # axes of rows, axes of columns


@checks.arguments(params=checks.tree, net=checks.module | checks.function, x=checks.inputs)
def weight_spectra(params: Any, net: Any = None, x: Any = None) -> dict[str, dict[str, Any]]:
    """Of every weight matrix by name: `singular_values` (largest first), `stable_rank` |W|²_F / |W|², `edge`, `outliers`.

    net: the Flax module, or the function apply(params, x) with an input x. Its forward pass says which axes are summed over
    (rows), which are kept (columns: [width, heads, d] is width × heads · d), and which are of layers side by side, as under
    nn.scan, that are matrices of their own, "NAME[0]" and so on. Gains and biases are none, however many axes they have.
    Without net, and of convolutions in groups, arrays of two axes or more are taken as [everything else, last axis].

    Weights are as they are stored, before multipliers of the forward pass. `edge` is the largest singular value that a random
    matrix with the same mean square has (`marchenko_pastur`), `outliers` how many lie clearly above it.

    >>> found = weight_spectra({"a": {"kernel": np.diag([2.0, 1.0]), "bias": np.ones(2)}})
    >>> list(found), found["a.kernel"]["stable_rank"], found["a.kernel"]["singular_values"].tolist()
    (['a.kernel'], 1.25, [2.0, 1.0])
    """
    return spectra_of(params, sides_in(params, net, x))


def sides_in(params: Any, net: Any = None, x: Any = None) -> dict[str, Sides | None]:
    """The axes of the matrices in every array by name; None: it holds vectors. Nothing is computed: shapes are enough."""
    whole = isinstance(params, Mapping) and "params" in params
    trained, state = split({"params": params} if isinstance(net, nn.Module) and not whole else params)
    met: dict[str, list[Use | Entrywise]] = {}
    if net is not None:
        if x is None and not isinstance(net, nn.Module):
            raise ValueError(
                "weight_spectra: net is a function, and what it does with params is seen of an input: give x."
            )
        x = example_input(net, trained["params"]) if x is None else x
        forward = Inference(net, state).apply
        met = uses(forward, trained, jax.tree.map(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype), x))
    return {_short(name): _sides(name, np.ndim(leaf), met.get(name, [])) for name, leaf in by_name(trained).items()}


def _sides(name: str, axes: int, met: Sequence[Use | Entrywise]) -> Sides | None:
    """Axes of rows and of columns, those that are neither being of layers, from how an array meets activations."""
    stored = tuple(range(axes - 1)), (axes - 1,)
    used = [use for use in met if isinstance(use, Use)]
    for use in used:
        if use.inputs and use.outputs:
            return stored if {*use.inputs} & {*use.outputs} else (use.inputs, use.outputs)
    if axes < 2 or used or name.rpartition(".")[2] in VECTORS:
        return None
    entrywise = [each for each in met if isinstance(each, Entrywise)]
    if all(each.how == "made" for each in entrywise):  # not seen, or in groups
        return stored
    *rows, column = sorted({each.axis for each in entrywise})  # a table that is added, as of positions
    return (tuple(rows), (column,)) if rows else None


def spectra_of(params: Any, sides: Mapping[str, Sides | None]) -> dict[str, dict[str, Any]]:
    """What `weight_spectra` returns, of matrices with these axes."""
    found = {}
    for name, leaf in ((_short(name), leaf) for name, leaf in by_name(split(params)[0]).items()):
        if (axes := sides[name]) is None:
            continue
        if not np.isfinite(leaf).all():
            raise FloatingPointError(f"weight_spectra: params hold numbers that are NaN or infinite, in {name}.")
        layers = [axis for axis in range(np.ndim(leaf)) if axis not in (*axes[0], *axes[1])]
        array = np.transpose(np.asarray(leaf), (*layers, *axes[0], *axes[1]))
        several, rows = array.shape[: len(layers)], array.shape[len(layers) : len(layers) + len(axes[0])]
        for index in np.ndindex(several):
            label = f"{name}[{', '.join(map(str, index))}]" if layers else name
            found[label] = _spectrum_of(array[index].reshape(int(np.prod(rows)), -1))
    return found


def _spectrum_of(matrix: np.ndarray) -> dict[str, Any]:
    values = np.linalg.svd(matrix, compute_uv=False).astype(np.float64)
    mean_square = float(np.sum(values**2)) / matrix.size
    return {
        "singular_values": values,
        "stable_rank": float(np.sum(values**2) / values[0] ** 2) if values[0] > 0 else float("nan"),
        "edge": marchenko_pastur(*matrix.shape, variance=mean_square)[1],
        "outliers": outliers(values, *matrix.shape),
    }


def _short(name: str) -> str:
    return name.removeprefix("params.")
