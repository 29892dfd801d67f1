"""What is installed beside the package: exact versions of everything it needs, and packages of the same names."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from zoo import rooms

ROOT = Path(__file__).parents[2]
ROOMS = ("zoo", "limits", "train", "launch", "configs")


# --- constraints.txt


def closure(wanted: list[str]) -> dict[str, str]:
    """{name: installed version} of these requirements and of all that they require in turn."""
    found, todo = {}, [(Requirement(each), "") for each in wanted]
    seen = set()
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            there = importlib.metadata.distribution(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        name = canonicalize_name(requirement.name)
        found[name] = there.version
        for asked in {"", *requirement.extras} - {each for known, each in seen if known == name}:
            seen.add((name, asked))
            todo += [(Requirement(each), asked) for each in there.requires or ()]
    return found


def test_constraints_pin_everything_that_is_needed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = closure(project["dependencies"] + project["optional-dependencies"]["dev"])
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines}
    assert {"equinox", "lineax", "tensorstore", "execnet"} <= set(needed)  # of diffrax, of orbax, of the tests
    assert {name for name in needed if name not in pinned} == set()
    assert all(re.fullmatch(r"[0-9][^=<>~ ]*", version) for version in pinned.values())


# --- packages of the same name


def rate_limiter(place: Path) -> None:
    """Another distribution called limits, as it would lie in site-packages."""
    (place / "limits").mkdir(exist_ok=True)
    (place / "limits/__init__.py").write_text('"""Rate limiting."""\n')
    (place / "limits-5.8.0.dist-info").mkdir()
    (place / "limits-5.8.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: limits\nVersion: 5.8.0\n")
    (place / "limits-5.8.0.dist-info/RECORD").write_text("limits/__init__.py,,\n")


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_carries_the_mark(room):
    assert rooms.replaced([room]) is None


def test_a_room_of_another_is_named_with_the_remedy(tmp_path, monkeypatch):
    rate_limiter(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "limits", raising=False)
    for act in (lambda: str(rooms.replaced(ROOMS)), lambda: raised("zoo", "limits")):
        said = act()
        assert f"The package `limits` that Python finds ({tmp_path}/limits/__init__.py) is not limit-zoo's" in said
        assert "the distribution limits 5.8.0 has the same name" in said
        assert "an environment of its own: python3 -m venv" in said
    assert rooms.replaced(["zoo", "train"]) is None
    (tmp_path / "limits/__init__.py").unlink()  # as after `pip uninstall limits`
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert "`limits` has lost its __init__.py" in str(rooms.replaced(["limits"]))


def raised(*names: str) -> str:
    with pytest.raises(ImportError) as error:
        rooms.require(*names)
    return str(error.value)


def test_a_distribution_of_the_same_name_is_noticed_while_ours_still_stands(tmp_path, monkeypatch):
    assert rooms.namesake_warning(ROOMS) is None
    rate_limiter(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert rooms.replaced(ROOMS) is None
    assert "limits 5.8.0 is installed in this environment too" in str(rooms.namesake_warning(ROOMS))


def test_the_program_and_every_room_say_it(tmp_path):
    """In an environment that has both: the other stands in place of ours."""
    site = tmp_path / "site"
    site.mkdir()
    for room in ROOMS:
        shutil.copytree(ROOT / room, site / room, ignore=shutil.ignore_patterns("__pycache__"))
    rate_limiter(site)
    code = """
import sys, warnings
sys.path[:0] = [sys.argv[1]]
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import zoo
print([str(each.message) for each in said if "limit-zoo" in str(each.message)])
for room in ("train", "launch"):
    try:
        __import__(room)
    except (ImportError, SystemExit) as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(site)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    zoo, train, launch = done.stdout.splitlines()
    assert f"['The package `limits` that Python finds ({site}/limits/__init__.py) is not limit-zoo's" in zoo.replace(
        '"', "'"
    )
    assert train.startswith("ImportError The package `limits` that Python finds")
    assert launch.startswith("SystemExit limit-zoo: The package `limits` that Python finds")


@pytest.mark.slow
def test_in_an_environment_that_really_has_both(tmp_path):
    """pip installs the other over ours, and takes ours along; each time `limit-zoo` says so in a sentence."""
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    pip = [sys.executable, "-m", "pip", "--python", str(environment), "--quiet", "--disable-pip-version-check"]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # this checkout may be there

    def limit_zoo(*arguments: str) -> str:
        done = subprocess.run(
            [environment / "bin/limit-zoo", *arguments],
            cwd=tmp_path,
            env=alone,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return f"{done.returncode} {done.stderr}"

    subprocess.run([*pip, "install", "--no-deps", "--ignore-installed", str(ROOT)], check=True)
    assert limit_zoo("--help") == "0 "
    if subprocess.run([*pip, "install", "--no-deps", "limits"], check=False).returncode:
        pytest.skip("no package index")
    assert re.match(r"1 limit-zoo: The package `limits` that Python finds .* the distribution limits \d", limit_zoo())
    subprocess.run([*pip, "uninstall", "--yes", "limits"], check=True)
    assert "1 limit-zoo: The package `limits` has lost its __init__.py" in limit_zoo()
