"""Trains ensembles over widths and depths and compares them with their infinite-width twins.

    python3 -m launch.compare --config=configs/mlp.py [--workdir=DIR] [--config.FIELD=VALUE …]

Ends in a table, DIR/report.html, DIR/report.json and DIR/config.json. Finished ensembles are kept in DIR/cells: an
interrupted run continues from them.
"""

import functools
import json
import time
from typing import Any

from launch import common
from limits import Task
from train.data import make_task
from train.evaluate import compare, report
from zoo import CNN, MLP, ResNet, ViT, activation_function
from zoo.messages import did_you_mean

ARCHITECTURES = {"mlp": MLP, "cnn": CNN, "resnet": ResNet, "vit": ViT}


def definitions(config: Any) -> dict[str, Any]:
    """name → (width, depth) → definition: one for every combination of activation and parameterization in the config, or
    for every entry of its `variants` (label → architecture and fields)."""
    families = {}
    for label, fields in config.get("variants", {}).items():
        fields = dict(fields)
        families[label] = functools.partial(_build, _architecture(fields.pop("architecture")), config, fields)
    if families:
        return families
    make = _architecture(config.architecture)
    for activation in config.activations:
        activation_function(activation)
        for parameterization in config.parameterizations:
            label = f"{activation} {parameterization}" if len(config.activations) > 1 else parameterization
            fields = {**config.get("fields", {}), **config.net.get(activation, {})}
            fields |= {"activation": activation, "parameterization": parameterization}
            families[label] = functools.partial(_build, make, config, fields)
    return families


def _architecture(name: str) -> Any:
    if name not in ARCHITECTURES:
        raise ValueError(f'Unknown architecture "{name}". {did_you_mean(name, ARCHITECTURES)}')
    return ARCHITECTURES[name]


def _build(make: Any, config: Any, fields: dict[str, Any], width: int, depth: int) -> Any:
    return make(width=width, depth=depth, outputs=config.task_outputs, **{"gamma": config.gamma, **fields})


def task_of(config: Any) -> Task:
    """The config's task; the definitions learn their number of outputs from it."""
    task = make_task(config.task.name, **{key: value for key, value in config.task.items() if key != "name"})
    with config.unlocked():
        config.task_outputs = task.outputs
    return task


def main() -> None:
    """Runs the config."""
    started = time.time()
    config, screen = common.config(), common.console()
    folder = common.workdir(config.name)
    run = common.provenance(config)
    (folder / "config.json").write_text(json.dumps(run, indent=2) + "\n")
    task = task_of(config)
    result = compare(
        definitions(config),
        config.widths,
        config.depths,
        task,
        steps=config.steps,
        learning_rate=config.learning_rate,
        members=config.members,
        init_members=config.init_members,
        seed=config.seed,
        centred=config.centred,
        folder=folder / "cells",
        console=screen,
        rich=dict(config.rich) if config.get("rich") else None,
    )
    run["seconds"] = round(time.time() - started, 1)
    report.print_table(result, screen)
    for path in report.write(result, run, folder):
        screen.print(f"wrote {path}", highlight=False)
    screen.print(f"{time.time() - started:.0f} s", highlight=False)


def run() -> None:
    """Entry point."""
    common.start(main, __doc__)


if __name__ == "__main__":
    run()
