"""How far a network is from its linearisation at the start, and how far its parameters have moved."""

from typing import Any

import numpy as np

from limits.kept.precision import full_products
from train.analysis.network import CHUNK, compiled, parts_of
from train.variables import split
from zoo import checks
from zoo.names import by_name


@checks.arguments(
    net=checks.function, start=checks.tree, variables=checks.tree, x=checks.array(least=1), chunk=checks.count()
)
def linearisation_distance(net: Any, start: Any, variables: Any, x: Any, chunk: int = CHUNK) -> dict[str, float]:
    """f(θ, x) against f_lin(θ, x) = f(θ₀, x) + ∂f(θ₀, x)·(θ − θ₀): root mean squares over samples and outputs.

    `distance` |f − f_lin|, `moved` |f − f(θ₀)|, and `relative`, their ratio: 0 in the kernel regime (and where nothing has
    moved), of order 1 where features are learnt. In inference mode; running averages of batch normalisation are those of
    `variables` on both sides, so that only parameters make a difference.

    >>> found = linearisation_distance(lambda w, x: x @ w**2, np.array([[3.0]]), np.array([[4.0]]), np.ones((1, 1)))
    >>> found["distance"], found["moved"]
    (1.0, 7.0)
    """
    return departure(*linearised(net, start, variables, x, chunk))


@full_products()
def linearised(net: Any, start: Any, variables: Any, x: Any, chunk: int = CHUNK) -> tuple[np.ndarray, ...]:
    """f(θ, x), f(θ₀, x) and f_lin(θ, x), in float64."""
    (before, _), (trained, state), program = split(start), split(variables), compiled(net)
    old, new = _both(before, trained)
    # Where nothing has moved, f_lin is f: two programs of it may differ by rounding, which is infinitely far beside 0.
    still = all(np.array_equal(leaf, new[name]) for name, leaf in old.items())
    each = []
    for part in parts_of(len(x), chunk):
        first = program.outputs(before, state, x[part])
        straight = first if still else program.linear(before, trained, state, x[part])
        each.append((program.outputs(trained, state, x[part]), first, straight))
    return tuple(np.concatenate(kind).astype(np.float64) for kind in zip(*each, strict=True))


def departure(f: np.ndarray, before: np.ndarray, straight: np.ndarray) -> dict[str, float]:
    """What `linearisation_distance` explains, of outputs: the network's, those at the start, and the linearised ones.

    >>> departure(np.array([3.0]), np.array([1.0]), np.array([2.0]))
    {'distance': 1.0, 'moved': 2.0, 'relative': 0.5}
    """
    distance, moved = _size(f - straight), _size(f - before)
    relative = distance / moved if moved else float("inf") if distance else 0.0
    return {"distance": distance, "moved": moved, "relative": relative}


@checks.arguments(start=checks.tree, variables=checks.tree)
def parameter_movement(start: Any, variables: Any) -> dict[str, dict[str, float]]:
    """By name, and for `all` together: `moved` |θ − θ₀| (root mean square an entry) and `relative` |θ − θ₀| / |θ₀|.

    `relative` is NaN for parameters that started at zero.

    >>> parameter_movement({"a": np.array([3.0, 4.0])}, {"a": np.array([3.0, 5.0])})["a"]["relative"]
    0.2
    """
    old, new = _both(split(start)[0], split(variables)[0])
    if {name: np.shape(leaf) for name, leaf in old.items()} != {name: np.shape(leaf) for name, leaf in new.items()}:
        raise ValueError("parameter_movement: start and variables must hold the same parameters, of the same shapes.")
    pairs = {
        name.removeprefix("params."): [np.asarray(leaf, np.float64).ravel() for leaf in (a, new[name])]
        for name, a in old.items()
    }
    pairs["all"] = [np.concatenate(part) for part in zip(*pairs.values(), strict=True)]
    found = {}
    for name, (a, b) in pairs.items():
        size, moved = _size(a), _size(b - a)
        found[name] = {"moved": moved, "relative": moved / size if size else float("nan")}
    return found


def _both(before: Any, trained: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The leaves of both by name, which must be the same names."""
    old, new = by_name(before), by_name(trained)
    if old.keys() != new.keys():
        raise ValueError(
            f"linearisation_distance: variables hold {_names(new)}, and start {_names(old)}: give the same network's before and "
            "after training."
        )
    return old, new


def _size(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _names(leaves: Any) -> str:
    return ", ".join(list(leaves)[:3]) + (", …" if len(leaves) > 3 else "") if leaves else "nothing"
