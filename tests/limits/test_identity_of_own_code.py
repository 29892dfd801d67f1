"""Whatever a person writes that changes what is computed changes the word; comments and names of classes do not."""

import importlib
import sys
import textwrap
from typing import Any

import pytest

from limits.kept.identity import identity

_HEAD = """
    import dataclasses, enum, functools
    import flax.linen as nn, jax, jax.numpy as jnp, numpy as np
    from flax import nnx
"""

# What is looked at is called `thing`; each (old, new) makes another of it.
_CASES = {
    "rule of a custom_vjp": ("3.0", "4.0", """
        @jax.custom_vjp
        def f(x): return x * x
        f.defvjp(lambda x: (f(x), x), lambda x, g: (3.0 * x * g,))
        thing = lambda x: f(x)
    """),
    "rule of a custom_jvp": ("3.0", "4.0", """
        @jax.custom_jvp
        def f(x): return x * x
        @f.defjvp
        def rule(x, dx): return f(x[0]), 3.0 * dx[0]
        thing = f
    """),
    "class of a decorator": ("2 * self", "3 * self", """
        class Scaled:
            def __init__(self, inner): functools.update_wrapper(self, inner)
            def __call__(self, x): return 2 * self.__wrapped__(x)
        @Scaled
        def thing(x): return x
    """),
    "state of a decorator": ("(2)", "(3)", """
        class Scaled:
            def __init__(self, factor): self.factor = factor
            def __call__(self, inner):
                functools.update_wrapper(self, inner)
                return self
        @Scaled(2)
        def thing(x): return x
    """),
    "jitted method": ("2 * x", "3 * x", """
        class thing:
            apply = staticmethod(jax.jit(lambda x: 2 * x))
    """),
    "jitted call": ("2 * x", "3 * x", """
        class Own:
            @functools.partial(jax.jit, static_argnums=0)
            def __call__(self, x): return 2 * x
        thing = Own()
    """),
    "number of NumPy in a class": ("float32(2)", "float32(3)", """
        class Own(nn.Module):
            scale = np.float32(2)
            def __call__(self, x): return self.scale * x
        thing = Own()
    """),
    "type of numbers in a class": ("'bfloat16'", "'float16'", """
        class Own(nn.Module):
            kind = jnp.dtype('bfloat16')
            def __call__(self, x): return x.astype(self.kind)
        thing = Own()
    """),
    "partial in a class": ("power, 2", "power, 3", """
        class Own:
            curve = functools.partial(jnp.power, 2)
        thing = Own()
    """),
    "partialmethod": ("k=2", "k=3", """
        class Own:
            def act(self, x, k): return k * x
            twice = functools.partialmethod(act, k=2)
        thing = Own()
    """),
    "object in a class": ("Settings(2)", "Settings(3)", """
        @dataclasses.dataclass(frozen=True)
        class Settings:
            scale: float
        class Own:
            settings = Settings(2)
        thing = lambda: Own()
    """),
    "default factory": ("2.0", "3.0", """
        @dataclasses.dataclass
        class Settings:
            scale: list = dataclasses.field(default_factory=lambda: [2.0])
        thing = lambda x: Settings().scale[0] * x
    """),
    "order of fields": ("a: int = 1; b: int = 2", "b: int = 2; a: int = 1", """
        @dataclasses.dataclass
        class Pair:
            a: int = 1; b: int = 2
        thing = lambda x: Pair(5).a * x
    """),
    "value of an enum": ("two = 2", "two = 3", """
        class Kind(enum.Enum):
            one = 1; two = 2
        thing = {"kind": Kind.two}
    """),
    "method of an enum": ("2 * x", "3 * x", """
        class Kind(enum.Enum):
            one = 1
            def act(self, x): return 2 * x
        thing = Kind.one
    """),
    "enum that a function uses": ("two = 2", "two = 3", """
        class Kind(enum.IntEnum):
            one = 1; two = 2
        thing = lambda x: Kind.two * x
    """),
    "attribute that is no field": ("scale = 2", "scale = 3", """
        @dataclasses.dataclass
        class Own:
            width: int = 3
        thing = Own()
        thing.scale = 2
    """),
    "attribute of a function": ("scale = 2", "scale = 3", """
        def thing(x): return thing.scale * x
        thing.scale = 2
    """),
    "metaclass": ("2 * x", "3 * x", """
        class Kind(type):
            def act(cls, x): return 2 * x
        class Own(metaclass=Kind): pass
        thing = lambda x: Own.act(x)
    """),
    "order of layers": ('"a": jnp.sin, "b": jnp.cos', '"b": jnp.cos, "a": jnp.sin', """
        class Own(nn.Module):
            parts: dict
            def __call__(self, x):
                for part in self.parts.values(): x = part(x)
                return x
        thing = Own({"a": jnp.sin, "b": jnp.cos})
    """),
    "variable of an NNX module": ("sin", "cos", """
        class Own(nnx.Module):
            def __init__(self): self.act = jnp.sin
            def __call__(self, x): return self.act(x)
        thing = Own()
    """),
    "method of a name that Flax uses": ("2 * x", "3 * x", """
        class Own:
            def scope(self, x): return 2 * x
        thing = Own()
    """),
    "field of a name that Flax uses": ("Own(2)", "Own(3)", """
        @dataclasses.dataclass
        class Own:
            parent: int
        thing = Own(2)
    """),
    "call of an enum": ("2 * x", "3 * x", """
        class Kind(enum.Enum):
            one = 1
            def __call__(self, x): return 2 * x
        thing = lambda x: Kind.one(x)
    """),
    "what members of an enum hold": ("b**2", "b**3", """
        class Kind(enum.Enum):
            one = (1, 2.0)
            def __init__(self, a, b): self.b = b**2
        thing = lambda x: Kind.one.b * x
    """),
    "order of an enum": ("one = 1; two = 2", "two = 2; one = 1", """
        class Kind(enum.Enum):
            one = 1; two = 2
        thing = lambda x: [*Kind][0].value * x
    """),
    "wrapper in slots": ("(f, 2)", "(f, 3)", """
        class Scaled:
            __slots__ = ("__wrapped__", "factor")
            def __init__(self, inner, factor): self.__wrapped__, self.factor = inner, factor
        f = lambda x: x
        thing = Scaled(f, 2)
    """),
    "module that Flax lifts": ("2 * x", "3 * x", """
        class Block(nn.Module):
            def __call__(self, x): return 2 * x
        thing = nn.remat(Block)()
    """),
    "options of what Flax lifts": ("length=3", "length=4", """
        class Block(nn.Module):
            @nn.compact
            def __call__(self, x, _): return nn.Dense(3)(x), None
        Blocks = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        thing = lambda x: Blocks()(x, None)
    """),
    "class made by a function": ("('a', int, 2)", "('a', int, 3)", """
        Made = dataclasses.make_dataclass("Made", [('a', int, 2)])
        thing = lambda x: Made().a * x
    """),
    "start of a dataclass, written by hand": ("2 * a", "3 * a", """
        @dataclasses.dataclass
        class Own:
            a: int
            def __init__(self, a): self.a = 2 * a
        thing = lambda x: Own(x).a
    """),
    "default in slots": ("a: int = 2", "a: int = 3", """
        @dataclasses.dataclass(slots=True)
        class Own:
            a: int = 2
        thing = lambda x: Own().a * x
    """),
    "pattern of names": ("kernel$", "bias$", """
        import re
        masked = re.compile("kernel$")
        thing = lambda names: [masked.search(name) for name in names]
    """),
    "layers in a deque": ("jnp.sin", "jnp.cos", """
        import collections
        thing = collections.deque([jnp.tanh, jnp.sin])
    """),
    "seed of Python's numbers": ("Random(0)", "Random(1)", """
        import random
        thing = random.Random(0)
    """),
    "what a dict holds where it is empty": ("sin", "cos", """
        import collections
        thing = collections.defaultdict(lambda: jnp.sin)
    """),
    "attribute of a number": ("scale = 2", "scale = 3", """
        class Own(float): pass
        thing = Own(1.0)
        thing.scale = 2
    """),
    "number with an attribute": ("Own(1.0)", "Own(2.0)", """
        class Own(float): pass
        thing = Own(1.0)
        thing.scale = 2
    """),
    "mask": ("[True, False]", "[False, True]", """
        thing = np.ma.array([1.0, 2.0], mask=[True, False])
    """),
    "number that takes the type of others": ("(2.0)", "(2.0, jnp.float32)", """
        thing = jnp.asarray(2.0)
    """),
    "function of another library": ("from math import", "from cmath import", """
        from math import sqrt
        thing = lambda x: sqrt(x)
    """),
}  # fmt: skip

