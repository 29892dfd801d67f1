"""What is kept comes back, or is set aside and said."""

import errno
import os
import random
import re
import threading
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from limits.kept.store import Store, folder_inside, open_inside, pack, unpack, write_whole

_VALUE = {
    "f": np.arange(6.0).reshape(2, 3),
    "phi": (np.ones(3, np.float32), np.zeros((0, 2))),
    "steps": [1, 2.5, float("inf"), None, True, "é"],
    3: {"half": np.asarray(jnp.ones(2, jnp.bfloat16)), "one": np.float64(0.5)},
}


def _same(one, other) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other


def test_a_tree_comes_back(tmp_path) -> None:
    store = Store(tmp_path)
    store.put("cell_1", _VALUE)
    assert _same(store.get("cell_1"), _VALUE)
    assert os.listdir(tmp_path) == ["cell_1.npz"]


def test_no_flip_truncation_or_addition_goes_unnoticed(tmp_path) -> None:
    """400 bits, 50 ends, a byte more, an empty file: each is set aside, said, and counts as missing."""
    rng, said = random.Random(0), []
    data = pack("cell", _VALUE)
    damaged = [bytearray(data) for _ in range(400)]
    for each in damaged:
        each[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    damaged += [data[: rng.randrange(len(data))] for _ in range(50)] + [data + b"\0", b""]
    store = Store(tmp_path, said.append)
    for each in damaged:
        (tmp_path / "cell.npz").write_bytes(each)
        assert store.get("cell") is None
    assert len(said) == len(damaged) == len(list(tmp_path.glob("cell.npz.damaged-*")))
    assert "cell.npz" in said[0]
    assert not (tmp_path / "cell.npz").exists()


def test_swapped_files_are_noticed(tmp_path) -> None:
    said = []
    store = Store(tmp_path, said.append)
    store.put("one", {"f": np.ones(2)})
    store.put("other", {"f": np.zeros(2)})
    (tmp_path / "one.npz").rename(tmp_path / "between")
    (tmp_path / "other.npz").rename(tmp_path / "one.npz")
    assert store.get("one") is None
    assert "other" in said[0]


def test_objects_are_refused(tmp_path) -> None:
    with pytest.raises(TypeError, match="cell holds"):
        Store(tmp_path).put("cell", {"f": object()})


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    store = Store(tmp_path)
    store.put("cell", 1)

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        store.put("cell", 2)
    assert store.get("cell") == 1
    assert os.listdir(tmp_path) == ["cell.npz"]


def test_a_failed_write_names_the_file_that_was_meant(tmp_path, monkeypatch) -> None:
    """A full disk names none, and a folder that may not be written to the one that was to be renamed."""
    for broken, code in (("fsync", errno.ENOSPC), ("replace", errno.EACCES)):
        with monkeypatch.context() as patch:

            def failing(*names, code=code):
                raise OSError(code, os.strerror(code), *map(str, names[:1] if code == errno.EACCES else ()))

            patch.setattr(os, broken, failing)
            with pytest.raises(OSError, match=re.escape(str(tmp_path / "a.json"))) as error:
                write_whole(tmp_path / "a.json", b"1")
        assert error.value.filename == str(tmp_path / "a.json")
        assert not os.listdir(tmp_path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_what_may_not_be_read_now_is_not_damaged(tmp_path, monkeypatch, number) -> None:
    store = Store(tmp_path)
    store.put("cell", 1)

    def refused(path):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(OSError, match=r"cell\.npz"):
        store.get("cell")
    monkeypatch.undo()
    assert store.get("cell") == 1


def test_nothing_is_written_through_links(tmp_path) -> None:
    target = tmp_path / "precious"
    target.write_text("kept")
    (tmp_path / "run").mkdir()
    for name in ("cell.npz", "log"):
        (tmp_path / "run" / name).symlink_to(target)
    write_whole(tmp_path / "run" / "cell.npz", b"new")
    with pytest.raises(ValueError, match="symbolic link"):
        open_inside(tmp_path / "run" / "log")
    (tmp_path / "run" / "cells").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="symbolic link"):
        folder_inside(tmp_path / "run", "cells")
    assert target.read_text() == "kept"


def test_a_second_one_waits(tmp_path) -> None:
    """Of two that want a cell, one computes."""
    said, computed = [], []
    inside, go_on = threading.Event(), threading.Event()

    def one() -> None:
        store = Store(tmp_path, said.append)
        with store.lock("cell"):
            if store.get("cell") is None:
                inside.set()
                assert go_on.wait(60)
                computed.append(1)
                store.put("cell", 1)

    workers = [threading.Thread(target=one) for _ in range(2)]
    workers[0].start()
    assert inside.wait(60)
    workers[1].start()
    while not said and workers[1].is_alive():
        workers[1].join(0.01)
    go_on.set()
    for worker in workers:
        worker.join(60)
    assert computed == [1]
    assert "another process" in said[0]


def test_bytes_say_which_cell_they_are() -> None:
    assert unpack("a", pack("a", (1, 2))) == (1, 2)
