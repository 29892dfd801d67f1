"""The README's examples run, in order, in one namespace; its set-up lines are the ones that CI runs."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
# The same calls in less time; and what takes long to compile, and has tests of its own, only as it is written.
SMALLER = {
    "steps=200, learning_rate=0.5": "steps=40, learning_rate=0.5", "times=[200]": "times=[40]", "members=64": "members=16",
    "steps=20, learning_rate=0.2": "steps=4, learning_rate=0.2", "times=[0, 20]": "times=[0, 4]", "samples=1024": "samples=256",
    "samples=512": "samples=128", "steps=50": "steps=10",
}  # fmt: skip
LONG = ("deep_pair", "sample_posterior")


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["smaller", "as written"])
def test_examples_run(capsys, whole):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    if not whole:
        text = "\0".join(block for block in blocks if not any(name in block for name in LONG))
        for words, fewer in SMALLER.items():
            assert words in text
            text = text.replace(words, fewer)
        blocks = text.split("\0")
    space: dict = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), space)
    away, k = space["away"], space["k"]
    # The ensemble's mean lies within its own noise of the limit, up to the O(1/256) that finite width moves it.
    assert abs(away.f_test).max() < 5 * away.f_test_sem.max()
    assert k.ntk.dtype == "float64"
    assert "(20, 20, 3, 3)" in capsys.readouterr().out


def test_names_every_room():
    text = README.read_text()
    for room in ("zoo", "limits", "train", "launch", "configs", "tests"):
        assert f"| `{room}/` |" in text
