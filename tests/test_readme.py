"""The README's examples run, in order, in one namespace; its set-up lines are the ones that CI runs."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_examples_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 4
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
