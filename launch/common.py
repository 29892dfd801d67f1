"""What every program shares: flags, config files by name, the output folder, and errors as sentences."""

import ast
import atexit
import errno
import gc
import io
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import app, flags, logging
from etils import epath
from ml_collections import ConfigDict, config_flags
from rich.console import Console

import configs
from launch import compiled, overrides, watch
from launch.ended import end_in_time
from limits.kept import store
from limits.kept.identity import version_of
from train.study.experiment import Experiment, load
from train.study.resume import code_of
from zoo import checks
from zoo.messages import did_you_mean

CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "A config file, or the name of a packaged one; --config.FIELD=VALUE overrides a field.",
    lock_config=True,
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where results go; default runs/NAME of the config. A rerun continues there."
)
COMPILED = flags.DEFINE_boolean(
    "keep_compiled",
    True,
    f"Keep compiled programs for the next run, in {compiled.folder()} (at most {compiled.LARGEST / 2**20:.0f} MB), unless JAX's "
    "own settings name a folder. --nokeep_compiled: compile anew.",
)
DEBUG = flags.DEFINE_boolean("debug", False, "Show Python's traceback with an error.")
atexit.register(gc.freeze)  # else Python, as it ends, looks for cycles among all that was traced: a second
NAMED: list[str] = []  # what the user named beside flags, once `start` has read the command line
_WRITTEN: list[Any] = []  # the output folder, once it is known
_NO_ROOM = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room there")
_NO_ROOM[errno.EFBIG] = "allow larger files (ulimit -f) or make room there"
_NOT_NOW = dict.fromkeys((errno.EACCES, errno.EPERM, errno.ENOTDIR), "read or written") | {errno.EROFS: "written"}
_TRACED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
_OF_NUMPY = (
    "A function of the config needs a number where JAX has none yet: in what is trained or scored take jax.numpy, not NumPy, and "
    "jnp.where, not `if` (--debug shows where). JAX: "
)
_SPEAKING = (ValueError, MemoryError, FloatingPointError, OSError, AttributeError, TypeError)


def packaged() -> dict[str, Path]:
    """The configs that come with the package, by name."""
    folder = Path(next(iter(configs.__path__)))
    return {file.stem: file for file in sorted(folder.glob("*.py")) if not file.stem.startswith("_")}


def find_config(value: str) -> str:
    """The path of a config given by path or by name."""
    path, _, argument = value.partition(":")
    known = packaged()
    if not Path(path).is_file():
        name = Path(path).stem
        if name not in known:
            raise SystemExit(
                f'There is no config file "{path}", and no packaged config of that name. {did_you_mean(name, known)}'
            )
        path = str(known[name])
    return f"{path}:{argument}" if argument else path


def named_configs(arguments: Sequence[str]) -> dict[int, str]:
    """What the --config=… of a command line name, by their places (absl keeps the last).

    >>> named_configs(["analyze", "runs/a", "--config=a.py", "--config", "b.py:small"])
    {2: 'a.py', 4: 'b.py:small'}
    """
    found = {}
    for i, word in enumerate(arguments):
        flag, equal, value = word.partition("=")
        if flag in ("--config", "-config"):
            found |= {i: value} if equal else dict(enumerate(arguments[i + 1 : i + 2], start=i + 1))
    return found


def help_text(about: str | None) -> str:
    """A command's description, its flags, and the configs there are."""
    lines = [(about or "").strip(), "", "flags:"]
    by_module = flags.FLAGS.flags_by_module_dict()
    ours = [module for module in by_module if module.startswith("launch.") or module == sys.argv[0]]
    lines += [f"  --{flag.name}: {flag.help}" for module in ours for flag in by_module[module]]
    lines += ["", "packaged configs (their headers say the time and the result to expect):"]
    for name, file in packaged().items():
        lines.append(f"  {name:10s} {(ast.get_docstring(ast.parse(file.read_text())) or '').splitlines()[0]}")
    return "\n".join(lines)


