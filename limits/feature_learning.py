"""Training with feature learning: dynamical mean-field theory, by a causal sweep with sampled neurons."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress

from limits.fields.coupled import Coupled, check_variances
from limits.fields.heads import check_order, falls_as_samples, in_one_head
from limits.fields.plain import check_independent
from limits.fields.record import AVERAGED, check_record, record_bytes
from limits.fields.rules import check_means, entry_bytes, moved_by_entry
from limits.fields.sweeps import Plan, coupled_sweeps, exactly, sweeps
from limits.finite.forward import checked_kernels, unrecorded
from limits.finite.observables import DEFAULT
from limits.inputs import check_outputs, task_of, twin_of
from limits.kept.precision import full_products
from limits.predict.steps import MOST
from limits.runs import Reduce, Runs
from limits.training import LearningRate, Training, check_roles, checked_times, record_times
from limits.trajectory import Trajectory
from limits.types import AbsentError, Provenance, Task
from zoo import checks, parameterization
from zoo.definition import name_of

_MANY, _FEW = 2048, 512  # samples; where a rule acts entry by entry, and costs grow with their square
_WIDTH = checks.number(positive=True) | checks.Check("inf", lambda v: isinstance(v, float) and v == math.inf)
_MIXED = (
    "the outputs of {name} differ from one network to the next, however wide: {why}. What `rich` finds are means over such "
    "networks, in `reduce` single sweeps; their spread is that of `ensemble`"
)
_NO_WIDTH = "rich: {said}. It does not fall as 1/width: leave width out."
_NOT_RICH = (
    "{name} has no limit with feature learning: in the {p} parameterization {what}. "
    'Use parameterization="mup", whose features move by O(1) at any width{instead}.'
)


@checks.arguments(
    twin=twin_of,
    task=task_of,
    learning_rate=checks.real | checks.function,
    optimizer=checks.word | checks.transformation | checks.function,
    samples=checks.count(),
    replicas=checks.count(),
    key=checks.key,
    momentum=checks.real,
    weight_decay=checks.number(),
    dtype=checks.dtype,
    trained=checks.names,
    batches=checks.array(least=1),
    centred=checks.flag,
    observe=checks.function,
    record=checks.names,
    progress=checks.flag | checks.a(Progress, "a rich.progress.Progress"),
    folder=checks.path,
    depths=checks.several(checks.count(), distinct=True),
    order=checks.choice(1, 2),
    width=_WIDTH | checks.several(_WIDTH),
    reduce=checks.function,
)
@full_products()
def rich(
    twin: Any,
    task: Task,
    steps: int,
    learning_rate: LearningRate | None = None,
    *,
    optimizer: Any = None,
    samples: int | None = None,
    replicas: int = 4,
    key: Any = 0,
    times: Sequence[int] | np.ndarray | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    trained: tuple[str, ...] | None = None,
    batches: Any = None,
    centred: bool = False,
    kernels: tuple[str, ...] = DEFAULT,
    observe: Callable[[Any, Any, Any], Any] | None = None,
    record: tuple[str, ...] = (),
    dtype: Any = np.float32,
    progress: bool | Progress = False,
    folder: Any = None,
    depths: Sequence[int] | None = None,
    order: int | None = None,
    width: float | Sequence[float] | None = None,
    kernel_times: Sequence[int] | np.ndarray | None = None,
    reduce: Reduce | None = None,
) -> Any:
    """Gradient descent at infinite width in `mup`: features, gradients and predictions move together.

    Every matrix between hidden layers stays Gaussian along all directions it has not met, so that `samples` neurons a
    layer suffice (see `limits.fields.matrix`): the law is that of a network of width `samples`, whose deviation from the
    limit is O(1/samples), at a cost linear in `samples`. Numbers are means over `replicas` independent sweeps, with
    standard errors. f(0) is 0 in this limit, so what sampling leaves of it is subtracted, with `centred` or without.
    Linear MLPs, CNNs and ResNets are exact: coordinates take the place of samples (`limits.fields.exact`).

    `momentum`, `weight_decay`, `trained`, `batches`, `observe`, and a `learning_rate` that is a function of the step, are
    those of `ensemble`; in `observe`, neurons are samples. `record` adds to `observed`, at the recorded times:
    "two_time": Φ^l(t, s) and G^l(t, s), phi_two_time and g_two_time [time, time, n, n]; "fields": samples h and g_fields
    [time, n, …, sample] of the first sweep; "responses": A and B of every hidden matrix, responses_a and responses_b
    [time, time, n, n] (positions and outputs count as inputs; see `limits.fields.responses`). With `folder`, sweeps are
    kept there and interrupted ones go on.

    Outputs are recorded at `times` (default: eleven, evenly from 0 to `steps`), kernels, which cost more, at `kernel_times`,
    some of them (default: `times`). `reduce` is given all sweeps as a `Trajectory` with a first axis of replicas; what it
    returns, a dictionary of arrays with that axis, is `reduced`.

    `optimizer`: any Optax transformation; or, with `learning_rate`, a name that `zoo.scaled` takes or a function such as
    optax.adam, for which one compilation serves all rates. It is scaled to the definition (once: the same object serves a
    finite network). Rules that are linear or, as Muon, commute with rotations
    keep the cost of a sweep; those that act entry by entry (Adam, Lion) take samples² a matrix, and by default 512 samples
    and order=2. Rules that ask for the size of the weights (LAMB) are refused.

    `order`=2 takes the error from O(1/samples) to O(1/samples²): each sweep is run with the two halves of its samples, which
    share its draws (`limits.fields.coupled`). With `width`=N, so does the answer for networks of that width and their number of
    heads, to first order in 1/N: their mean outputs, losses and kernels, and in `f_train_cov`, `f_test_cov` the spread of their
    outputs; `centred` then counts as in `ensemble`. Several widths, of which one may be inf, get a tuple of answers from the
    same sweeps.

    At infinite depth (`twin(net, depth=inf)`) sweeps of several `depths` are extrapolated (`limits.depth.learning`).

    Of targets at positions (`Task`), as of a GPT, outputs are those of the positions that count, [time, points, outputs]; phi
    is a mean over positions, g and ntk are absent. Every token is a vector that a matrix meets: costs grow with n t steps.

    Where the network normalises over batches, training outputs are those of training mode, with the statistics of all
    training points, test outputs are normalised by the running averages, and G and the NTK are absent.

    >>> from zoo import MLP
    >>> from limits import twin
    >>> task = Task([[1.0, 0.0]], [1.0], [[0.0, 1.0]], [0.0])
    >>> net = MLP(width=8, depth=2, activation="erf", parameterization="mup")
    >>> run = twin(net).rich(task, steps=10, learning_rate=0.5, samples=256, kernels=())
    >>> bool(run.loss[-1] < 0.1 * run.loss[0]), run.f_train.shape
    (True, (11, 1, 1))

    Reference: Bordelon & Pehlevan (2022), Self-consistent dynamical field theory of kernel evolution in wide neural
    networks. Divergence: there the kernels and responses are iterated to a fixed point; here time is swept once.
    """
    recorded, task = record_times(steps, times), twin.fed(task)
    training = Training.of(
        task,
        steps,
        learning_rate,
        momentum,
        weight_decay,
        centred or width is None,
        trained,
        batches,
        optimizer,
        twin.net,
    )
    check_learns(twin)
    if steps or width is not None:
        check_independent(twin.net, task.x)
    training.check_optimizer("rich", twin.net, task.x)
    twin.check_training(task.x)
    twin.check_inside(task.x)
    widths: Any = width if np.ndim(width) else (width,)  # pyright: ignore[reportArgumentType]
    finite = any(each is not None and each < math.inf for each in widths)
    samples, order = accuracy(twin.net, training, task.x, samples, order or (1 if twin.deep else None), finite)
    twin = dataclasses.replace(twin, net=in_one_head(twin.net))
    check_outputs("rich", twin.net, task)
    twin.check_width(task.x)
    absent = unrecorded(twin.net, task.x)
    kernels = tuple(name for name in checked_kernels(kernels) if name not in absent)
    check_record(record, absent)
    by_entry = moved_by_entry(twin.net, training, task.x)
    if by_entry:
        size = entry_bytes(twin.net.clone(width=samples), by_entry, task.x, np.dtype(dtype).itemsize)
        Console(stderr=True).print(
            f"optimizer: {len(by_entry)} matrices of {samples} samples move entry by entry: {size / 2**20:,.1f} MiB."
        )
    if record:
        count = len(recorded)
        size = record_bytes(twin.net, task.x, record, count, samples, task.outputs, np.dtype(dtype).itemsize)
        Console(stderr=True).print(f"record: {', '.join(record)} at {count} times: {size / 2**20:,.1f} MiB.")
    at = checked_times(kernel_times, recorded)
    plan = Plan(twin.net, task, training, recorded, kernels, at, observe, record)
    if twin.deep:
        check_roles(trained)
    if depths is not None and not twin.deep:
        raise ValueError(
            f"rich: depths ({list(depths)}) are for infinite depth, twin(net, depth=inf); this one is the network's own."
        )
    settings = (samples, replicas, key, dtype, progress, folder)
    why = twin.mixture(task.x)
    mixed = _MIXED.format(name=name_of(twin.net), why=why) if why else ""
    if twin.deep:
        from limits.depth.learning import deep_sweeps

        twin.check_depth(task.x)
        if order == 2 or width is not None:
            raise ValueError(
                "rich: order=2 and width= are for finite depth; at infinite depth sweeps are extrapolated already."
            )
        each, how = deep_sweeps(plan, depths, *settings)
    elif width is not None or (order == 2 and exactly(plan) is None):
        if mixed and finite:
            raise AbsentError(_NO_WIDTH.format(said=mixed))
        if by_entry and finite:
            check_means(twin.net, training, task.x)
        found, how = coupled_sweeps(plan, *settings, finite=finite)
        runs = (Runs(task, recorded, absent, at, reduce) for _ in widths)
        answers = tuple(
            _mean_of_coupled(run, found, _with_trial(how, training), each, mixed)
            for run, each in zip(runs, widths, strict=True)
        )
        return answers if np.ndim(width) else answers[0]  # pyright: ignore[reportArgumentType]
    else:
        each, how = sweeps(plan, *settings)
    return _mean(Runs(task, recorded, absent, at, reduce), each, _with_trial(how, training), mixed)


def accuracy(
    net: Any, training: Training, x: Any, samples: int | None, order: int | None, finite: bool = False
) -> tuple[int, int]:
    """(samples, order of Richardson's step), those that were given or what suits the optimiser. finite: at finite widths."""
    by_entry = bool(moved_by_entry(net, training, x))
    samples, order = samples or (_FEW if by_entry else _MANY), order or (2 if by_entry and falls_as_samples(net) else 1)
    check_order(net, order, finite)
    return samples, order


def _with_trial(how: Provenance, training: Training) -> Provenance:
    """Says of a long run for how many steps its optimiser was tried out."""
    if training.optimizer is None or len(training.rates) <= MOST:
        return how
    return dataclasses.replace(
        how, detail=f"{how.detail}; what the optimiser does to matrices is that of its first {MOST} steps"
    )


def check_learns(twin: Any) -> None:
    """Raises unless features learn in this parameterization, stay finite, and the network has a limit at all."""
    net = twin.net
    p, name = parameterization(net.parameterization), name_of(net)
    if p.d < 0.5 and p.tangent_exponent("hidden") <= 0:
        instead = "; or lazy, which is this network's own limit"
        raise AbsentError(_NOT_RICH.format(name=name, p=p.name, what="features stay where they are", instead=instead))
    if p.d != 0.5 or p.tangent_exponent("hidden") != 0:
        raise AbsentError(
            _NOT_RICH.format(name=name, p=p.name, what="outputs or features move without bound", instead="")
        )
    start = getattr(twin, "_absent", {}).get("nngp")
    if start is not None:
        raise AbsentError(f"{name} has no limit, with feature learning or without: {start.detail}")


def _mean_of_coupled(runs: Runs, found: Coupled, how: Provenance, width: float | None, mixed: str) -> Trajectory:
    """The limit to second order in the samples; or networks of this width to first order in 1/width, with their spread."""
    width = None if width == math.inf else width

    def watched(each: dict[str, Any]) -> dict[str, Any]:
        kept = {name: each[name] for name in AVERAGED if name in each}
        return kept | ({"observe": each["observed"]} if "observed" in each else {})

    runs.add_values(found.at(width, runs.values), found.at(width, watched))
    fields = {
        name: jax.tree.map(lambda a: a[0], found.whole[name]) for name in ("h", "g_fields") if name in found.whole
    }
    if width is None:
        return runs.mean(how, "rich", **_no_spread(runs, mixed), observed=fields)
    spread, errors, n = {}, {}, runs.task.n_train
    for name, part in {"f_train_cov": slice(None, n), "f_test_cov": slice(n, None)}.items():
        covariance, error = found.covariance(
            lambda each, part=part: runs.task.at_points(np.asarray(each["f"]), 2)[:, :, part]
        )
        spread[name], errors[name] = covariance / width, error / width
        check_variances(spread[name], errors[name], len(found.whole["f"]), width)
    detail = f"width {width:g} to order 1/{width:g}: O(1/{width:g}²) dropped; from {how.detail}"
    how = dataclasses.replace(how, detail=detail)
    return runs.mean(how, f"rich, width {width:g}", spread, errors, observed=fields)


def _mean(runs: Runs, each: dict[str, Any], how: Provenance, mixed: str) -> Trajectory:
    """Means over sweeps, of which there is one where it is exact; samples of fields are those of the first."""
    watched = {name: each[name] for name in AVERAGED if name in each}
    if "observed" in each:
        watched["observe"] = each["observed"]
    runs.add(each, watched)
    fields = {name: jax.tree.map(lambda a: a[0], each[name]) for name in ("h", "g_fields") if name in each}
    return runs.mean(how, "rich", **_no_spread(runs, mixed), observed=fields)


def _no_spread(runs: Runs, mixed: str) -> dict[str, Any]:
    """The covariances of outputs over initialisations: zero; absent of networks that are a mixture."""
    values, names = runs.moments.mean[0], ("f_train", "f_test")
    if mixed:
        spread: dict[str, Any] = {f"{name}_cov": Provenance("absent", mixed) for name in names}
        return {"spread": spread, "exact": spread}
    sizes = {f"{name}_cov": values[name].shape[1] for name in names}
    none = {name: np.zeros((len(runs.times), size, size)) for name, size in sizes.items()}
    return {"spread": none, "exact": dict.fromkeys(none, Provenance("exact", "no spread at infinite width"))}
