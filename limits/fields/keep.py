"""A sweep on disk, so that a long one can go on where it was interrupted."""

import hashlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Keep:
    """One file: what was seen at the recorded times so far, and the state at the last of them."""

    def __init__(self, folder: str | Path, name: str, identity: Any) -> None:
        self.file = Path(folder) / f"{name}_{_fingerprint(identity)}.npz"
        self.file.parent.mkdir(parents=True, exist_ok=True)

    def save(self, state: Any, now: int, seen: list[dict[str, Any]]) -> None:
        """Whole or not at all: an interruption leaves the file before."""
        arrays = {f"state/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        for i, each in enumerate(seen):
            for name, value in each.items():
                parts = enumerate(value) if isinstance(value, tuple) else [("", value)]
                arrays |= {f"seen/{i}/{name}/{part}": np.asarray(a) for part, a in parts}
        part = self.file.with_suffix(".part.npz")
        np.savez(part, allow_pickle=False, now=now, **arrays)
        part.replace(self.file)

    def load(self, like: Any) -> tuple[Any, int, list[dict[str, Any]]] | None:
        """(state, step, what was seen); None if there is nothing yet. `like`: a state, whose arrays may be smaller."""
        if not self.file.exists():
            return None
        with np.load(self.file) as file:
            arrays = dict(file)
        structure, seen = jax.tree.structure(like), {}
        state = jax.tree.unflatten(structure, [jnp.asarray(arrays[f"state/{i}"]) for i in range(structure.num_leaves)])
        for key, value in arrays.items():
            if key.startswith("seen/"):
                _, i, name, part = key.split("/")
                each = seen.setdefault(int(i), {})
                if part:
                    each.setdefault(name, {})[int(part)] = value
                else:
                    each[name] = value
        rows = [{name: _tuple(value) for name, value in seen[i].items()} for i in sorted(seen)]
        return state, int(arrays["now"]), rows


def _tuple(value: Any) -> Any:
    return tuple(value[i] for i in sorted(value)) if isinstance(value, dict) else value


def _fingerprint(identity: Any) -> str:
    """Of everything the numbers depend on."""
    plan, net, dtype, key = identity
    words = (
        net,
        plan.rule,
        plan.times.tolist(),
        plan.kernels,
        plan.record,
        np.asarray(plan.kernel_times).tolist(),
        dtype,
    )
    digest = hashlib.sha256(repr((words, plan.task.loss, plan.observe and plan.observe.__qualname__)).encode())
    task, schedule = plan.task, plan.schedule
    batches = np.zeros(0) if schedule.batches is None else schedule.batches
    for part in (task.x_train, task.y_train, task.x_test, schedule.rates, batches, jax.random.key_data(key)):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:20]
