"""What a config may have besides training: how well others do on the test set, and samples of the model at checkpoints.

A config's `references(train, test, …)` returns {name: loss} of other models of its sources; `sample(net, variables, …)` a text.
"""

import json
from collections.abc import Mapping
from typing import Any

import jax
from jax.experimental import multihost_utils

from limits.kept import store

FUNCTIONS = ("references", "sample")
REFERENCES, SAMPLES = "references.json", "samples"


def references(run: Any) -> dict[str, float]:
    """{name: loss} of what the run is held against, kept in its folder; nothing on other processes than the first."""
    if jax.process_index() != 0 or not run.experiment.has("references") or run.test is None:
        return {}
    if not (run.folder / REFERENCES).exists():
        found = run.experiment.call("references", run.source, run.test)
        _write(run.folder / REFERENCES, json.dumps({name: float(value) for name, value in found.items()}) + "\n")
    return kept_references(run.folder)


def kept_references(folder: Any) -> dict[str, float]:
    """What `references` has written there."""
    file = folder / REFERENCES
    return json.loads(file.read_text()) if file.exists() else {}


def sample(run: Any, step: int, state: Any) -> str:
    """What the model says at this step, also written to the folder; by all processes, of which the first one draws."""
    if not run.experiment.has("sample"):
        return ""
    variables = state.variables
    if jax.process_count() > 1:
        variables = multihost_utils.process_allgather(variables, tiled=True)
    if jax.process_index() != 0:
        return ""
    variables = jax.device_get(variables)
    if run.fields["members"]:
        variables = jax.tree.map(lambda a: a[0], variables)
    here = jax.local_devices()[0]
    with jax.default_device(here):
        text = run.experiment.call("sample", run.program.net, jax.device_put(variables, here))
    if "://" in str(run.folder):
        (run.folder / SAMPLES).mkdir(parents=True, exist_ok=True)
    else:
        store.folder_inside(run.folder, SAMPLES)
    _write(run.folder / SAMPLES / f"{step}.txt", text)
    return text


def kept_samples(folder: Any) -> Mapping[int, str]:
    """{step: text} of what `sample` has written there, in order."""
    place = folder / SAMPLES
    files = [each for each in place.iterdir() if each.stem.isdigit()] if place.exists() else []
    return {int(file.stem): file.read_text() for file in sorted(files, key=lambda file: int(file.stem))}


def _write(file: Any, text: str) -> None:
    if "://" in str(file):
        file.write_text(text)
    else:
        store.write_whole(file, text.encode())
