"""Batches of a config's own: arrays of numbers, as many targets as inputs, or a sentence that names them."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from train.data.sources import Source
from zoo.checks import parts, shown


@dataclasses.dataclass(frozen=True, eq=False)
class Validation(Source):
    """What a config's `validation` returns: inputs [n, …], and a tree of targets [n, …], as they come."""

    name: str
    inputs: np.ndarray
    targets: Any
    make: Callable[[], Any]
    classes: None = None
    normalise: None = None

    @classmethod
    def of(cls, make: Callable[[], Any], what: str) -> "Validation":
        """Of what is made, checked; `what` begins the sentence of an error."""
        return cls(what, *arrays_of(make(), what), make)

    def again(self) -> "Validation":
        """The same, made once more."""
        return self.of(self.make, self.name)

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of one input."""
        return self.inputs.shape[1:]

    def check_like(self, inputs: Any, targets: Any) -> None:
        """Raises unless a sample has the shapes of one in batches of these inputs and targets."""
        here, there = (
            [a.shape[1:] for a in jax.tree.leaves(both)] for both in ((self.inputs, self.targets), (inputs, targets))
        )
        one, other = (jax.tree.map(lambda _: "…", each) for each in (self.targets, targets))
        if jax.tree.structure(one) != jax.tree.structure(other):
            raise ValueError(f"{self.name} gives targets {one}, and batches {other}: give the same (inputs, targets).")
        if here != there:
            raise ValueError(
                f"{self.name} gives samples of shapes {here}, and batches {there}: give the same (inputs, targets)."
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def stored(self, rows: np.ndarray) -> tuple[np.ndarray, Any]:
        """(inputs, targets) of these rows."""
        return self.inputs[rows], jax.tree.map(lambda a: a[rows], self.targets)

    read = stored


def arrays_of(batch: Any, what: str) -> tuple[Any, Any]:
    """(inputs, targets) as arrays; lists are arrays, of targets there may be several. `what` begins the sentence of an error.

    >>> arrays_of(([[1.0], [2.0]], [0, 1]), "batches")[0].shape
    (2, 1)
    >>> arrays_of((np.ones((3, 2)), np.ones(2)), "own.py: batches")
    Traceback (most recent call last):
    ...
    ValueError: own.py: batches gives 3 inputs with 2 targets: give as many of both, the first axis being that of the samples.
    """
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(f"{what} gives {shown(batch)}; each must be (inputs, targets).")
    several = isinstance(batch[0], tuple) and len(batch[0]) > 1 and all(np.ndim(each) > 1 for each in batch[0])
    if several and not _as_many(batch[0], batch[1]):
        raise ValueError(f"{what} gives inputs that are {parts(batch[0])}; they must be one array of numbers, [n, …].")
    inputs = _array(batch[0], what, "inputs")
    targets = jax.tree.map(lambda a: _array(a, what, "targets"), batch[1], is_leaf=lambda a: isinstance(a, list))
    if not len(inputs):
        raise ValueError(f"{what} gives no inputs: an array of shape {inputs.shape}. Give at least one sample a batch.")
    for each in jax.tree.leaves(targets):
        if len(each) != len(inputs):
            raise ValueError(
                f"{what} gives {len(inputs)} inputs with {len(each)} targets: give as many of both, the first axis being that of "
                "the samples."
            )
    return inputs, targets


def check_batch(batch: tuple[Any, Any], what: str, mesh: Any) -> tuple[Any, Any]:
    """The batch, if it divides over the mesh's data axis (None: over all devices)."""
    size, devices = len(batch[0]), jax.device_count() if mesh is None else mesh.shape["data"]
    if size % devices:
        raise ValueError(
            f"{what} gives {size} samples, which do not divide over {devices} devices of the data axis: give batches that do, "
            "such as all of the first one's size."
        )
    return batch


def first_of(source: Source) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, targets) of its first sample alone."""
    if not len(source):
        raise ValueError(f'The data "{source.name}" have no samples to train on.')
    return source.read(np.arange(1))


def not_finite(batch: Any, what: str, outputs: Callable[[Any], Any] = lambda inputs: None) -> str:
    """Which numbers of a batch are not finite, or no classes of outputs(inputs), in a sentence, or an empty string.

    >>> not_finite((np.ones((2, 3)), np.array([0, 7])), "batches", lambda inputs: np.zeros((2, 5)))
    'batches gives targets from 0 to 7, and the network has 5 outputs: classes are whole numbers from 0 to 4.'
    """
    inputs, targets = arrays_of(batch, what)
    for name, part in (("inputs", inputs), ("targets", targets)):
        for each in jax.tree.leaves(part):
            if each.dtype.kind == "f" and not np.isfinite(each).all():
                return f"{what} gives {name} that are {shown(each)}: leave these samples out, or mend them."
    shape: Any = getattr(outputs(inputs), "shape", ())
    classes = isinstance(targets, np.ndarray) and targets.dtype.kind in "iu" and targets.shape == shape[:-1]
    if classes and targets.max() >= shape[-1] > 1:
        return (
            f"{what} gives targets from {targets.min()} to {targets.max()}, and the network has {shape[-1]} outputs: classes are "
            f"whole numbers from 0 to {shape[-1] - 1}."
        )
    return ""


def _as_many(inputs: tuple, targets: Any) -> bool:
    """Whether a tuple of inputs has one for each target."""
    each = jax.tree.leaves(targets, is_leaf=lambda part: isinstance(part, list))
    return all(np.ndim(part) and len(part) == len(inputs) for part in each)


def as_now(value: Any) -> Any:
    """An array as it is now: whoever made it may fill the same memory with the next batch, which a step that is still computed
    would read.

    >>> batch = np.zeros(2)
    >>> kept, batch[:] = as_now(batch), 1
    >>> kept
    array([0., 0.])
    """
    numbers = isinstance(value, memoryview) or hasattr(value, "__array__")
    if isinstance(value, jax.Array):  # on a CPU it may be the memory of an array of NumPy
        keys = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        numbers = not keys and value.is_fully_addressable and next(iter(value.devices())).platform == "cpu"
    return np.array(np.asarray(value)) if numbers else value


def _array(value: Any, what: str, name: str) -> np.ndarray:
    try:
        found = np.asarray(as_now(value))
    except ValueError:  # lists of unequal lengths
        found = np.asarray(None)
    numbers = found.dtype == bool or any(jnp.issubdtype(found.dtype, kind) for kind in (jnp.integer, jnp.floating))
    if not numbers or not found.ndim:
        kind = f"an array of {found.dtype}" if isinstance(value, np.ndarray) else shown(value)
        kind = f"a {type(value).__name__}" if isinstance(value, Mapping) else kind
        raise ValueError(
            f"{what} gives {name} that are {kind}; they must be an array of numbers, with an axis of samples."
        )
    # Of 32 bits unless jax_enable_x64 is set: larger ones would begin anew.
    here = jax.dtypes.canonicalize_dtype(found.dtype)
    if found.dtype.kind in "iu" and found.dtype != here and found.size:
        low, high = int(found.min()), int(found.max())
        if low < np.iinfo(here).min or high > np.iinfo(here).max:
            raise ValueError(
                f"{what} gives {name} that are whole numbers from {low} to {high}, and JAX has {here.name}, up to "
                f"{np.iinfo(here).max:,}: give them as floats, or smaller ones."
            )
    return found
