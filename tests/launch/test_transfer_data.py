"""launch.transfer does not mix runs whose data are others under one name."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from own_studies import studies_of

from train.study.predicted import conduct
from train.study.same_data import alike, check_data, prints
from train.study.size import Size

CODE = """
import jax.numpy as jnp, numpy as np, optax
from ml_collections import ConfigDict
from train.data import make_task, minibatches, source
from zoo import MLP, scaled
def get_config():
    return ConfigDict({"name": "own", "widths": (4, 8), "depths": (1,), "values": (0.1, 0.2), "seeds": 2, "steps": 3, "seed": 0,
                       "scored": "validation", "path": "PATH"})
def make(width, depth): return MLP(width, depth, 3, parameterization="mup")
def optimizer(net, learning_rate): return scaled(optax.sgd(learning_rate), net)
def loss(f, y): return jnp.mean((f - y) ** 2)
def batches(path, steps, seed): return minibatches(make_task("arrays", path=path, n_train=8, n_test=0), 4, steps, seed)
def validation(path): return source("arrays", "test", path=path).read(np.arange(4))
"""


def written(path: Path, **changed: np.ndarray) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(12, 5)), draw.integers(0, 3, 12)
    np.savez(
        path, allow_pickle=False, **{"x_train": x[:8], "y_train": y[:8], "x_test": x[8:], "y_test": y[8:], **changed}
    )


@pytest.fixture
def study(tmp_path):
    written(tmp_path / "own.npz")
    return studies_of(tmp_path, CODE.replace("PATH", str(tmp_path / "own.npz")))()


def test_other_numbers_in_a_file_of_that_name_are_refused_where_runs_are_kept(tmp_path, study):
    check_data(study)
    written(tmp_path / "own.npz", y_train=np.arange(8) % 3)
    check_data(study)  # nothing is kept that could be mixed
    study.complete(study.cells()[0])
    check_data(study)
    written(tmp_path / "own.npz", y_train=np.arange(8) % 3, x_train=np.ones((8, 5)))
    with pytest.raises(
        ValueError, match=re.escape("runs with other data: batches of own.py returned other numbers then")
    ):
        check_data(study)
    written(tmp_path / "own.npz", y_train=np.arange(8) % 3, x_test=np.eye(4, 5))
    with pytest.raises(ValueError, match="other data: validation of"):
        check_data(study)
    (tmp_path / "own.npz").unlink()
    check_data(study)  # a report of what is there needs no data
    written(tmp_path / "own.npz", y_train=np.arange(8) % 3)
    check_data(study)


def test_a_label_among_many_that_is_another_is_seen():
    draw = np.random.default_rng(0)
    labels = np.eye(10)[draw.integers(0, 10, 500)]
    for row in range(50):
        other = labels.copy()
        other[row] = np.roll(labels[row], 1 + row % 9)
        assert not alike(prints(labels), prints(other))


def test_runs_of_the_limit_alone_are_runs(tmp_path, study):
    check_data(study)
    variant, label, fields = study.variants()[0]
    cell = study.file(Size(variant, label, fields, math.inf, 1))
    cell.write_bytes(b"")
    written(tmp_path / "own.npz", x_test=np.eye(4, 5))
    with pytest.raises(ValueError, match="other data: validation of"):
        check_data(study)


LIMIT = """
def task(path): return make_task("arrays", path=path, n_train=8, n_test=0)
"""


def test_a_limit_is_not_computed_of_other_data_than_were_trained_on(tmp_path):
    written(tmp_path / "own.npz")
    code = CODE.replace("PATH", str(tmp_path / "own.npz")).replace('"scored": "validation"', '"limit": {"samples": 8}')
    study = studies_of(tmp_path, code + LIMIT)()
    check_data(study)
    study.complete(study.cells()[0])
    written(tmp_path / "own.npz", y_train=np.arange(8) % 3)
    with pytest.raises(ValueError, match=r"runs with other data: batches and task of own\.py returned other"):
        conduct(study, 0.9, from_limit=True)
    with pytest.raises(ValueError, match="at least 2 are needed"):
        conduct(study, 0.9)
