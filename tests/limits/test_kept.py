"""Kernels and sweeps in folders: damaged files, full disks, two at once, and what counts as the same computation."""

import errno
import functools
import os
import resource
import shutil
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from damage import FLIPS, silently_different

from limits import Task, twin
from limits.fields.kept_sweep import Keep
from limits.fields.sweep import CausalSweep
from limits.kernels import KeptKernels, pairwise
from zoo import MLP

X = np.random.default_rng(0).normal(size=(7, 3))
Z = np.random.default_rng(1).normal(size=(5, 3))
TASK = Task(np.eye(3)[:2], [1.0, -1.0], np.eye(3)[2:], [0.5])
NET = MLP(8, 1, parameterization="mup")
RICH = {"steps": 4, "learning_rate": 0.5, "samples": 64, "replicas": 2, "times": [0, 2, 4], "kernels": ("phi",)}


def blocks(folder, x2=None, calls=None, what="products", x1=X):
    """Two kernels in blocks of 3 rows."""

    def products(a, b):
        if calls is not None:
            calls.append(1)
        return [a @ b.T, np.tanh(a @ b.T) + a.sum(1)[:, None] * b.sum(1)]

    kept = KeptKernels(folder, what, ("nngp", "ntk"))
    return [np.array(part) for part in pairwise(products, x1, x2, 2, 3, progress=False, kept=kept)]


@pytest.mark.parametrize(("x2", "flips"), [(None, FLIPS), pytest.param(None, 400, marks=pytest.mark.slow), (Z, 20)])
def test_no_damage_to_kept_kernels_goes_unnoticed(tmp_path, x2, flips, capsys):
    """What counts as finished is right in every bit."""
    whole, kept = blocks(tmp_path, x2), KeptKernels(tmp_path, "products", ("nngp", "ntk"))

    def read():
        with kept.open(X, x2, 3) as found:
            pairs = list(zip(found.arrays(), whole, strict=True))
            places = {(a, b) for i, j in found.finished for a, b in ((i, j), (j, i) if x2 is None else (i, j))}
            parts = [
                (held[a : a + 3, b : b + 3], right[a : a + 3, b : b + 3]) for a, b in places for held, right in pairs
            ]
            if any(held.tobytes() != right.tobytes() for held, right in parts):
                return False
        return "said" if "set aside" in capsys.readouterr().err else True

    counts = {each.name: silently_different(each, read, flips) for each in tmp_path.glob("[a-z]*")}
    assert sorted(counts) == ["blocks.json", "blocks.log", "nngp.npy", "ntk.npy"]
    for name, (tried, noticed, wrong) in counts.items():
        assert tried > flips, name
        assert not wrong, name
        assert noticed == tried, name


def test_swapped_files_and_blocks_are_computed_again(tmp_path, capsys):
    whole, calls = blocks(tmp_path), []
    (tmp_path / "nngp.npy").rename(tmp_path / "between")
    (tmp_path / "ntk.npy").rename(tmp_path / "nngp.npy")
    (tmp_path / "between").rename(tmp_path / "ntk.npy")
    again = blocks(tmp_path, calls=calls)
    assert [a.tobytes() for a in again] == [a.tobytes() for a in whole]
    assert len(calls) == 6
    ntk = np.load(tmp_path / "ntk.npy", mmap_mode="r+")
    ntk[:3, 3:6], ntk[3:6, :3] = ntk[:3, :3].copy(), ntk[:3, :3].T.copy()  # a block in another's place
    ntk.flush()
    calls.clear()
    capsys.readouterr()
    again = blocks(tmp_path, calls=calls)
    assert [a.tobytes() for a in again] == [a.tobytes() for a in whole]
    assert len(calls) == 1
    assert "block at (0, 3) of ntk.npy" in " ".join(capsys.readouterr().err.split())
    assert len(list(tmp_path.glob("ntk_block_*.damaged-*"))) > 0  # what it was is still there


