"""The infinite-width twin alone: its kernels, what they predict, and training in the kernel regime.

    python3 -m launch.limit --config=configs/mlp.py [--workdir=DIR] [--config.FIELD=VALUE …]

Prints a table over depths and writes DIR/limit.json, and for each family and depth DIR/NAME.npz (a Trajectory) and a plot
(without training, steps = 0, only the table).
"""

import json
from typing import Any

import numpy as np
from rich.progress import track
from rich.table import Table

from launch import common
from launch.compare import OF_TRAINING, check_fields, task_of
from limits import Task, predict, twin
from train.study.families import families


def error_rate(f: np.ndarray, y: np.ndarray) -> float:
    """The share of wrong signs (one output) or wrong largest outputs."""
    wrong = np.sign(f) != np.sign(y) if y.shape[1] == 1 else (f.argmax(1) != y.argmax(1))[:, None]
    return float(wrong.mean())


def summary(net: Any, task: Task, steps: int, learning_rate: float, noise: float) -> tuple[dict[str, Any], Any]:
    """Numbers of one twin, and its lazy trajectory (None without steps)."""
    limit, n = twin(net), len(task.x_train)
    kernels = limit.kernels(task.x)
    run = limit.lazy(task, steps, learning_rate) if steps else None
    eigenvalues = np.linalg.eigvalsh(kernels.ntk[:n, :n])
    ridge = noise * float(np.trace(kernels.nngp[:n, :n])) / n
    posterior = predict.posterior(kernels.nngp[:n, :n], task.y_train, kernels.nngp[n:, :n], kernels.nngp[n:, n:], ridge)
    ridge_ntk = noise * float(np.trace(kernels.ntk[:n, :n])) / n
    regression = predict.kernel_regression(kernels.ntk[:n, :n], task.y_train, kernels.ntk[n:, :n], ridge_ntk)
    numbers = {
        "NNGP mean diagonal": float(np.trace(kernels.nngp)) / len(kernels.nngp),
        "NTK mean diagonal": float(np.trace(kernels.ntk)) / len(kernels.ntk),
        "largest stable rate": 2 * n / float(eigenvalues[-1]),
        "NTK condition": float(eigenvalues[-1] / eigenvalues[0]),
        "evidence / point": posterior.log_marginal_likelihood / n,
        "NNGP test error": error_rate(posterior.mean, task.y_test),
        "NTK test error": error_rate(regression, task.y_test),
    }
    if run is not None:
        numbers[f"lazy loss, step {steps}"] = float(run.loss[-1])
    return numbers, run


def main() -> None:
    """Runs the config."""
    config, screen = common.config(), common.console()
    folder = common.workdir(config.name)
    check_fields(config, "launch.limit", OF_TRAINING, common.config_file())
    task = task_of(config)
    if not len(task.x_test):
        raise ValueError("limit needs test points: set --config.task.n_test to 1 or more.")
    table, records = Table(title=f"Infinite-width twins — {task.name}"), []
    every = families(config, common.config_file(), task.outputs)
    jobs = [(label, depth, make) for label, make in every.items() for depth in config.depths]
    for label, depth, make in track(jobs, "twins", console=screen):
        numbers, run = summary(make(max(config.widths), depth), task, config.steps, config.learning_rate, noise=1e-3)
        name = f"limit_{label.replace(' ', '_')}_depth{depth}"
        if run is not None:
            run.save(folder / name)
            run.plot().savefig(folder / f"{name}.png", dpi=100)
        records.append({"family": label, "depth": depth, **numbers})
    for column in records[0]:
        table.add_column(column)
    for record in records:
        table.add_row(*[f"{value:.4g}" if isinstance(value, float) else str(value) for value in record.values()])
    screen.print(table)
    document = {"run": common.provenance(config), "noise": "1e-3 of the mean diagonal", "limits": records}
    (folder / "limit.json").write_text(json.dumps(document, indent=2) + "\n")
    more = ", and a trajectory (.npz) and a plot (.png) of each" if config.steps else ""
    screen.print(f"wrote {folder}/limit.json{more}", highlight=False)


def run() -> None:
    """Entry point."""
    common.start(main, __doc__)


if __name__ == "__main__":
    run()
