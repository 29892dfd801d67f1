"""Killed at random moments and started again: kernels and sweeps in folders, compare, transfer end as if nothing had been."""

import pytest
from kills import unequal_results

_BEGIN = """
import hashlib, sys, time
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
from limits import Task, twin
from zoo import MLP
folder, rng = Path(sys.argv[1]), np.random.default_rng(0)
x = rng.normal(size=(6, 3))
task = Task(x[:4], x[:4, 0], x[4:], x[4:, 0])
def ready():
    print("ready", flush=True)
def end(*arrays):
    print(hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest())
def end_of_cells():
    files = sorted(folder.glob("[a-z0-9]*.npz"))
    print(hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest(), len(files))
"""

_PROGRAMS = {
    "kernels": """
x = rng.normal(size=(60, 3))
twin(MLP(8, 2)).kernels(x[:3], block=3)
ready()
found = twin(MLP(8, 2)).kernels(x, block=3, folder=folder)
end(found.nngp, found.ntk)
""",
    "rich": """
how = dict(steps=30, learning_rate=0.2, samples=64, replicas=2, times=range(31), kernels=("phi",))
net = MLP(8, 1, parameterization="mup")
twin(net).rich(task, **how)
ready()
found = twin(net).rich(task, folder=folder, **how)
end(found.f_train, found.f_test, found.loss, *found.phi)
""",
    "compare": """
from train.evaluate.compare import compare
ready()
compare({"ntk": lambda width, depth: MLP(width, depth)}, (4, 8, 16, 32), (1,), task, members=8, init_members=8, steps=2,
        learning_rate=0.1, folder=folder)
end_of_cells()
""",
    "transfer": """
import optax
from train.transfer import transfer
stream = rng.normal(size=(20, 4, 3)), rng.normal(size=(20, 4, 1))
ready()
found = transfer(lambda width, depth: MLP(width, depth), lambda net, rate: optax.adam(rate),
                 lambda f, y: jnp.mean((f - y) ** 2), stream, (4, 8, 16), (1, 2), (0.01, 0.1, 1.0), 2, folder=folder)
end(*(sweep.curves for each in found for sweep in each.sweeps))
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_killed_program_goes_on_to_the_same_result(name, tmp_path):
    """As many kills as LIMIT_ZOO_KILLS says."""
    done, results, unequal = unequal_results(_BEGIN + _PROGRAMS[name], tmp_path)
    assert done
    assert results
    assert not unequal
