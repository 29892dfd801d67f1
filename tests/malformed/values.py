"""Values that no argument, or few, can take."""

import numpy as np


class Thing:
    """An object of a type that nothing knows."""


VALUES = {
    "misspelt": "wrod",
    "empty word": "",
    "number as text": "3",
    "negative": -3,
    "zero": 0,
    "fraction": 2.5,
    "NaN": np.nan,
    "infinite": np.inf,
    "huge": 10**30,
    "huge float": 1e300,
    "empty": (),
    "None": None,
    "shape": np.ones((2, 3, 4, 5, 6)),
    "NaN inside": np.full((2, 2), np.nan),
    "words": ["wrod", "wrod"],
    "table": {"wrod": 1},
    "object": Thing(),
}
