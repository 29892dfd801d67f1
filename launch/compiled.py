"""Programs that XLA has compiled stay on disk, so that the next run of a command need not compile them again.

What JAX traced of ensembles lies in a folder beside it (`limits.kept.exported`).
"""

import hashlib
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import filelock
import jax

LARGEST = 2**28  # bytes of a folder; what was used longest ago goes first
MOST = 1000  # programs at a start: JAX looks at all of them to add one, 50 µs each
# Seconds of compilation: of 116 programs of `compare --config=mlp` 107 take longer, all but .27 s of 75 s. One is added in 7 ms
# to a folder of a hundred.
SHORTEST = 0.1
PATIENCE = 5.0  # seconds for the lock of the folder
_CACHE, _TIME = "-cache", "-atime"  # the two files of a program
# JAX's settings: what they are where nobody has set them, and here.
SETTINGS = {
    "jax_compilation_cache_max_size": (-1, LARGEST),
    "jax_persistent_cache_min_compile_time_secs": (1.0, SHORTEST),
}


def keep() -> str | None:
    """Keeps compiled programs in this user's cache folder, unless JAX has a folder or none is wanted; a sentence where it cannot.

    What JAX was told, by its variables of the environment or its configuration, stays as it is.
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return None
    place = folder()
    if not place.is_absolute():
        return f"Compiled programs are not kept: this user has no home folder ({place})."
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
        mend(place)
    except OSError as error:
        why = error.strerror or "another process keeps it locked"
        return f"Compiled programs are not kept: {place} cannot be written ({why})."
    for name, (usual, ours) in SETTINGS.items():
        if getattr(jax.config, name) == usual and name.upper() not in os.environ:
            jax.config.update(name, ours)
    jax.config.update("jax_compilation_cache_dir", str(place))
    return None


def folder() -> Path:
    """Where this user's compiled programs are kept; those of another kind of processor, in a shared home, lie beside it."""
    usual = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or usual)
    return cache / "limit-zoo" / f"compiled-{processor()}"


def processor() -> str:
    """A word for what this machine's processor can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        can = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    except OSError:
        can = [platform.processor()]
    return hashlib.sha256("\n".join([platform.machine(), *sorted(set(can))]).encode()).hexdigest()[:12]


def mend(place: Path) -> None:
    """Removes what a process that was killed left half, which JAX would neither read nor replace, and the oldest of too many."""
    with filelock.FileLock(place / ".lockfile", timeout=PATIENCE):  # JAX's own
        names = {file.name for file in place.iterdir()}
        programs, times = ({name.removesuffix(end) for name in names if name.endswith(end)} for end in (_CACHE, _TIME))
        used = sorted(programs & times, key=lambda name: (place / f"{name}{_TIME}").stat().st_mtime)
        for name in (programs ^ times) | set(used[:-MOST]):
            for end in (_CACHE, _TIME):
                (place / f"{name}{end}").unlink(missing_ok=True)
