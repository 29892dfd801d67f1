"""Equal words for equal content, in every process; other words for anything else."""

import functools
import importlib
import importlib.metadata
import operator
import subprocess
import sys
import textwrap
import threading

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import limits.kept.identity
import limits.kept.places
from limits.kept.identity import identity
from limits.kept.places import package_of
from zoo import MLP

_CODE = """
    import jax.numpy as jnp, flax.linen as nn
    SCALE = 2.0
    def inner(x):
        return SCALE * jnp.tanh(x)
    def outer(x, power=2):
        return [inner(y) for y in x], power
    class Own(nn.Module):
        width: int = 3
        def setup(self):
            self.layer = nn.Dense(self.width)
        def __call__(self, x):
            return inner(self.layer(x))
"""


def _module(code: str = _CODE, **names) -> dict:
    names["__name__"] = "own"
    exec(textwrap.dedent(code), names)
    return names


def test_the_same_code_elsewhere_is_the_same() -> None:
    one, other = _module(), _module("\n\n# moved\n" + textwrap.dedent(_CODE))
    assert identity(one["outer"]) == identity(other["outer"])
    assert identity(one["Own"]()) == identity(other["Own"]())


@pytest.mark.parametrize(
    ("old", "new"),
    [("SCALE = 2.0", "SCALE = 2.5"), ("jnp.tanh(x)", "jnp.sin(x)"), ("power=2", "power=3"), ("SCALE *", "SCALE +")],
)
def test_edited_code_is_another(old: str, new: str) -> None:
    """A constant, a function called inside, a default, an operation: of the function and of what it calls."""
    one, other = _module(), _module(_CODE.replace(old, new))
    assert identity(one["outer"]) != identity(other["outer"])
    if old != "power=2":
        assert identity(one["Own"]()) != identity(other["Own"]())


def test_a_module_of_ones_own_counts_by_what_is_used_of_it(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    words = []
    for scale, unused in ((2, 0), (2, 1), (3, 0)):
        (tmp_path / "helpers_of_a_config.py").write_text(f"unused = {unused}\ndef scaled(x):\n    return {scale} * x\n")
        for name in ("helpers_of_a_config",):
            sys.modules.pop(name, None)
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        user = _module("import helpers_of_a_config\ndef f(x):\n    return helpers_of_a_config.scaled(x)\n")
        sys.dont_write_bytecode = before
        words.append(identity(user["f"]))
    assert words[0] == words[1] != words[2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MLP(8, 2), MLP(8, 3)),
        (MLP(8, 2, activation=jnp.tanh), MLP(8, 2, activation=jnp.sin)),
        (MLP(8, 2, activation=lambda x: x**2), MLP(8, 2, activation=lambda x: x**3)),
        (functools.partial(jnp.power, 2), functools.partial(jnp.power, 3)),
        (operator.itemgetter(0), operator.itemgetter(1)),
        (optax.adamw(1e-3), optax.adamw(2e-3)),
        (optax.adamw(1e-3), optax.lion(1e-3)),
        (optax.cosine_decay_schedule(1.0, 10), optax.cosine_decay_schedule(1.0, 11)),
        (jax.random.key(0), jax.random.key(1)),
        (np.random.default_rng(0), np.random.default_rng(1)),
        (nn.Sequential([nn.Dense(3), nn.tanh]), nn.Sequential([nn.Dense(3), nn.relu])),
        (nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.Linear(2, 3, rngs=nnx.Rngs(1))),
        (np.ones(2), np.ones((1, 2))),
        (np.ones(2), np.ones(2, np.float32)),
        (0.0, -0.0),
        (1, 1.0),
        (True, 1),
        ("a", b"a"),
        ({"a": 1}, {"a": 2}),
        (("ab", "c"), ("a", "bc")),
        ((1, (2, 3)), (1, 2, 3)),
    ],
)
def test_other_content_is_another(one, other) -> None:
    assert identity(one) == identity(one)
    assert identity(one) != identity(other)


def test_opened_archives_count_by_their_arrays(tmp_path) -> None:
    words = []
    for number, values in enumerate(([1.0, 2.0], [1.0, 2.0], [1.0, 3.0])):
        np.savez(tmp_path / f"{number}.npz", x=np.array(values))
        words.append(identity(np.load(tmp_path / f"{number}.npz")))
    assert words[0] == words[1] != words[2]


