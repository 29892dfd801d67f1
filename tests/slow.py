"""The slow tests, file by file, and a table at the end: python3 tests/slow.py [files or folders] [--jobs 2] [--limit 3600].

Each file is a process of its own, so that one which hangs or is killed leaves the others' results. The table is Markdown, with
date, commit and versions, as `tests/README.md` shows it; the exit status is 1 if anything failed.
"""

import argparse
import concurrent.futures
import datetime
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
import typing
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-m",
    "slow",
    "-n",
    "0",
    "-q",
    "-p",
    "no:cacheprovider",
    "-o",
    "junit_family=legacy",
)


class Result(typing.NamedTuple):
    """What came of one file; `failed` names the tests, or says why there are none."""

    file: str
    passed: int
    skipped: int
    failed: tuple[str, ...]
    seconds: float


def slow_files(where: list[str]) -> list[str]:
    """Those below `where` that hold slow tests."""
    listed = subprocess.run((*PYTEST, "--collect-only", *where), cwd=ROOT, capture_output=True, text=True)
    files = dict.fromkeys(line.split("::")[0] for line in listed.stdout.splitlines() if "::" in line)
    if not files:
        raise SystemExit(f"no slow tests in {where}:\n{listed.stdout[-1000:]}{listed.stderr[-1000:]}")
    return list(files)


def outcome(file: str, limit: float) -> Result:
    """Run one file for at most `limit` seconds; its output is printed when something failed."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        try:
            ran = subprocess.run(
                (*PYTEST, f"--junitxml={report}", file), cwd=ROOT, capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return Result(file, 0, 0, (f"not finished in {limit:.0f} s",), limit)
        seconds = time.monotonic() - start
        if not report.exists():
            return Result(file, 0, 0, (f"ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-500:]}",), seconds)
        cases = xml.parse(report).getroot().findall(".//testcase")
    failed = tuple(
        case.get("name", "?") for case in cases if case.find("failure") is not None or case.find("error") is not None
    )
    skipped = sum(case.find("skipped") is not None for case in cases)
    if failed:
        print(ran.stdout[-6000:], flush=True)
    return Result(file, len(cases) - skipped - len(failed), skipped, failed, seconds)


def table(results: list[Result], seconds: float) -> str:
    """Rows, and below them when, of which commit and with which versions."""
    commit = subprocess.run(
        ("git", "describe", "--always", "--dirty"), cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    versions = " ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "flax", "optax"))
    where = f"Python {platform.python_version()}, {versions}, {os.cpu_count()} cores"
    rows = [
        f"| `{r.file}` | {r.passed} | {r.skipped} | {', '.join(f'`{name}`' for name in r.failed) or '–'} | {r.seconds:.0f} |"
        for r in sorted(results)
    ]
    total = [sum(r.passed for r in results), sum(r.skipped for r in results), sum(len(r.failed) for r in results)]
    return "\n".join(
        [
            "| slow tests of | passed | skipped | failed | s |",
            "|---|---:|---:|---|---:|",
            *rows,
            f"| all | {total[0]} | {total[1]} | {total[2]} | {seconds:.0f} |",
            "",
            f"{datetime.date.today()}, commit {commit or '?'}, {where}",
        ]
    )


def main() -> int:
    """Run, say one line a file with the time so far, print the table."""
    parser = argparse.ArgumentParser(description="The slow tests, file by file, and a table at the end.")
    parser.add_argument("where", nargs="*", help="files or folders; all of tests without")
    parser.add_argument("--jobs", type=int, default=2, help="files at once")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that one file may take")
    flags = parser.parse_args()
    start, results = time.monotonic(), []
    files = slow_files(flags.where)
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(outcome, file, flags.limit) for file in files]):
            results.append(result := done.result())
            said = f"{result.passed} passed, {len(result.failed)} failed, {result.seconds:.0f} s"
            print(f"[{len(results)}/{len(files)}, {time.monotonic() - start:.0f} s] {result.file}: {said}", flush=True)
    print(table(results, time.monotonic() - start))
    return int(any(r.failed for r in results))


if __name__ == "__main__":
    sys.exit(main())
