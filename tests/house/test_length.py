"""A file is read in one sitting."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = {"zoo": 350, "limits": 350, "train": 350, "launch": 350, "configs": 350, "tests": 500}


def too_long(files, most):
    """Files of more lines, with their numbers."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    return {str(path): length for path, length in lengths.items() if length > most}


@pytest.mark.parametrize("room", LONGEST)
def test_no_file_is_too_long(room):
    files = list((ROOT / room).rglob("*.py"))
    assert len(files) > 20
    assert too_long(files, LONGEST[room]) == {}, "split by idea: a reader must be able to guess which file has what"


def test_the_check_itself_finds_a_long_file(tmp_path):
    (tmp_path / "long.py").write_text("x = 1\n" * 351)
    (tmp_path / "short.py").write_text("x = 1\n" * 350)
    assert list(too_long(tmp_path.glob("*.py"), 350).values()) == [351]
