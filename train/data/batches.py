"""Batches: of a task, in one process; or of a source, as functions of the step: the same on any number of processes, from any
step on."""

import functools
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from limits import Task
from limits.inputs import task_of
from train.data.augment import Augmentation, augmentation
from train.data.normalise import by_image, normalisation
from train.data.sources import Arrays, Source, source_of, tfds_source
from train.data.tasks import digits
from zoo import checks

STEPS = checks.Check(
    "a list of steps, or what augmentation makes of one", lambda v: isinstance(v, list | tuple | str) or callable(v)
)
NAMED = checks.Check('"name" or ("name", options)', lambda v: isinstance(v, list | tuple | str))


@checks.arguments(n=checks.count(), size=checks.whole, steps=checks.count(0), seed=checks.seed)
def shuffled_batches(n: int, size: int, steps: int, seed: int = 0) -> np.ndarray:
    """The points of every step, [steps, size]: each epoch goes through all n once, in a new order (a rest is left out).

    >>> sorted(shuffled_batches(4, 2, steps=2).ravel().tolist())
    [0, 1, 2, 3]
    """
    return np.array([*itertools.islice(_shuffled(n, size, seed), steps)], int).reshape(steps, size)


def _shuffled(n: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """The same without end."""
    if not 1 <= size <= n:
        raise ValueError(f"A batch of {size} cannot be drawn from {n} points: its size must lie between 1 and {n}.")
    random, whole = np.random.default_rng(seed), n - n % size
    return (rows for _ in itertools.count() for rows in random.permutation(n)[:whole].reshape(-1, size))


@checks.arguments(task=task_of, size=checks.whole, steps=checks.count(0), seed=checks.seed)
def minibatches(task: Task, size: int, steps: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(inputs, targets) of every step, in the order of `shuffled_batches`.

    >>> from train.data import sphere
    >>> [x.shape for x, y in minibatches(sphere(8, 0, dim=3), 4, steps=2)]
    [(4, 3), (4, 3)]
    """
    for rows in shuffled_batches(len(task.x_train), size, steps, seed):
        yield task.x_train[rows], task.y_train[rows]


@checks.arguments(
    dataset=checks.word,
    batch=checks.count(),
    steps=checks.count(0),
    seed=checks.seed,
    size=checks.count(),
    n_train=checks.count(),
)
def image_batches(
    dataset: str, batch: int, steps: int, seed: int = 0, size: int | None = None, n_train: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(images [batch, height, width, channels], labels as one-hot rows) of every step, in the order of `shuffled_batches`.

    dataset: "digits" (the training points of `digits`, of this seed; by default 1,500), or a name of TFDS such as "cifar10", read
    as array_record without TensorFlow, its images centred. All have mean square 1. `size` resizes those of TFDS. n_train: only so
    many of them.

    >>> x, y = next(image_batches("digits", 4, steps=1, n_train=100))
    >>> x.shape, y.shape
    ((4, 8, 8, 1), (4, 10))
    """
    if dataset == "digits":
        task = digits(n_train or 1500, 0, classes=range(10), targets="one_hot", loss="cross_entropy", seed=seed)
        yield from minibatches(task, batch, steps, seed)
        return
    source = tfds_source(dataset, size=size)
    for rows in itertools.islice(_shuffled(min(len(source), n_train or len(source)), batch, seed), steps):
        images, labels = source.read(rows)
        yield by_image(images), labels


@functools.lru_cache(maxsize=4)  # batches of two epochs may be in preparation at once, of training and of another run
def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """All rows in the order of this epoch.

    Not `grain.MapDataset.shuffle`: it takes 34 µs an index (4 ms for a batch of 128, more than all the rest), and gives seed s in
    its second epoch the order of seed s + 1 in its first, so that runs of neighbouring seeds would not be independent.
    """
    order = np.random.default_rng((seed, 0, epoch)).permutation(count)
    order.flags.writeable = False
    return order


def share(batch: int, process: int, processes: int) -> int:
    """How many samples of a batch are one process's.

    >>> share(8, process=1, processes=2)
    4
    """
    if not 0 <= process < processes:
        raise ValueError(f"There is no process {process} of {processes}: they are numbered from 0 to {processes - 1}.")
    if batch < 1 or batch % processes:
        near = max(round(batch / processes), 1) * processes
        raise ValueError(
            f"A batch of {batch} cannot be dealt evenly to {processes} processes: take a multiple of {processes}, "
            f"such as {near}."
        )
    return batch // processes


def generators(seed: int, positions: np.ndarray) -> Iterator[np.random.Generator]:
    """The generator of every position in turn: one Philox whose counter is set anew, as making one takes longer than a crop.

    >>> draws = [[random.random() for random in generators(0, np.array(at))] for at in ([7, 8, 9], [9, 7])]
    >>> draws[0][2] == draws[1][0], draws[0][0] == draws[1][1], draws[0][0] == draws[0][1]
    (True, True, False)
    """
    bits = np.random.Philox(np.random.SeedSequence((seed, 1)))  # 1: apart from the draws of the order
    random, state = np.random.Generator(bits), bits.state
    for position in positions.tolist():
        state["state"]["counter"] = np.array([0, 0, 0, position], np.uint64)
        bits.state = state
        yield random


def prefetched(
    function: Callable[[int], Any], first: int, stop: int, threads: int, buffer: int, workers: int
) -> Iterator[Any]:
    """function(first), function(first + 1), …, made in the background by threads, or by worker processes of so many threads."""
    import grain  # slow to import

    read = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(buffer, threads))
    steps = grain.MapDataset.range(first, stop).map(function).to_iter_dataset(read)
    if workers:
        steps = steps.mp_prefetch(grain.MultiprocessingOptions(workers, per_worker_buffer_size=buffer))
    return iter(steps)


@checks.arguments(
    source=source_of,
    batch=checks.whole,
    seed=checks.count(0, 2**32 - 1),
    process=checks.whole,
    processes=checks.count(),
    augment=STEPS,
    normalise=NAMED,
)
class Batches:
    """The training batches of one process: (inputs, targets) in float32.

    The batch of step k depends on (source, batch, seed, k) alone. Each epoch goes through the samples in a new order; those that
    fill no whole batch are left out (others every time), as in `train.data.shuffled_batches`. Process p of n has the p-th of n
    contiguous blocks of each batch, so a run may go on with another n. Augmentation of a sample is drawn from (seed, its position
    in the stream). augment: as `augmentation` takes it; normalise: as `normalisation` takes it, by default the source's.

    >>> from train.data import source
    >>> batches = Batches(source("digits"), 128, seed=0, augment=["crop"])
    >>> [part.shape for part in batches.at(1000)]
    [(128, 8, 8, 1), (128, 10)]
    >>> halves = [Batches(source("digits"), 128, seed=0, process=p, processes=2, augment=["crop"]) for p in (0, 1)]
    >>> bool((np.concatenate([half.at(1000)[0] for half in halves]) == batches.at(1000)[0]).all())
    True
    """

    def __init__(
        self,
        source: Source,
        batch: int,
        seed: int = 0,
        process: int = 0,
        processes: int = 1,
        augment: Any = None,
        normalise: Any = None,
    ) -> None:
        self.source, self.batch, self.seed = source, batch, seed
        self.process, self.share = process, share(batch, process, processes)
        if batch > len(source):
            raise ValueError(f"A batch of {batch} cannot be drawn from the {len(source)} samples of {source.name}.")
        self.augment = augment if isinstance(augment, Augmentation) else augmentation(augment or ())
        if self.augment.steps and len(source.shape) != 3:
            raise ValueError(
                f"Augmentation is of images [height, width, channels]; {source.name} has inputs {source.shape}."
            )
        if isinstance(source, Arrays):
            self.augment.check(source.inputs, source.name)
        if not normalise and source.doubt:
            warnings.warn(source.doubt, stacklevel=2)
        self.normalise = normalisation(normalise or source.normalise)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return len(self.source) // self.batch

    def at(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """This process's block of the batch of that step, counted from 0."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if epoch < 0:
            raise ValueError(f"Steps are counted from 0; got {step}.")
        block = self.process * self.share + np.arange(self.share)
        x, y = self.source.read(epoch_order(len(self.source), self.seed, epoch)[within * self.batch + block])
        if self.augment.steps:
            random = generators(self.seed, step * self.batch + block)
            x = (
                x if x.dtype == np.uint8 else x.astype(np.float32)
            )  # what lies between truths, or whole numbers, is none
            x = np.stack([self.augment(*each) for each in zip(x, random, strict=True)])
        return self.normalise(x), y

    def iterate(
        self, start: int = 0, threads: int = 1, buffer: int = 4, workers: int = 0
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """`at(start)`, `at(start + 1)`, … without end, `buffer` of them made ahead by threads (0: none is made ahead).

        One thread is best where Python does most of the work (digits); decoding and warping of large images may run in several.
        workers: so many processes besides, each with its threads and buffer, in a program that absl has started (as `launch`'s).
        """
        return prefetched(self.at, start, sys.maxsize, threads, buffer, workers)


@checks.arguments(
    source=source_of,
    batch=checks.count(),
    process=checks.count(0),
    processes=checks.count(),
    threads=checks.count(0),
    buffer=checks.count(),
    normalise=NAMED,
)
def evaluation_batches(
    source: Source,
    batch: int,
    process: int = 0,
    processes: int = 1,
    normalise: Any = None,
    threads: int = 0,
    buffer: int = 2,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(inputs, targets, mask) of this process: every sample once, in order; as many batches, of one size, on every process.

    The mask is the source's `weights` (1 a sample), so that sums of mask · value over batches and processes are sums over the
    source, exactly. What fills the last batch has mask 0 and is the last sample again, not zeros, so that no network makes of it
    a NaN, which a mask does not remove.

    >>> from train.data import source
    >>> [mask.tolist() for x, y, mask in evaluation_batches(source("sphere", n_train=3, dim=2), 2)]
    [[1.0, 1.0], [1.0, 0.0]]
    """
    count, block = len(source), process * share(batch, process, processes) + np.arange(batch // processes)
    if not count:
        raise ValueError(f"{source.name} has no samples to evaluate on.")
    change = normalisation(normalise or source.normalise)

    def at(step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = step * batch + block
        there = np.minimum(rows, count - 1)
        x, y = source.read(there)
        return change(x), y, (rows < count) * source.weights(there)

    steps = -(-count // batch)
    return map(at, range(steps)) if isinstance(source, Arrays) else prefetched(at, 0, steps, threads, buffer, workers=0)