def test_files_of_another_folder_are_not_taken(tmp_path):
    blocks(tmp_path / "one")
    whole = blocks(tmp_path / "other", x1=X + 1)
    for name in ("nngp.npy", "ntk.npy", "blocks.log"):
        shutil.copy(tmp_path / "one" / name, tmp_path / "other" / name)
    assert [a.tobytes() for a in blocks(tmp_path / "other", x1=X + 1)] == [a.tobytes() for a in whole]


def test_writing_into_kernels_leaves_the_files_as_they_are(tmp_path):
    kept = KeptKernels(tmp_path, "products", ("k",))
    first, calls = pairwise(lambda a, b: [a @ b.T], X, count=1, block=3, kept=kept)[0], []
    assert isinstance(first, np.memmap)
    first[:] = 0
    again = pairwise(lambda a, b: [calls.append(1)], X, count=1, block=3, kept=kept)[0]
    assert not calls
    np.testing.assert_array_equal(again, X @ X.T)


def test_a_disk_that_is_too_small_is_said_before_anything_is_computed(tmp_path):
    """By a limit on the size of files, which is refused like a full disk."""
    before, calls = resource.getrlimit(resource.RLIMIT_FSIZE), []
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        with pytest.raises(OSError, match=r"nngp.npy needs .* GiB are free there .*give a folder on another disk"):
            blocks(tmp_path, calls=calls)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not calls
    assert len(blocks(tmp_path, calls=calls)) == 2
    assert len(calls) == 6


