"""Finite networks along training against the twin's kernels, its kernel regime and its limit with feature learning."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from limits import AbsentError, Kernels, Provenance, Task, Trajectory, twin
from limits.inputs import task_of
from train.analysis.runs import Points
from zoo import checks

LIMITS = ("kernels", "lazy", "rich")
QUANTITIES = ("nngp", "phi", "g", "ntk", "f_train", "f_test")
_MIXED = (
    "the network normalises over batches: its kernels are measured in inference mode, with running averages, and the twin's "
    "are those of training mode, with the statistics of the batch"
)
_ROUNDING = 1e-6  # of the largest size over time: a limit below is zero, as f(0) in mup
_NO_LAYERS = "the twin records nothing by layer for this definition"


@checks.arguments(
    net=checks.module | checks.function,
    task=task_of | checks.a(Points, "Points"),
    times=checks.array(None),
    learning_rate=checks.real | checks.function,
    momentum=checks.number(0, 1),
    centred=checks.flag,
    rich=checks.table,
    which=checks.choices(*LIMITS),
)
def limits_of(
    net: Any,
    task: "Task | Points",
    times: Sequence[int] | np.ndarray,
    learning_rate: Any,
    which: tuple[str, ...] = LIMITS,
    momentum: float = 0.0,
    centred: bool = False,
    batches: Any = None,
    rich: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The twin's `Kernels` and its `Trajectory` of `lazy` and `rich` at the steps `times`; or why one does not exist.

    For runs of gradient descent; the options are those of `limits.lazy`, and `rich` holds further ones of `rich`, such
    as samples and replicas. What does not exist is a `Provenance` of kind "absent", with the reason.

    >>> import zoo
    >>> found = limits_of(zoo.MLP(width=8, depth=1), Task([[1.0]], [1.0]), times=(0, 1), learning_rate=0.1)
    >>> [type(found[name]).__name__ for name in LIMITS]
    ['Kernels', 'Trajectory', 'Provenance']
    """
    if not isinstance(task, Task):
        return dict.fromkeys(
            which,
            Provenance(
                "absent", "Of tokens, `launch.compare` does this on tasks of a few sequences (configs/gpt_rich.py)."
            ),
        )
    steps = int(max(times))
    options = {"times": times, "momentum": momentum, "centred": centred, "batches": batches}
    try:
        limit = twin(net)
    except ValueError as error:  # no twin is known for this module
        return dict.fromkeys(which, Provenance("absent", str(error)))
    runs: dict[str, Any] = {
        "kernels": lambda: limit.kernels(task.x),
        "lazy": lambda: limit.lazy(task, steps, learning_rate, **options),
        "rich": lambda: limit.rich(task, steps, learning_rate, **options, **(rich or {})),
    }
    return {name: _or_reason(runs[name]) for name in which}


def _or_reason(run: Any) -> Any:
    try:
        return run()
    except AbsentError as error:
        return Provenance("absent", str(error))


@checks.arguments(
    members=checks.several(checks.Check("what analyse returned", lambda v: len(v["steps"]))),
    limit=checks.a((Kernels, Trajectory, Provenance), "Kernels, a Trajectory or a Provenance, as limits_of returns"),
)
def against_twin(members: Sequence[dict[str, Any]], limit: Kernels | Trajectory | Provenance) -> dict[str, Any]:
    """How far one or several runs of one definition are from a limit: relative distances |K_N − K| / |K| by quantity.

    members: what `analyse` returned of runs with the same inputs and steps (seeds of one size). limit: one of `limits_of`; a
    `Trajectory` at the same steps, or `Kernels` of initialisation, with which every step is compared. By quantity (nngp, phi,
    g, ntk, f_train, f_test), arrays [time], or [layer, time]:

        `each`    of every member, [member, …];   `mean`, `sem` over members
        `of_mean` |mean over members − limit| / |limit|;   `noise`: its size if the mean's error were all there is
        `limit_sem` the limit's own standard error, over |limit|
        `spread`  of predictions: the distance that a member has by its initialisation alone, according to the limit

    `sem` and `noise` are NaN for one member, everything is NaN where the limit is zero. A quantity that does not exist is
    {"absent": the reason}.
    """
    steps = [np.asarray(member["steps"]) for member in members]
    if any(not np.array_equal(steps[0], other) for other in steps):
        raise ValueError("against_twin: the runs were analysed at different steps: choose the steps that they share.")
    if isinstance(limit, Provenance):
        return {name: {"absent": limit.detail} for name in QUANTITIES}
    if isinstance(limit, Trajectory) and not np.array_equal(limit.times, steps[0]):
        raise ValueError(f"against_twin: the limit was recorded at {limit.times} and the runs at {steps[0]}.")
    known = [name for name in QUANTITIES if name in type(limit).__dataclass_fields__]
    return {name: _compared(name, members, limit) for name in known}


