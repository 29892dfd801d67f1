"""The covariance reading: NNGP and NTK of a network, off the program of its forward pass."""

import contextlib
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.finite.forward import mixes_inputs
from limits.program.accuracy import SAMPLES, Measurement, SeriesLengths
from limits.program.deep import compared
from limits.program.ended import with_signs
from limits.program.interpret import Interpreter
from limits.program.loops import Loops
from limits.program.nodes import Det, Key, Node, law_at_start
from limits.program.numbers_in_depth import multiplied_out
from limits.program.outward import numbers_of, outward
from limits.program.rolled import ReadMoments, Rolling, plans_of
from limits.program.shapes import settled
from limits.program.simplified import simplified
from limits.program.stacks import taken_apart
from limits.program.trace import INPUTS, NetworkProgram, trace
from limits.program.values import Atom, NoLimitError, Parameter, Refused, Value, growth, reason_of
from limits.program.weighed_sums import as_products, each_law
from limits.types import Provenance
from zoo.laws import laws
from zoo.layers import convolutions

KERNELS = ("nngp", "ntk")
TOLERANCE = 1e-10  # of infinite depth
_SINGLE = "its code was traced in float32, which a loop or indices in it begin with: numbers are off by up to 6e-8 of themselves"
_LOOKED = 1e-6  # tolerance of a first look at infinite depth
_PAIRS = 2  # inputs on either side of pairs that are looked at
_FRAMES = 50_000  # of Python, for the recursion through a deep network


