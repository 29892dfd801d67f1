"""The notebooks: their outputs are those of a whole run, from a clean start and of this code; and they still run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "launch/notebooks").glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

# What a notebook is without Jupyter: its cells one after the other, in one namespace.
RUN = """
import json, sys
space = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), space)
"""


def cells(path, kind="code"):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def test_all_three_are_there():
    assert len(NOTEBOOKS) == 3
    listed = [(ROOT / page).read_text() for page in ("README.md", "launch/README.md")]
    assert all("launch/notebooks/" in page for page in listed)
    assert all(path.name in listed[1] for path in NOTEBOOKS)


@each
def test_outputs_are_of_one_whole_run(path):
    assert path.stat().st_size < 400_000
    code = cells(path)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    kinds = {
        output.get("name") or ("picture" if "image/png" in output.get("data", {}) else "other") for output in outputs
    }
    assert kinds == {"stdout", "picture"}  # no error, no warning, no bar
    assert all("assert " in "".join(cell["source"]) for cell in code if pictures(cell))


def pictures(cell):
    return [output for output in cell["outputs"] if "image/png" in output.get("data", {})]


@each
def test_nothing_of_the_machine_is_in_it(path):
    text = path.read_text()
    assert not re.search(r"(?<![\w.:/])/(home|root|Users|tmp|work|usr|opt|mnt)/|[A-Z]:\\\\|file://", text)
    whole = json.loads(text)
    assert whole["metadata"]["kernelspec"]["name"] == "python3"
    assert all(cell["metadata"] == {} for cell in whole["cells"])  # no times of execution


@each
def test_links_and_files_exist(path):
    said = "".join("".join(cell["source"]) for cell in cells(path, "markdown"))
    files = re.findall(r"`((?:[a-z]+/)+[\w.]+\.(?:md|py))`|--config=(configs/\w+\.py)|`(\w+\.ipynb)`", said)
    assert files
    for room, config, notebook in files:
        assert (ROOT / (room or config or f"launch/notebooks/{notebook}")).is_file()


@pytest.mark.slow
@each
def test_it_runs_from_the_start(path):
    settings = os.environ | {"MPLBACKEND": "Agg", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, path], cwd=path.parent, env=settings, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Warning" not in done.stderr  # a bar may be there, where the machine is slow