# What is used changes nothing: `use` is called on `thing`.
_USED = {
    "alias of a flag": """
        class Kind(enum.Flag):
            one = 1; two = 2; both = 3
        thing = lambda x: Kind.one | x
        use = lambda: (thing(Kind.two), ~Kind.both, Kind(3))
    """,
    "what others hold": """
        import weakref
        class Own:
            known = weakref.WeakSet()
        thing = lambda x: Own()
        use = lambda: Own.known.add(Own)
    """,
    "function by types": """
        @functools.singledispatch
        def thing(x): return x
        use = lambda: thing(3)
    """,
    "rule of a derivative": """
        @nnx.custom_vjp
        def f(x): return x * x
        f.defvjp(lambda x: (f(x), x), lambda x, g: (2.0 * x * g[1],))
        thing = lambda x: f(x)
        use = lambda: jax.grad(thing)(2.0)
    """,
    "checked function": """
        from beartype import beartype
        @beartype
        def thing(x: float) -> float: return x
        use = lambda: thing(2.0)
    """,
    "global random numbers": """
        numbers = np.random.mtrand._rand
        thing = lambda x: numbers.normal()
        use = lambda: np.random.normal()
    """,
}


def _names(code: str) -> dict:
    names: dict = {"__name__": "own"}
    exec(textwrap.dedent(_HEAD) + textwrap.dedent(code), names)
    return names


