"""The record of a training run, finite or infinite: one type, so that a comparison is a subtraction."""

import dataclasses
import json
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from limits.finite.observables import OBSERVABLES
from limits.kept.identity import version
from limits.kept.store import DamagedError, has_checksum, npz_bytes, read_npz, write_whole
from limits.types import Provenance, _KnowsAbsence
from zoo import checks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KERNELS = tuple(OBSERVABLES)
QUANTITIES = ("loss", "test_loss", "f_train", "f_test", *KERNELS, "f_train_cov", "f_test_cov")


@checks.arguments()
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Trajectory(_KnowsAbsence):
    """What `ensemble`, `lazy` and `rich` return, by recorded time.

    `times` counts steps. loss, test_loss: [time], means over initialisations. f_train, f_test: [time, n, outputs]; where a task
    has targets at positions, n are those that count, sample by sample (`Task.at_points`), also of ntk and of the spreads.
    phi, g: a tuple by layer of [time, n, n], ntk and features (Φ of what enters the readout): [time, n, n]; train points, then
    test points; at `kernel_times`, where that is not None. f_train_cov, f_test_cov: [time, n, n], the spread of an output over
    initialisations, averaged over outputs. NAME_sem is the standard error of NAME (zero where it is exact). `observed` holds
    the user's own observables, `reduced` what `reduce=` made of single runs, [run, …].

    One with `runs` holds single runs, not means: its arrays have a first axis of so many members of an ensemble, or sweeps.

    `save`, `load`, `plot` and `-` do what they say; the difference carries the errors of both sides.

    >>> t = Trajectory(times=np.arange(2), loss=np.array([1.0, 0.5]), errors={"loss": np.array([0.1, 0.1])})
    >>> float((t - t).loss[1]), round(float((t - t).loss_sem[1]), 4)
    (0.0, 0.1414)
    """

    times: np.ndarray
    loss: Any = None
    test_loss: Any = None
    f_train: Any = None
    f_test: Any = None
    phi: Any = None
    g: Any = None
    ntk: Any = None
    features: Any = None
    f_train_cov: Any = None
    f_test_cov: Any = None
    errors: dict[str, Any] = dataclasses.field(default_factory=dict)
    observed: dict[str, Any] = dataclasses.field(default_factory=dict)
    provenance: dict[str, Provenance] = dataclasses.field(default_factory=dict)
    source: str = ""
    reduced: dict[str, Any] = dataclasses.field(default_factory=dict)
    kernel_times: Any = None
    runs: int | None = None

    @property
    def f(self) -> np.ndarray:
        """The outputs of all points, train then test: [time, n, outputs]."""
        return np.concatenate([self.f_train, self.f_test], axis=-2)

    @property
    def times_of_kernels(self) -> np.ndarray:
        """The steps at which kernels were recorded."""
        return self.times if self.kernel_times is None else self.kernel_times

    def __getattr__(self, name: str) -> Any:
        base = name.removesuffix("_sem")
        if base == name or base not in (*QUANTITIES, *self.observed):
            raise AttributeError(
                f"Trajectory has no quantity {name}; it has {', '.join(QUANTITIES)} and NAME_sem of each."
            )
        if base in self.errors:
            return self.errors[base]
        value = self.observed[base] if base in self.observed else getattr(self, base)
        return None if value is None else _map(np.zeros_like, value)

    def __repr__(self) -> str:
        held = [name for name in QUANTITIES if self.has(name)]
        return f"Trajectory({self.source or 'run'}: {len(self.times)} times up to step {self.times[-1]}; {', '.join(held)})"

    def __sub__(self, other: Any) -> "Trajectory":
        if not isinstance(other, Trajectory):
            raise ValueError(f"Only subtract a Trajectory from a Trajectory; got {other!r}.")
        if not np.array_equal(self.times, other.times):
            raise ValueError(f"These trajectories were recorded at other times: {self.times} and {other.times}.")
        if not np.array_equal(self.times_of_kernels, other.times_of_kernels):
            raise ValueError(
                "These trajectories hold kernels of other times (kernel_times): "
                f"{self.times_of_kernels} and {other.times_of_kernels}."
            )
        both = [name for name in QUANTITIES if self.has(name) and other.has(name)]
        for name in both:
            mine, theirs = (_map(np.shape, getattr(run, name)) for run in (self, other))
            if mine != theirs:
                raise ValueError(
                    f"These trajectories hold {name} of other shapes, {mine} and {theirs}: subtract runs of one task and of "
                    "definitions with equal outputs and layers."
                )
        values = {name: _map(np.subtract, getattr(self, name), getattr(other, name)) for name in both}
        errors = {name: _map(np.hypot, getattr(self, f"{name}_sem"), getattr(other, f"{name}_sem")) for name in both}
        observed = {}
        for name in self.observed.keys() & other.observed.keys():
            mine, theirs = self.observed[name], other.observed[name]
            if name != "fields" and _alike(mine, theirs):  # samples of two runs are of other neurons
                observed[name] = jax.tree.map(np.subtract, mine, theirs)
                errors[name] = jax.tree.map(np.hypot, getattr(self, f"{name}_sem"), getattr(other, f"{name}_sem"))
        provenance = {
            name: _of_difference((self.source, self.provenance[name]), (other.source, other.provenance[name]))
            for name in both
            if name in self.provenance and name in other.provenance
        }
        source = f"{self.source} − {other.source}"
        return Trajectory(
            self.times,
            **values,
            errors=errors,
            observed=observed,
            provenance=provenance,
            kernel_times=self.kernel_times,
            source=source,
        )

    def save(self, path: "str | Path") -> Path:
        """Writes everything into one .npz file and returns its path."""
        path = _npz(path)
        arrays: dict[str, np.ndarray] = {"times": np.asarray(self.times)}
        if self.kernel_times is not None:
            arrays["kernel_times"] = np.asarray(self.kernel_times)
        tables = {"value": self._values(), "error": self.errors, "observed": self.observed, "reduced": self.reduced}
        for prefix, table in tables.items():
            for name, value in table.items():
                parts = enumerate(value) if isinstance(value, tuple) else [("", value)]
                arrays.update({f"{prefix}/{name}/{i}": np.asarray(part) for i, part in parts})
        notes = {name: [p.kind, p.detail] for name, p in self.provenance.items()}
        about = {"source": self.source, "provenance": notes, "runs": self.runs, "version": version()}
        arrays["notes"] = np.array(json.dumps(about))
        write_whole(path, npz_bytes(arrays, compressed=True))
        return path

    @classmethod
    @checks.arguments(path=checks.path)
    def load(cls, path: "str | Path") -> "Trajectory":
        """Reads what `save` wrote, if its checksum holds; files of versions that wrote none are read as they are."""
        path, tables = _npz(path), {"value": {}, "error": {}, "observed": {}, "reduced": {}}
        try:
            data = path.read_bytes()
            with read_npz(data) as file:
                for key in file.files:
                    if "/" in key:
                        prefix, name, index = key.split("/")
                        if index:
                            tables[prefix].setdefault(name, {})[int(index)] = file[key]
                        else:
                            tables[prefix][name] = file[key]
                notes, times = json.loads(str(file["notes"])), file["times"]
                kernel_times = file["kernel_times"] if "kernel_times" in file.files else None
        except FileNotFoundError as error:
            raise FileNotFoundError(f"Trajectory.load: there is no file at the path {path}.") from error
        except (DamagedError, KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise DamagedError(
                f"Trajectory.load: the path {path} has nothing that save wrote, or it is damaged: {error}."
            ) from error
        if "version" in notes and not has_checksum(data):
            raise DamagedError(f"{path} is damaged: its checksum is missing.")
        for table in tables.values():
            for name, value in table.items():
                if isinstance(value, dict):
                    table[name] = tuple(value[i] for i in range(len(value)))
        provenance = {name: Provenance(*entry) for name, entry in notes["provenance"].items()}
        absent = {name: p for name, p in provenance.items() if p.kind == "absent"}
        return cls(
            times,
            **(absent | tables["value"]),
            errors=tables["error"],
            observed=tables["observed"],
            provenance=provenance,
            source=notes["source"],
            reduced=tables["reduced"],
            kernel_times=kernel_times,
            runs=notes.get("runs"),
        )

    @checks.arguments(what=checks.choice("curves", "kernels", "fields"), point=checks.whole)
    def plot(self, what: str = "curves", point: int = 0) -> "Figure":
        """A matplotlib figure: "curves" (loss, predictions and kernels over time), "kernels" (as pictures, first and last
        time), or "fields" (histograms over neurons at one point, for record=("fields",))."""
        from limits import plots

        drawn = {"curves": plots.plot_trajectory, "kernels": plots.plot_kernels, "fields": plots.plot_fields}
        return drawn[what](self, point) if what == "fields" else drawn[what](self)

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in QUANTITIES if self.has(name)}


