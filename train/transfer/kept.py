"""Runs of one size, kept one by one: a run is its hyperparameters and its seed; what is asked for later is trained besides."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from limits.kept.store import Store
from train.transfer.sweep import Sweep, losses_of
from train.transfer.tuning import Tuning

Key = tuple[float, ...]  # the hyperparameters of a run in the order of their names, then its seed


@dataclasses.dataclass(frozen=True)
class KeptRuns:
    """`jobs` {hyperparameter: [run]}, `seeds` [run], `curves` [run, step]: not a number from the step on at which a run was
    stopped, infinite from where it diverged. `scores` [run]: what is scored instead of the training loss at the end, or nothing.
    `seconds` [run] that each took, `parameters` [run] of its network.
    """

    jobs: dict[str, np.ndarray]
    seeds: np.ndarray
    curves: np.ndarray
    scores: np.ndarray
    seconds: np.ndarray
    parameters: np.ndarray

    @classmethod
    def of(
        cls,
        jobs: Mapping[str, np.ndarray],
        seeds: np.ndarray,
        curves: np.ndarray,
        scores: np.ndarray | None = None,
        seconds: float = 0.0,
        parameters: float = math.nan,
    ) -> "KeptRuns":
        """Of arrays over runs; seconds of all of them together, parameters of each."""
        count = len(seeds)
        return cls(
            {name: np.asarray(jobs[name], float) for name in sorted(jobs)},
            np.asarray(seeds, int),
            np.asarray(curves, float),
            np.zeros(0) if scores is None else np.asarray(scores, float),
            np.full(count, seconds / max(count, 1)),
            np.full(count, float(parameters)),
        )

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def places(self) -> dict[Key, int]:
        """Where each run is."""
        values = np.column_stack([*self.jobs.values(), self.seeds.astype(float)]).tolist()
        return {tuple(key): i for i, key in enumerate(values)}

    @property
    def finished(self) -> np.ndarray:
        """Whether each run was trained to its end, or diverged."""
        return ~np.isnan(self.curves[:, -1])

    @property
    def losses(self) -> np.ndarray:
        """Of each run what `Sweep.losses` has of it, not a number where it was given up."""
        return losses_of(self.curves, self.scores if len(self.scores) else None)

    def joined(self, others: "KeptRuns | None") -> "KeptRuns":
        """With these besides; where both have a run, the one that went farther, and of equals this one's own."""
        if others is None:
            return self
        if list(others.jobs) != list(self.jobs) or others.curves.shape[1] != self.curves.shape[1]:
            raise ValueError(
                f"Runs over {', '.join(self.jobs)} with {self.curves.shape[1]} steps cannot be joined to runs over "
                f"{', '.join(others.jobs)} with {others.curves.shape[1]} steps."
            )
        done, there = self.finished, self.places
        goes_farther = {
            key: i
            for key, i in others.places.items()
            if key not in there or (others.finished[i] and not done[there[key]])
        }
        better = list(goes_farther.values())
        replaced = {there[key] for key in goes_farther if key in there}
        stays = [i for i in range(len(self)) if i not in replaced]

        def both(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
            return np.concatenate([mine[stays], theirs[better]]) if len(mine) == len(self) else mine

        return KeptRuns(
            {name: both(value, others.jobs[name]) for name, value in self.jobs.items()},
            both(self.seeds, others.seeds), both(self.curves, others.curves),
            both(self.scores, others.scores), both(self.seconds, others.seconds), both(self.parameters, others.parameters),
        )  # fmt: skip

    def table(self, dial: str, setting: Mapping[str, float]) -> "Tried":
        """What was tried of one setting of the other hyperparameters."""
        among = are(self.jobs, setting)
        x, seeds = np.unique(self.jobs[dial][among]), np.unique(self.seeds[among])
        place = np.full((len(x), len(seeds)), -1)
        rows = np.searchsorted(x, self.jobs[dial][among]), np.searchsorted(seeds, self.seeds[among])
        place[rows] = np.flatnonzero(among)
        return Tried(self, x, seeds, place)


@dataclasses.dataclass(frozen=True)
class Tried:
    """Of one setting: ascending `values`, `seeds`, and which run is the one of each [value, seed]; −1: none."""

    runs: KeptRuns
    values: np.ndarray
    seeds: np.ndarray
    run: np.ndarray

    @property
    def lost(self) -> np.ndarray:
        """Values at which a run diverged."""
        curves = np.where((self.run >= 0)[..., None], self.runs.curves[self.run], np.nan)
        return np.asarray(np.isinf(losses_of(curves)).any(1))

    @property
    def there(self) -> np.ndarray:
        """Whether a run is there and was trained to its end, [value, seed]."""
        return (self.run >= 0) & self.runs.finished[self.run]

    @property
    def pairs(self) -> set[tuple[float, int]]:
        """(value, number of the seed) of all runs that were not given up."""
        return {(float(self.values[i]), int(j)) for i, j in np.argwhere(self.there)}

    @property
    def tuning(self) -> Tuning:
        """What all of them took, also those that were given up."""
        among = self.run[self.run >= 0]
        steps = (~np.isnan(self.runs.curves[among])).sum(1)
        return Tuning(len(among), float(self.runs.parameters[among] @ steps), float(self.runs.seconds[among].sum()))

    def grid(self, width: float, depth: int, values: Sequence[float], seeds: Sequence[int]) -> Sweep | None:
        """The runs of these values and seeds, None where one is missing."""
        x, s = np.sort(np.asarray(values, float)), np.asarray(seeds, int)
        if not (np.isin(x, self.values).all() and np.isin(s, self.seeds).all()):
            return None
        part = np.ix_(np.searchsorted(self.values, x), np.searchsorted(self.seeds, s))
        return self._sweep(width, depth, x, self.run[part]) if self.there[part].all() else None

    def seeds_of(self, least: int = 3) -> int:
        """The most first seeds that this many values have, or as many as there are; of values that do not diverge."""
        steady = self.there[~self.lost]
        if not len(steady):
            return len(self.seeds)
        depth = np.sort(np.cumprod(steady, axis=1).sum(1))[::-1]
        depth = depth[: max(int(np.count_nonzero(depth)), 1)]
        return int(depth[min(least, len(depth)) - 1])

    def core(self, width: float, depth: int, least: int = 3) -> Sweep | None:
        """The values that have the first `seeds_of` seeds, and those that diverge; others are left out.

        A seed that was not tried at a value that diverges counts as diverged: so does the value.
        """
        count = self.seeds_of(least)
        whole = self.lost | self.there[:, :count].all(1)
        if not count or not whole.any():
            return None
        return self._sweep(width, depth, self.values[whole], self.run[whole, :count])

    def _sweep(self, width: float, depth: int, x: np.ndarray, run: np.ndarray) -> Sweep:
        curves = np.where((run >= 0)[..., None], self.runs.curves[run], np.inf)
        curves = np.where(np.isnan(curves), np.inf, curves)  # stopped, at a value that diverges
        scores = None
        if len(self.runs.scores):
            scores = np.where((run >= 0) & self.runs.finished[run], self.runs.scores[run], np.inf)
        return Sweep(width, depth, x, curves, scores)


def are(jobs: Mapping[str, np.ndarray], setting: Mapping[str, float]) -> np.ndarray:
    """Which of these runs, {hyperparameter: [run]}, are of this setting, [run]."""
    among = np.full(len(next(iter(jobs.values()))), True)
    for name, value in setting.items():
        among &= jobs[name] == float(value)
    return among


def missing(
    runs: KeptRuns | None, jobs: Mapping[str, np.ndarray], seeds: np.ndarray, given_up: bool = True
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Of these runs (jobs {hyperparameter: [run]}, seeds [run]) those that are not there; given_up: or were given up."""
    wanted = KeptRuns.of(jobs, seeds, np.zeros((len(seeds), 1)))
    there = set() if runs is None else {key for key, i in runs.places.items() if not given_up or runs.finished[i]}
    lacks = [i for key, i in wanted.places.items() if key not in there]
    return {name: value[lacks] for name, value in wanted.jobs.items()}, wanted.seeds[lacks]


def held(file: Path) -> KeptRuns | None:
    """What `keep` wrote, None where there is nothing that can be trusted."""
    found = Store(file.parent).get(file.stem)
    return None if found is None else KeptRuns(**{"parameters": np.full(len(found["seeds"]), np.nan), **found})


def keep(file: Path, runs: KeptRuns) -> None:
    """All runs of a size in one file, which grows."""
    Store(file.parent).put(file.stem, {each.name: getattr(runs, each.name) for each in dataclasses.fields(runs)})


def complete(
    file: Path, jobs: Mapping[str, np.ndarray], seeds: np.ndarray, train: Callable[..., KeptRuns]
) -> KeptRuns | None:
    """Trains, by train(jobs, seeds), what is missing of these runs, and keeps it; None where nothing is, nor where another
    process in this folder was faster."""
    if not len(missing(held(file), jobs, seeds)[1]):  # a folder of finished runs need not be one to write in
        return None
    with Store(file.parent).lock(file.stem):
        lacks = missing(held(file), jobs, seeds)
        if not len(lacks[1]):
            return None
        trained = train(*lacks)
        keep(file, trained.joined(held(file)))  # read again: some file systems have no locks
    return trained
