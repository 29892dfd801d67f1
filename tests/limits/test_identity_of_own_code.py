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
}  # fmt: skip


def _thing(code: str) -> object:
    names: dict = {"__name__": "own"}
    exec(textwrap.dedent(_HEAD) + textwrap.dedent(code), names)
    return names["thing"]


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


@pytest.mark.parametrize("user", [name for name in _USERS if "import" in name])
def test_of_what_a_function_imports_counts_what_is_used(user, tmp_path, monkeypatch):
    texts = ("def f(x): return 2 * x\n", "def f(x): return 2 * x\ndef unused(x): return x\n")
    words = _words(tmp_path, _USERS[user], texts, monkeypatch)
    assert words[0] == words[1]


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


def test_a_module_that_is_absent_is_imported_by_nobody():
    """A function that tries to import it counts all the same, and what is not one's own is not imported for its identity."""
    word = identity(_thing("def thing(x):\n    import a_module_that_is_absent\n    return x\n"))
    assert word != identity(_thing("def thing(x):\n    import another_that_is_absent\n    return x\n"))
    sys.modules.pop("this", None)
    identity(_thing("def thing(x):\n    import this\n    return x\n"))
    assert "this" not in sys.modules
