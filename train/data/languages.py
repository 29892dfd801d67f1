"""Two synthetic languages whose structure is known: the random hierarchy model, and associative recall."""

import dataclasses
import functools

import numpy as np

from train.data.sources import SOURCES
from train.data.tokens import Sequences
from zoo import checks

_SIZES = {
    "split": checks.choice("train", "test"),
    "n_train": checks.count(),
    "n_test": checks.count(),
    "seed": checks.seed,
}
_EXACT = 2**62  # below it, sentences are drawn by their numbers, without repetition


@checks.arguments(
    depth=checks.count(), vocabulary=checks.count(2), synonyms=checks.count(), branching=checks.count(2),
    classes=checks.count(), seed=checks.seed,
)  # fmt: skip
@dataclasses.dataclass(frozen=True)
class RandomHierarchy:
    """A grammar of `depth` L levels: each symbol of a level is written as `branching` s symbols of the one below, in one of
    `synonyms` m ways, all of them different. A sentence has s^L tokens below `vocabulary` v, and one of `classes` as its root.

    The m · v ways of a level (m · classes of the first) are drawn from the v^s tuples without repetition, so that sentences are
    parsed from below, and there are classes · m^((s^L − 1)/(s − 1)) of them. Deep networks need about classes · m^L to learn it.

    >>> language = RandomHierarchy(depth=2, vocabulary=4, synonyms=2, branching=2, classes=3)
    >>> language.length, language.count, language.sample_complexity
    (4, 24, 12)
    >>> tokens, labels = language.sentences(np.arange(24))
    >>> bool((language.parse(tokens)[0][:, 0] == labels).all())
    True

    Reference: Cagnetta, Petrini, Tomasini, Favero, Wyart (2024), How deep neural networks learn compositional data: the random
    hierarchy model.
    """

    depth: int = 2
    vocabulary: int = 8
    synonyms: int = 4
    branching: int = 2
    classes: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        tuples, symbols = self.vocabulary**self.branching, max(self.classes, self.vocabulary if self.depth > 1 else 0)
        if symbols * self.synonyms > tuples:
            raise ValueError(
                f"RandomHierarchy: {symbols} symbols in {self.synonyms} ways each are more than the {tuples} tuples of "
                f"{self.branching} of {self.vocabulary} tokens: take fewer synonyms, or a larger vocabulary."
            )

    @property
    def length(self) -> int:
        """Tokens of a sentence."""
        return self.branching**self.depth

    @property
    def nodes(self) -> int:
        """Symbols of a sentence that are written as others: 1 + s + … + s^(L−1)."""
        return (self.length - 1) // (self.branching - 1)

    @property
    def count(self) -> int:
        """How many sentences there are."""
        return self.classes * self.synonyms**self.nodes

    @property
    def sample_complexity(self) -> int:
        """About how many sentences a deep network needs to tell their classes."""
        return self.classes * self.synonyms**self.depth

    @functools.cached_property
    def rules(self) -> tuple[np.ndarray, ...]:
        """How the symbols of each level are written, from the classes down: [symbols, synonyms, branching]."""
        random, found = np.random.default_rng((self.seed, 2)), []
        for level in range(self.depth):
            symbols = self.vocabulary if level else self.classes
            codes = random.choice(self.vocabulary**self.branching, symbols * self.synonyms, replace=False)
            found.append(self._digits(codes).reshape(symbols, self.synonyms, self.branching))
        return tuple(found)

    def _digits(self, codes: np.ndarray) -> np.ndarray:
        return codes[:, None] // self.vocabulary ** np.arange(self.branching) % self.vocabulary

    def written(self, labels: np.ndarray, ways: np.ndarray) -> np.ndarray:
        """The sentences [n, s^L] of classes [n] whose symbols are written in these ways [n, nodes], level by level."""
        symbols, done = labels[:, None], 0
        for rules in self.rules:
            width = symbols.shape[1]
            symbols = rules[symbols, ways[:, done : done + width]].reshape(len(labels), -1)
            done += width
        return symbols

    def sentences(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(tokens, classes) of the sentences of these numbers, from 0 to count − 1."""
        rest, labels = np.divmod(np.asarray(numbers), self.classes)
        ways = np.empty((len(labels), self.nodes), int)
        for node in range(self.nodes):
            rest, ways[:, node] = np.divmod(rest, self.synonyms)
        return self.written(labels, ways), labels

    def drawn(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """(tokens, classes) of n sentences, no two the same where there are fewer than 2⁶² of them."""
        if n > self.count:
            raise ValueError(
                f"RandomHierarchy: {n} sentences were asked for, and there are {self.count}: ask for fewer."
            )
        random = np.random.default_rng((self.seed, 3, seed))
        if self.count < _EXACT:
            return self.sentences(random.choice(self.count, n, replace=False))
        labels = random.integers(self.classes, size=n)
        return self.written(labels, random.integers(self.synonyms, size=(n, self.nodes))), labels

    def parse(self, tokens: np.ndarray) -> list[np.ndarray]:
        """The symbols of every level, from the class [n, 1] to the tokens [n, s^L]; −1 for what no rule writes."""
        levels = [np.asarray(tokens)]
        for rules in reversed(self.rules):
            place = self.vocabulary ** np.arange(self.branching)
            known = (rules @ place).ravel()
            order = known.argsort()
            below = levels[0].reshape(len(tokens), -1, self.branching)
            codes = np.where((below < 0).any(-1), -1, below @ place)
            at = order[np.searchsorted(known, codes, sorter=order).clip(max=len(known) - 1)]
            levels.insert(0, np.where(known[at] == codes, at // self.synonyms, -1))
        return levels


@checks.arguments(**_SIZES, targets=checks.choice("next", "class"), grammar=checks.seed)
def random_hierarchy(
    split: str = "train",
    n_train: int = 1024,
    n_test: int = 256,
    targets: str = "next",
    seed: int = 0,
    depth: int = 3,
    vocabulary: int = 8,
    synonyms: int = 4,
    branching: int = 2,
    classes: int = 8,
    grammar: int = 0,
) -> Sequences:
    """Sentences of the `RandomHierarchy` of seed `grammar`, drawn by `seed`; none of the test is among those to train on.

    targets: "next", every token but the first after those before it, or "class", at the last token alone.

    >>> random_hierarchy("test", n_train=32, n_test=8, targets="class", depth=2).read(np.array([0]))[1].tolist()
    [[-1, -1, -1, 0]]
    """
    language = RandomHierarchy(depth, vocabulary, synonyms, branching, classes, grammar)
    tokens, labels = language.drawn(n_train + n_test, seed)
    wanted = np.full_like(tokens, -1)
    if targets == "next":
        wanted[:, :-1] = tokens[:, 1:]
    else:
        wanted[:, -1] = labels
    rows = slice(n_train) if split == "train" else slice(n_train, None)
    return Sequences("random_hierarchy", tokens[rows], wanted[rows], max(vocabulary, classes))


@checks.arguments(**_SIZES, pairs=checks.count(), queries=checks.count(), keys=checks.count(), values=checks.count())
def associative_recall(
    split: str = "train",
    n_train: int = 4096,
    n_test: int = 512,
    pairs: int = 8,
    queries: int = 8,
    keys: int = 32,
    values: int = 32,
    seed: int = 0,
) -> Sequences:
    """`pairs` different keys, each followed by a value, then `queries` of these keys, each followed by its value again, which
    alone are targets. Keys are tokens below `keys`, values those from there on.

    >>> data = associative_recall("test", pairs=2, queries=1, keys=4, values=4)
    >>> [part[0].tolist() for part in data.read(np.array([0]))]
    [[3, 4, 0, 4, 0, 4], [-1, -1, -1, -1, 4, -1]]

    Reference: Arora et al. (2023), Zoology; Ba et al. (2016) for one query.
    """
    if pairs > keys:
        raise ValueError(f"associative_recall: {pairs} pairs need as many different keys, and there are {keys}.")
    random, n = np.random.default_rng((seed, 4)), n_train + n_test
    key = random.random((n, keys)).argsort(1)[:, :pairs]
    value = keys + random.integers(values, size=(n, pairs))
    asked = random.integers(pairs, size=(n, queries))
    order = np.concatenate([np.broadcast_to(np.arange(pairs), (n, pairs)), asked], 1)
    tokens = np.stack([np.take_along_axis(each, order, 1) for each in (key, value)], -1).reshape(n, -1)
    wanted = np.full_like(tokens, -1)
    wanted[:, 2 * pairs :: 2] = tokens[:, 2 * pairs + 1 :: 2]
    rows = slice(n_train) if split == "train" else slice(n_train, None)
    return Sequences("associative_recall", tokens[rows], wanted[rows], keys + values)


SOURCES.update({"random_hierarchy": random_hierarchy, "associative_recall": associative_recall})