def start(
    main: Callable[[], None],
    about: str | None,
    names: bool = False,
    complete: Callable[[Any, set[str]], None] = lambda config, named: None,
) -> None:
    """Parses the flags and runs `main`; an expected error ends in one sentence and exit code 1.

    names: whether words beside the flags are names for `main`, which finds them in `NAMED`; otherwise they are mistakes.
    complete(config, fields that the command line names) sets what a config may leave out.
    """
    for stream in (sys.stdout, sys.stderr):  # else a sign that a terminal of Latin letters lacks ends what was computed
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if {"-h", "--help", "-help"} & set(sys.argv[1:]):
        try:
            print(help_text(about), flush=True)
        except BrokenPipeError:  # `| head` has read enough; Python would complain once more when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)
    arguments, path = list(sys.argv), ""
    for place, given in named_configs(arguments).items():
        path = find_config(given)
        arguments[place] = arguments[place].removesuffix(given) + path
    if path:
        _SETTINGS[path] = _settings(*path.partition(":")[::2])
        complete(_SETTINGS[path], overrides.named(arguments))
        left = overrides.options(load(Path(path.partition(":")[0])))
        overrides.check(arguments, _SETTINGS[path], left)
        arguments = overrides.fill(arguments, _SETTINGS[path], left)

    def guarded(rest: Any) -> None:
        NAMED[:] = rest[1:]
        if NAMED and not names:
            print(f"error: {_stray(NAMED[0])}", file=sys.stderr)
            raise SystemExit(1)
        logging.set_verbosity(logging.WARNING)  # jax reports every backend it does not find
        if COMPILED.value and (flaw := compiled.keep()):
            print(flaw, file=sys.stderr)
        try:
            main()
        except KeyboardInterrupt:
            kept = "What is finished (cells, checkpoints) is kept: run the same command again to continue."
            print(f"\nInterrupted. {kept if _WRITTEN else 'Nothing was begun that is kept.'}", file=sys.stderr)
            watch.fail(KeyboardInterrupt("interrupted by hand."))
            end_in_time(130)
            raise SystemExit(130) from None
        except Exception as error:
            if DEBUG.value:
                raise
            watch.await_verdict(error)
            print(f"error: {sentence(error)}", file=sys.stderr)
            watch.fail(error)
            end_in_time(1)
            raise SystemExit(1) from None

    app.run(guarded, argv=arguments, flags_parser=overrides.parse)


def sentence(error: Exception) -> str:
    """What an error says; with its kind where that alone would say little.

    >>> sentence(ValueError("steps must be at least 1.")), sentence(KeyError("width"))
    ('steps must be at least 1.', "KeyError: 'width' (--debug shows where)")
    >>> try:
    ...     jax.jit(lambda x: 1.0 if x > 0 else x)(1.0)
    ... except TypeError as error:
    ...     print(sentence(error)[:63])
    A function of the config needs a number where JAX has none yet:
    """
    again = "the same command continues from what is kept" if _WRITTEN else "give the same command again"
    if isinstance(error, OSError) and error.errno in _NO_ROOM:  # Python and the system say at most which file
        where = Path(error.filename).parent if error.filename else _WRITTEN[-1] if _WRITTEN else "the output folder"
        remedy = f"{_NO_ROOM[error.errno]}, and {again}"
        return f"There is no room for what is written to {where} ({error.strerror}): {remedy}."
    if isinstance(error, OSError) and error.errno in _NOT_NOW:
        what = error.filename or (_WRITTEN[-1] if _WRITTEN else "a file")
        return f"{what} cannot be {_NOT_NOW[error.errno]} ({error.strerror}): mend that, and {again}."
    if isinstance(error, _TRACED):
        return _OF_NUMPY + str(error).strip().partition("\n")[0]
    return str(error) if isinstance(error, _SPEAKING) else f"{type(error).__name__}: {error} (--debug shows where)"


def _stray(word: str) -> str:
    name = word.lstrip("-–—").partition("=")[0]
    known = name.partition(".")[0] in flags.FLAGS
    meant = f"--{word.lstrip('-–—')}" if known else "flags are written --NAME=VALUE (--help lists them)"
    return f'"{word}" is not a flag, and nothing else is expected here: {meant}{"?" if known else "."}'


class _ConfigParser(flags.ArgumentParser):
    """Of --config: what `start` has read of the file already. It is executed once, also for the functions in it."""

    def parse(self, path: str) -> Any:
        settings = _SETTINGS.pop(path) if path in _SETTINGS else _settings(*path.partition(":")[::2])
        settings.lock()
        return settings


_SETTINGS: dict[str, Any] = {}
flags.FLAGS["config"].parser = _ConfigParser()


def _settings(file: str, argument: str) -> Any:
    """What the config file's get_config returns."""
    try:
        module = load(Path(file))
        if not hasattr(module, "get_config"):
            raise LookupError("it has no get_config()")
        settings = module.get_config(*([argument] if argument else []))
        if not isinstance(settings, ConfigDict):
            raise LookupError(f"get_config() returns {type(settings).__name__}, not an ml_collections.ConfigDict")
        return settings
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        why = error if type(error) is LookupError else f"{type(error).__name__}: {error}"
        why = str(why).rstrip(".")
        raise SystemExit(f"error: the config file {file} cannot be used: {why}. --debug shows where.") from None


