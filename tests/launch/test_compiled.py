"""Compiled programs are kept for the next run of a command, where the user and JAX let them be."""

import os
from pathlib import Path
from typing import Any

import filelock
import jax
import pytest
from forked import ended

from launch import compiled

COMPILES = """
import contextlib, os, sys
import jax, jax.numpy as jnp
from jax._src import monitoring
from launch import common, compiled
jax.config.update("jax_enable_compilation_cache", True)  # off in tests
jax.config.update("jax_compilation_cache_max_size", int(os.environ.get("JAX_COMPILATION_CACHE_MAX_SIZE", "-1")))
compiled.SETTINGS["jax_persistent_cache_min_compile_time_secs"] = 1.0, 0.0  # what is compiled here takes less
events = []
monitoring.register_event_listener(lambda name, **_: events.append(name))
def main():
    print(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.arange(4.0)))
with contextlib.suppress(SystemExit):
    common.start(main, "")
print("read", events.count("/jax/compilation_cache/cache_hits"), "folder", jax.config.jax_compilation_cache_dir)
"""
CONFIG: Any = jax.config


@pytest.fixture(autouse=True)
def settings():
    names = ("jax_compilation_cache_dir", "jax_enable_compilation_cache", *compiled.SETTINGS)
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_enable_compilation_cache", True)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def entries(folder):
    return sorted(file.name for file in folder.rglob("*-cache"))


def test_a_second_program_reads_what_the_first_compiled(tmp_path):
    """Also two at once; and the user can have it off."""
    place = {"XDG_CACHE_HOME": str(tmp_path)}
    first = ended(COMPILES, places=(place, place))
    assert first.codes == [0, 0], first.outputs
    kept = entries(tmp_path)
    assert len(kept) > 0
    (said,) = ended(COMPILES, places=(place,)).outputs
    assert f"read {len(kept)} folder {tmp_path}/limit-zoo/compiled-" in said
    assert entries(tmp_path) == kept
    (off,) = ended(COMPILES, "--nokeep_compiled", places=(place,)).outputs
    assert "read 0 folder None" in off


def test_what_jax_was_told_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ours"))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", "-1")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 7.0)
    assert compiled.keep() is None
    assert CONFIG.jax_compilation_cache_dir == str(compiled.folder())
    assert CONFIG.jax_compilation_cache_max_size == -1
    assert CONFIG.jax_persistent_cache_min_compile_time_secs == 7.0
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert compiled.keep() is None
    assert CONFIG.jax_compilation_cache_dir == str(tmp_path / "theirs")
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", False)
    assert compiled.keep() is None
    assert CONFIG.jax_compilation_cache_dir is None
    assert not (tmp_path / "other").exists()


def test_the_size_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", None)
    assert compiled.keep() is None
    assert CONFIG.jax_compilation_cache_max_size == compiled.LARGEST
    place = {"XDG_CACHE_HOME": str(tmp_path), "JAX_COMPILATION_CACHE_MAX_SIZE": "10000"}
    assert ended(COMPILES, places=(place,)).codes == [0]
    assert 0 < sum((file.stat().st_size for file in tmp_path.rglob("*-cache")), 0) <= 10000


def test_a_home_that_cannot_be_written_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    jax.config.update("jax_compilation_cache_dir", None)
    assert str(compiled.keep()).startswith(f"Compiled programs are not kept: {tmp_path}/file/limit-zoo/compiled-")
    assert CONFIG.jax_compilation_cache_dir is None
    (code,), (said,) = ended(COMPILES, places=({"XDG_CACHE_HOME": str(tmp_path / "file")},))
    assert code == 0
    assert "cannot be written (Not a directory)" in said
    assert "read 0" in said


def test_a_folder_that_another_process_keeps_locked_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "PATIENCE", 0.01)
    jax.config.update("jax_compilation_cache_dir", None)
    place = compiled.folder()
    place.mkdir(parents=True)
    with filelock.FileLock(place / ".lockfile"):
        assert "another process keeps it locked" in str(compiled.keep())


def test_of_too_many_the_latest_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "MOST", 2)
    for age, name in enumerate("abcd"):
        for end in ("-cache", "-atime"):
            (tmp_path / f"{name}{end}").write_text("")
            os.utime(tmp_path / f"{name}{end}", (1e9 - age, 1e9 - age))
    compiled.mend(tmp_path)
    assert entries(tmp_path) == ["a-cache", "b-cache"]


def test_what_was_left_half_is_removed(tmp_path):
    for name in ("a-cache", "a-atime", "b-cache", "c-atime", ".lockfile", "other"):
        (tmp_path / name).write_text("")
    compiled.mend(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".lockfile", "a-atime", "a-cache", "other"]


def test_help_says_where(capsys, monkeypatch):
    from launch import common

    monkeypatch.setattr("sys.argv", ["launch.train", "--help"])
    with pytest.raises(SystemExit):
        common.start(lambda: None, "")
    said = capsys.readouterr().out
    assert "--nokeep_compiled" in said
    assert str(Path(compiled.folder())) in said
