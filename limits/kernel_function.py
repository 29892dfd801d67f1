"""Kernels as functions of JAX arrays, to differentiate, compile, batch and optimise."""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh

from limits.inputs import as_numbers, takes_words
from limits.kept.precision import full_products
from limits.kept.remembered import forget_other_code, remembered
from limits.kernels.kept import mirrored
from limits.kernels.on_mesh import symmetric
from limits.kernels.traced import by_few_numbers, in_tiles, outside_traces, rows_of_tiles
from limits.program.accuracy import SeriesLengths
from limits.program.larger import Larger, read_as, two_largest
from limits.program.of_numbers import function_of, other_signs
from limits.program.read import KERNELS, ProgramKernels
from limits.types import AbsentError, Provenance
from zoo import checks, parameterization
from zoo.definition import definition_of, name_of
from zoo.hyperparameters import hyperparameters
from zoo.messages import did_you_mean


class KernelPair(NamedTuple):
    """NNGP and NTK [n1, n2]; None where a limit has none."""

    nngp: Any
    ntk: Any


@dataclasses.dataclass(frozen=True, eq=False)
class KernelFunction:
    """k(x1, x2, **hyperparameters) → (nngp, ntk), of JAX arrays; `twin(net).kernel_function()` makes it.

    It may be compiled, differentiated (forward, backward, twice), batched and sharded, in the precision of its inputs.
    `hyperparameters` are the arguments beside inputs, with the definition's own values as defaults: numbers, or arrays where
    the definition has a tuple.

    Derivatives are exact also at coinciding inputs, at c = ±1 and at inputs of zero, wherever there are any. The tangent kernel
    of a relu has a cone at coinciding inputs: its derivative there is 0, the mean of both sides, and its second derivatives
    do not exist. At inputs of zero without biases homogeneous activations have a cone too. Those of functions that jump, of
    several variables at once, have the error of their quadrature (some .1 %).

    >>> import jax, jax.numpy as jnp
    >>> from limits import twin
    >>> from zoo import MLP
    >>> k = twin(MLP(width=8, depth=2, activation="erf", b_std=0.1)).kernel_function()
    >>> x = jnp.array([[1.0, 0.0], [0.6, 0.8]])
    >>> k(x).ntk.shape, bool(jax.jit(jax.grad(lambda w: k(x, w_std=w).nngp.sum()))(1.5) > 0)
    ((2, 2), True)
    """

    twin: Any
    like: Any = None

    @property
    def _parts(self) -> "list[KernelFunction]":
        return [self]

    @property
    def net(self) -> nn.Module:
        """The definition."""
        return self.twin.net

    @functools.cached_property
    def hyperparameters(self) -> dict[str, Any]:
        """Names and values of what it is a function of beside inputs."""
        return hyperparameters(self.net)

    @functools.cached_property
    def _others(self) -> dict[str, "KernelFunction | None"]:
        return {}

    @functools.cached_property
    def _said(self) -> set[tuple[str, ...]]:
        return set()

    @functools.cached_property
    def _larger(self) -> Larger:
        return Larger(self.twin, self.hyperparameters, self.like)

    def __call__(self, x1: Any, x2: Any = None, **values: Any) -> KernelPair:
        """Of x1 [n1, …] and x2 [n2, …] (None: x1 itself)."""
        return self._read(x1, x1 if x2 is None else x2, values, same=x2 is None)

    def __add__(self, other: Any) -> "KernelFunction":
        return (self.twin + _twin_of(other)).kernel_function(self.like)

    def __mul__(self, other: Any) -> "KernelFunction":
        return (self.twin * _twin_of(other)).kernel_function(self.like)

    def __truediv__(self, other: Any) -> "KernelFunction":
        return (self.twin / _twin_of(other)).kernel_function(self.like)

    def __pow__(self, other: Any) -> "KernelFunction":
        return (self.twin**other).kernel_function(self.like)

    def __sub__(self, other: Any) -> "KernelFunction":
        return self.twin - _twin_of(other)

    def __neg__(self) -> "KernelFunction":
        return -self.twin

    __radd__, __rmul__, __rsub__ = __add__, __mul__, __sub__
    __array_ufunc__ = None

    def diagonal(self, x: Any, **values: Any) -> KernelPair:
        """Of each input with itself, [n]."""
        return self._read(x, None, values)

    @full_products()
    def on_mesh(self, x: Any, mesh: Mesh, axis: str | None = None, **values: Any) -> KernelPair:
        """K(x, x) [n, n], with rows over an axis of a mesh (its first): every device works out half of its own.

        >>> from limits import twin
        >>> from zoo import MLP
        >>> mesh = jax.make_mesh((jax.device_count(),), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
        >>> k = twin(MLP(width=8, depth=1)).kernel_function()
        >>> k.on_mesh(jnp.eye(2 * jax.device_count()), mesh).ntk.sharding.spec[0]
        'rows'
        """
        x, axis = jnp.asarray(_as_arrays(x)[0]), str(mesh.axis_names[0]) if axis is None else axis
        if axis not in mesh.shape:
            raise ValueError(f"on_mesh: the mesh has no axis {axis!r}. {did_you_mean(axis, mesh.shape)}")
        one = self(two_largest(x), **values)  # says what is wrong, or too large, and which kernels there are
        wanted = [name for name in KERNELS if getattr(one, name) is not None]

        def tile(a: Any, b: Any) -> list[Any]:
            found = self(a, b, **values)
            return [getattr(found, name) for name in wanted]

        found = symmetric(tile, x, mesh, axis, (one.nngp.ndim - 2) // 2)
        made = dict(zip(wanted, found, strict=True))
        return KernelPair(*(made.get(name) for name in KERNELS))

    def provenance(self, x: Any, over: Sequence[str] = ()) -> dict[str, Provenance]:
        """How exact its numbers are, for inputs of this shape; why kernels are absent. over: the numbers it is called with."""
        x = _as_arrays(x)[0]
        return self._program(x.shape[1:], _kind(self.net, x), self._known(over))[2]

    def orders(self, x: Any) -> tuple[int, ...]:
        """How long its Hermite series are, for inputs of this shape."""
        x, found = _as_arrays(x)[0], list[int]()
        for each in self._parts:
            found += [count for _, count in each._program(x.shape[1:], _kind(each.net, x), ())[1].orders_by_name]
        return tuple(found)

    @jax.disable_jit(False)  # networks are read as programs
    @full_products()
    def _read(self, x1: Any, x2: Any, values: dict[str, Any], same: bool = False) -> KernelPair:
        arrays = _as_arrays(x1, *(() if x2 is None else (x2,)))
        for name, x in zip(("x1", "x2"), arrays, strict=False):
            if (
                x.ndim < 2
                or not len(x)
                or x.shape[1:] != arrays[0].shape[1:]
                or jnp.issubdtype(x.dtype, jnp.complexfloating)
            ):
                raise ValueError(
                    f"kernel function: {name} must hold samples [n, …], n ≥ 1, of real numbers, all of one shape; it is "
                    f"{x.dtype}{list(x.shape)}{'' if x is arrays[0] else f' and x1 {list(arrays[0].shape)}'}."
                )
        work = jnp.asarray(0.0).dtype  # float32 or float64, as jax is set: constants of the program have it too
        dtype = jnp.result_type(*arrays)
        dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else work
        kinds = [_kind(self.net, x) for x in arrays]
        words = work not in kinds
        given, arrays = arrays, [jnp.asarray(x, kind if words else work) for x, kind in zip(arrays, kinds, strict=True)]
        names = self._checked(values)
        if turned := self._of_other_signs(values):
            function, rest = turned
            with contextlib.suppress(ZeroDivisionError):  # of code that divides by a 0; powers say that it is infinite
                return function._read(x1, x2, rest, same)
        ratios = self._ratios(values, names, work)
        kernels, lengths, how, entries = self._program(arrays[0].shape[1:], arrays[0].dtype, names)
        self._larger.warn(lengths, given, read_as(arrays[0].dtype), values)
        self._warn(how, arrays[0], names)
        wanted = tuple(name for name in KERNELS if how[name].kind != "absent")
        rows = rows_of_tiles(entries, max(map(len, arrays)))
        traced = any(isinstance(each, Tracer) for each in (*ratios, *arrays))
        run = (_reading if traced else _compiled)(kernels, lengths, wanted, rows, x2 is None)
        found = dict(run(tuple(ratios), tuple(arrays[:1] if same else arrays)))
        if same and kernels.masks:
            own, at = kernels.diagonal(arrays[0], lengths, wanted, ratios=ratios), jnp.arange(len(arrays[0]))
            found = {name: k.at[at, at].set(own[name]) for name, k in found.items()}
        if same:  # points of a rule lie otherwise for (a, b) than for (b, a)
            found = {name: _from_above(k) if how[name].kind == "approximate" else k for name, k in found.items()}
        p = parameterization(self.net.parameterization)
        if "nngp" in found and p.d:
            gamma = jnp.asarray(values.get("gamma", definition_of(self.net).gamma), work)
            found["nngp"] = found["nngp"] * jnp.asarray(p.output_scale(self.net.width, gamma), work) ** 2
        return KernelPair(*(found[name].astype(dtype) if name in found else None for name in KERNELS))

    def _checked(self, values: dict[str, Any]) -> tuple[str, ...]:
        known = self.hyperparameters
        for name, value in values.items():
            if name not in known:
                zero = getattr(self.net, name, None) == 0
                why = f"{name} is 0 in the definition, which takes away what it scales: give it another value there."
                why = why if zero else did_you_mean(name, known)
                raise ValueError(f"kernel function: no hyperparameter {name} to vary. {why}")
            traced = any(isinstance(each, Tracer) for each in jax.tree.leaves(value))
            value = jnp.asarray(value) if traced or isinstance(value, jax.Array) else np.asarray(value)
            if not any(jnp.issubdtype(value.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
                raise ValueError(f"kernel function: {name} must be real; its type is {value.dtype}.")
            if value.shape != np.shape(known[name]):
                raise ValueError(
                    f"kernel function: {name} must have the shape {np.shape(known[name])} of the definition, not {value.shape}."
                )
            if not isinstance(value, Tracer) and not np.isfinite(value).all():
                raise ValueError(f"kernel function: {name} must be finite; it is {value}.")
        return self._known(values)

    def _known(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in self.hyperparameters if name in names)

    def _of_other_signs(self, values: dict[str, Any]) -> "tuple[KernelFunction, dict[str, Any]] | None":
        """(the function of the definition with such signs, numbers to call it with) where known ones turn theirs, or are 0."""
        made, rest = other_signs(self.hyperparameters, values)
        if (key := str(made)) not in self._others:
            found = None
            with contextlib.suppress(TypeError, ValueError):  # what no definition takes, as a w_std < 0, is a factor
                found = KernelFunction(self.twin.with_hyperparameters(**made), self.like) if made else None
            self._others[key] = found
        found = self._others[key]
        return None if found is None else (found, rest)

    def _warn(self, how: dict[str, Provenance], x: Any, names: tuple[str, ...]) -> None:
        """Of kernels that are exact as functions of inputs, and not as functions of these numbers."""
        if not any(each.kind == "approximate" for each in how.values()) or names in self._said:
            return
        self._said.add(names)
        alone = self._program(x.shape[1:], x.dtype, ())[2]
        if all(each.kind != "approximate" for each in alone.values()):
            detail = next(each.detail for each in how.values() if each.kind == "approximate")
            warnings.warn(
                f"kernel function: with {', '.join(names)} as arguments it is approximate, where the definition's own kernels "
                f"are exact ({detail}): closed forms hold where numbers stretch functions, not where they bend them elsewhere. "
                "twin(…).kernels of a definition with these numbers is exact.",
                stacklevel=6,
            )

    def _ratios(self, values: dict[str, Any], names: tuple[str, ...], dtype: Any) -> list[Any]:
        """Of every number over its default."""
        found = []
        for name in names:
            default, value = np.asarray(self.hyperparameters[name], float), jnp.asarray(values[name], dtype)
            found += (
                [value[i] / default[i] for i in np.ndindex(default.shape)] if default.ndim else [value / float(default)]
            )
        return found

    def _program(
        self, shape: tuple[int, ...], dtype: Any, names: tuple[str, ...]
    ) -> tuple[ProgramKernels, SeriesLengths, dict[str, Provenance], int]:
        """(the reading, lengths of series, how exact kernels are, `function_of`'s entries)."""
        kind = read_as(dtype)
        x = None if self.like is None else np.asarray(self.like, kind)
        if x is not None and x.shape[1:] != shape:
            raise ValueError(
                f"kernel function: `like` has samples of shape {x.shape[1:]}, and it is called with {shape}."
            )
        kernels, lengths, how, entries = outside_traces(function_of, self.twin, shape, kind, names, x)
        if how["nngp"].kind == "absent":
            raise AbsentError(
                f"{name_of(self.net)} has no kernel function: {how['nngp'].detail}. twin(net).kernels may draw its kernels."
            )
        return kernels, lengths, how, entries


def _reading(
    kernels: ProgramKernels, lengths: SeriesLengths, wanted: tuple[str, ...], rows: int, alone: bool
) -> Callable:
    """(ratios of numbers, inputs) → kernels by name: of each input with itself, or of pairs, in tiles of so many rows."""

    def read(ratios: tuple, x: tuple) -> dict[str, Any]:
        def tile(a: Any, b: Any) -> list[Any]:
            part = kernels(a, b, lengths, wanted, ratios=ratios)
            return [part[name] for name in wanted]

        if alone:
            return kernels.diagonal(x[0], lengths, wanted, ratios=ratios)
        return dict(zip(wanted, in_tiles(tile, *x, rows=rows, positions=len(kernels.positions)), strict=True))

    return functools.partial(by_few_numbers, read)


@remembered(maxsize=64)
def _compiled(*of: Any) -> Callable:
    """One program rather than one an operation, for all functions of a limit."""
    return jax.jit(_reading(*of))


def _as_arrays(*given: Any) -> list[Any]:
    """With shape and type, which JAX would cut to 32 bits."""
    return [as_numbers("kernel function", x) for x in given]


def _kind(net: Any, x: Any) -> Any:
    """The type in which a network takes x: that of numbers, unless it takes words."""
    if jnp.issubdtype(x.dtype, jnp.integer) and _of_words(net, x.shape[1:], str(x.dtype)):
        return jax.dtypes.canonicalize_dtype(x.dtype)
    return jnp.asarray(0.0).dtype


@remembered(maxsize=64)
def _of_words(net: Any, shape: tuple[int, ...], kind: str) -> bool:
    return takes_words(net, jax.ShapeDtypeStruct((1, *shape), kind))


def _from_above(k: Any) -> Any:
    """A kernel [n, n, …], symmetric by what stands above the diagonal."""
    upper = jnp.triu(jnp.ones(k.shape[:2], bool))
    return jnp.where(upper.reshape(*upper.shape, *(1,) * (k.ndim - 2)), k, mirrored(k))


def _twin_of(value: Any) -> Any:
    return value.twin if isinstance(value, KernelFunction) else value


@checks.arguments()
def kernel_function(twin: Any, like: Any = None) -> KernelFunction:
    """The kernels of a limit as a function k(x1, x2, **hyperparameters) → (nngp, ntk) of JAX arrays.

    like: inputs [n, …] such as it will be called with. How large they make signals decides how long series are for activations
    without closed form; without it, inputs of size 2 do. A warning says, once, of larger inputs, and of numbers
    that make signals larger than the definition's do, what that costs; of what is being traced nothing is known.
    """
    forget_other_code(twin.net)
    if twin.deep:
        raise AbsentError(
            "kernel_function: the equation in layer time of an infinitely deep network is solved with steps chosen on the "
            "way, which have no derivatives. Take a network of finite depth, such as depth=64."
        )
    return KernelFunction(twin, like)
