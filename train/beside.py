"""What a config may have besides training: how well others do on the test set, and samples of the model at checkpoints.

A config's `references(train, test, …)` returns {name: loss} of other models of its sources; `sample(net, variables, …)` a text.
"""

import json
from collections.abc import Mapping
from typing import Any

import jax
from jax.experimental import multihost_utils

from limits.kept import store
from limits.kept.identity import identity

FUNCTIONS = ("references", "sample")
REFERENCES, SAMPLES = "references.json", "samples"


def begin(run: Any, start: int) -> dict[str, float]:
    """The `references` of a run that goes on from this step; texts of later steps, of one that got further, are taken away."""
    if jax.process_index() == 0:
        for step in (each for each in kept_samples(run.folder) if each > start or not start):
            (run.folder / SAMPLES / f"{step}.txt").unlink()
    return references(run)


def references(run: Any) -> dict[str, float]:
    """{name: loss} of what the run is held against, kept in its folder as long as the function and the data are the same;
    nothing on other processes than the first."""
    if jax.process_index() != 0 or not run.experiment.has("references") or run.test is None:
        return {}
    try:
        of = identity(run.experiment.bound("references", 2), run.content)
    except TypeError:  # it uses what has no content, such as an open file
        of = ""
    if not of or _kept(run.folder).get("of") != of:
        found = run.experiment.call("references", run.source, run.test)
        losses = {name: float(value) for name, value in found.items()}
        _write(run.folder / REFERENCES, json.dumps({"of": of, "losses": losses}) + "\n")
    return kept_references(run.folder)


def kept_references(folder: Any) -> dict[str, float]:
    """What `references` has written there."""
    found = _kept(folder)
    return found["losses"] if isinstance(found.get("losses"), dict) else found  # earlier versions wrote these alone


def _kept(folder: Any) -> dict[str, Any]:
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
