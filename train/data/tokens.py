"""Samples of tokens: whole numbers [t], with a target at every position. A target of −1 does not count."""

import dataclasses
import hashlib
from typing import Any

import numpy as np

from train.data.sources import Source

MOST = 2**22  # windows in an epoch, whose order is drawn at once


class TokenSource(Source):
    """Inputs [n, t] and targets [n, t] of a `vocabulary`, int32."""

    vocabulary: int
    classes = None
    normalise = "tokens"

    @property
    def outputs(self) -> int:
        """As many as tokens of the vocabulary."""
        return self.vocabulary

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(inputs, targets) of these rows."""
        return self.stored(rows)


@dataclasses.dataclass(frozen=True, eq=False)
class Sequences(TokenSource):
    """Sequences in memory: `tokens` [n, t] and `targets` [n, t].

    >>> data = Sequences("two", np.array([[1, 2], [2, 0]]), np.array([[-1, 2], [-1, 0]]), vocabulary=3)
    >>> len(data), data.shape, data.stored(np.array([1]))[1].tolist()
    (2, (2,), [[-1, 0]])
    """

    name: str
    tokens: np.ndarray
    targets: np.ndarray
    vocabulary: int

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of one sequence."""
        return self.tokens.shape[1:]

    def __len__(self) -> int:
        return len(self.tokens)

    def stored(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(tokens, targets) of these rows."""
        return self.tokens[rows].astype(np.int32), self.targets[rows].astype(np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class Windows(TokenSource):
    """Windows of `context` tokens of a stream, the target of each the next one; window i begins at token i · stride.

    once: every token but the first is the target of one window, and is −1 in those after it, which have it as context; what
    reaches beyond the end is 0 with target −1. Otherwise windows are whole and all targets count.

    >>> data = Windows("count", np.arange(7), context=4, stride=2, vocabulary=7, once=True)
    >>> [part.tolist() for part in data.read(np.array([0, 1]))]
    [[[0, 1, 2, 3], [2, 3, 4, 5]], [[1, 2, 3, 4], [-1, -1, 5, 6]]]
    """

    name: str
    stream: Any
    context: int
    stride: int
    vocabulary: int = 256
    once: bool = False

    def __post_init__(self) -> None:
        if len(self.stream) < (2 if self.once else self.context + 1):
            raise ValueError(
                f"{self.name} has {len(self.stream)} tokens, too few for a window of {self.context} and the one after it: give "
                "more text, or a smaller context."
            )
        if not 1 <= self.stride <= self.context:
            raise ValueError(
                f"{self.name}: windows of {self.context} tokens that begin {self.stride} apart: stride must be from 1 to "
                f"{self.context}."
            )

    @property
    def content(self) -> str:
        """A word for the stream."""
        return hashlib.sha256(np.ascontiguousarray(self.stream).tobytes()).hexdigest()[:16]

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of one window."""
        return (self.context,)

    def __len__(self) -> int:
        beyond = len(self.stream) - 1 - self.context  # targets that the first window does not have
        return 1 + (-(-max(beyond, 0) // self.stride) if self.once else beyond // self.stride)

    def stored(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(tokens, targets) of these windows."""
        at = np.asarray(rows)[:, None] * self.stride + np.arange(self.context + 1)
        tokens = self.stream[np.minimum(at, len(self.stream) - 1)].astype(np.int32)
        tokens[at >= len(self.stream)] = 0
        inputs, targets = tokens[:, :-1], tokens[:, 1:].copy()
        if self.once:
            targets[at[:, 1:] >= len(self.stream)] = -1
            targets[np.asarray(rows) > 0, : self.context - self.stride] = -1
        return inputs, targets


def windows(
    name: str, stream: np.ndarray, context: int, stride: int | None, once: bool, vocabulary: int = 256
) -> Windows:
    """Windows to train on, or to test on; by default they begin at every token (of long streams at as many as 2²² places), and
    when every target is to count once, half a window apart, so that each has at least half a window before it."""
    if stride is None:
        stride = max(context // 2, 1) if once else min(max(len(stream) // MOST, 1), context)
    return Windows(name, stream, context, stride, vocabulary, once)