@dataclasses.dataclass(frozen=True, eq=False)
class ProgramKernels:
    """The kernels of a network as functions of inputs: the program, and the parameters that it is read with.

    roll: whether loops are read once (at infinite depth, always); else block after block. tolerance: of infinite depth.
    """

    program: NetworkProgram
    parameters: dict[str, Value | Refused]
    flow: Any = None  # at infinite depth, what its numbers do (`deep.Depths`)
    varied: Any = None  # how its numbers go with those of the network (`varied.Dependence`)
    single: bool = False  # the numbers of its code are those of float32

    @property
    def deep(self) -> bool:
        """Whether there are infinitely many blocks."""
        return self.flow is not None

    @functools.cached_property
    def loops(self) -> Loops:
        """Equal blocks of the program."""
        return Loops(self.program, self._signature, self.varied and self.varied.constants)

    def _signature(self, path: str) -> Any:
        value = self.parameters[path]
        if isinstance(value, Refused):
            return path
        if self.varied is not None and path in self.varied.parameters:
            return *self._law(value), self.varied.parameters[path]
        return self._law(value)

    def _law(self, value: Value) -> tuple:
        held = value.held
        law = held.law
        return value.axes, held.rate, held.growth, held.factor, law.mean, law.variance, law.gaussian, law.kind

    def law(self, operand: Any) -> Any:
        """Equal for parameters of one law; None for what is none."""
        path = self._names.get(operand) if isinstance(operand, int) else None
        return None if path is None else self._signature(path)

    @functools.cached_property
    def _names(self) -> dict[int, str]:
        return {number: path for path, number in self.program.params.items()}

    @functools.cached_property
    def masks(self) -> tuple[str, ...]:
        """Where zeros and ones are drawn, as dropout does: two inputs have independent ones, an input and itself the same."""
        return tuple(e.where for e in self.program.equations if e.primitive == "bernoulli")

    @functools.cached_property
    def positions(self) -> tuple[int, ...]:
        """Of outputs [inputs, *positions, outputs], between whose pairs kernels then are."""
        output = self.program.output
        shape = next((e.shapes[e.outputs.index(output)] for e in self.program.equations if output in e.outputs), ())
        return tuple(sizes[0] for sizes in shape[1:-1])

    def at_infinite_depth(self, deeper: "ProgramKernels") -> "ProgramKernels":
        """The limit of infinite depth, from this reading and that of a deeper network; `NoLimitError` where there is none."""
        pair = [dataclasses.replace(each, program=multiplied_out(each.program)) for each in (self, deeper)]
        fixed = set.intersection(*(numbers_of(each.program, each.parameters) for each in pair))

        def plans(kernels: ProgramKernels) -> dict:
            (number,) = kernels.program.inputs
            x = jnp.ones((1, *(sizes[0] for sizes in kernels.program.shapes[number][1:])))
            with _reading():
                ask = lambda rolling: kernels._forms(x, rolling, ("nngp",))  # noqa: E731
                return plans_of(ask, kernels.loops, lambda: ReadMoments(SeriesLengths(), 1, None), True)

        def limit(fixed: set[str]) -> ProgramKernels:
            a, b = (dataclasses.replace(each, **outward(each.program, each.parameters, fixed)) for each in pair)
            return dataclasses.replace(a, flow=compared((a, b), (plans(a), plans(b))))

        try:
            return limit(fixed)
        except NoLimitError:  # a number at one depth may be, by chance, another one of those at the other
            return limit(set())

    def look(self, x: Any, roll: bool = True, samples: int = SAMPLES) -> tuple[Measurement, dict[str, str]]:
        """(what the averages for these inputs need, why kernels that have no closed form have none); may be traced.

        samples: of the signals of these inputs, on which series are measured.
        """
        refused = dict[str, str]()

        def ask(rolling: Rolling, names: Sequence[str] = KERNELS) -> None:
            for name in names:
                refused.pop(name, None)
            f = self._output(x, rolling)
            for name in names:
                try:
                    rolling.moments.form(f, self._key(1, name))
                except NoLimitError as error:
                    refused[name] = reason_of(error)

        with _reading():
            loops = self.loops if roll else None
            new = lambda: ReadMoments(Measurement(samples), len(x), None)  # noqa: E731
            try:
                plans_of(ask, loops, new, self.deep)
                good = [name for name in KERNELS if name not in refused]
                plans = plans_of(lambda rolling: self._forms(x, rolling, good), loops, new, self.deep)
                rolling = Rolling(loops, new(), plans, self.flow, _LOOKED)
                ask(rolling, good)  # of the others loops carry nothing
                if rolling.moments.series.rules:
                    self._look_at_pairs(x, rolling.moments.series, loops, good)
            except NoLimitError as error:
                refused |= dict.fromkeys(KERNELS, reason_of(error))
                return Measurement(), refused
        if self.single:
            rolling.moments.series.drawn["the network"] = _SINGLE
        return rolling.moments.series, refused

    def _look_at_pairs(self, x: Any, seen: Measurement, loops: Loops | None, names: Sequence[str]) -> None:
        """Averages over several variables of each input are over twice as many of a pair of inputs, and less exact."""
        few = x[np.arange(2 * _PAIRS) % len(x)]
        new = lambda: ReadMoments(Measurement(seen.samples), len(few), _PAIRS)  # noqa: E731
        plans = plans_of(lambda rolling: self._forms(few, rolling, names), loops, new, self.deep)
        rolling = Rolling(loops, new(), plans, self.flow, _LOOKED)
        self._forms(few, rolling, names)
        seen.add(rolling.moments.series, rolling.moments.series.arrays())

    def power(self, x: Any) -> float | None:
        """The power of N with which the output's size goes, for inputs like x; None without a limit. Nothing is computed."""
        found: list[float | None] = [None]

        def traced(x: Any) -> None:
            with _reading(), contextlib.suppress(NoLimitError):
                moments = ReadMoments(SeriesLengths(), len(x), None)
                found[0] = self._output(x, Rolling(self.loops, moments, None)).power

        jax.eval_shape(traced, x)
        return found[0]

    def start(self, x: Any) -> tuple[str, str]:
        """(what outputs are before training, for inputs like x; why their tangent kernel is not read, or "").

        "": a centred Gaussian process, or no limit; "mean": around a mean that is not zero; "other". Nothing is computed.
        """
        found = ["", ""]

        def traced(x: Any) -> None:
            with _reading():
                try:
                    moments = ReadMoments(SeriesLengths(), len(x), None)
                    f = self._output(x, Rolling(self.loops, moments, None))
                    found[0] = law_at_start(f)
                    moments.form(f, self._key(1, "ntk"))
                except NoLimitError as error:
                    found[1] = reason_of(error)

        jax.eval_shape(traced, x)
        return found[0], found[1]

    def __call__(
        self,
        x1: Any,
        x2: Any,
        lengths: SeriesLengths,
        names: tuple[str, ...] = KERNELS,
        roll: bool = True,
        tolerance: Any = TOLERANCE,
        ratios: Sequence[Any] = (),
    ) -> dict[str, Any]:
        """These kernels [n1, n2, *positions, *positions]; may be traced.

        ratios: numbers of the network over those that it was read with (`varied`).
        """
        x = jnp.concatenate([jnp.asarray(x1), jnp.asarray(x2)])
        return self._read(x, lambda: ReadMoments(lengths, len(x), len(x1)), names, roll, tolerance, ratios)

    def diagonal(
        self,
        x: Any,
        lengths: SeriesLengths,
        names: tuple[str, ...] = KERNELS,
        roll: bool = True,
        tolerance: Any = TOLERANCE,
        ratios: Sequence[Any] = (),
    ) -> dict[str, Any]:
        """These kernels of each input with itself [n, *positions, *positions]; may be traced."""
        return self._read(x, lambda: ReadMoments(lengths, len(x), None), names, roll, tolerance, ratios)

    def _read(
        self,
        x: Any,
        moments: Callable[[], ReadMoments],
        names: Sequence[str],
        roll: bool,
        tolerance: Any,
        ratios: Sequence[Any],
    ) -> dict[str, Any]:
        loops = self.loops if roll else None
        with _reading():
            plans = plans_of(lambda rolling: self._forms(x, rolling, names, ratios), loops, moments, self.deep)
            return self._forms(x, Rolling(loops, moments(), plans, self.flow, tolerance), names, ratios)

    def _forms(self, x: Any, rolling: Rolling, names: Sequence[str], ratios: Sequence[Any] = ()) -> dict[str, Any]:
        f, moments = self._output(x, rolling, ratios), rolling.moments
        batch = 1 if moments.cross is None else 2
        found = {name: moments.form(f, self._key(batch, name)) for name in names}
        return {name: a.reshape(*a.shape[:batch], *2 * self.positions) for name, a in found.items()}

    def _output(self, x: Any, rolling: Rolling, ratios: Sequence[Any] = ()) -> Node:
        parameters = self.parameters if self.varied is None else self.varied.laws(self.parameters, ratios)
        interpreter = Interpreter(self.program, parameters, rolling.moments.own, rolling)
        if self.varied is not None:
            interpreter.changed = self.varied.values(self.program.equations, ratios)
        if self.flow is not None:
            interpreter.changed = self.flow.values(jnp.zeros(3))
        value = interpreter.output(x)
        if isinstance(value.held, Det) or not isinstance(value.held, Node):
            raise NoLimitError(
                "the output is a mean or a sum over neurons without weights of its own: a mean is deterministic in the limit, "
                "and what a sum fluctuates by is read of products of layers alone. End with a readout, a layer of weights"
            )
        kinds = [[atom.kind for atom in axis] for axis in value.axes]
        if kinds[:1] != [["b"]] or "p" in kinds[-1] or any(kind not in ([], ["p"]) for kind in kinds[1:-1]):
            raise NoLimitError("the output must be [inputs, outputs], or [inputs, positions, outputs]")
        return settled(value)

    def _key(self, batch: int, name: str) -> Key:
        return Key(batch, "second" if name == "nngp" else "tangent", bool(self.positions))