def test_a_disk_that_fills_up_is_an_error_and_not_a_killed_process(tmp_path, monkeypatch):
    """Where a file system cannot allocate: blocks go through ordinary writes."""
    whole, pwrite, written = blocks(tmp_path / "whole"), os.pwrite, []

    def cannot(*_):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    def fills(handle, data, at):
        written.append(1)
        if len(written) > 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(handle, data[: max(1, len(data) // 2)], at)  # and some writes are short

    monkeypatch.setattr(os, "posix_fallocate", cannot)
    monkeypatch.setattr(os, "pwrite", fills)
    with pytest.raises(OSError, match="No space left"):
        blocks(tmp_path / "full")
    monkeypatch.undo()
    assert [a.tobytes() for a in blocks(tmp_path / "full")] == [a.tobytes() for a in whole]


def test_of_two_at_once_one_computes(tmp_path, capsys):
    """Kernels and sweeps, in two threads with a lock each: as two processes."""
    found, made, plain = {}, [], CausalSweep.step

    def work(i):
        found[i] = blocks(tmp_path / "kernels", calls=made), twin(NET).rich(TASK, folder=tmp_path / "rich", **RICH)

    steps = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CausalSweep, "step", lambda self, *args: (steps.append(1), plain(self, *args))[1])
        workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert len(made) == 6
    assert len(steps) == RICH["replicas"] * RICH["steps"]
    assert [a.tobytes() for a in found[0][0]] == [a.tobytes() for a in found[1][0]]
    assert found[0][1].f_train.tobytes() == found[1][1].f_train.tobytes()
    assert "set aside" not in capsys.readouterr().err


def test_no_damage_to_a_kept_sweep_goes_unnoticed(tmp_path, capsys):
    rng = np.random.default_rng(0)
    state = {"w": jnp.asarray(rng.normal(size=(3, 4))), "half": jnp.ones(3, jnp.bfloat16)}
    seen = [{"f": rng.normal(size=(2, 1)), "phi": (np.eye(2), np.eye(3))} for _ in range(3)]
    keep = Keep(tmp_path, "sweep_0", state)
    keep.save(state, 7, seen)
    (file,) = tmp_path.iterdir()

    def read():
        found = keep.load(lambda: (state, seen[0]))
        if found is None:
            return "said" if "set aside" in capsys.readouterr().err else False
        leaves = zip(jax.tree.leaves(found), jax.tree.leaves((state, 7, seen)), strict=True)
        return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in leaves)

    assert read() is True
    tried, noticed, wrong = silently_different(file, read)
    assert tried == noticed > FLIPS
    assert not wrong


def scaled(scale, net, variables, x):
    return scale * net.apply(variables, x)


def constant(a):
    return lambda *args: a


def test_sweeps_are_those_of_the_observable_and_the_code_that_are_asked_for(tmp_path, monkeypatch):
    """Another lambda, another argument of a partial: none returns the numbers of the one before."""
    how = RICH | {"steps": 0, "times": [0], "kernels": ()}
    observables = [
        lambda net, variables, x: net.apply(variables, x),
        lambda net, variables, x: 2 * net.apply(variables, x),
        functools.partial(scaled, 3.0),
    ]
    found = [twin(NET).rich(TASK, folder=tmp_path, observe=each, **how).observed["observe"] for each in observables]
    for factor, each in zip((1, 2, 3), found, strict=True):
        np.testing.assert_allclose(each, factor * found[0], rtol=1e-6)
    monkeypatch.setattr(CausalSweep, "measure", None)  # nothing is computed again
    again = twin(NET).rich(TASK, folder=tmp_path, observe=functools.partial(scaled, 3.0), **how)
    np.testing.assert_array_equal(again.observed["observe"], found[-1])


def test_a_sweep_is_read_back_with_the_compiler_as_users_have_it(tmp_path, monkeypatch):
    """Quick tests ask for the least optimisation, where programs take no options of their own."""
    net, before = NET.clone(gamma=1.3), jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        whole = twin(net).rich(TASK, folder=tmp_path, **RICH)
        monkeypatch.setattr(CausalSweep, "step", None)  # nothing is computed again
        again = twin(net).rich(TASK, folder=tmp_path, **RICH)
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
    assert again.f_train.tobytes() == whole.f_train.tobytes()


def test_a_damaged_sweep_is_computed_again(tmp_path, capsys):
    whole = twin(NET).rich(TASK, folder=tmp_path, **RICH)
    for file in tmp_path.glob("*.npz"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 4
        file.write_bytes(data)
    again = twin(NET).rich(TASK, folder=tmp_path, **RICH)
    assert again.f_train.tobytes() == whole.f_train.tobytes()
    assert capsys.readouterr().err.count("set aside") == 2


def test_every_part_of_the_question_tells_sweeps_apart(tmp_path, monkeypatch):
    """The names of files, without the sweeps themselves."""
    asked = []

    class Asked(Exception):
        pass

    def stop(self, folder, name, *what):
        asked.append(Keep(folder, name, *what).name)
        raise Asked

    monkeypatch.setattr("limits.fields.sweeps.Keep", lambda *args: stop(None, *args))
    others = [
        {}, {"learning_rate": 0.4}, {"steps": 3, "times": [0, 2, 3]}, {"samples": 32}, {"key": 1}, {"momentum": 0.5},
        {"times": [0, 4]}, {"kernels": ("ntk",)}, {"dtype": np.float64}, {"weight_decay": 0.1}, {"trained": ("hidden",)},
        {"batches": np.zeros((4, 1), int)}, {"record": ("fields",)}, {"observe": lambda *args: 0.0},
        {"observe": lambda *args: 1.0}, {"observe": scaled}, *({"observe": lambda *args, a=a: a} for a in (2.0, 3.0)),
        *({"observe": constant(a)} for a in (2.0, 3.0)),
        *({"observe": functools.partial(scaled, a)} for a in (2.0, 3.0)),
    ]  # fmt: skip
    for other in others:
        with pytest.raises(Asked):
            twin(NET).rich(TASK, folder=tmp_path, **(RICH | other))
    for net in (
        NET.clone(w_std=1.1),
        NET.clone(activation=lambda x: jnp.tanh(x)),
        NET.clone(activation=lambda x: x**3),
    ):
        with pytest.raises(Asked):
            twin(net).rich(TASK, folder=tmp_path, **RICH)
    task = Task(TASK.x_train + 1e-12, TASK.y_train, TASK.x_test, TASK.y_test)
    with pytest.raises(Asked):
        twin(NET).rich(task, folder=tmp_path, **RICH)
    assert len(set(asked)) == len(others) + 4
    with pytest.raises(Asked):
        twin(NET.clone(width=16)).rich(TASK, folder=tmp_path, **RICH)
    assert asked[-1] == asked[0]  # the limit has no width