def test_results_of_another_version_are_others(monkeypatch) -> None:
    before = identity(1)
    monkeypatch.setattr(limits.kept.identity, "RESULTS", limits.kept.identity.RESULTS + 1)
    assert identity(1) != before


def test_functions_that_call_themselves_and_each_other_end() -> None:
    names = _module("def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)\n")
    assert identity(names["even"]) != identity(names["odd"])


def test_what_cannot_be_read_is_refused() -> None:
    for thing in ((i for i in range(3)), threading.Lock(), sys.stdout):
        with pytest.raises(TypeError, match="cannot be read"):
            identity({"observe": thing})


def test_what_functions_merely_use_counts_by_its_class() -> None:
    """And what stands beside it by its content."""

    def using(*things):
        return lambda x: (x, things)

    lock, other = threading.Lock(), threading.Lock()
    assert identity(using(lock, 1)) == identity(using(other, 1)) != identity(using(other, 2))


def test_another_process_says_the_same() -> None:
    """Whatever the order in which it hashes strings."""
    program = "from limits.kept.identity import identity; from zoo import MLP; import jax, optax\n" + textwrap.dedent(
        _CODE
    )
    program += "print(identity(Own(), outer, {'b', 'a'}, MLP(3, 2, activation=jax.nn.gelu), optax.adamw(1e-3)))"
    words = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(words) == 1
    assert words.pop().strip()


def test_a_schedule_that_was_called_is_the_same():
    """Optax's cosine makes a float of its number of steps when it is called."""
    called, other = optax.cosine_decay_schedule(0.1, 100), optax.cosine_decay_schedule(0.1, 101)
    called(3)
    assert identity(optax.cosine_decay_schedule(0.1, 100)) == identity(called) != identity(other)


def test_where_code_lies_in_this_package_is_seen():
    places = {"limits/kept/identity.py": limits.kept.identity, "zoo/mlp.py": sys.modules["zoo.mlp"]}
    assert all(package_of(str(module.__file__)) == place for place, module in places.items())
    assert package_of(__file__) is None


def test_lists_of_what_is_installed_are_read_once_however_many_folders_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(tmp_path / str(i)) for i in range(200))])
    package_of(__file__)
    monkeypatch.setattr(limits.kept.places, "Path", None)  # nothing more is looked for
    assert all(limits.kept.places._installed(folder) == frozenset() for folder in sys.path[-200:])


def _imported(folder, files: dict[str, str], monkeypatch) -> dict:
    """The modules that were just written to a folder, which is on the path."""
    monkeypatch.syspath_prepend(str(folder))
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code)
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    return {name: importlib.import_module(name) for name in files}


@pytest.mark.parametrize("factor", [2, 3])
def test_modules_that_import_one_another_end_and_still_count(factor, tmp_path, monkeypatch):
    words = []
    for i, number in enumerate((2, factor)):
        folder = tmp_path / str(i)
        folder.mkdir()
        files = {
            "one_of_two": f"import two_of_two\nfactor = {number}\ndef f(x):\n    return two_of_two.g(x)\n",
            "two_of_two": "import one_of_two\ndef g(x):\n    return one_of_two.factor * x\n",
        }
        names = _imported(folder, files, monkeypatch)
        exec("def used(x):\n    return one_of_two.f(x) + two_of_two.g(x)", names)
        words.append(identity(names["used"]))
    assert (words[0] == words[1]) == (factor == 2)


def test_a_library_in_a_folder_of_its_own_counts_by_its_version(tmp_path, monkeypatch):
    words = []
    for i, (version, body) in enumerate((("1", "x"), ("1", "2 * x"), ("2", "x"))):
        folder = tmp_path / str(i)
        (folder / "a_library-1.dist-info").mkdir(parents=True)
        (folder / "a_library-1.dist-info" / "RECORD").write_text("a_library.py,,\na_library-1.dist-info/RECORD,,\n")
        files = {"a_library": f"__version__ = '{version}'\ndef f(x):\n    return {body}\n"}
        files["not_listed"] = files["a_library"]
        modules = _imported(folder, files, monkeypatch)
        words.append([identity(modules[name].f) for name in files])
    (listed, own), (edited, edited_own), (newer, _) = words
    assert listed == edited != newer
    assert own != edited_own


def test_a_package_that_is_not_installed_has_a_version(monkeypatch):
    def none(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    assert limits.kept.identity.version_of("limit-zoo") == "checkout"
    assert limits.kept.identity.version() == f"checkout+results{limits.kept.identity.RESULTS}"