_deep = threading.Lock()
_readers = {"count": 0, "before": 0}


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Numbers of the program may stand beside arrays, and recursion may go as deep as the network, in all threads."""
    with _deep:
        if not _readers["count"]:
            _readers["before"] = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_readers["before"], _FRAMES))
        _readers["count"] += 1
    try:
        with jax.numpy_rank_promotion("allow"):
            yield
    finally:
        with _deep:
            _readers["count"] -= 1
            if not _readers["count"]:
                sys.setrecursionlimit(_readers["before"])


def measured(kernels: ProgramKernels, x: Any) -> tuple[SeriesLengths, Provenance]:
    """(how long series must be for these inputs, what that makes of the kernels); `NoLimitError` where there is none."""
    seen, refused = kernels.look(x)
    if refused:
        raise NoLimitError("; ".join(dict.fromkeys(refused.values())))
    return seen.finish(seen.arrays())


def read(
    init: Callable[[int, Any, Any], Any],
    apply: Callable[[int, Any, Any], Any],
    x: Any,
    rates: Callable[[str, Any], float],
    single: bool = False,
) -> ProgramKernels:
    """The kernels of a network whose init(i, key, x) and apply(i, params, x) are of width N (i = 0) and 2N (i = 1).

    `x`: inputs [n, …], of which only the shape and type matter. rates(path, law) is the learning rate of a parameter.
    single: its code is traced in float32, which is said of what it gives.
    """
    with jax.enable_x64(not single):
        kind = np.asarray(x).dtype
        kind = np.dtype("float32" if single else "float64") if np.issubdtype(kind, np.floating) else kind
        shape = np.shape(x)[1:]
        at = [jax.ShapeDtypeStruct((n, *shape), kind) for n in (INPUTS, INPUTS, INPUTS + 1)]
        key = jax.eval_shape(jax.random.key, 0)
        starts = [jax.jit(functools.partial(init, i)) for i in (0, 1)]  # traced once for shapes and laws
        params = [jax.eval_shape(start, key, at[0]) for start in starts]
        params = params if single else jax.tree.map(_double, params)
        if mixes_inputs(params[0]):
            raise NoLimitError("batch statistics: the kernel of a pair depends on the other inputs")
        params = [params[i] for i in (0, 1, 0)]
        with convolutions():
            program = simplified(trace(lambda t, p, x: apply(t % 2, p, x), list(zip(params, at, strict=True))))
        found = [laws(start, at[0]) for start in starts]
        program = taken_apart(as_products(program, found[0]))
    with _reading():
        program, parameters = with_signs(program, _parameters(program, found, rates), at[0])
    return ProgramKernels(program, parameters, single=single)


def _double(leaf: Any) -> Any:
    floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    return jax.ShapeDtypeStruct(leaf.shape, "float64") if floating else leaf


def _parameters(program: NetworkProgram, found: list[Any], rates: Callable) -> dict[str, Value | Refused]:
    leaves = [each_law(laws) for laws in found]
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
