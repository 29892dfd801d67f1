"""Regression with the kernels of limits on whole data sets: plan, tiles on disk, ridge by leave-one-out, accuracy."""

import dataclasses
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from limits import Share, UnfinishedError, predict, random_features, twin
from limits.predict import RidgePath
from train.evaluate.report import Table
from train.study.families import Families, check_file_names
from train.study.regression_samples import Samples
from train.study.regression_samples import samples as samples
from zoo import checks

KERNELS = ("nngp", "ntk")
_QUICK = 0.3  # seconds that a tile must take for its rate to be trusted
_LARGEST_TILE = 2048
_FEW = 4  # rows that the first trial has, and by how much they grow
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
    networks=checks.count(0),
)
@dataclasses.dataclass(frozen=True)
class Regression:
    """Settings. n_train, n_test: so many of the samples, the first (0: all); `block`: rows of a tile (0: as many as fit).

    `ridges` are in units of the kernel's mean diagonal; up to `direct` points leave-one-out is exact, beyond that conjugate
    gradients with a preconditioner of `rank` estimate it (`predict.ridge_path`). flip: images and their mirror images
    count as one, with kernels averaged over both, which is what training on both comes to. landmarks: Nyström's approximation
    with so many of them, in which no kernel [n, n] is made (0: whole kernels, in tiles on disk). networks: features of so many
    random networks of the width of the config in its place (`limits.random_features`), for kernels whose entries are costly.
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
    networks: int = 0

    def __post_init__(self) -> None:
        if self.landmarks and self.networks:
            raise ValueError(
                f"regression: landmarks={self.landmarks} and networks={self.networks} are two approximations; set one to 0."
            )


@dataclasses.dataclass(frozen=True, eq=False)
class KernelScore:
    """Of one kernel of one network: the scores of ridges, and those of the best on the test samples: squared error, summed
    over outputs, and the share of wrong classes (None where targets are none)."""

    family: str
    depth: int
    kernel: str
    path: RidgePath
    scale: float  # the mean diagonal, of which ridges are multiples
    test_loss: float
    test_error: float | None
    left: float | None  # what Nyström's approximation leaves of the trace
    off: float | None = None  # how far random features are from the kernel, as a share of it

    def numbers(self) -> dict[str, Any]:
        """For JSON."""
        path = self.path
        return {
            "family": self.family, "depth": self.depth, "kernel": self.kernel, "ridges": path.ridges / self.scale,
            "loss": path.loss, "error": None if self.test_error is None else path.error,
            "ridge": path.ridge / self.scale, "scores": path.how,
            "test_loss": self.test_loss, "test_error": self.test_error, "left": self.left, "off": self.off,
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
        if self.settings.networks:
            return 0
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
            if self.settings.landmarks or self.settings.networks
            else len(KERNELS) * files * n * (n + m) * np.dtype(self.settings.dtype).itemsize
        )

    def rate(self) -> float:
        """Entries a second, of a kernel that takes long enough; compiled before."""
        if self.settings.networks:
            return float("inf")  # no entries are asked for
        x, rows = self.data.x, min(self.settings.block or _FEW, len(self.data.x) // 2 or 1)
        while True:
            a, b = x[:rows], x[-rows:]
            self._kernels(a, b)
            start = time.perf_counter()
            self._kernels(a, b)
            taken = time.perf_counter() - start
            if taken > _QUICK or _FEW * rows > min(_LARGEST_TILE, len(x)):
                return rows**2 / taken
            rows *= _FEW

    def outcomes(self) -> list[KernelScore]:
        """Of every kernel that there is; `UnfinishedError` where other shares have not finished."""
        if self.settings.flip:
            self._check_flips()
        if self.settings.networks:
            return self._by_networks()
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
            out.append(self._outcome(kernel, path, scale, f, left=low.left))
        return out

    def _by_networks(self) -> list[KernelScore]:
        data, out = self.data, []
        absent = self.limit.absent(data.x[:1])
        for kernel in (name for name in KERNELS if name not in absent):
            low = random_features(self.limit, data.x, self.settings.networks, kernel=kernel)

            def features(x: Any, of: Any = low.of) -> np.ndarray:
                return (of(x) + of(mirrored(x))) / 2 if self.settings.flip else of(x)

            own = features(data.x) if self.settings.flip else low.features
            scale = float((own**2).sum(1).mean())
            path = predict.feature_ridge(own, data.y, scale * np.asarray(self.settings.ridges))
            out.append(self._outcome(kernel, path, scale, features(data.x_test) @ path.weights, off=low.error))
        return out

    def _outcome(self, kernel: str, path: RidgePath, scale: float, f: Any, **approximate: float) -> KernelScore:
        y = self.data.y_test
        loss, error = float(((f - y) ** 2).sum(1).mean()), predict.error_rate(f, y) if self.data.classes else None
        return KernelScore(
            self.family, self.depth, kernel, path, scale, loss, error, approximate.get("left"), approximate.get("off")
        )

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
    check_file_names(families)
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
            "samples (n_train), landmarks, or networks."
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