def config() -> ConfigDict:
    """The config of this run."""
    if CONFIG.value is None:
        raise ValueError(f"Give a config: --config=NAME with one of {', '.join(packaged())}, or a file of your own.")
    return CONFIG.value


def config_file() -> str:
    """The config's file, with its argument."""
    return config_flags.get_config_filename(flags.FLAGS["config"])


def workdir(name: Any, instead: str = "choose another with --workdir") -> Path:
    """The output folder, `config.name` in runs/ by default, made and tried out before any work is done; what to do `instead`
    where it cannot be written."""
    checks.word("config.name", name)
    if "://" in (WORKDIR.value or ""):
        raise ValueError(
            f"--workdir={WORKDIR.value}: only launch.train and launch.analyze read and write shared storage."
        )
    folder = Path(WORKDIR.value or Path("runs") / name)
    try:
        store.folder_inside(folder, "cells")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"The output folder {folder} cannot be written ({error.strerror}): {instead}.") from None
    _WRITTEN.append(folder)
    return folder


def run_folder(name: str) -> Any:
    """The folder of a training run: as `workdir`, or on shared storage (gs://…), where the first process makes it."""
    if "://" not in (WORKDIR.value or ""):
        return workdir(name)
    folder = epath.Path(str(WORKDIR.value))
    try:
        if jax.process_index() == 0:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".writable").write_text("")
    except (ImportError, OSError, ValueError) as error:
        raise OSError(
            f"The output folder {folder} cannot be written ({error}): is the bucket there, may this machine write to it, and is "
            "gcsfs installed (pip install gcsfs)?"
        ) from None
    _WRITTEN.append(folder)
    return folder


def provenance(settings: ConfigDict, experiment: Experiment | None = None) -> dict[str, Any]:
    """What was run: config, code (of an experiment, or of the config's file), versions, device."""
    names = ("limit-zoo", "jax", "jaxlib", "flax", "optax", "numpy", "scipy")
    versions = {name: version_of(name) for name in names}
    device, experiment = jax.devices()[0], experiment or Experiment(config_file(), settings, ())
    return {
        "config": json.loads(settings.to_json_best_effort()),
        "config_file": experiment.path.name,
        "code": code_of(experiment.functions()),
        "seed": settings.get("seed"),
        "versions": {"python": platform.python_version(), **versions},
        "device": {"kind": device.device_kind, "platform": device.platform, "count": jax.device_count()},
        "processor": {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()},
        "command": command_line(),
    }


def say_unread(screen: Any, names: Sequence[str]) -> None:
    """Names the fields of a config that nothing reads, if there are any."""
    if names:
        screen.print(f"fields of the config that nothing reads: {', '.join(names)}")


def keep_config(folder: Any, run: Mapping[str, Any]) -> None:
    """What is run (`provenance`) and the config's file, beside the results."""
    write_whole(folder / "config.json", json.dumps(run, indent=2) + "\n")
    path = Path(config_file().partition(":")[0])
    copy = folder / path.name
    if "://" in str(folder) or not (os.path.exists(copy) and path.samefile(copy)):
        write_whole(copy, path.read_text(encoding="utf-8"))


def command_line() -> str:
    """What the user typed."""
    program = sys.argv[0].split() if sys.argv[0].startswith("limit-zoo") else None
    return shlex.join([*(program or ["python3", "-m", f"launch.{Path(sys.argv[0]).stem}"]), *sys.argv[1:]])


def write_whole(file: Any, text: str) -> Any:
    """Whole or not at all, whoever else writes it."""
    if "://" in str(file):  # an object of shared storage is always whole
        file.write_text(text)
        return file
    store.write_whole(file, text.encode())
    return file


def write(folder: Any, documents: Mapping[str, str], screen: Console, started: float = 0.0) -> None:
    """Writes files by name, and says so; with `started`, also how long the program took."""
    for name, text in documents.items():
        screen.print(f"wrote {write_whole(folder / name, text)}", highlight=False)
    if started:
        screen.print(f"{time.time() - started:.0f} s", highlight=False)


def console() -> Console:
    """The terminal; wide enough for the tables where the output is a file. Names of folders and settings may have [brackets]."""
    screen = Console(markup=False)
    return screen if screen.is_terminal else Console(width=170, markup=False)
