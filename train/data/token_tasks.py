"""Tasks of tokens: a few sequences of a source, every target that counts a point."""

from typing import Any

import numpy as np

from limits import Task
from train.data.sources import SOURCES, source
from train.data.tasks import TASKS
from train.data.tokens import TokenSource
from zoo import checks
from zoo.messages import did_you_mean

GENERATED = ("random_hierarchy", "associative_recall")  # languages, whose seed draws their sentences


@checks.arguments(name=checks.word, n_train=checks.count(), n_test=checks.count(0), seed=checks.seed)
def of_tokens(name: str, n_train: int = 8, n_test: int = 8, seed: int = 0, **options: Any) -> Task:
    """So many sequences of a source of tokens to train on, and others to test on; by cross-entropy, on the targets that count.

    Of a language, `seed` draws its sentences; of a text, which of its windows.

    >>> task = of_tokens("random_hierarchy", n_train=4, n_test=2, depth=2)
    >>> task.x_train.shape, task.y_train.shape, task.mask_train.sum(1).tolist()
    ((4, 4), (4, 4, 8), [3, 3, 3, 3])
    """
    if name not in SOURCES:
        raise ValueError(f'Unknown source "{name}". {did_you_mean(name, SOURCES)}')
    generated = name in GENERATED
    own = {"n_train": n_train, "n_test": max(n_test, 1), "seed": seed} if generated else {}
    parts: dict[str, Any] = {}
    for number, (split, n) in enumerate((("train", n_train), ("test", n_test))):
        data = source(name, split, **own, **options)
        if not isinstance(data, TokenSource):
            raise ValueError(f'of_tokens: "{name}" has no tokens.')
        if n > len(data):
            raise ValueError(f'of_tokens: "{name}" has {len(data)} sequences in "{split}", and {n} were asked for.')
        rows = np.arange(n) if generated else np.random.default_rng((seed, number)).choice(len(data), n, replace=False)
        if n:
            x, y = data.read(rows)
            parts |= {f"x_{split}": x, f"y_{split}": np.maximum(y, 0), f"mask_{split}": y >= 0}
            parts["classes"] = data.vocabulary
    return Task(**parts, loss="cross_entropy", name=name)


def _named(name: str) -> Any:
    def task(**options: Any) -> Task:
        return of_tokens(name, **options)

    return task


TASKS.update({name: _named(name) for name in (*GENERATED, "python", "text")})
