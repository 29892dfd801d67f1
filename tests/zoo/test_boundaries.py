"""Which room may import which, and that nothing exported is left without its twin."""

import ast
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import pytest

import limits
import train
import zoo

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("zoo", "limits", "train", "launch")  # each may import those before it
FORBIDDEN = {"tensorflow", "neural_tangents", "torch"}
FILES = sorted(path for room in (*ROOMS, "configs") for path in (ROOT / room).rglob("*.py"))


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


def upward(source, room):
    """Rooms imported that this room may not import."""
    above = ROOMS[ROOMS.index(room) + 1 :] if room in ROOMS else ("launch",)  # configs are launch's to read
    return {name.split(".")[0] for name in imported(source)} & set(above)


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
    assert upward(source, room) == expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_points_upwards(path):
    source, room = path.read_text(encoding="utf-8"), path.relative_to(ROOT).parts[0]
    assert upward(source, room) == set()
    if room in ("zoo", "limits", "train"):  # `launch` may measure another package beside ours
        assert not {name.split(".")[0] for name in imported(source)} & FORBIDDEN
    assert not [name for name in imported(source) if name.startswith(".")], "imports are absolute here"


def test_there_are_files_to_check():
    assert {path.relative_to(ROOT).parts[0] for path in FILES} >= {"zoo", "limits", "train"}


# What each engine of `limits` may import of this project: itself, the shared types, and what is named here.
ENGINES = {
    "kernels": {"zoo", "limits.types", "limits.identity", "limits.store"},
    "predict": {"zoo", "limits.types"},
    "depth": {"zoo", "limits.types", "limits.inputs", "limits.kernels", "limits.walk", "limits.fields"},
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
    import subprocess

    code = "import sys, zoo; print(sorted({m.split('.')[0] for m in sys.modules} & {'limits', 'train', 'launch'}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Definitions of the zoo, by class: an instance, the shape of a sample, and its exact number of parameters.
SIZES: dict[type, Any] = {
    zoo.MLP: (zoo.MLP(width=512, depth=3, outputs=10, b_std=0.1), (28, 28, 1), 785 * 512 + 2 * 513 * 512 + 5130),
    zoo.CNN: (
        zoo.CNN(width=8, depth=3, outputs=10, b_std=0.1, pool_after=(1,)),
        (8, 8, 3),
        (27 + 1) * 8 + 2 * (9 * 8 + 1) * 8 + (16 * 8 + 1) * 10,
    ),
    zoo.ResNet: (
        zoo.ResNet(width=16, depth=6, outputs=10, form="conv", stages=3, readout="average"),
        (8, 8, 3),
        # read-in, two blocks of 4 channels, doubling, a block of 8, doubling, a block of 16, readout
        27 * 4 + 2 * 36 * 4 + 36 * 8 + 72 * 8 + 72 * 16 + 144 * 16 + 160,
    ),
    zoo.ViT: (
        zoo.ViT(width=16, depth=2, outputs=10, patch=4, pool="class"),
        (8, 8, 3),
        # patches, class token, positions, two blocks (norms, attention, MLP), the last norm, readout
        48 * 16 + 16 + 5 * 16 + 2 * (4 * 16 + 4 * 16**2 + 8 * 16**2) + 2 * 16 + 160,
    ),
}


def definitions():
    exported = [value for value in vars(zoo).values() if isinstance(value, type) and issubclass(value, nn.Module)]
    return [cls for cls in exported if {"width", "depth", "parameterization"} <= set(cls.__dataclass_fields__)]


def test_every_definition_has_a_size_and_a_twin():
    assert set(definitions()) == set(SIZES)
    for cls in definitions():
        assert isinstance(limits.twin(SIZES[cls][0]), limits.Twin)


@pytest.mark.parametrize("cls", definitions(), ids=lambda cls: cls.__name__)
def test_exact_parameter_count_of_the_definitions(cls):
    import jax

    net, shape, expected = SIZES[cls]
    params = jax.eval_shape(net.init, jax.random.key(0), jax.ShapeDtypeStruct((1, *shape), "float32"))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == expected
