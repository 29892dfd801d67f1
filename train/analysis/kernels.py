"""Kernels of a finite network at given parameters, and how far they have moved."""

import itertools
from typing import Any

import numpy as np

from limits import AbsentError, twin
from limits.kept.precision import full_products
from train.analysis.network import CHUNK, compiled, missing, parts_of, rates_of
from train.variables import split
from zoo import checks


@checks.arguments(net=checks.function, variables=checks.tree, x=checks.array(least=1))
@full_products()
def layer_kernels(net: Any, variables: Any, x: Any) -> dict[str, Any]:
    """Of those that exist: Φ^l and G^l as `phi` and `g` (tuples by layer), and `nngp`, all [n, n] in float64.

    In the normalisation of `Trajectory`; nngp is the kernel of the last features carried through the readout. In
    inference mode: batch statistics are those of `variables`. All samples at once.

    >>> import jax, zoo
    >>> net, x = zoo.MLP(width=8, depth=2), jax.numpy.ones((3, 4))
    >>> [k.shape for k in layer_kernels(net, net.init(jax.random.key(0), x), x)["g"]]
    [(3, 3), (3, 3)]
    """
    trained, state = split(variables)
    seen = compiled(net).inside(trained, state, x)
    found: dict[str, Any] = {
        name: tuple(np.asarray(k, np.float64) for k in seen[name]) for name in ("phi", "g") if name in seen
    }
    if "features" in seen and "nngp" not in missing(net):
        nngp = carried(net, np.asarray(seen["features"], np.float64), x)
        found |= {} if isinstance(nngp, str) else {"nngp": nngp}
    return found


def carried(net: Any, features: np.ndarray, x: Any) -> Any:
    """A kernel of the last features carried through the readout of the network's twin, or why there is none.

    >>> import zoo
    >>> tied = zoo.GPT(8, 1, 7, 6, heads=2, tied=True, parameterization="mup")
    >>> carried(tied, np.eye(2), np.zeros((2, 6), int)).split(";")[0]
    'GPT has 0 layers of role "readout"'
    """
    limit: Any = twin(net)
    if not hasattr(limit, "readout"):
        return "The twin of this network has no closed readout to carry its features through."
    try:
        return limit.readout(features, x)
    except AbsentError as error:
        return str(error)


@checks.arguments(
    net=checks.function, variables=checks.tree, x=checks.array(least=1), rates=checks.rates, chunk=checks.count()
)
@full_products()
def tangent_kernel(net: Any, variables: Any, x: Any, rates: Any = None, chunk: int = CHUNK) -> np.ndarray:
    """The tangent kernel [n, n] with learning-rate factors (`rates`; default the definition's), in float64.

    `limits.empirical_ntk` in inference mode, on blocks of `chunk` × `chunk` samples. Without a definition and without rates,
    all factors are 1.

    >>> tangent_kernel(lambda w, x: x @ w, np.ones((2, 1)), np.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    trained, state = split(variables)
    rates, tangent = rates_of(net, trained, x, rates), compiled(net).tangent
    kernel, parts = np.zeros((len(x), len(x))), parts_of(len(x), chunk)
    for rows, columns in itertools.combinations_with_replacement(parts, 2):
        other = None if rows == columns else x[columns]
        kernel[rows, columns] = tangent(trained, state, x[rows], other, rates)
        kernel[columns, rows] = kernel[rows, columns].T
    return kernel


@checks.arguments(kernels=checks.kernels, reference=checks.kernels)
def drift(kernels: Any, reference: Any) -> dict[str, Any]:
    """How far kernels [..., n, n] are from one of reference: `relative` |K − K₀| / |K₀| and `cosine` 1 − <K, K₀> / |K||K₀|.

    Norms are Frobenius'. The second does not see a change of scale. NaN where K₀ is zero.

    >>> {name: float(value.round(9)) for name, value in drift(3 * np.eye(2), np.eye(2)).items()}
    {'relative': 2.0, 'cosine': 0.0}

    Reference: Fort et al. (2020), Deep learning versus kernel learning.
    """
    k, k0 = np.asarray(kernels, np.float64), np.asarray(reference, np.float64)
    size, size0 = np.linalg.norm(k, axis=(-2, -1)), np.linalg.norm(k0)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(size0 > 0, np.linalg.norm(k - k0, axis=(-2, -1)) / size0, np.nan)
        # 1 − cos as half the squared distance of directions: no cancellation where nothing has moved.
        away = k / size[..., None, None] - k0 / size0
    return {"relative": relative, "cosine": 0.5 * np.sum(away**2, axis=(-2, -1))}
