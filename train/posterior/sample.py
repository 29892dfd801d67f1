"""From chains to a `Posterior`: means over the chains, with standard errors and a word on convergence."""

import warnings
from numbers import Integral, Real
from typing import Any, TypeGuard

import jax
import numpy as np

from limits import Task
from limits.inputs import check_outputs, task_of
from limits.posterior import Posterior
from limits.types import Provenance
from train.posterior.chains import Health, NotConvergedWarning, standard_error
from train.posterior.langevin import run_langevin
from train.posterior.run import Record
from train.posterior.slice_sampling import run_layers
from zoo import MLP, checks

METHODS = {"slice": None, "hamiltonian": 4, "langevin": 20}  # and gradients a step
NO_EVIDENCE = Provenance(
    "absent", "chains know p(y) only up to a factor; twin(net).posterior(task, noise) has log_evidence."
)
NO_FORCE = Provenance(
    "absent",
    "dynamics of the weights know the force on the output's kernel only, by the training-error identity; method='slice' has "
    "those on all layers.",
)
NO_KERNELS = Provenance(
    "absent", "layer kernels of a posterior are those of an MLP; this network has predictions only."
)


@checks.arguments(
    net=checks.module,
    task=task_of,
    method=checks.word,
    chains=checks.count(most=10**6),
    steps=checks.count(),
    warmup=checks.count(0),
    thin=checks.count(),
    leaps=checks.count(),
    key=checks.key,
    progress=checks.flag,
)
def sample_posterior(
    net: Any,
    task: Task,
    noise: float,
    method: str = "slice",
    chains: int = 4,
    steps: int = 3000,
    warmup: int | None = None,
    thin: int = 5,
    key: Any = 0,
    progress: bool = False,
    leaps: int | None = None,
) -> Posterior:
    """The distribution of networks of this definition, with their width, given y = f + N(0, noise); prior: initialisation.

    method="slice": elliptical slice sampling of an MLP's hidden layers with all weights integrated out. Exact at any width,
    no step size; a step costs O(width · points²). "hamiltonian": the same chains moved by gradients, `leaps` a step, with an
    accept step; more effective draws a second. "langevin": underdamped Langevin dynamics of the weights themselves, of any
    network without batch statistics, `leaps` gradients a step, with an accept step; it acts on the network that is trained.
    The network must have as many outputs as the task has targets, by every method.

    The first `warmup` of `steps` steps (default: a third) are left out, and one in `thin` is looked at. Both are in float64.
    The same `key` gives the same chains. NAME_sem are standard errors that count the autocorrelation; `diagnostics` has R̂ and
    effective sample sizes, says whether the chains have "converged" (a warning says where not), and keeps in "draws"
    means over stretches of the chains, [chains · stretches, …]. f_train_cov and f_test_cov are averages over outputs.

    >>> from zoo import MLP
    >>> task = Task([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0])
    >>> p = sample_posterior(MLP(width=16, depth=1, activation="erf"), task, noise=0.5, steps=1500)
    >>> p.f_train.shape, p.layers, p.diagnostics["converged"], bool((p.kernels_sem[1] > 0).all())
    ((2, 1), 1, True, True)

    Reference: Murray, Adams & MacKay (2010), Elliptical slice sampling; Horowitz (1991); Vehtari et al. (2021) for R̂.
    """
    warmup = steps // 3 if warmup is None else warmup
    _check(net, task, noise, method, leaps, chains=chains, steps=steps, warmup=warmup, thin=thin)
    with jax.enable_x64(True):
        common = (net, task, noise, chains, steps, warmup, thin, _key(key), progress)
        leaps = METHODS[method] if leaps is None else leaps
        record = (run_langevin if method == "langevin" else run_layers)(*common, leaps=leaps)
    health = Health.of(record.traces)
    if not health.converged:
        warnings.warn(health.sentence, NotConvergedWarning, stacklevel=2)
    notes = {"method": method, "chains": chains, "steps": record.steps, "warmup": record.warmup, "thin": thin}
    return _posterior(task, noise, net.width, record, notes | record.notes | health.as_dict())


