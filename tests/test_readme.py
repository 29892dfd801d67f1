"""The README's examples run, in order, in one namespace; its set-up lines are the ones that CI runs."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
# The same calls in less time.
SMALLER = {
    "steps=200, learning_rate=0.5": "steps=40, learning_rate=0.5", "times=[200]": "times=[40]", "members=64": "members=16",
    "steps=20, learning_rate=0.2": "steps=4, learning_rate=0.2", "times=[0, 20]": "times=[0, 4]", "samples=1024": "samples=256",
    "samples=512": "samples=128", "steps=400, warmup=100": "steps=120, warmup=20", "steps=50": "steps=5",
}  # fmt: skip


@pytest.mark.parametrize("smaller", [SMALLER, pytest.param({}, marks=pytest.mark.slow)], ids=["smaller", "as written"])
def test_examples_run(capsys, smaller):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    text = "\0".join(blocks)
    for words, fewer in smaller.items():
        assert words in text
        text = text.replace(words, fewer)
    space: dict = {}
    for block in text.split("\0"):
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
