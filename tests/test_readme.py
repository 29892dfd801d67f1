"""The examples of every README run, in order, in one namespace a file; the main one stays short and names every room."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READMES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted(ROOT.glob("*/**/README.md"))
    if "```python" in path.read_text()
}
READMES["README.md"] = (ROOT / "README.md").read_text()
# The same calls in less time; and what takes long to compile, and has tests of its own, only as it is written.
SMALLER = {
    "print(twin(own).rich(task, steps=4, learning_rate=0.1, samples=512, replicas=2).loss)\n": "",
    "steps=200, learning_rate=0.5": "steps=40, learning_rate=0.5", "times=[200]": "times=[40]", "members=64": "members=16",
    "steps=20, learning_rate=0.2": "steps=4, learning_rate=0.2", "times=[0, 20]": "times=[0, 4]", "samples=1024": "samples=256",
    "samples=512": "samples=128", "steps=50": "steps=10", "MLP(width=256, depth=2": "MLP(width=64, depth=2",
    "Block(width=256)": "Block(width=32)", "own, task, members=16, steps=4": "own, task, members=2, steps=1",
    "(nn.LayerNorm()(h))": "(h)",
}  # fmt: skip
LONG = (
    "deep_pair", "sample_posterior", "said.f_test_cov", "found.plot", "gated.rich", "predict.nystrom", "texts = ",
    "statistical_loss", "coord_check(", "sizes = {", "both = 0.3", "rich.provenance", "decoder",
)  # fmt: skip


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def smaller(text):
    for words, fewer in SMALLER.items():
        text = text.replace(words, fewer)
    return text


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["smaller", "as written"])
@pytest.mark.parametrize("name", READMES)
def test_examples_run(name, whole, capsys):
    space: dict = {}
    for block in blocks(READMES[name]):
        if whole or not any(word in block for word in LONG):
            exec(compile(block if whole else smaller(block), name, "exec"), space)
    if name == "README.md":
        away = space["away"]
        # The ensemble's mean lies within its own noise of the limit, up to the O(1/64) that finite width moves it.
        assert abs(away.f_test).max() < 5 * away.f_test_sem.max()
    if name == "limits/README.md":
        assert space["k"].ntk.dtype == "float64"
        assert "(20, 20, 3, 3)" in capsys.readouterr().out


def test_what_is_made_smaller_is_there():
    every = "".join(block for text in READMES.values() for block in blocks(text))
    assert [words for words in (*SMALLER, *LONG) if words not in every] == []
    assert {"README.md", "limits/README.md", "zoo/README.md"} <= {*READMES}


def test_the_main_one_is_read_in_five_minutes():
    text = READMES["README.md"]
    assert len(text) < 9000
    for room in ("zoo", "limits", "train", "launch", "configs", "tests"):
        assert f"| `{room}/` |" in text
        assert (ROOT / room / "README.md").is_file()
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", "".join(READMES.values())):
        assert (ROOT / target.replace("../", "")).is_file(), target
