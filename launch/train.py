"""Trains a network, or an ensemble of them, on one device or on every host of a pod.

    python3 -m launch.train --config=configs/training.py:vit [--workdir=DIR] [--config.FIELD=VALUE …] [--set=FIELD=VALUE …]
                            [--distributed=auto|on|off]

The config is any Python file with get_config() and make(width, depth), optimizer(net, learning_rate), loss(outputs,
targets), and if it likes references(train, test): {name: loss} of others, sample(net, variables): a text at checkpoints;
further arguments of these are filled with the config's fields of that name. `learning_rate` is a schedule, which
Optax takes for a number, or a number where the config has neither `schedule` nor `warmup`, or the optimiser asks for them.
Configs of launch.transfer are such files too: --set gives the fields that they lack (width, depth) or that a setting has.
Fields:
  width, depth, steps, batch, seed
  learning_rate, schedule, warmup   "constant", "cosine", "linear", "inverse_sqrt" (train.schedules)
  data                   {name, train, test, augment, normalise, on_device, …} as train.data.source takes it; or
                         batches(start) in the file, an iterator of (inputs, targets) from that step on (without `start`:
                         from step 0), and validation(): (inputs, targets) that it is evaluated on. on_device: samples lie
                         there (default: arrays of up to 1 GiB), not under --pmap
  members                train so many networks of seeds seed, seed + 1, … at once (default: one)
  mesh, sharding         {data, model, ensemble}: how many devices; "replicate", "fsdp", "model", "fsdp+model", or
                         ((pattern, rule), …) of parameters by path
  accumulate, average    parts of a batch, one after the other; decay of averaged parameters (in the beginning less: at step t
                         min(average, (1 + t)/(10 + t))), which evaluation, samples and launch.analyze take
  evaluate_every, save_every, keep, analysis   steps; how many checkpoints are kept; how many log-spaced ones for launch.analyze
  also                   "tensorboard", "wandb", or both with a comma
  profile                (first, count): steps that are traced into DIR/profile
Ends in DIR/log.jsonl (a line a step), DIR/report.html, DIR/checkpoints, DIR/config.json. The same command continues from the
latest checkpoint that is whole, bit by bit as if it had not stopped; what is damaged is renamed, and never deleted. Where the
code of make, optimizer, loss or batches has changed since, or this package's version, or the bytes of a text, it refuses, unless
--accept_changes is given. --dry_run, also with JAX_NUM_CPU_DEVICES=256, says what the state of a large run takes on each device.
Exit codes: 0 finished, 42 preempted (SIGTERM) and saved.
"""

import logging
import sys
import time
from typing import Any

import jax
from absl import flags
from absl import logging as absl_logging

from launch import common, distributed, exit_codes, overrides, took, watch
from limits.kept.store import folder_inside
from train import beside, curves
from train.checkpoints import info_of, steps_in
from train.data.content import of_files
from train.footprint import described
from train.memory import keep_freed_memory
from train.preemption import Preemption
from train.run import Run, conduct
from train.study import resume
from train.study.agreement import same_everywhere, what_runs
from train.study.experiment import NEEDED, Experiment, plain_fields
from train.study.fields import DEFAULTS, checked, unused

_SET = flags.DEFINE_multi_string("set", [], "NAME=VALUE: a field of the config, also one that it does not have.")
_PMAP = flags.DEFINE_boolean("pmap", False, "The step under jax.pmap in place of jax.jit on a mesh (to compare them).")
_ACCEPT = flags.DEFINE_boolean(
    "accept_changes",
    False,
    "Continue a run although its code, versions or data have changed: results do not depend on that.",
)
_DRY_RUN = flags.DEFINE_boolean(
    "dry_run",
    False,
    "Only say what the state takes on each device, from shapes and shardings; nothing is trained or written.",
)
FUNCTIONS = ("make", "optimizer", "loss")


def prepare(experiment: Experiment, folder: Any, pmap: bool = False) -> Run:
    """What this config trains, once its fields are checked and complete."""
    fields = checked(plain_fields(dict(experiment.config.items())))
    return Run(experiment, fields, folder, resume.code_of(experiment.functions()), pmap)