def _compared(name: str, members: Sequence[dict[str, Any]], limit: Kernels | Trajectory) -> dict[str, Any]:
    """The distances of one quantity, or the reason why there are none."""
    if members[0]["batch_statistics"] and name != "f_test":
        return {"absent": _MIXED}
    found = [measured(member, name) for member in members]
    if any(value is None for value in found):
        return {
            "absent": members[0]["absent"].get(name, f"{name} was not measured: it belongs to a part that was left out")
        }
    try:
        exact = getattr(limit, name)
    except AbsentError as error:
        return {"absent": str(error)}
    if exact is None or (isinstance(exact, tuple) and not exact):
        return {"absent": _NO_LAYERS if isinstance(exact, tuple) else f"{name} was not recorded of the limit"}
    errors = getattr(limit, f"{name}_sem")
    if not isinstance(exact, tuple):
        return distances(np.stack(found), exact, errors, _spread(name, limit))
    if len(exact) != len(found[0]):
        raise ValueError(f"{name}: the runs have {len(found[0])} layers and the limit has {len(exact)}.")
    layers = [
        distances(np.stack([member[l] for member in found]), exact[l], errors[l], None) for l in range(len(exact))
    ]
    return {
        key: np.stack([layer[key] for layer in layers], axis=1 if key == "each" else 0) for key in layers[0]
    }  # each: [member, layer, time]


def measured(result: dict[str, Any], name: str) -> Any:
    """A quantity of an analysis by the name that it has in a `Trajectory`; None where it was not measured."""
    part = {"f_train": "outputs", "f_test": "outputs", "ntk": "ntk"}.get(name, "kernels")
    return result.get(part, {}).get(name)


def distances(values: np.ndarray, limit: Any, sem: Any, spread: Any = None) -> dict[str, Any]:
    """The distances that `against_twin` explains, of values [member, time, …] from a limit [time, …] or […].

    >>> found = distances(np.array([[[1.0]], [[3.0]]]), np.ones((1, 1)), np.zeros((1, 1)))
    >>> {name: value.tolist() for name, value in found.items() if name in ("each", "mean", "sem", "of_mean")}
    {'each': [[0.0], [2.0]], 'mean': [1.0], 'sem': [1.0], 'of_mean': [1.0]}
    """
    values, m, times = np.asarray(values, np.float64), len(values), values.shape[1]
    limit, sem = (np.broadcast_to(np.asarray(part, np.float64), values.shape[1:]) for part in (limit, sem))

    def norm(a: np.ndarray) -> np.ndarray:
        return np.linalg.norm(a.reshape(*a.shape[: a.ndim - limit.ndim + 1], -1), axis=-1)

    size, unknown = norm(limit), np.full(times, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        over = np.where(size > _ROUNDING * size.max(initial=0.0), 1 / size, np.nan)
    each = norm(values - limit) * over
    found = {
        "each": each,
        "mean": each.mean(0),
        "sem": each.std(0, ddof=1) / m**0.5 if m > 1 else unknown,
        "of_mean": norm(values.mean(0) - limit) * over,
        "noise": norm(values.std(0, ddof=1) / m**0.5) * over if m > 1 else unknown,
        "limit_sem": norm(sem) * over,
    }
    return found if spread is None else found | {"spread": np.asarray(spread) * over}


def _spread(name: str, limit: Kernels | Trajectory) -> Any:
    """√(Σ variance over points and outputs) of predictions over initialisations, [time]; None for kernels."""
    if name not in ("f_train", "f_test") or not isinstance(limit, Trajectory) or not limit.has(f"{name}_cov"):
        return None
    outputs = getattr(limit, name).shape[-1]
    return np.sqrt(outputs * np.einsum("tii->t", getattr(limit, f"{name}_cov")))
