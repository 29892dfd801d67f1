"""What processes compare before the first step, and how they refuse."""

import re
import threading
from pathlib import Path

import jax
import pytest
from key_value import Store

from train.study import agreement
from train.study.agreement import compare, differences, what_runs
from train.study.experiment import load

CONFIG = Path(__file__).resolve().parents[1] / "launch" / "training_config.py"


def test_differences_name_the_field_both_values_and_who():
    every = {
        0: {"width": "8", "rate": "0.5", "same": "x"},
        1: {"width": "8", "rate": "0.25", "same": "x"},
        2: {"rate": "0.5", "same": "x"},
    }
    assert differences(every, {0: "a", 1: "b", 2: "c"}) == [
        "width is 8 on processes 0, 1 and absent on process 2 (c)",
        "rate is 0.5 on processes 0, 2 and 0.25 on process 1 (b)",
    ]


def test_everything_that_decides_the_numbers_is_compared(tmp_path, monkeypatch):
    (tmp_path / "own_beside.py").write_text("SCALE = 1\n")
    file = tmp_path / "own_config.py"
    file.write_text("import own_beside\n" + CONFIG.read_text())
    config = load(file).get_config()

    def changed() -> set[str]:
        now = what_runs(file, config)
        return {name for name in {*now, *first} if now.get(name) != first.get(name)}

    first = what_runs(file, config)
    assert changed() == set()
    (tmp_path / "own_beside.py").write_text("SCALE = 2\n")
    assert changed() == {"the code of own_beside.py"}
    file.write_text(file.read_text() + "\n# edited")
    assert changed() == {"the code of own_beside.py", "the code of the config file"}
    first = what_runs(file, config)
    config.data.augment = ()
    assert changed() == {"data"}
    first = what_runs(file, config)
    versions = {name: first[f"the version of {name}"] for name in agreement._PACKAGES} | {"optax": "0"}
    monkeypatch.setattr(agreement, "version_of", versions.get)
    assert changed() == {"the version of optax"}
    with jax.enable_x64(True):
        assert "jax_enable_x64" in changed()
    assert {"the code of limits/types.py", "the code of launch/train.py", "the version of jaxlib", "seed"} <= set(first)


def test_all_refuse_where_one_differs():
    store, said = Store(), {}

    def process(i: int) -> None:
        with pytest.raises(ValueError, match="do not run the same") as error:
            compare(store, "round/", i, 2, {"seed": str(i), "width": "8"})
        said[i] = str(error.value)

    threads = [threading.Thread(target=process, args=(i,)) for i in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert re.match(r"The processes do not run the same: seed is 0 on process 0 \(.*\) and 1 on process 1", said[0])
    assert said[0] == said[1]
