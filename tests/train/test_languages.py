"""The random hierarchy model and associative recall have the structure that they are known by."""

import itertools
from typing import Any

import numpy as np
import pytest

from train.data import associative_recall, random_hierarchy
from train.data.languages import RandomHierarchy

LANGUAGES = [
    RandomHierarchy(depth=1, vocabulary=3, synonyms=2, branching=2, classes=4),
    RandomHierarchy(depth=2, vocabulary=4, synonyms=2, branching=2, classes=3, seed=5),
    RandomHierarchy(depth=3, vocabulary=6, synonyms=2, branching=3, classes=5, seed=1),
]


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda each: f"depth {each.depth}")
def test_rules_are_as_many_as_are_said_and_write_nothing_twice(language: RandomHierarchy):
    assert len(language.rules) == language.depth
    for level, rules in enumerate(language.rules):
        assert rules.shape == (
            language.vocabulary if level else language.classes,
            language.synonyms,
            language.branching,
        )
        assert 0 <= rules.min() <= rules.max() < language.vocabulary
        assert len(np.unique(rules.reshape(-1, language.branching), axis=0)) == rules.shape[0] * language.synonyms


@pytest.mark.parametrize("language", LANGUAGES[:2], ids=lambda each: f"depth {each.depth}")
def test_there_are_as_many_sentences_as_are_said(language: RandomHierarchy):
    """classes · m^((s^L − 1)/(s − 1)), written out by hand from the rules, all different."""

    def written(symbol: int, level: int) -> list[tuple[int, ...]]:
        if level == language.depth:
            return [(symbol,)]
        return [
            sum(parts, ())
            for way in language.rules[level][symbol]
            for parts in itertools.product(*(written(each, level + 1) for each in way.tolist()))
        ]

    every = {(tokens, label) for label in range(language.classes) for tokens in written(label, 0)}
    tokens, labels = language.sentences(np.arange(language.count))
    assert {(tuple(t), l) for t, l in zip(tokens.tolist(), labels.tolist(), strict=True)} == every
    assert len({t for t, _ in every}) == language.count == language.classes * language.synonyms**language.nodes


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda each: f"depth {each.depth}")
def test_classes_are_found_by_parsing_and_other_sentences_are_not_of_the_language(language: RandomHierarchy):
    tokens, labels = language.drawn(min(200, language.count), seed=0)
    assert len(np.unique(tokens, axis=0)) == len(tokens)
    levels = language.parse(tokens)
    assert [level.shape[1] for level in levels] == [language.branching**l for l in range(language.depth + 1)]
    np.testing.assert_array_equal(levels[0][:, 0], labels)
    noise = np.random.default_rng(0).integers(language.vocabulary, size=(2000, language.length))
    share = language.count / language.vocabulary**language.length
    found = (language.parse(noise)[0] >= 0).mean()
    assert abs(found - share) <= 4 * (share * (1 - share) / 2000) ** 0.5  # four standard errors


def test_classes_and_ways_are_drawn_uniformly_where_sentences_cannot_be_numbered():
    language = RandomHierarchy(depth=4, vocabulary=8, synonyms=8, branching=3, classes=8)
    assert language.count > 2**62
    tokens, labels = language.drawn(4000, seed=1)
    np.testing.assert_array_equal(language.parse(tokens)[0][:, 0], labels)
    assert abs(np.bincount(labels, minlength=8) - 500).max() < 4 * (500 * 7 / 8) ** 0.5


def test_as_data_train_and_test_share_no_sentence_and_targets_are_the_next_token_or_the_class():
    options: dict[str, Any] = {"n_train": 300, "n_test": 100, "seed": 2, "depth": 2, "vocabulary": 6, "classes": 7}
    parts = [random_hierarchy(split, targets="class", **options) for split in ("train", "test")]
    train, test = (part.tokens for part in parts)
    assert not {*map(tuple, train.tolist())} & {*map(tuple, test.tolist())}
    language = RandomHierarchy(depth=2, vocabulary=6, classes=7)
    for part in parts:
        np.testing.assert_array_equal(part.targets[:, -1], language.parse(part.tokens)[0][:, 0])
        assert (part.targets[:, :-1] == -1).all()
    following = random_hierarchy("train", **options)
    np.testing.assert_array_equal(following.targets[:, :-1], train[:, 1:])
    assert (following.targets[:, -1] == -1).all()
    assert following.vocabulary == 7


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="5 symbols in 4 ways each are more than the 16 tuples"):
        RandomHierarchy(depth=2, vocabulary=4, synonyms=4, classes=5)
    with pytest.raises(ValueError, match="9999 sentences were asked for, and there are 24"):
        LANGUAGES[1].drawn(9999, 0)
    with pytest.raises(ValueError, match="5 pairs need as many different keys"):
        associative_recall(pairs=5, keys=4)


def test_what_recall_asks_for_was_said_before():
    data = associative_recall("train", n_train=200, pairs=5, queries=7, keys=9, values=4, seed=3)
    tokens, targets = data.read(np.arange(len(data)))
    assert tokens.shape == (200, 24)
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        known = dict(zip(row[0:10:2], row[1:10:2], strict=True))
        assert len(known) == 5
        assert all(key < 9 <= value < 13 for key, value in known.items())
        for place in range(24):
            asked = place >= 10 and place % 2 == 0
            assert wanted[place] == (known[row[place]] if asked else -1)
            assert not asked or row[place + 1] == wanted[place]
    test = associative_recall("test", n_train=200, pairs=5, queries=7, keys=9, values=4, seed=3)
    assert len(test) == 512
    assert not {*map(tuple, tokens.tolist())} & {*map(tuple, test.tokens.tolist())}
