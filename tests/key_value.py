"""The key-value store through which processes of jax find each other, for threads that stand for processes."""

import time

import jax


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


class Store:
    """The key-value store of jax's client, shared by all."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.down = False

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        assert allow_overwrite or key not in self.values
        if self.down:
            raise jax.errors.JaxRuntimeError("UNAVAILABLE")
        self.values[key] = value

    def key_value_dir_get(self, place: str) -> list[tuple[str, str]]:
        if self.down:
            raise jax.errors.JaxRuntimeError("UNAVAILABLE")
        return [(key, value) for key, value in self.values.items() if key.startswith(place)]

    def blocking_key_value_get(self, key: str, timeout: int) -> str:
        until(lambda: key in self.values, timeout / 1000)
        return self.values[key]
