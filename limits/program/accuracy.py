"""How exact the averages of a reading are: lengths of Hermite series and errors of quadrature, measured on the inputs."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels import hermite
from limits.kernels.duals import ROUNDED, rounding, series_provenance
from limits.kernels.kinks import Kinked
from limits.program.functions import Function
from limits.types import Provenance

_FIRST_ORDERS, _USUAL_ORDERS = 32, 256
SAMPLES = 32  # of all inputs and positions, on which a series is measured, from the smallest signal to the largest
_ROUNDING = 1e-10
_SAID = 3  # inexact places in a provenance


@dataclasses.dataclass(frozen=True)
class SeriesLengths:
    """Orders of the Hermite series of each function, by its name. Nothing is measured.

    differentiable: whether results have derivatives, which takes memory and time. measured: on inputs such as there will be.
    """

    orders_by_name: tuple[tuple[str, int], ...] = ()
    differentiable: bool = False
    measured: bool = True

    def orders(self, function: Function) -> int:
        """Of the series of this function."""
        return dict(self.orders_by_name).get(function.name, _USUAL_ORDERS)

    def orders_of_slopes(self, function: Function) -> int:
        """Of how its averages move, which may be a series where they are not: all there are, where nobody knows."""
        found = dict(self.orders_by_name).get(function.name)
        return found if found and self.measured else hermite.ORDERS[-1]

    measures = False


class Measurement:
    """What one look at the inputs finds. Errors are arrays, which jax may trace; `finish` takes their numbers.

    `missing`: by function the shares of E f² beyond 32, 64, … orders; `wrong`: the relative error of E f² by quadrature; both on
    `samples` of the signals that it is met with; `reach`: the largest signal that one of no other numbers (`alone`) meets;
    `rules`: the error of averages over several variables; `places`: where a function stands in the network.
    """

    measures, differentiable = True, False

    def __init__(self, samples: int = SAMPLES) -> None:
        self.samples = samples
        self.missing, self.wrong, self.rules = dict[str, Any](), dict[str, Any](), dict[tuple, Any]()
        self.reach, self.lost, self.alone = dict[str, Any](), dict[str, Any](), dict[str, Function]()
        self.places, self.drawn = dict[Any, str](), dict[str, str]()
        self.largest = self.positions = 1  # entries of an array for one pair of inputs; positions of a field

    def orders(self, function: Function) -> int:
        """Variances are exact whatever the orders."""
        del function
        return _FIRST_ORDERS

    def series(self, function: Function, r: Any, dets: dict[int, Any], place: str) -> None:
        """A series of this function may be needed, of a variable of standard deviations r [n or 1, positions]."""
        shape = np.broadcast_shapes(r.shape, *(d.shape for d in dets.values()))
        flat = {key: jnp.broadcast_to(d, shape).ravel() for key, d in dets.items()}
        r = jnp.broadcast_to(r, shape).ravel()
        at = jnp.argsort(r)[np.unique(np.linspace(0, len(r) - 1, self.samples).astype(int))]

        def values(z: Any) -> Any:
            given = {id(leaf): r[at][:, None] * z for leaf in function.random}
            found = function(given, lambda det: flat[id(det)][at][:, None])
            return jnp.broadcast_to(found, (len(at), len(z)))

        z, table = hermite.nodes(hermite.ORDERS[-1])
        found = hermite.expanded(values(z), table)
        squares = found[:, :-1] ** 2
        coarse = jnp.matmul(values(z) ** 2, table[:, 0])
        kept = jnp.cumsum(squares, -1)[:, jnp.array(hermite.ORDERS) - 1]
        share = jnp.where(coarse[:, None] > 0, 1 - kept / jnp.where(coarse > 0, coarse, 1)[:, None], 0)
        fine = hermite.mean(lambda z: values(z) ** 2)
        wrong = jnp.where(fine > 0, 2 * jnp.abs(coarse - fine) / jnp.where(fine > 0, fine, 1), 0)
        self._larger(self.missing, function.name, share.max(0), place)
        self._larger(self.wrong, function.name, wrong.max(), place)
        if not function.dets and len(function.random) == 1:
            self._larger(self.reach, function.name, jnp.max(r), place)
            self.alone[function.name] = function

    def rounding(self, name: str, psi: Kinked, r: Any, place: str) -> None:
        """A closed form of this function, whose parts cancel where signals are large, is taken at standard deviations r."""
        self._larger(self.lost, name, jnp.max(rounding(psi, jnp.ravel(r))), place)

    def quadrature(self, key: tuple, found: Any, coarse: Any, size: Any, entries: int, place: str) -> None:
        """The same average by a rule and by a coarser one, and that of the absolute value, to which errors are relative.

        key: functions, number of variables and of points. entries: for one input, or pair of inputs.
        """
        self.largest = max(self.largest, key[-1] * entries)
        largest = jnp.max(size)
        error = jnp.max(jnp.abs(found - coarse)) / jnp.where(largest > 0, largest, 1)
        self._larger(self.rules, key, error, place)

    def not_gaussian(self, place: str, kind: str, inputs: int) -> None:
        """Weights that are not normal are summed over so few inputs."""
        self.drawn[place] = (
            f"the {kind} weights of {inputs} inputs are taken for normal ones: an error of order 1/{inputs}"
        )

    def add(self, other: "Measurement", found: tuple[dict, ...]) -> None:
        """What another one found, with these arrays in place of its own."""
        for mine, theirs in zip(self.arrays(), found, strict=True):
            for key, value in theirs.items():
                self._larger(mine, key, value, other.places[key])
        self.drawn |= other.drawn
        self.alone |= other.alone
        self.largest, self.positions = max(self.largest, other.largest), max(self.positions, other.positions)

    def _larger(self, table: dict, key: Any, value: Any, place: str) -> None:
        table[key] = jnp.maximum(table[key], value) if key in table else value
        self.places.setdefault(key, place)

    def arrays(self) -> tuple[dict, ...]:
        """What jax may have traced."""
        return self.missing, self.wrong, self.rules, self.lost, self.reach

    def finish(self, found: tuple[dict, ...]) -> tuple[SeriesLengths, Provenance]:
        """(the lengths that these inputs need, what that makes of the kernels)."""
        missing, wrong, rules, lost, reach = jax.tree.map(np.asarray, found)
        lengths, parts = {}, list[tuple[float, str]]()
        for name in self.missing:  # in the order in which they were met
            shares = missing[name]
            enough = np.flatnonzero(shares < hermite.TOLERANCE)
            i = int(enough[0]) if len(enough) else len(shares) - 1
            lengths[name], left = hermite.ORDERS[i], 0.0 if len(enough) else self._left(name, shares, i, reach)
            how = series_provenance(lengths[name], left, float(wrong[name]))
            if how.kind != "exact":
                parts.append((max(left, float(wrong[name])), f"{self.places[name]}: {how.detail}"))
        for name, share in lost.items():
            if share > _ROUNDING:
                parts.append((float(share), f"{self.places[name]}: {ROUNDED.format(share)}"))
        largest = dict[tuple, float]()  # of the averages at one place
        for key, error in rules.items():
            at = self.places[key], *key[-2:]
            largest[at] = max(largest.get(at, 0.0), float(error))
        for (place, variables, points), error in largest.items():
            if error > _ROUNDING:
                said = f"averages over {variables} variables by {points} points, an error of about {error:.0e}"
                parts.append((error, f"{place}: {said}"))
        parts += [(1.0, f"{place}: {said}") for place, said in self.drawn.items()]
        return SeriesLengths(tuple(lengths.items())), _provenance(parts, lengths)

    def error(self, found: tuple[dict, ...], lengths: SeriesLengths) -> float:
        """The largest error of E f² that series of these lengths, made for other inputs, have for those of `found`."""
        missing, reach = (jax.tree.map(np.asarray, found[i]) for i in (0, -1))
        known = dict(lengths.orders_by_name)
        return max(
            (
                self._left(name, missing[name], hermite.ORDERS.index(known[name]), reach)
                for name in known
                if name in missing
            ),
            default=0.0,
        )

    def _left(self, name: str, shares: np.ndarray, i: int, reach: dict[str, Any]) -> float:
        """The error of a series of `ORDERS[i]` orders; beyond the last of all, orders are continued."""
        left = 2.1 * float(shares[i])
        if left > _ROUNDING and name in self.alone and i == len(shares) - 1:
            left = min(left, hermite.error_of_continuing(_of_numbers(self.alone[name]), float(reach[name])))
        return left


def _of_numbers(function: Function) -> Any:
    """A function of one variable and nothing else, of arrays."""
    (leaf,) = function.random
    return lambda x: jnp.broadcast_to(function({id(leaf): x}, lambda det: det.array), jnp.shape(x))


def _provenance(parts: list[tuple[float, str]], lengths: dict[str, int]) -> Provenance:
    if not parts:
        series = f" and Hermite series of up to {max(lengths.values())} orders, to rounding" if lengths else ""
        return Provenance("exact", f"read off the forward code: closed forms{series}")
    said = list(dict.fromkeys(text for _, text in sorted(parts, reverse=True)))
    more = f"; and {len(said) - _SAID} more places" if len(said) > _SAID else ""
    return Provenance("approximate", f"read off the forward code. {'; '.join(said[:_SAID])}{more}")