def _thing(code: str) -> object:
    return _names(code)["thing"]


@pytest.mark.parametrize("case", _USED)
def test_use_changes_nothing(case):
    names = _names(_USED[case])
    before = identity(names["thing"])
    names["use"]()
    assert identity(names["thing"]) == before == identity(_thing(_USED[case]))


@pytest.mark.parametrize("case", _CASES)
def test_what_is_edited_is_another(case):
    old, new, code = _CASES[case]
    assert old in code
    assert identity(_thing(code)) == identity(_thing("\n# moved\n" + textwrap.dedent(code)))
    assert identity(_thing(code)) != identity(_thing(code.replace(old, new)))


def _words(folder, users: str, helpers: tuple[str, ...], monkeypatch) -> list[str]:
    """Of `thing`, which uses a module beside it whose text is each of these."""
    words = []
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for i, text in enumerate(helpers):
        place = folder / str(i)
        (place / "a_folder_of_ones_own").mkdir(parents=True)
        (place / "a_folder_of_ones_own" / "__init__.py").touch()
        for file in (place / "beside_a_config.py", place / "a_folder_of_ones_own" / "inside.py"):
            file.write_text("import beside_a_config\n" * (file.stem == "inside") + textwrap.dedent(text))
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(place))
            for name in ("beside_a_config", "a_folder_of_ones_own", "a_folder_of_ones_own.inside"):
                patch.delitem(sys.modules, name, raising=False)
            importlib.invalidate_caches()
            words.append(identity(_thing(users)))
            for name in ("beside_a_config", "a_folder_of_ones_own", "a_folder_of_ones_own.inside"):
                sys.modules.pop(name, None)
    return words


_USERS = {
    "import in a function": """
        def thing(x):
            import beside_a_config
            return beside_a_config.f(x)
    """,
    "import from, in a function": """
        def thing(x):
            from beside_a_config import f as g
            return g(x)
    """,
    "import of a module of a folder, in a function": """
        def thing(x):
            from a_folder_of_ones_own import inside
            return inside.f(x)
    """,
    "import by the whole path, in a function": """
        def thing(x):
            import a_folder_of_ones_own.inside
            return a_folder_of_ones_own.inside.f(x)
    """,
    "import by a word": """
        import importlib
        def thing(x): return importlib.import_module("beside_a_config").f(x)
    """,
    "import by a word in a variable": """
        from importlib import import_module
        NAME = "a_folder_of_ones_own.inside"
        thing = lambda x: import_module(NAME).f(x)
    """,
    "import by a word, with what Python has": """
        def thing(x, name="beside_a_config"): return __import__(name).f(x)
    """,
    "module in a field": """
        import beside_a_config
        @dataclasses.dataclass
        class Own:
            physics: object
            def __call__(self, x): return self.physics.f(x)
        thing = Own(beside_a_config)
    """,
    "module in a dict": """
        import beside_a_config
        PARTS = {"physics": beside_a_config}
        thing = lambda x: PARTS["physics"].f(x)
    """,
    "module in a class": """
        import beside_a_config
        class Own:
            physics = beside_a_config
            def __call__(self, x): return self.physics.f(x)
        thing = Own()
    """,
    "module in a closure": """
        def make():
            import beside_a_config
            return lambda x: beside_a_config.f(x)
        thing = make()
    """,
    "module handed on": """
        import beside_a_config
        def call(module, x): return module.f(x)
        thing = lambda x: call(beside_a_config, x)
    """,
    "name of what is used": """
        import beside_a_config
        thing = lambda x: getattr(beside_a_config, "f")(x)
    """,
}


