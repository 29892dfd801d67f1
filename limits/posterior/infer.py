"""The posterior of a Bayesian network with the twin's prior: at infinite width, and to leading order at a finite one."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from limits import predict
from limits.inputs import task_of, twin_of
from limits.posterior.averages import Draws, is_linear, pair_averages
from limits.posterior.equations import Stack, backpropagated, kernel_ahead, output_force, padded, prior_kernels
from limits.posterior.fluctuations import shifts
from limits.posterior.result import Posterior
from limits.posterior.solver import DivergenceError, Solution, Sweeps, damping_of, order_of, solve, tolerance_of
from limits.posterior.tilted import tilted_kernel
from limits.predict.gaussian_process import check_noise, check_regular
from limits.types import AbsentError, Provenance, Task
from zoo import checks

OUTPUTS = ("f_train", "f_test", "f_train_cov", "f_test_cov")  # covariances last
BATCHES = 4  # independent parts of the draws, for standard errors
NO_EVIDENCE = (
    "at finite width its first correction, of order P²/N, has two parts, the value of the action at its saddle point and the "
    "determinant of its second derivative over all P(P + 1)/2 entries of every kernel, and the equations for the kernels give "
    "the first alone. The evidence at infinite width is posterior(task, noise).log_evidence; an estimate at this width is "
    "limits.posterior.log_evidence, from networks drawn from the prior."
)


@checks.arguments(
    twin=twin_of,
    task=task_of,
    width=checks.Check(
        "a whole number of neurons of at least 1, or None for infinite width",
        lambda v: checks.number(1).holds(v) and float(v).is_integer(),
    ),
    order=order_of,
    samples=checks.count(2 * BATCHES),
    seed=checks.seed,
    damping=damping_of,
    tolerance=tolerance_of,
    iterations=checks.count(),
    errors=checks.flag,
    fluctuations=checks.flag,
)
def posterior(
    twin: Any,
    task: Task,
    noise: Any,
    width: float | None = None,
    order: str = "leading",
    samples: int = 20_000,
    seed: int = 0,
    damping: float = 0.5,
    tolerance: float = 1e-7,
    iterations: int = 200,
    widths: Sequence[float] | None = None,
    errors: bool = True,
    fluctuations: bool = False,
) -> Posterior:
    """p(f | data) for networks whose parameters have their initial law as prior, and y = f + N(0, noise).

    width=None: infinite width, a Gaussian process with the NNGP. For an MLP the kernels of all layers are in `kernels`, and in
    `conjugate` the derivatives C̃^(l) of log p(y) in them; of other networks the output's only.

    width=N (MLP): kernels adapt to the data. The force C̃^(L) of the data on the output's kernel goes back through the layers
    and shifts the kernel of every layer against the next one's fluctuations, of order 1/N,

        C^(l) = w² <φφᵀ> + b² + (w⁴/N) Σ_cd V_ab,cd C̃^(l)_cd,   C̃^(L) = ½ A⁻¹(Y Yᵀ − K A)A⁻¹,   A = C^(L) + noise,
        C̃^(l)_ab = w² C̃^(l+1)_ab <φ_a'φ_b'> + δ_ab w² Σ_c C̃^(l+1)_ac <φ_a''φ_c>,

    solved together; test points follow with C̃ = 0 on their rows. order="full" keeps all orders in C̃ (averages over tilted
    Gaussians). `samples` draws serve the averages over four samples; `widths` is a falling list to anneal from, by default
    only where the equations do not converge without. errors=False spares the standard errors, which are then NaN. The width
    is this argument, not the definition's. The options of the solver play no part at infinite width, where `noise`, a variance,
    may also be one for each training point.

    Predictions are those of a process with kernel C^(L). What its fluctuations add is of order P/N, too: at few points these
    predictions are no nearer than those of infinite width, though the kernels are. fluctuations=True adds it to the mean and
    the covariance of f (of several outputs, a mean over them). Kernels of l > 1 also have a shift of order 1/N without data,
    from those of the layers before; it is in neither.

    >>> from zoo import MLP
    >>> from limits import twin
    >>> task = Task(np.eye(3), [1.0, 1.0, -1.0], np.ones((1, 3)), [0.0])
    >>> net = MLP(width=1, depth=2, activation="erf", w_std=1.2, b_std=0.2)
    >>> wide, narrow = (twin(net).posterior(task, noise=0.01, width=width) for width in (None, 100))
    >>> wide.f_train[0].round(2).item(), narrow.layers, narrow.diagnostics["indefinite"]
    (0.98, 2, ())

    Reference: Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, chapter 3; Fischer, Lindner, Dahmen,
    Ringel, Krämer, Helias (2024), Critical feature learning in deep neural networks. Divergences: the sum over c is printed
    with its term c = a alone; the input layer has the w of the others here.
    """
    check_prior(twin, task, width)
    task = twin.fed(task)
    if task.positions:
        twin.check_outputs("posterior", task)
    twin.check_start("posterior", task.x)
    if width is None:
        return _infinite(twin, task, noise)
    if np.ndim(noise):
        raise AbsentError(
            "posterior: a noise for every point is for infinite width; the force of the data on the kernels of a finite "
            "network is worked out for one noise. Give a number, or width=None."
        )
    checks.number(0)("posterior: noise", noise)
    stack = twin.dense_stack(task.x, width)
    z = np.random.default_rng(seed).normal(size=(1 if is_linear(stack.activation) else samples, len(stack.k0)))
    sweeps = Sweeps(damping, tolerance, iterations)
    return _Finite(stack, task, noise, width, order, sweeps, errors, fluctuations).posterior(z, widths)


def check_prior(twin: Any, task: Task, width: float | None) -> None:
    """Raises unless y = f + Gaussian noise of a network whose f is random at this width."""
    if task.loss != "mse":
        raise AbsentError(
            f'posterior: with loss="{task.loss}" the likelihood is not Gaussian and neither is the posterior of f; take the same '
            'task with loss="mse" (one-hot targets as numbers), or sample networks.'
        )
    p = twin.parameterization
    if width is None and p.d != 0:
        raise AbsentError(
            f"posterior: in the {p.name} parameterization Var f(0) = Φ/(γ² N^{2 * p.d:g}), so that at infinite width the prior "
            'of f is f = 0 and no data can move it. Take parameterization="ntk" (Var f of order 1), or a finite width=N.'
        )


def _infinite(twin: Any, task: Task, noise: Any) -> Posterior:
    n, exact = task.n_train, Provenance("exact", "closed form: a Gaussian process")
    variances = check_noise("posterior", noise, n)
    fluent = Provenance("exact", "derivative of log p(y); of order 1 in 1/N, it moves no kernel at infinite width")
    errors: dict[str, Any] = {}
    try:
        stack = twin.dense_stack(task.x)
    except AbsentError:
        stack = None
    if stack is not None:
        kernels, how = prior_kernels(stack), exact
    else:
        found = twin.kernels(task.x)
        kernels, how = [task.between_points(found.nngp)], found.provenance["nngp"]
        only = "the output's kernel alone (feature kernels of the layers: twin.layers)"
        how = Provenance(how.kind, f"{how.detail}; {only}")
        if how.kind != "exact":
            exact = Provenance("approximate", f"a Gaussian process with a kernel that is {how.kind}: {how.detail}")
            errors["kernels"] = (task.between_points(found.nngp_sem),)
    known = [k[:n, :n] for k in kernels]
    check_regular("posterior", known[-1], variances)
    force = output_force(known[-1], task.targets, variances)
    forces = [force] if stack is None else backpropagated(stack.first(n), known, force)
    parts, evidence = _predict(kernels[-1], task, variances)
    origin: dict[str, Provenance] = dict.fromkeys((*parts, "log_evidence"), exact) | {
        "kernels": how,
        "conjugate": fluent,
    }
    return Posterior(
        **parts, kernels=tuple(kernels), conjugate=tuple(padded(f, len(kernels[-1])) for f in forces),  # pyright: ignore
        log_evidence=evidence, noise=noise, provenance=origin, errors=errors, diagnostics=_diagnostics(kernels),
    )  # fmt: skip


def _predict(c: np.ndarray, task: Task, noise: Any) -> tuple[dict[str, np.ndarray], float]:
    """Mean and covariance of f at all points for this output kernel, and log p(y)."""
    n = task.n_train
    found = predict.posterior(c[:n, :n], task.targets, c[:, :n], c, noise)
    mean, cov = found.mean, found.cov
    parts = {"f_train": mean[:n], "f_train_cov": cov[:n, :n], "f_test": mean[n:], "f_test_cov": cov[n:, n:]}
    return parts, found.log_marginal_likelihood


def _diagnostics(kernels: Sequence[np.ndarray], residual: float = 0.0) -> dict[str, Any]:
    """Smallest eigenvalue of every kernel, and the layers whose kernel is indefinite beyond rounding and what the solver left.

    Entries that are off by a share `residual` of the largest move an eigenvalue by n times that share at most.
    """
    least = max(1e-10, len(kernels[0]) * residual)
    values = [np.linalg.eigvalsh(k) for k in kernels]
    smallest = tuple(float(v[0]) for v in values)
    bad = tuple(l for l, v in enumerate(values) if v[0] < -least * v[-1])
    return {"smallest_eigenvalues": smallest, "indefinite": bad}


@dataclasses.dataclass(frozen=True)
class _Finite:
    """The posterior of a stack of dense layers at finite width."""

    stack: Stack
    task: Task
    noise: float
    width: float
    order: str
    sweeps: Sweeps
    errors: bool
    fluctuations: bool = False

    def posterior(self, z: np.ndarray, widths: Any) -> Posterior:
        n, sampled = len(self.task.x_train), not is_linear(self.stack.activation)
        check_regular("posterior", prior_kernels(self.stack.first(n))[-1], np.full(n, float(self.noise)))
        solution, found = self.solved(z, self.sweeps, widths, None)
        errors, missing = self.standard_errors(z, solution, found) if sampled else ({}, "")
        state = _diagnostics(found["kernels"], solution.residual)
        counts = {"iterations": solution.iterations, "residual": solution.residual, "widths": solution.widths}
        if self.fluctuations:
            counts["saddle_f_train"] = _predict(found["kernels"][-1], self.task, self.noise)[0]["f_train"]
        how = self.provenance(state["indefinite"], len(z) if sampled else 0, missing)
        origin = (
            dict.fromkeys(found, how)
            | dict.fromkeys(OUTPUTS, self.of_outputs(how, found))
            | {"log_evidence": Provenance("absent", NO_EVIDENCE)}
        )
        return Posterior(
            **found, log_evidence=origin["log_evidence"], noise=self.noise, width=int(self.width), provenance=origin,
            errors=errors, diagnostics=state | counts | {"residuals": solution.residuals},
        )  # fmt: skip

    def solved(self, z: np.ndarray, sweeps: Sweeps, widths: Any, start: Solution | None) -> tuple[Solution, dict]:
        """The solution at the training points, and the fields of the result that follow from it."""
        n, draws = len(self.task.x_train), Draws(self.stack.activation, z)
        inner = self.stack.first(n)
        solution = solve(inner, self.task.y_train, self.noise, self.width, draws, self.order, sweeps, widths, start)
        kernels = self.extended(solution, draws)
        outputs, _ = _predict(kernels[-1], self.task, self.noise)
        if self.fluctuations:
            f, cov = shifts(self.stack, kernels, draws, self.task.targets, self.noise, self.width)
            moved = {"f_train": f[:n], "f_test": f[n:], "f_train_cov": cov[:n, :n], "f_test_cov": cov[n:, n:]}
            outputs = {name: value + moved[name] for name, value in outputs.items()}
        forces = tuple(padded(f, len(self.task.x)) for f in solution.forces)
        return solution, outputs | {"kernels": tuple(kernels), "conjugate": forces}

    def extended(self, solution: Solution, draws: Draws) -> list[np.ndarray]:
        """Kernels with the test points: one pass, for their conjugates vanish."""
        n, ahead = len(self.task.x_train), kernel_ahead if self.order == "leading" else tilted_kernel
        if len(self.task.x) == n:
            return solution.kernels
        kernels = [self.stack.k0]
        for l, (w, b) in enumerate(zip(self.stack.weights, self.stack.biases, strict=True)):
            mean = pair_averages(self.stack.activation, kernels[-1])[0]
            kernels.append(ahead(mean, draws, kernels[-1], solution.forces[l + 1], w, b, self.width))
            kernels[-1][:n, :n] = solution.kernels[l + 1]
        return kernels

    def standard_errors(self, z: np.ndarray, solution: Solution, found: dict) -> tuple[dict[str, Any], str]:
        """From solutions with independent quarters of the draws; NaN where they are not known, and why."""
        if not self.errors:
            return self.unknown(found), " (errors=False: without standard errors)"
        loose = dataclasses.replace(self.sweeps, tolerance=max(1e-5, self.sweeps.tolerance))
        try:
            parts = [self.solved(z[i::BATCHES], loose, None, solution)[1] for i in range(BATCHES)]
        except (DivergenceError, AbsentError):
            why = "with a quarter of the draws the equations do not converge, raise `samples`"
            return self.unknown(found), f"; without standard errors: {why}"
        return jax.tree.map(lambda *values: np.std(values, axis=0, ddof=1) / BATCHES**0.5, *parts), ""

    def unknown(self, found: dict) -> dict[str, Any]:
        """NaN for everything but C^(0), which is not sampled."""
        nan = jax.tree.map(lambda value: np.full_like(value, np.nan), found)
        return nan | {"kernels": (np.zeros_like(self.stack.k0), *nan["kernels"][1:])}

    def provenance(self, indefinite: tuple, draws: int, missing: str) -> Provenance:
        load = len(self.task.x_train) / self.width
        dropped = f"(P/N)², P/N = {load:.3g}, and " if self.order == "leading" else ""
        text = f"saddle point in the kernels: relative corrections of order {dropped}1/N are dropped"
        text += f"; four-sample averages by {draws} draws{missing}" if draws else ""
        if indefinite:
            text += f"; the kernels of layers {indefinite} are indefinite: the expansion has broken down, take a larger width"
        return Provenance("approximate", text)

    def of_outputs(self, how: Provenance, found: dict) -> Provenance:
        """Where outputs come from: the kernels, and what is known of fluctuations."""
        if not self.fluctuations:
            text = (
                "at the saddle point's kernel: its fluctuations, of order P/N and at few points as large as all that the saddle "
                "point corrects, are dropped; fluctuations=True adds them"
            )
            return Provenance(how.kind, f"{how.detail}; {text}")
        text = "with the fluctuations of the kernel around it, to first order in P/N"
        values = [np.linalg.eigvalsh(found[name]) for name in OUTPUTS[2:] if found[name].size]
        if any(v[0] < -1e-10 * np.abs(v).max() for v in values):
            text += "; the covariance of f is indefinite, P/N is too large for this order: take a larger width"
        return Provenance(how.kind, f"{how.detail}; {text}")
