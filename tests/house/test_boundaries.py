"""Which room may import which."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import limits
import train
import zoo

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("zoo", "limits", "train", "launch")  # each may import those before it
FORBIDDEN = {"tensorflow", "neural_tangents", "torch"}


def imported(source):
    """Dotted names of everything imported, at the top or inside a function; relative imports as "."."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def upward(names, room):
    """Rooms among the imported names that this room may not import."""
    above = ROOMS[ROOMS.index(room) + 1 :] if room in ROOMS else ("launch",)  # configs are launch's to read
    return {name.split(".")[0] for name in names} & set(above)


@pytest.mark.parametrize(
    ("source", "room", "expected"),
    [
        ("import train", "limits", {"train"}),
        ("def f():\n    from limits.types import Task", "zoo", {"limits"}),
        ("from limits import kernels\nimport zoo.layers", "limits", set()),
        ("import jax, launch.cli as cli", "train", {"launch"}),
        ("import zoo, train.data, launch.common", "configs", {"launch"}),
    ],
)
def test_the_check_itself_finds_upward_imports(source, room, expected):
    assert upward(imported(source), room) == expected


@pytest.mark.parametrize("room", [*ROOMS, "configs"])
def test_no_import_points_upwards(room):
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        names = imported(path.read_text(encoding="utf-8"))
        assert not upward(names, room), path
        if room in ("zoo", "limits", "train"):  # `launch` may measure another package beside ours
            assert not {name.split(".")[0] for name in names} & FORBIDDEN, path
        assert not [name for name in names if name.startswith(".")], f"{path}: imports are absolute here"


# What each engine of `limits` may import of this project: itself, the shared types, and what is named here.
ENGINES = {
    "kernels": {"zoo", "limits.types", "limits.kept"},
    "predict": {"zoo", "limits.types", "limits.kept", "limits.waiting"},
    "depth": {"zoo", "limits.types", "limits.inputs", "limits.kernels", "limits.fields"},
    "posterior": {"zoo", "limits.types", "limits.inputs", "limits.kernels", "limits.depth", "limits.predict"},
    "cumulants": {"zoo", "limits.kernels", "limits.depth"},
}


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_are_usable_alone(engine):
    allowed = (*ENGINES[engine], f"limits.{engine}")
    for path in (ROOT / "limits" / engine).rglob("*.py"):
        ours = {name for name in imported(path.read_text(encoding="utf-8")) if name.split(".")[0] in ROOMS}
        ours -= {"limits"}  # `from limits import kernels` names limits.kernels as well
        assert not {n for n in ours if not any(n == a or n.startswith(f"{a}.") for a in allowed)}, path


def test_shared_types_import_no_engine():
    source = (ROOT / "limits" / "types.py").read_text(encoding="utf-8")
    assert not {name for name in imported(source) if name.split(".")[0] in ROOMS} - {"zoo", "zoo.checks"}


@pytest.mark.parametrize("module", [zoo, limits, train], ids=lambda module: module.__name__)
def test_rooms_come_from_this_checkout(module):
    # An unrelated package is called `limits` too.
    assert Path(module.__file__).resolve() == ROOT / module.__name__ / "__init__.py"


def test_importing_zoo_does_not_import_the_rooms_above():
    code = "import sys, zoo; print(sorted({m.split('.')[0] for m in sys.modules} & {'limits', 'train', 'launch'}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