def check_folder(run: Run, accept: bool = False) -> None:
    """Raises where the folder holds another run, or one of other code, if that is not accepted."""
    then = info_of(run.folder / "checkpoints")
    resume.check_same(run.folder, then, run.info(), DEFAULTS, run.depends_on_steps, accept)


def conduct_and_report(run: Run, screen: Any, preemption: Preemption | None, started: float) -> bool:
    """`conduct`, and a report where the run is finished, or ended by a number that is not finite."""
    try:
        finished = conduct(run, screen, preemption, watch.announce)
    except FloatingPointError as error:
        report(run, screen, started, str(error))
        raise
    if finished:
        report(run, screen, started)
    return finished


def report(run: Run, screen: Any, started: float, ended: str = "") -> None:
    """Writes the report of a run that is finished, or that ended with this sentence."""
    if jax.process_index() != 0:
        return
    config = run.experiment.config
    trained = run.began < run.fields["steps"]
    seconds = run.seconds + (time.time() - started if trained else 0.0)
    provenance = common.provenance(config, run.experiment) | {"seconds": round(seconds, 1)}
    before = took.earlier(run.folder / "report.json")
    if not trained and before.get("config") == provenance["config"]:
        provenance |= took.said(before)
    common.write(run.folder, curves.documents(run.folder, config.name, provenance, ended), screen)


def with_fields(config: Any, given: list[str]) -> Any:
    """The config with "NAME=VALUE" set, as a Python value, a switch or a word; names it does not have are new fields.

    >>> from ml_collections import ConfigDict
    >>> changed = with_fields(ConfigDict({"width": 8}).lock(), ["width=16", "norm=layer", "causal=false"])
    >>> changed.width, changed.norm, changed.causal
    (16, 'layer', False)
    """
    for each in given:
        name, _, value = each.partition("=")
        with config.unlocked(), config.ignore_type():
            config[name] = overrides.value_of(value)
    return config


def _are_settings(given: list[str]) -> bool:
    names = [name if equal else "" for name, equal, _ in (each.partition("=") for each in given)]
    return all(map(str.isidentifier, names))


flags.register_validator("set", _are_settings, "It takes NAME=VALUE, such as --set=width=512.")


def _said_once(record: logging.LogRecord) -> bool:
    """Orbax logs what goes wrong in its threads with a traceback each, and then raises it."""
    return not (record.exc_info and "orbax" in record.pathname)


def main() -> None:
    """Runs the config."""
    absl_logging.get_absl_handler().addFilter(_said_once)
    keep_freed_memory()
    distributed.initialize_from_flags()
    preemption = Preemption()  # early: a signal that comes while the program is compiled must not be lost
    started, config, screen = time.time(), with_fields(common.config(), _SET.value), common.console()
    if jax.process_index() != 0:
        screen.quiet = True
    experiment = Experiment(common.config_file(), config, FUNCTIONS)
    if _DRY_RUN.value:
        planned = prepare(experiment, None)
        screen.print(described(planned.trainer, planned.abstract_batch()), highlight=False)
        return
    folder = common.run_folder(config.name)
    at = steps_in(folder / "checkpoints")
    same_everywhere(what_runs(experiment.path, config, pmap=_PMAP.value, workdir=str(folder), checkpoints=at))
    run = prepare(experiment, folder, _PMAP.value)
    run.started = started
    same_everywhere(of_files(run.content))
    held = resume.lock(folder) if jax.process_index() == 0 else None
    check_folder(run, _ACCEPT.value)
    common.say_unread(screen, unused(run.fields, experiment.asked_for((*NEEDED, *beside.FUNCTIONS))))
    if jax.process_index() == 0:
        if "://" not in str(folder):
            folder_inside(folder, "checkpoints")
        common.keep_config(folder, common.provenance(config))
    finished = conduct_and_report(run, screen, preemption, started)
    screen.print(f"{'finished' if finished else 'preempted and saved'}, {time.time() - started:.0f} s", highlight=False)
    if held:
        held.close()
    if not finished:
        sys.exit(exit_codes.PREEMPTED)


def run() -> None:
    """Entry point."""
    with distributed.telling_of_an_early_end():
        common.start(main, __doc__)


if __name__ == "__main__":
    run()
