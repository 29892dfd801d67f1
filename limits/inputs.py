"""Checks of inputs that come from a caller."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from limits.kept.remembered import forget_other_code
from limits.types import AbsentError, Task
from zoo import GPT, checks
from zoo.abstract import abstract
from zoo.definition import is_ours, name_of
from zoo.once import once

task_of = checks.Check("a limits.Task", lambda v: isinstance(v, Task))
twin_of = checks.Check(
    "a twin, which limits.twin makes of a definition", lambda v: callable(v.kernels) and callable(v.lazy)
)


def as_samples(x: Any, name: str, dtype: Any = np.float64) -> np.ndarray:
    """x as an array [n, …] with n ≥ 1; NaN, infinities and complex numbers are refused.

    >>> as_samples([[1, 2]], "x").shape
    (1, 2)
    """
    _check_not_traced(x, name)
    checks.one_array(name, x)
    if np.iscomplexobj(x):
        raise ValueError(f"{name} must hold real numbers; its entries are {np.asarray(x).dtype}.")
    try:
        samples = np.asarray(x, dtype)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers [n, …]; got {checks.shown(x)}.") from None
    if samples.ndim < 2 or not samples.size:
        raise ValueError(
            f"{name} must hold samples along its first axis, [n, …] with n ≥ 1; its shape is {samples.shape}."
        )
    bad = int(samples.size - np.isfinite(samples).sum())
    if bad:
        raise ValueError(f"{name} holds {bad} values that are NaN or infinite (of {samples.size}); remove them first.")
    return samples


def _check_not_traced(x: Any, name: str) -> None:
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(x)):
        raise ValueError(
            f"{name} is traced by jax (jit, grad, vmap), and what comes back here are NumPy arrays: take "
            "twin(net).kernel_function(), the kernels as a function of JAX arrays."
        )


def as_signals(net: Any, x: Any, name: str, dtype: Any) -> np.ndarray:
    """x as samples; whole numbers stay such for a module that takes no others (words)."""
    _check_not_traced(x, name)
    checks.one_array(name, x)
    given = np.asarray(x)
    if isinstance(net, GPT) and given.ndim == 2 and given.dtype.kind in "iu":
        net.check_tokens(given)
    return given if given.ndim >= 2 and given.size and takes_words(net, given) else as_samples(x, name, dtype)


def takes_words(net: Any, x: Any) -> bool:
    """Whether x are whole numbers and the module takes no others."""
    if x.dtype.kind not in "iu":
        return False
    floating = abstract((1, *x.shape[1:]), jnp.asarray(0.0).dtype)
    try:
        jax.eval_shape(lambda key, x: net.init(key, x), jax.random.key(0), floating)
    except Exception:  # whatever it says
        return True
    return False


def as_fed(net: Any, task: Task) -> Task:
    """The task as the network takes it: inputs that are whole numbers become numbers, unless it takes words.

    >>> from zoo import MLP
    >>> as_fed(MLP(width=8, depth=1), Task([[1, 0]], [1.0])).x.dtype
    dtype('float64')
    """
    forget_other_code(net, task.x_train)
    tokens = bool(task.positions) and task.x_train.ndim == 2  # of inputs of numbers they would be features
    if task.x_train.dtype.kind == "f" or tokens or takes_words(net, task.x_train):
        return task
    return dataclasses.replace(task, x_train=task.x_train.astype(float), x_test=task.x_test.astype(float))


def check_same_shape(x1: np.ndarray, x2: np.ndarray) -> None:
    """Raises unless samples of both have the same shape."""
    if x1.shape[1:] != x2.shape[1:]:
        raise ValueError(
            f"x1 has samples of shape {x1.shape[1:]} and x2 of shape {x2.shape[1:]}: they must have the same."
        )


def check_same_positions(twins: Sequence[Any], kernels: Sequence[Any]) -> None:
    """Raises unless kernels of these twins are all of whole inputs, or all between the same positions."""
    for each, kernel in zip(twins, kernels, strict=True):
        if kernel.shape != kernels[0].shape:  # arrays would be repeated along the wrong axes
            raise ValueError(
                f"combination of kernels: that of {name_of(twins[0].net)} is {list(kernels[0].shape)} and that of "
                f"{name_of(each.net)} {list(kernel.shape)}. All must be of whole inputs, or at the same positions: "
                "write a mean over positions into the module, or an output for every position."
            )


def as_pair(x1: Any, x2: Any, diagonal: bool, as_one: Callable[[Any, str], np.ndarray]) -> tuple[np.ndarray, Any]:
    """The inputs of kernels between x1 and x2 (None: x1 and itself), or of the diagonal of x1, each by as_one(x, name)."""
    first, second = as_one(x1, "x1"), None if x2 is None else as_one(x2, "x2")
    if second is not None:
        check_same_shape(first, second)
        if diagonal:
            raise ValueError("kernels: the diagonal is that of x1 with itself; leave x2 out.")
    return first, second


def as_float(dtype: Any) -> np.dtype:
    """The number type of a computation, float32 or float64 in any spelling.

    >>> as_float("float64") == as_float(float) == np.float64
    True
    """
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        found = None
    if dtype is None or found is None or found not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64; got {checks.shown(dtype)}.")
    return found


def as_block(block: Any) -> int | None:
    """Rows of a block, a whole number from 1, or None for as many as fit.

    >>> as_block(np.int64(3)), as_block(None)
    (3, None)
    """
    if block is None:
        return None
    if isinstance(block, bool) or not isinstance(block, int | np.integer) or block < 1:
        raise ValueError(
            f"block counts rows: a whole number from 1, or None for as many as fit; got {checks.shown(block)}."
        )
    return int(block)


def check_whole(owner: str, task: Task) -> None:
    """Raises where a task has targets at positions and `owner` is of those of whole samples."""
    if task.positions:
        raise AbsentError(
            f"{owner}: targets are {list(task.y_train.shape)}, one for each of {task.positions[0]} positions, and {owner} is of "
            "targets of whole samples [n, outputs]. Such tasks have `lazy`, `rich`, `posterior` at infinite width and `ensemble`."
        )


ONE_OUTPUT = " Give its one output an axis, f[:, None]."


def output_shape(net: Any, x: Any) -> tuple[int, ...] | None:
    """Of what the network returns for inputs like x; None where it is no array. Nothing is computed."""
    return _output_shape(net, tuple(x.shape), str(jax.dtypes.canonicalize_dtype(x.dtype)))


@once(maxsize=64)
def _output_shape(net: Any, shape: tuple[int, ...], kind: str) -> tuple[int, ...] | None:
    like = abstract(shape, kind)
    out = jax.eval_shape(lambda key, x: net.init_with_output(key, x)[0], jax.random.key(0), like)
    return getattr(out, "shape", None)


def check_outputs(owner: str, net: Any, task: Task) -> None:
    """Raises unless the network has an output for each of the task's targets.

    >>> from zoo import MLP
    >>> check_outputs("lazy", MLP(width=8, depth=1, outputs=2), Task([[1.0]], [[0.0, 1.0]]))
    """
    name, words = name_of(net), task.x_train.dtype.kind in "iu"
    for tokens in (task.x_train, task.x_test) if isinstance(net, GPT) else ():
        net.check_tokens(tokens)
    if is_ours(net) and not words and not task.positions:
        outputs: Any = net.outputs
    else:
        x = abstract((1, *task.x_train.shape[1:]), task.x_train.dtype if words else float)
        shape = output_shape(net, x)
        wanted = "[n, t, outputs]" if task.positions else "[n, outputs]"
        if shape is None or len(shape) != len(task.y_train.shape) or shape[:-1] != (1, *task.positions):
            raise ValueError(
                f"{owner}: {name} must return for targets {list(task.y_train.shape)} its outputs as an array {wanted}; for one "
                f"sample {list(x.shape)} it returns {'no array' if shape is None else list(shape)}."
                f"{ONE_OUTPUT if shape == (1,) else ''}"
            )
        outputs = shape[-1]
    if outputs != task.outputs:
        raise ValueError(
            f"{owner}: the network has {outputs} outputs and the task {task.outputs} targets a sample (y_train "
            f"{task.y_train.shape}); give the {name} outputs={task.outputs}, or the task other targets "
            f"(of class numbers, classes={outputs})."
        )


def as_numbers(owner: str, x: Any) -> Any:
    """An array of JAX or NumPy as it is, anything else as one of JAX; raises unless it is of numbers."""
    raised = None
    try:
        array = x if isinstance(x, jax.Array | np.ndarray) else jnp.asarray(x)
        if jnp.issubdtype(array.dtype, np.number) or array.dtype == bool:
            return array
    except (TypeError, ValueError) as error:
        raised = error
    raise ValueError(
        f"{owner}: inputs must be arrays [n, …] of real numbers, or of words as whole numbers; got {checks.shown(x)}."
    ) from raised
