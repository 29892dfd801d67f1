"""What a fit looks like: functions of the prior, the posterior, and the evidence around its maximum."""

from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from limits import predict
from limits.predict.evidence import log_marginal_likelihood
from limits.twin import twin
from limits.types import Task

if TYPE_CHECKING:
    import matplotlib.figure

_POINTS = 31  # of each number
_SPREAD = 4.0  # standard errors to both sides, and a factor of at most
_WIDEST = 3.0


def plot_fit(found: Any, task: Task) -> "matplotlib.figure.Figure":
    """Draws from the prior, the posterior's mean ± 2 standard deviations (both for inputs [n, 1]), and the log evidence.

    The evidence is that of the first two numbers fitted, the others at their best values, with the optimiser's way through it;
    its contours are at 1, 2, 4, 8, … below the maximum.
    """
    line, pair = (
        task.x_train.shape[1:] == (1,),
        len(found.values) > 1 and all(np.ndim(v) == 0 for v in found.values.values()),
    )
    if not line and not pair:
        raise ValueError(
            f"plot: functions are drawn of inputs [n, 1] (here {list(task.x_train.shape)}), and the evidence over two numbers "
            f"(fitted: {', '.join(found.values)}): there is nothing to draw."
        )
    panels = 2 * line + pair
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(4.2 * panels, 3.6), layout="constrained")
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    limit = twin(found.net) if isinstance(found.net, nn.Module) else found.net
    if line:
        _functions(axes[:2], limit, task, found.noise)
    if pair:
        _evidence(figure, axes[-1], limit, found, task)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def _functions(axes: Any, limit: Any, task: Task, noise: Any) -> None:
    x, y = task.x_train[:, 0], task.y_train[:, 0]
    reach = 0.25 * np.ptp(x)
    grid = np.linspace(x.min() - reach, x.max() + reach, 200)[:, None]
    prior = limit.kernels(grid).nngp
    for each in predict.draws(np.zeros((len(grid), 1)), prior, count=5, seed=1):
        axes[0].plot(grid[:, 0], each[:, 0], lw=1)
    axes[0].set(title="functions drawn from the prior", xlabel="x")
    posterior = limit.posterior(Task(task.x_train, task.y_train, grid), noise)
    mean, spread = posterior.f_test[:, 0], np.sqrt(np.maximum(np.diag(posterior.f_test_cov), 0))
    axes[1].fill_between(grid[:, 0], mean - 2 * spread, mean + 2 * spread, alpha=0.25, label="± 2 standard deviations")
    axes[1].plot(grid[:, 0], mean, label="mean")
    axes[1].plot(x, y, "k.", ms=5, label="data")
    axes[1].set(title="posterior, a noise a point" if np.ndim(noise) else f"posterior, noise {noise:.2g}", xlabel="x")
    axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3, fontsize=8)


def _evidence(figure: "matplotlib.figure.Figure", axis: Any, limit: Any, found: Any, task: Task) -> None:
    names = list(found.values)[:2]
    spans = []
    for name in names:
        best, wide = found.values[name], min(np.exp(_SPREAD * found.errors[name] / found.values[name]), _WIDEST)
        spans.append(np.geomspace(best / wide, best * wide, _POINTS))
    kernel, rest = limit.kernel_function(like=task.x_train), {k: v for k, v in found.values.items() if k not in names}
    with jax.enable_x64(True):
        x, y = jnp.asarray(task.x_train), jnp.asarray(task.y_train)

        def evidence(pair: Any) -> Any:
            values = rest | dict(zip(names, pair, strict=True))
            noise = values.pop("noise", found.noise)
            return log_marginal_likelihood(kernel(x, **values).nngp, y, noise)

        pairs = np.stack(np.meshgrid(*spans, indexing="ij"), -1).reshape(-1, 2)
        value = np.asarray(jax.jit(lambda pairs: jax.lax.map(evidence, pairs))(jnp.asarray(pairs)))
    below = np.fmax(np.nanmax(value) - value.reshape(_POINTS, _POINTS), 0)
    levels = [0, 1, *(2.0**k for k in range(1, 12) if 2.0**k < np.nanmax(below))]
    filled = axis.contourf(*spans, below.T, levels=levels, cmap="viridis_r", extend="max")
    figure.colorbar(filled, ax=axis, shrink=0.8, ticks=levels)
    axis.plot(*(found.trace[name] for name in names), "w.-", lw=1, ms=4)
    axis.plot(*(found.values[name] for name in names), "r*", ms=11)
    axis.set(xscale="log", yscale="log", xlabel=names[0], ylabel=names[1], title="log evidence below its maximum")
    axis.set(xlim=spans[0][[0, -1]], ylim=spans[1][[0, -1]])