def _check(net: Any, task: Task, noise: Any, method: str, leaps: Any, **counts: Any) -> None:
    if method not in METHODS:
        raise ValueError(f'sample_posterior: method must be one of {", ".join(METHODS)}; got "{method}".')
    if task.loss != "mse":
        raise ValueError(
            f'sample_posterior: the likelihood is Gaussian, so the task must have loss="mse", not "{task.loss}".'
        )
    if not (isinstance(noise, Real) and checks.number(positive=True).holds(noise)):
        raise ValueError(f"sample_posterior: noise is a variance and must be positive and finite, got {noise!r}.")
    least = {"chains": 2, "steps": 1, "warmup": 0, "thin": 1} | ({} if leaps is None else {"leaps": 1})
    for name, value in (counts | {"leaps": leaps}).items():
        if name in least and not (_whole(value) and value >= least[name]):
            why = ", to see whether they agree" if name == "chains" else ""
            raise ValueError(
                f"sample_posterior: {name} must be a whole number of at least {least[name]}{why}; got {value!r}."
            )
    if method == "slice" and leaps is not None:
        raise ValueError(
            f"sample_posterior: elliptical slice sampling has no leaps, got {leaps}; leave them out, or take "
            'method="hamiltonian".'
        )
    if method != "langevin" and not isinstance(net, MLP):
        raise ValueError(
            f"sample_posterior: {method} sampling integrates out the weights of an MLP; for a {type(net).__name__} use "
            'method="langevin".'
        )
    check_outputs("sample_posterior", net, task)


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _key(key: Any) -> Any:
    return jax.random.key(int(key)) if isinstance(key, Integral) else key


def _posterior(task: Task, noise: float, width: int, record: Record, notes: dict[str, Any]) -> Posterior:
    n, seen = len(task.x_train), record.means
    how = Provenance("monte_carlo", f"{notes['method']} sampling, {notes['chains']} chains of {notes['steps']} steps")
    mean, mean_sem = _estimate(seen["mean"])
    # Law of total covariance; where a mean enters squared, its influence on the result is linearised for the error.
    products = np.einsum("csik,jk->csij", seen["mean"], mean) / mean.shape[1]
    cov, _ = _estimate(seen["second"])
    spread, spread_sem = (
        cov - mean @ mean.T / mean.shape[1],
        _estimate(seen["second"] - products - _turned(products))[1],
    )
    kernels = tuple(_estimate(each) for each in seen["kernels"])
    forces = seen["conjugate"] if isinstance(seen["conjugate"], tuple) else (seen["conjugate"],)
    conjugate = tuple(_estimate(_embedded(each, len(task.x))) for each in forces)
    missing = (NO_FORCE,) * (len(kernels) - len(conjugate))
    parts = {
        "f_train": (mean[:n], mean_sem[:n]),
        "f_train_cov": (spread[:n, :n], spread_sem[:n, :n]),
        "f_test": (mean[n:], mean_sem[n:]),
        "f_test_cov": (spread[n:, n:], spread_sem[n:, n:]),
        "kernels": tuple(zip(*kernels, strict=True)),
        "conjugate": (missing + tuple(c for c, _ in conjugate), missing + tuple(sem for _, sem in conjugate)),
    }
    draws = {"f": _members(seen["mean"]), "kernels": tuple(map(_members, seen["kernels"]))}
    values = {name: pair[0] for name, pair in parts.items() if pair}
    if not kernels:
        values |= {"kernels": NO_KERNELS, "conjugate": NO_KERNELS}
    return Posterior(
        **values,
        log_evidence=NO_EVIDENCE,
        noise=noise,
        width=width,
        provenance=dict.fromkeys(values, how) | {"log_evidence": NO_EVIDENCE},
        errors={name: pair[1] for name, pair in parts.items() if pair},
        diagnostics=notes | {"draws": draws},
    )


def _estimate(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean, standard error) of means over stretches [chains, stretches, …]."""
    return means.mean((0, 1)), standard_error(means)


def _members(means: np.ndarray) -> np.ndarray:
    return means.reshape(-1, *means.shape[2:])


def _turned(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def _embedded(force: np.ndarray, points: int) -> np.ndarray:
    """Test points feel no force."""
    rest = points - force.shape[-1]
    return np.pad(force, [(0, 0)] * (force.ndim - 2) + [(0, rest), (0, rest)])
