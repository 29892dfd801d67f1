"""A name means one thing."""

import ast
import collections
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("zoo", "limits", "train", "launch", "configs")


def classes(source):
    """The classes that a module shows."""
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]


def test_no_two_classes_share_a_name():
    places = collections.defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for name in classes(path.read_text(encoding="utf-8")):
                places[name].append(str(path.relative_to(ROOT)))
    assert len(places) > 100
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
