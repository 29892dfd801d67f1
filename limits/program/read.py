"""The covariance reading: NNGP and NTK of a network, off the program of its forward pass."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels import hermite
from limits.program.averages import coefficients_of, has_closed_form
from limits.program.interpret import Interpreter
from limits.program.laws import laws
from limits.program.moments import CrossMoments, OwnMoments
from limits.program.nodes import Det, Node
from limits.program.trace import INPUTS, NetworkProgram, trace
from limits.program.values import Atom, NoLimitError, Parameter, Refused, Value, atoms, growth

_FIRST_ORDERS, _USUAL_ORDERS = 32, 256


class Series:
    """How long Hermite series are: asked for while reading, measured when inputs are first seen."""

    def __init__(self, table: dict[str, int] | None = None) -> None:
        self.table, self.missing, self.points = table, dict[str, float](), dict[int, int]()
        self.measured: dict[str, int] = {}

    def orders(self, function: Any) -> int:
        """Of the series of this function."""
        return _FIRST_ORDERS if self.table is None else self.table.get(function.name, _USUAL_ORDERS)

    def note(self, own: Any, function: Any, leaf: Any) -> None:
        """A series of this function may be needed, of a variable of this size."""
        if self.table is not None or has_closed_form(function):
            return

        a = np.asarray(coefficients_of(own, function, leaf, hermite.ORDERS[-1]))[:-1]
        squares = np.square(a).reshape(len(a), -1)
        total = np.maximum(squares.sum(0), 1e-300)
        missing = np.max(1 - np.cumsum(squares, 0) / total, axis=1)
        enough = next((n for n in hermite.ORDERS if missing[n - 1] < hermite.TOLERANCE), hermite.ORDERS[-1])
        self.measured[function.name] = max(enough, self.measured.get(function.name, 0))
        self.missing[function.name] = max(float(missing[enough - 1]), self.missing.get(function.name, 0.0))

    def quadrature(self, dimensions: int, count: int) -> None:
        """An average over so many variables was taken by quadrature."""
        self.points[dimensions] = count


@dataclasses.dataclass(frozen=True, eq=False)
class ProgramKernels:
    """The kernels of a network as functions of inputs: the program, and the parameters that it is read with."""

    program: NetworkProgram
    parameters: dict[str, Value | Refused]

    def measured(self, x: Any) -> Series:
        """How long series must be for these inputs."""
        with jax.numpy_rank_promotion("allow"):
            return self._measured(x)

    def _measured(self, x: Any) -> Series:
        series = Series()
        own = OwnMoments(series)
        f = self._output(x, own)
        own.second(f, f, False)
        own.tangent(f, f, False)
        return Series(series.measured)

    def __call__(self, x1: Any, x2: Any, series: Series) -> tuple[Any, Any]:
        """(NNGP, NTK) [n1, n2]; may be traced."""
        with jax.numpy_rank_promotion("allow"):  # numbers of the program stand beside arrays
            return self._kernels(x1, x2, series)

    def _kernels(self, x1: Any, x2: Any, series: Series) -> tuple[Any, Any]:
        own = OwnMoments(series)
        f = self._output(jnp.concatenate([jnp.asarray(x1), jnp.asarray(x2)]), own)
        cross = CrossMoments(own, len(x1), series)
        shape = len(x1), len(x2)
        found = []
        for part in (cross.second(f, f, False), cross.tangent(f, f, False)):
            found.append(jnp.zeros(shape) if part is None else jnp.broadcast_to(part.reshape(part.shape[:2]), shape))
        return found[0], found[1]

    def _output(self, x: Any, own: OwnMoments) -> Node:
        value = Interpreter(self.program, self.parameters, own).output(x)
        if isinstance(value.held, Det) or not isinstance(value.held, Node):
            raise NoLimitError("the output is deterministic in the limit: it is a mean over neurons")
        if any(atom.kind == "p" for atom in atoms(value.axes)) or [a.kind for a in atoms(value.axes)][:1] != ["b"]:
            raise NoLimitError("the output must be [inputs, outputs], one for all positions")
        return value.held


def read(
    init: Callable[[int, Any, Any], Any],
    apply: Callable[[int, Any, Any], Any],
    x: Any,
    rates: Callable[[str, Any], float],
) -> ProgramKernels:
    """The kernels of a network whose init(i, key, x) and apply(i, params, x) are of width N (i = 0) and 2N (i = 1).

    `x`: inputs [n, …], of which only the shape and type matter. rates(path, law) is the learning rate of a parameter.
    """
    with jax.enable_x64(True):
        kind = np.asarray(x).dtype
        kind = np.dtype("float64") if np.issubdtype(kind, np.floating) else kind
        shape = np.shape(x)[1:]
        at = [jax.ShapeDtypeStruct((n, *shape), kind) for n in (INPUTS, INPUTS, INPUTS + 1)]
        widths = (0, 1, 0)
        key = jax.random.key(0)
        params = [
            jax.eval_shape(lambda k, x, i=i: init(i, k, x), key, each) for i, each in zip(widths, at, strict=True)
        ]
        params = [jax.tree.map(_double, each) for each in params]
        program = trace(lambda t, p, x: apply(widths[t], p, x), list(zip(params, at, strict=True)))
        found = [laws(lambda k, x, i=i: init(i, k, x), at[0]) for i in (0, 1)]
    return ProgramKernels(program, _parameters(program, params[0], found, rates))


def _double(leaf: Any) -> Any:
    floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    return jax.ShapeDtypeStruct(leaf.shape, "float64") if floating else leaf


def _parameters(program: NetworkProgram, params: Any, found: list[Any], rates: Callable) -> dict[str, Value | Refused]:
    leaves = [jax.tree.leaves(each, is_leaf=lambda v: hasattr(v, "kind") or hasattr(v, "reason")) for each in found]
    made: dict[str, Value | Refused] = {}
    for (path, number), narrow, wide in zip(program.params.items(), *leaves, strict=True):
        sizes = program.shapes[number]
        reason = getattr(narrow, "reason", None)
        if reason is not None:
            made[path] = Refused(f"the parameter {path}: {reason}")
            continue
        axes = tuple(() if s == (1, 1, 1) else (Atom("n" if growth(s) else "p", s),) for s in sizes)
        origin = tuple(i for i, axis in enumerate(axes) for _ in axis)
        a, b = (law.variance**0.5 if law.variance else abs(law.mean) for law in (narrow, wide))
        power = np.log2(b / a) if a and b else 0.0
        made[path] = Value(axes, Parameter(path, (), (), narrow, rates(path, narrow), 1.0, float(power), origin))
    return made