@pytest.mark.parametrize("user", _USERS)
def test_a_module_beside_a_config_counts_however_it_is_reached(user, tmp_path, monkeypatch):
    texts = ("def f(x): return 2 * x\n", "# a comment\ndef f(x): return 2 * x\n", "def f(x): return 3 * x\n")
    one, commented, other = _words(tmp_path, _USERS[user], texts, monkeypatch)
    assert one == commented != other


@pytest.mark.parametrize(
    "text", ["def __getattr__(name): return lambda x: 2 * x\n", "__factor = 2\n", "__factor__ = 2\n"]
)
def test_what_a_module_holds_under_names_of_two_underscores_counts(text, tmp_path, monkeypatch):
    one, again, other = _words(tmp_path, _USERS["module handed on"], (text, text, text.replace("2", "3")), monkeypatch)
    assert one == again != other


@pytest.mark.slow
def test_functions_in_functions_beyond_the_limit_of_python_are_read():
    def chain(last):
        inner = lambda x: last * x  # noqa: E731
        for _ in range(300):
            inner = lambda x, inner=inner: inner(x) + 1  # noqa: E731
        return inner

    assert identity(chain(2)) == identity(chain(2)) != identity(chain(3))


def test_what_an_object_has_worked_out_is_no_part_of_it():
    code = "class Own:\n    def __init__(self): self.a = 2\n    @functools.cached_property\n    def b(self): return 2 * self.a\n"
    thing: Any = _thing(code + "thing = Own()")
    before = identity(thing)
    assert thing.b == 4
    assert identity(thing) == before != identity(_thing(code.replace("2 *", "3 *") + "thing = Own()"))


def test_what_has_no_content_counts_by_its_class_in_a_class_and_in_a_module(tmp_path, monkeypatch):
    code = "import threading\nclass Own:\n    lock = threading.Lock()\n    a = 2\nthing = Own()\n"
    assert identity(_thing(code)) == identity(_thing(code)) != identity(_thing(code.replace("a = 2", "a = 3")))
    texts = ("import threading\nlock = threading.Lock()\ndef f(x): return x\n",) * 2
    words = _words(tmp_path, _USERS["module in a field"], texts, monkeypatch)
    assert words[0] == words[1]


def test_asking_imports_nothing(tmp_path, monkeypatch):
    """What a function imports is read as text: a module that ends the program when it is imported, one that is absent."""
    (tmp_path / "ends_the_program.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("ends_the_program", "a_module_that_is_absent", "this")
    words = {identity(_thing(f"def thing(x):\n    import {name}\n    return x\n")) for name in names}
    assert len(words) == 3
    assert not {*names} & {*sys.modules}


@pytest.mark.parametrize("text", ["import beside_a_config", "from beside_a_config import f"])
def test_imports_in_long_functions_are_read(text, tmp_path, monkeypatch):
    """Of more names and numbers than one byte counts, by which Python writes longer instructions."""
    lines = [f"    if x is None: q{i}({i} + .5)" for i in range(300)]
    user = "\n".join(["def thing(x):", *lines, f"    {text}", "    return x"])
    one, other = _words(tmp_path, user, ("def f(x): return 2 * x\n", "def f(x): return 3 * x\n"), monkeypatch)
    assert one != other


def test_what_an_imported_module_imports_counts(tmp_path, monkeypatch):
    users = "def thing(x):\n    from a_folder_of_ones_own.inside import g\n    return g(x)\n"
    one, other = _words(tmp_path, users, ("def f(x): return 2 * x\n", "def f(x): return 3 * x\n"), monkeypatch)
    assert one != other
