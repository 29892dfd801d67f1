"""Regression with the kernels of limits on whole data sets: plan, tiles on disk, ridge by leave-one-out, accuracy."""

import dataclasses
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from rich.console import Console

from limits import Share, UnfinishedError, predict, twin
from limits.predict import RidgePath
from train.data.normalise import normalisation
from train.data.sources import source
from train.evaluate.report import Picture, Report, Table, Text
from train.study.families import Families
from zoo import checks

if TYPE_CHECKING:
    import scipy.stats

KERNELS = ("nngp", "ntk")
_QUICK = 0.3  # seconds that a tile must take for its rate to be trusted
_LARGEST_TILE = 2048
_ROWS = 4096  # of a kernel that are read at a time


@checks.arguments(
    n_train=checks.count(0),
    n_test=checks.count(0),
    dtype=checks.dtype,
    block=checks.count(0),
    flip=checks.flag,
    ridges=checks.several(checks.number(positive=True), distinct=True),
    direct=checks.count(),
    rank=checks.count(0),
    landmarks=checks.count(0),
)
@dataclasses.dataclass(frozen=True)
class Regression:
    """Settings. n_train, n_test: so many of the samples, the first (0: all); `block`: rows of a tile (0: as many as fit).

    `ridges` are in units of the kernel's mean diagonal; up to `direct` points leave-one-out is exact, beyond that conjugate
    gradients with a preconditioner of `rank` estimate it (`predict.ridge_path`). flip: images and their mirror images
    count as one, with kernels averaged over both, which is what training on both comes to. landmarks: Nyström's approximation
    with so many of them, in which no kernel [n, n] is made (0: whole kernels, in tiles on disk).
    """

    n_train: int = 0
    n_test: int = 0
    dtype: str = "float32"
    block: int = 0
    flip: bool = False
    ridges: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    direct: int = 4000
    rank: int = 200
    landmarks: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and centred one-hot targets to train and to test on."""

    name: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def samples(data: dict[str, Any], settings: Regression) -> Samples:
    """Those of a source (`train.data.source`): data has its name, the splits `train` and `test`, and options of it."""
    options = {key: value for key, value in data.items() if key not in ("name", "train", "test", "normalise")}
    found = []
    for split, count in ((data.get("train", "train"), settings.n_train), (data.get("test", "test"), settings.n_test)):
        each = source(data["name"], split, **options)
        x, y = each.read(np.arange(min(len(each), count or len(each))))
        x = normalisation(data.get("normalise") or each.normalise)(x)
        found += [x.astype(settings.dtype), y - (1 / y.shape[1] if each.classes else 0)]
    return Samples(data["name"], *found)


@dataclasses.dataclass(frozen=True, eq=False)
class KernelScore:
    """Of one kernel of one network: the scores of ridges, and the share of wrong classes of the best on the test samples."""

    family: str
    depth: int
    kernel: str
    path: RidgePath
    scale: float  # the mean diagonal, of which ridges are multiples
    test_error: float
    left: float | None  # what Nyström's approximation leaves of the trace

    def numbers(self) -> dict[str, Any]:
        """For JSON."""
        path = self.path
        return {
            "family": self.family, "depth": self.depth, "kernel": self.kernel, "ridges": path.ridges / self.scale,
            "loss": path.loss, "error": path.error, "ridge": path.ridge / self.scale, "scores": path.how,
            "test_error": self.test_error, "left": self.left,
        }  # fmt: skip


@dataclasses.dataclass
class KernelJob:
    """One network's kernels on these samples."""

    family: str
    depth: int
    limit: Any
    data: Samples
    settings: Regression
    folder: Path
    share: tuple[int, int] = (0, 1)

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.family}_depth{self.depth}".replace(" ", "_").replace(",", "")

    @property
    def entries(self) -> int:
        """Pairs of inputs whose kernels are computed."""
        n, m, flip = len(self.data.x), len(self.data.x_test), self.settings.flip
        if self.settings.landmarks:
            return (1 + flip) * min(self.settings.landmarks, n) * (n + m) * len(KERNELS)
        return n * (n + 1) // 2 + flip * n * n + (1 + flip) * n * m

    @property
    def disk(self) -> int:
        """Bytes that kernels take."""
        n, m = len(self.data.x), len(self.data.x_test)
        # The mean over flips is a file of its own.
        files = 3 if self.settings.flip else 1
        return (
            0
            if self.settings.landmarks
            else len(KERNELS) * files * n * (n + m) * np.dtype(self.settings.dtype).itemsize
        )

    def rate(self) -> float:
        """Entries a second, of a tile that takes long enough; compiled before."""
        x, rows = self.data.x, min(self.settings.block or 64, len(self.data.x) // 2 or 1)
        while True:
            a, b = x[:rows], x[-rows:]
            self._kernels(a, b)
            start = time.perf_counter()
            self._kernels(a, b)
            taken = time.perf_counter() - start
            if taken > _QUICK or self.settings.block or 2 * rows > min(_LARGEST_TILE, len(x)):
                return rows**2 / taken
            rows *= 2

    def outcomes(self) -> list[KernelScore]:
        """Of every kernel that there is; `UnfinishedError` where other shares have not finished."""
        return self._by_landmarks() if self.settings.landmarks else self._whole()

    def _kernels(self, a: Any, b: Any = None, folder: Any = None) -> Any:
        options = {} if folder is None else {"folder": folder}
        return self.limit.kernels(
            a, b, dtype=np.dtype(self.settings.dtype), block=self.settings.block or None, **options
        )

    def _kept(self, part: str, a: Any, b: Any = None) -> Any:
        place = self.folder / self.name / part
        return self._kernels(a, b, Share(place, *self.share) if self.share[1] > 1 else place)

    def _whole(self) -> list[KernelScore]:
        data, found, unfinished = self.data, dict[str, Any](), list[str]()
        parts = {"train": (data.x, None), "test": (data.x_test, data.x)}
        if self.settings.flip:
            self._check_flips()
            parts |= {f"{name}_flipped": (a, mirrored(data.x)) for name, (a, _) in parts.items()}
        for part, (a, b) in parts.items():
            try:
                found[part] = self._kept(part, a, b)
            except UnfinishedError as error:  # the other parts have shares of this one too
                unfinished.append(str(error))
        if unfinished:
            raise UnfinishedError(unfinished[0])
        out = []
        for kernel in KERNELS:
            if not found["train"].has(kernel):
                continue
            train, test = (self._averaged(kernel, part, found) for part in ("train", "test"))
            scale = float(np.mean([train[i, i] for i in range(len(train))]))
            path = predict.ridge_path(
                train, data.y, scale * np.asarray(self.settings.ridges), direct=self.settings.direct,
                rank=self.settings.rank, folder=self.folder / self.name / "solutions",
            )  # fmt: skip
            f = np.concatenate([test[i : i + _ROWS] @ path.weights for i in range(0, len(test), _ROWS)])
            out.append(self._outcome(kernel, path, scale, f))
        return out

    def _by_landmarks(self) -> list[KernelScore]:
        data, out = self.data, []
        if self.settings.flip:
            self._check_flips()
        own = self.limit.kernels(data.x, diagonal=True, dtype=np.dtype(self.settings.dtype))
        for kernel in KERNELS:
            if not own.has(kernel):
                continue

            def pair(a: Any, b: Any, kernel: str = kernel) -> np.ndarray:
                plain = np.asarray(getattr(self._kernels(a, b), kernel), np.float64)
                return (plain + getattr(self._kernels(a, mirrored(b)), kernel)) / 2 if self.settings.flip else plain

            diagonal = np.asarray(getattr(own, kernel), np.float64)
            if self.settings.flip:
                diagonal = np.array([pair(x[None], x[None])[0, 0] for x in data.x])
            low = predict.nystrom(pair, data.x, diagonal, self.settings.landmarks)
            scale = float(diagonal.mean())
            path = predict.feature_ridge(low.features, data.y, scale * np.asarray(self.settings.ridges))
            f = low.of(pair(data.x_test, data.x[low.landmarks])) @ path.weights
            out.append(self._outcome(kernel, path, scale, f, low.left))
        return out

    def _outcome(self, kernel: str, path: RidgePath, scale: float, f: Any, left: float | None = None) -> KernelScore:
        return KernelScore(self.family, self.depth, kernel, path, scale, predict.error_rate(f, self.data.y_test), left)

    def _averaged(self, kernel: str, part: str, found: dict[str, Any]) -> np.ndarray:
        """K, or the mean over flips of one side: a file that is written anew at every start, from parts that are checked."""
        plain = getattr(found[part], kernel)
        if not self.settings.flip:
            return plain
        other, file = getattr(found[f"{part}_flipped"], kernel), self.folder / self.name / f"{part}_{kernel}_mean.npy"
        mean = np.lib.format.open_memmap(file, "w+", plain.dtype, plain.shape)
        for i in range(0, len(plain), _ROWS):
            mean[i : i + _ROWS] = (plain[i : i + _ROWS] + other[i : i + _ROWS]) / 2
        return mean

    def _check_flips(self) -> None:
        """Raises unless K(flip x, flip x') = K(x, x'): only then one side is enough."""
        x = self.data.x[:4]
        if x.ndim != 4:
            raise ValueError(
                f"flip is for images [height, width, channels]; these inputs have shape {list(x.shape[1:])}."
            )
        here, there = (self._kernels(a).nngp for a in (x, mirrored(x)))
        off = float(np.abs(here - there).max() / np.abs(here).max())
        if off > 1e-4:
            raise ValueError(
                f"flip: the kernel of {self.family} changes by {off:.1%} when both images are mirrored (even windows, or "
                "strides that see one edge only), so averaging one side is not what training on both comes to. Set flip to False."
            )


def mirrored(x: np.ndarray) -> np.ndarray:
    """Left and right exchanged, [n, height, width, channels]."""
    return np.ascontiguousarray(x[:, :, ::-1])


def jobs(
    families: Families, width: int, depths: Sequence[int], data: Samples, settings: Regression, folder: Path,
    share: tuple[int, int] = (0, 1),
) -> list[KernelJob]:  # fmt: skip
    """A job for each family and depth."""
    return [
        KernelJob(label, depth, twin(make(width, depth)), data, settings, Path(folder) / "kernels", share)
        for label, make in families.items()
        for depth in depths
    ]


def plan(each: Sequence[KernelJob], console: Console) -> list[float]:
    """Prints how long it will take and how much disk, by rates of first tiles; raises where the disk is too small. Seconds."""
    table = Table(("network", "entries", "entries a second", "time", "disk"), rows := [], title="Plan")
    taken, folder = [], each[0].folder
    folder.mkdir(parents=True, exist_ok=True)
    for job in each:
        rate = job.rate()
        taken.append(job.entries / rate / job.share[1])
        rows.append([job.name, f"{job.entries:.3g}", f"{rate:.3g}", clock(taken[-1]), f"{job.disk / 2**30:.2g} GiB"])
    table._print(console)
    free, need = shutil.disk_usage(folder).free, sum(job.disk for job in each)
    have = sum(file.stat().st_size for file in folder.rglob("*.npy"))
    if need - have > free:
        raise OSError(
            f"The kernels take {need / 2**30:.3g} GiB and {free / 2**30:.3g} are free in {folder}: give another --workdir, fewer "
            "samples (n_train), or landmarks."
        )
    return taken


def clock(seconds: float) -> str:
    """In words.

    >>> clock(5.2), clock(400), clock(7300)
    ('5 s', '6.7 min', '2 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.2g} min" if seconds < 5400 else f"{seconds / 3600:.2g} h"


def regress(
    each: Sequence[KernelJob], planned: Sequence[float], console: Console
) -> tuple[list[KernelScore], list[str]]:
    """(what was found, which networks wait for other shares)."""
    found, waiting = [], []
    for job, expected in zip(each, planned, strict=True):
        start = time.perf_counter()
        try:
            found += job.outcomes()
        except UnfinishedError as error:
            waiting.append(str(error))
        taken = time.perf_counter() - start
        console.print(f"{job.name}: {clock(taken)}, {clock(expected)} planned for its kernels", highlight=False)
    return found, waiting


def report(found: Sequence[KernelScore], data: Samples, settings: Regression, run: Any) -> Report:
    """A row a kernel, and the scores of all ridges."""
    rows, n = [], len(data.x_test)
    for each in found:
        best, at_end = int(np.argmin(each.path.loss)), " (at the end)" if each.path.at_end else ""
        interval = scipy.stats.binomtest(round(each.test_error * n), n).proportion_ci(method="wilson")
        rows.append([
            f"{each.family}, depth {each.depth}", each.kernel.upper(), f"{each.test_error:.2%}",
            f"{interval.low:.2%} to {interval.high:.2%}", f"{each.path.error[best]:.2%}",
            f"{each.path.ridge / each.scale:.2g}{at_end}", "" if each.left is None else f"{each.left:.1e}",
        ])  # fmt: skip
    columns = ("network", "kernel", "test error", "95 % interval", "left-out error", "ridge", "left of the trace")
    best = min(found, key=lambda each: each.test_error)
    also = ", and their mirror images" if settings.flip else ""
    sentence = (
        f"{len(data.x)} samples of {data.name} to train on{also}, {n} to test: the least test error, {best.test_error:.2%}, is "
        f"that of the {best.kernel.upper()} of {best.family} at depth {best.depth}. Ridges, in units of the mean diagonal, were "
        f"chosen by {best.path.how}."
    )
    shown = columns if settings.landmarks else columns[:-1]
    table = Table(shown, [row[: len(shown)] for row in rows], screen=6)
    numbers = {"data": data.name, "n_train": len(data.x), "n_test": n, "kernels": [each.numbers() for each in found]}
    return Report(
        "Regression with kernels of infinite networks", [Text(sentence), table, _picture(found)], numbers, run
    )


def _picture(found: Sequence[KernelScore]) -> Picture:
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    loss, error = figure.subplots(1, 2)
    for each in found:
        label = f"{each.family}, depth {each.depth}, {each.kernel.upper()}"
        (line,) = loss.plot(each.path.ridges / each.scale, each.path.loss, "o-", ms=3, label=label)
        error.plot(each.path.ridges / each.scale, each.path.error, "o-", ms=3, color=line.get_color())
        error.plot(each.path.ridge / each.scale, each.test_error, "*", ms=11, color=line.get_color())
    loss.set(xscale="log", xlabel="ridge over mean diagonal", title="squared error of a sample left out")
    error.set(xscale="log", xlabel="ridge over mean diagonal", title="share of wrong classes, left out (star: test)")
    for axis in (loss, error):
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*loss.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return Picture("Scores of ridges", "The ridge of least squared error is taken.", figure)
