"""What importing the rooms, and asking a program for its flags, does not import."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Each takes as long as a third of jax, or more than all of ours.
HEAVY = (
    "matplotlib", "sklearn", "orbax", "grain", "diffrax", "flax.nnx", "tensorflow_datasets", "pandas",
    "scipy.stats", "scipy.special", "scipy.linalg", "scipy.optimize", "scipy.integrate", "scipy.interpolate", "scipy.sparse",
)  # fmt: skip
AFTER = f"import sys; print(*[m for m in {HEAVY} if m in sys.modules])"
HELP = """
import contextlib, sys
from launch import bench, compare, limit, local_cluster, reproduce, train, transfer
sys.argv[1:] = ["--help"]
for command in (train, compare, limit, transfer):
    with contextlib.suppress(SystemExit):
        command.run()
"""


@pytest.mark.parametrize("code", ["import limits, zoo, train", HELP], ids=["rooms", "help"])
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    done = subprocess.run([sys.executable, "-c", f"{code}\n{AFTER}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""


def test_the_check_itself_finds_what_was_imported():
    done = subprocess.run([sys.executable, "-c", f"import scipy.special\n{AFTER}"], capture_output=True, text=True)
    assert "scipy.special" in done.stdout.split()
