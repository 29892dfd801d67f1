"""A sweep on disk, so that a long one can go on where it was interrupted."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kept.identity import identity
from limits.kept.store import Store


class Keep:
    """One file: what was seen at the recorded times so far, and the state at the last of them.

    Its name holds the identity of `what`, of all that the numbers depend on.
    """

    def __init__(self, folder: str | Path, name: str, *what: Any) -> None:
        self.store, self.name = Store(folder), f"{name}_{identity(*what)}"

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """One process at a time computes this sweep."""
        return self.store.lock(self.name)

    def save(self, state: Any, now: int, seen: list[dict[str, Any]]) -> None:
        """Whole or not at all: an interruption leaves the file before."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
        looks = [{name: jax.tree.leaves(value) for name, value in each.items()} for each in seen]
        self.store.put(self.name, {"now": now, "state": leaves, "seen": looks})

    def load(self, shapes: Callable[[], tuple[Any, dict[str, Any]]]) -> tuple[Any, int, list[dict[str, Any]]] | None:
        """(state, step, what was seen); None if there is nothing yet. `shapes`: a state and a look, for their structure."""
        kept = self.store.get(self.name)
        if kept is None:
            return None
        state, look = shapes()
        back = jax.tree.unflatten(jax.tree.structure(state), [jnp.asarray(leaf) for leaf in kept["state"]])
        structures = {name: jax.tree.structure(value) for name, value in look.items()}
        seen = [{name: structures[name].unflatten(leaves) for name, leaves in each.items()} for each in kept["seen"]]
        return back, int(kept["now"]), seen
