"""From chains to a `Posterior`: means over the chains, with standard errors and a word on convergence."""

import warnings
from numbers import Integral
from typing import Any

import jax
import numpy as np

from limits import Task
from limits.inputs import as_fed, check_outputs, check_whole, task_of
from limits.posterior import Posterior
from limits.posterior.equations import padded
from limits.types import Provenance
from train.posterior.chains import Health, NotConvergedWarning, standard_error
from train.posterior.langevin import run_langevin
from train.posterior.layers import run_layers
from train.posterior.run import Chains, ChainSettings
from zoo import MLP, checks

METHODS = {"slice": 0, "hamiltonian": 4, "langevin": 20}  # and gradients a step
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
    noise=checks.number(positive=True),
    method=checks.choice(*METHODS),
    chains=checks.count(2, 10**6),
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

    There are two chains at least, to see whether they agree. The first `warmup` of `steps` steps (default: a third) are left
    out, and one in `thin` is looked at; float64.
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
    task = as_fed(net, task)
    _check(net, task, method, leaps)
    warmup = steps // 3 if warmup is None else warmup
    with jax.enable_x64(True):
        key = jax.random.key(int(key)) if isinstance(key, Integral) else key
        plan = ChainSettings(chains, steps, warmup, thin, METHODS[method] if leaps is None else leaps, key, progress)
        found = (run_langevin if method == "langevin" else run_layers)(net, task, noise, plan)
    health = Health.of(found.traces)
    if not health.converged:
        warnings.warn(health.sentence, NotConvergedWarning, stacklevel=3)
    notes = {"method": method, "chains": chains, "steps": found.steps, "warmup": found.warmup, "thin": thin}
    return _posterior(task, noise, net.width, found, notes | found.notes | health.as_dict())


def _check(net: Any, task: Task, method: str, leaps: int | None) -> None:
    if task.loss != "mse":
        raise ValueError(
            f'sample_posterior: the likelihood is Gaussian, so the task must have loss="mse", not "{task.loss}".'
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
    check_whole("sample_posterior", task)
    check_outputs("sample_posterior", net, task)


def _posterior(task: Task, noise: float, width: int, found: Chains, notes: dict[str, Any]) -> Posterior:
    n, seen = len(task.x_train), found.means
    how = Provenance("monte_carlo", f"{notes['method']} sampling, {notes['chains']} chains of {notes['steps']} steps")
    mean, mean_sem = _estimate(seen["mean"])
    # Law of total covariance; where a mean enters squared, its influence on the result is linearised for the error.
    products = np.einsum("csik,jk->csij", seen["mean"], mean) / mean.shape[1]
    spread = _estimate(seen["second"])[0] - mean @ mean.T / mean.shape[1]
    spread_sem = standard_error(seen["second"] - products - np.swapaxes(products, -1, -2))
    parts: dict[str, tuple[Any, Any]] = {
        "f_train": (mean[:n], mean_sem[:n]),
        "f_train_cov": (spread[:n, :n], spread_sem[:n, :n]),
        "f_test": (mean[n:], mean_sem[n:]),
        "f_test_cov": (spread[n:, n:], spread_sem[n:, n:]),
    }
    absent: dict[str, Any] = {"log_evidence": NO_EVIDENCE}
    if seen["kernels"]:
        kernels, errors = zip(*map(_estimate, seen["kernels"]), strict=True)
        forces, force_errors = zip(*(_estimate(padded(each, len(task.x))) for each in seen["conjugate"]), strict=True)
        unknown = (NO_FORCE,) * (len(kernels) - len(forces))
        parts |= {"kernels": (kernels, errors), "conjugate": (unknown + forces, unknown + force_errors)}
    else:
        absent |= {"kernels": NO_KERNELS, "conjugate": NO_KERNELS}

    def draws(means: np.ndarray) -> np.ndarray:
        return means.reshape(-1, *means.shape[2:])

    return Posterior(
        **{name: value for name, (value, _) in parts.items()},
        **absent,
        noise=noise,
        width=width,
        provenance=dict.fromkeys(parts, how) | absent,
        errors={name: error for name, (_, error) in parts.items()},
        diagnostics=notes | {"draws": {"f": draws(seen["mean"]), "kernels": tuple(map(draws, seen["kernels"]))}},
    )


def _estimate(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean, standard error) of means over stretches [chains, stretches, …]."""
    return means.mean((0, 1)), standard_error(means)