def _of_difference(*sides: tuple[str, Provenance]) -> Provenance:
    """That of a difference of two sides, (source, where its number comes from)."""
    kinds = {how.kind for _, how in sides}
    kind: Any = next(kind for kind in ("monte_carlo", "approximate", "exact") if kind in kinds)
    said = (f"{source or 'run'}: {how.kind}{', ' * bool(how.detail)}{how.detail}" for source, how in sides)
    return Provenance(kind, " − ".join(said))


def _npz(path: "str | Path") -> Path:
    """The path with .npz at its end; "gamma_0.5" keeps its point."""
    path = Path(path)
    return path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")


def _alike(one: Any, other: Any) -> bool:
    """Whether these are trees of numbers that can be subtracted."""
    (a, tree), (b, same) = jax.tree.flatten(one), jax.tree.flatten(other)
    numbers = all(np.asarray(each).dtype.kind in "biufc" for each in (*a, *b))
    return bool(a) and tree == same and numbers and list(map(np.shape, a)) == list(map(np.shape, b))


def _map(function: Any, *values: Any) -> Any:
    if isinstance(values[0], tuple | list):
        return tuple(_map(function, *parts) for parts in zip(*values, strict=True))
    if isinstance(values[0], dict):
        return {name: _map(function, *(value[name] for value in values)) for name in values[0]}
    return function(*values)
