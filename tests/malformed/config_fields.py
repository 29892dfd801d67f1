"""Malformed fields of the packaged configs, read as the commands read them, up to the first computation."""

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from launch import compare, limit
from train.data import Batches
from train.data.sources import split_of
from train.mesh import make_mesh
from train.study import study_of
from train.study.experiment import load
from train.study.families import families, has_make
from train.study.fields import checked

FOLDER = Path(__file__).resolve().parents[2] / "configs"


def read_training(path: Path, config: ConfigDict) -> None:
    """As launch.train does before it builds the network."""
    fields = checked(config.to_dict())
    make_mesh(**fields["mesh"])
    data = dict(fields["data"])
    stream = split_of(data, data["train"])
    Batches(stream, fields["batch"], fields["seed"], augment=data.get("augment"))


def read_comparison(path: Path, config: ConfigDict) -> None:
    """As launch.compare does before it trains."""
    own = str(path) if has_make(str(path)) else None
    compare.check_fields(config, "launch.compare", compare.left_out(config), own)
    task = compare.task_of(config)
    for make in families(config, own, task.outputs).values():
        make(max(config.widths), max(config.depths))


def read_study(path: Path, config: ConfigDict) -> None:
    """As launch.transfer does before it trains."""
    study_of(str(path), config, Path("nowhere"))


def read_regression(path: Path, config: ConfigDict) -> None:
    """As launch.limit does before it computes."""
    limit.work_of(config, str(path), Path("nowhere"))


def read_limit(path: Path, config: ConfigDict) -> None:
    """As launch.limit does without training."""
    task = limit.small_task(config, str(path))
    for make in families(config, None, task.outputs).values():
        make(max(config.widths), max(config.depths))


READERS = {
    "training": read_training, "train_": read_training, "transfer_": read_study, "kernels_large": read_regression, "kernels": read_limit,
    "evidence": read_limit,
}  # fmt: skip


def readers() -> dict[str, tuple[Any, Path]]:
    """name → (how its command reads it, the file)."""
    files = [file for file in sorted(FOLDER.glob("*.py")) if not file.stem.startswith("_")]
    return {
        f.stem: (next((r for start, r in READERS.items() if f.stem.startswith(start)), read_comparison), f)
        for f in files
    }


def fields(config: Any, before: str = "") -> list[str]:
    """The dotted names of all fields."""
    found = []
    for name, value in config.items():
        found.append(before + name)
        if hasattr(value, "items"):
            found += fields(value, f"{before}{name}.")
    return found


def changed(file: Path, field: str, value: Any) -> ConfigDict:
    """The config with this in that field."""
    config = load(file).get_config()
    *places, last = field.split(".")
    place = config
    for each in places:
        place = place[each]
    with place.unlocked(), place.ignore_type():
        place[last] = value
    return config
