"""Even activations have no linear part: the kernels' shift by the data, against networks drawn from the prior."""

import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, twin
from limits.posterior import draw_kernels, prior_kernels
from zoo import MLP

WIDTH, NOISE, DRAWN, MEMBERS = 1000, 0.1, 400, 10_000


def drawn_shift(stack, y, direction):
    """The shift of the kernels of layers 1 … L by data in units of `direction`, scaled to WIDTH; and its standard error.

    Posterior − prior mean at width DRAWN, by weights p(Y | C^(L)); at leading order 1/N this is what the equations give.
    """
    kernels = draw_kernels(stack, DRAWN, MEMBERS)[:, 1:]
    c = kernels[:, -1] + NOISE * np.eye(len(y))
    solved = np.linalg.solve(c, np.broadcast_to(y, (len(c), *y.shape)))
    logs = -0.5 * np.einsum("ak,mak->m", y, solved) - 0.5 * y.shape[1] * np.linalg.slogdet(c)[1]
    p = np.exp(logs - logs.max())
    along = np.einsum("mlab,lab->lm", kernels, direction) / np.sum(direction**2, axis=(1, 2))[:, None]
    terms = (p / p.mean() - 1) * (along - along.mean(1, keepdims=True))
    return DRAWN / WIDTH * terms.mean(1), DRAWN / WIDTH * terms.std(1) / MEMBERS**0.5


def gaussian(x):
    return jnp.exp(-x * x)


@pytest.mark.slow
@pytest.mark.parametrize(
    "activation",
    ["abs", gaussian, jnp.cos],
    ids=lambda a: a if isinstance(a, str) else a.__name__,
)
def test_even_activations_converge_to_the_shift_of_networks(activation):
    x, y = np.random.default_rng(0).normal(size=(4, 5)), [1.0, -1.0, 1.0, -1.0]
    task, net = Task(x, y), MLP(width=10, depth=2, activation=activation, w_std=1.1, b_std=0.1)
    found = twin(net).posterior(task, NOISE, width=WIDTH, samples=4000, errors=False)
    assert found.diagnostics["widths"] == (WIDTH,)  # no annealing
    stack = twin(net).dense_stack(x)
    direction = np.array(found.kernels[1:]) - prior_kernels(stack)[1:]
    share, sem = drawn_shift(stack, task.y_train, direction)
    print(activation, share, sem)
    assert (sem < 0.06).all()
    assert (abs(share - 1) < 4 * sem + 4 * len(y) / DRAWN).all()  # and relative corrections of order P/N
