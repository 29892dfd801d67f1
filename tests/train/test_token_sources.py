"""Tasks of tokens are the sequences of their source, with the targets that count."""

import numpy as np
import pytest

from train.data import TASKS, associative_recall, make_task, of_tokens, source


def test_a_task_has_the_sequences_of_its_source():
    options = {"pairs": 2, "queries": 2, "keys": 4, "values": 4}
    task = make_task("associative_recall", n_train=3, n_test=2, seed=5, **options)
    for split, x, y, mask in (
        ("train", task.x_train, task.y_train, task.mask_train),
        ("test", task.x_test, task.y_test, task.mask_test),
    ):
        tokens, wanted = associative_recall(split, n_train=3, n_test=2, seed=5, **options).read(np.arange(len(x)))
        np.testing.assert_array_equal(x, tokens)
        np.testing.assert_array_equal(mask, wanted >= 0)
        np.testing.assert_array_equal(y.argmax(-1)[mask], wanted[mask])
        assert y.shape[-1] == 8


def test_windows_of_text_are_drawn_by_the_seed():
    one, same, other = (of_tokens("python", n_train=4, n_test=0, seed=s, context=16) for s in (0, 0, 1))
    np.testing.assert_array_equal(one.x_train, same.x_train)
    assert not np.array_equal(one.x_train, other.x_train)
    np.testing.assert_array_equal(one.x_train[:, 1:], one.y_train.argmax(-1)[:, :-1])
    assert len(one.x_test) == 0


def test_names_of_sources_stay_sources():
    assert "random_hierarchy" in TASKS
    assert source("random_hierarchy", "test", n_train=4, n_test=2).shape == (8,)
    with pytest.raises(ValueError, match=r'Unknown source "pyton".*python'):
        of_tokens("pyton")
    with pytest.raises(ValueError, match="100000000 were asked for"):
        of_tokens("python", n_train=10**8, context=16)
