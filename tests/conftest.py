import ast
import contextlib
import functools
import gc
import importlib
import inspect
import logging
import os
import pathlib
import subprocess
import sys
import threading
import typing

import jax
import jaxtyping
import matplotlib as mpl
import pytest
from jaxtyping import _import_hook as hook

mpl.use("agg")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Traces make many small objects; a twentieth of the time went into looking for cycles among them.
gc.set_threshold(100_000, 20, 50)


def outermost_functions_only(transformer, typechecker):
    """Functions inside of functions are made at every call, and so were their checks of types: a ninth of the suite's time.

    Those that become methods, or stand in for other functions, keep them.
    """
    checked, tag = transformer.visit_FunctionDef, typechecker.get_hash

    def visit(self, node):
        before, stays = self._no_type_check_level, node.decorator_list or "self" in [a.arg for a in node.args.args]
        self._no_type_check_level = int(not stays and any(isinstance(p, ast.FunctionDef) for p in self._parents))
        try:
            return checked(self, node)
        finally:
            self._no_type_check_level = before

    transformer.visit_FunctionDef = visit
    typechecker.get_hash = lambda self: f"{tag(self)}outermost3"  # of the files that Python keeps what it compiled in


outermost_functions_only(hook.JaxtypingTransformer, hook.Typechecker)


def has_shapes(hint) -> bool:
    """Whether shapes of arrays stand in an annotation, or names that only a call resolves."""
    if isinstance(hint, (list, tuple)):
        return any(map(has_shapes, hint))
    known = isinstance(hint, type) and not issubclass(hint, jaxtyping.AbstractArray)
    return not known and (isinstance(hint, (str, type)) or has_shapes(typing.get_args(hint)))


def checked(function=None, *, typechecker):
    """As jaxtyping.jaxtyped; what names no shapes is held against its annotations without a place to keep sizes in.

    Of thousands of functions few name shapes; others were made twice over at import and bound three times at every call.
    """
    if function is None:
        return functools.partial(checked, typechecker=typechecker)
    outermost = (
        inspect.isfunction(function) and "<locals>" not in function.__qualname__
    )  # others stand in for a constructor
    if outermost and not has_shapes(list(function.__annotations__.values())):
        return typechecker(function)
    return with_shapes(function, typechecker=typechecker)


with_shapes, jaxtyping.jaxtyped = jaxtyping.jaxtyped, checked


def one_context_for_many(module, uses=100):
    """What jax writes a program in takes as long to make as a small program to write: each thread keeps one for a while."""
    new, held = module.make_ir_context, threading.local()

    def kept():
        if module.ir.Context.current is not None:  # a program that is written while another one is
            return new()
        held.left = getattr(held, "left", 0) or uses
        if held.left == uses:
            held.context = new()
        held.left -= 1
        return held.context

    module.make_ir_context = kept


with contextlib.suppress(ImportError, AttributeError):  # a part of jax that may change
    one_context_for_many(importlib.import_module("jax._src.interpreters.mlir"))
FUSED, WHOLE = "--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"


def understood(*flags):
    """Those that XLA knows: of one that it does not know the process ends."""

    def known(words):
        alone = [sys.executable, "-c", "import jax; jax.devices()"]
        return not subprocess.run(alone, env={**os.environ, "XLA_FLAGS": words}, capture_output=True).returncode

    return list(flags) if known(" ".join(flags)) else [flag for flag in flags if known(flag)]


def pytest_configure(config):
    """Programs that tests start leave the user's folder of compiled programs alone.

    Quick tests spend most of their time on compiling small programs: little is optimised there, as users have it in slow ones.

    Without the emitters of fused loops alone a third of the time is saved, and a tenth where programs are not cut into parts for
    several threads; programs that tests start inherit that.
    """
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    jax.config.update("jax_enable_compilation_cache", False)
    if config.option.markexpr == "not slow":
        jax.config.update("jax_disable_most_optimizations", True)
        if not hasattr(config, "workerinput"):  # workers have it from who starts them
            os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *understood(FUSED, WHOLE)]).strip()


SLOW_CASES = pathlib.Path(__file__).with_name("slow_cases.txt")
QUICK = pytest.StashKey[dict[str, bool]]()


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(config, items):
    """Of a test that is run for many cases some run with the slow ones: those that slow_cases.txt lists."""
    listed = set(SLOW_CASES.read_text().splitlines())
    for item in items:
        if item.nodeid in listed:
            item.add_marker("slow")
    config.stash[QUICK] = {item.nodeid: item.get_closest_marker("slow") is None for item in items}


@pytest.fixture
def quick(request) -> dict[str, bool]:
    """Of each test that was collected whether it runs by default."""
    return request.config.stash[QUICK]


@pytest.fixture(autouse=True, scope="module")
def room_for_programs():
    """A process may have 65,530 pieces of memory on Linux; compiled programs take nine each, and a compiler without crashes."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 40_000:
        jax.clear_caches()


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def row(record_property):
    """row(number, text): what a test found for this row of the table at the end of the run, across worker processes."""

    def write(number, text):
        record_property(f"row {number:02d}", text)

    return write


def pytest_terminal_summary(terminalreporter):
    """The table of the rows that were measured."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    rows = {
        (name, text, report.outcome)
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name.startswith("row ")
    }
    if rows:
        terminalreporter.section("measured, by row of the feature table")
        for name, text, outcome in sorted(rows):
            terminalreporter.write_line(f"{name.removeprefix('row ')}  {outcome}  {text}")


@pytest.fixture
def compilations():
    """A function: the names of the programs that jax has compiled since it was last called."""
    names: list[str] = []

    class Note(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            words = record.getMessage().split()
            if words[:1] == ["Compiling"]:
                names.append(words[1])

    def taken() -> list[str]:
        found = names[:]
        names.clear()
        return found

    log, note = logging.getLogger("jax"), Note()
    propagates, log.propagate = log.propagate, False
    log.addHandler(note)
    before = jax.config.jax_log_compiles  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_log_compiles", True)  # in all threads, which a context is not
    yield taken
    jax.config.update("jax_log_compiles", before)
    log.removeHandler(note)
    log.propagate = propagates


@pytest.fixture
def full_products():
    """On accelerators products of float32 are rounded more by default; those of a reference are not."""
    with jax.default_matmul_precision("highest"):
        yield
