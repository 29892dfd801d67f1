"""Batches of samples on the device are those of the host; several steps in a dispatch are one after the other."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from train import several
from train.data import Batches, source
from train.data.augment import Augmentation
from train.data.batches import generators
from train.data.draws import PositionDraws, counters, key_of
from train.data.resident import Resident, fits, lacking
from train.data.sources import Arrays
from train.losses import mse
from train.mesh import make_mesh
from train.several import Several
from train.step import Numbers, Program
from train.trainer import Trainer
from zoo import MLP

FAR = 2**32 - 3  # positions around it have carries


def pictures(shape: tuple[int, ...] = (9, 6, 3), count: int = 21, dtype: Any = np.float32) -> Arrays:
    levels = np.random.default_rng(0).integers(0, 256, (count, *shape))
    inputs = levels.astype(np.uint8) if dtype == np.uint8 else (levels / 255).astype(dtype)
    return Arrays("pictures", inputs, np.arange(count) % 4, 4)


def resident(batches: Batches) -> Resident:
    return Resident(batches, make_mesh(data=1, devices=jax.devices()[:1]))


def test_draws_are_those_of_the_hosts_generators():
    positions = np.array([0, 5, FAR, 2**32 + 7, 2**62 + 3])
    draws = PositionDraws(key_of(11), counters(positions))
    found = [draws.random(), draws.integer(-3, 4), draws.uniform(-2, 1), draws.integer(0, 9), draws.integer(-1, 2)]
    flat, tree = jax.tree.flatten(draws)  # as from one compiled program to the next
    draws = jax.tree.unflatten(tree, flat)
    found += [draws.random() for _ in range(6)] + [draws.integer(0, 2)]
    expected = []
    for random in generators(11, positions):
        first = [random.random(), random.integers(-3, 4), random.uniform(-2, 1), *random.integers([0, -1], [9, 2])]
        expected.append([*first, *random.random(6), random.integers(0, 2)])
    for one, other in zip(found, np.array(expected).T, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-7)
    assert len({round(float(v), 5) for row in expected for v in row}) > 30


CHANGES: dict[str, dict[str, Any]] = {
    "flip": {},
    "crop": {"padding": 3},
    "rotation": {"degrees": 40.0},
    "affine": {"translate": 0.2, "scale": 0.3, "shear": 20.0},
    "resized_crop": {"area": 0.2},
    "colour_jitter": {"brightness": 0.3, "contrast": 0.4, "saturation": 0.3, "hue": 0.2},
}


def agree(batches: Batches, steps: Any, atol: float) -> None:
    made = resident(batches)
    for step in steps:
        number, at = divmod(step, made.size)
        for one, other in zip(made.chunk(number), batches.at(step), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one[:, at], other, atol=atol)


@pytest.mark.parametrize("name", [*CHANGES])
def test_every_change_is_that_of_the_host(name: str):
    agree(Batches(pictures(), 10, seed=3, augment=[(name, CHANGES[name])]), (0, 2**30), 1e-4)


@pytest.mark.parametrize("channels", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_all_changes_and_normalisations_in_their_order(channels: int):
    steps = [*CHANGES.items(), "flip", ("crop", {"padding": 1})]
    how = ("image", "sphere", ("dataset", {"mean": (0.5,), "std": (0.3,)}))
    for normalise in how[:1] if channels == 1 else how:
        agree(Batches(pictures((5, 8, channels)), 10, 2**31, augment=steps, normalise=normalise), (3,), 1e-3)


def test_images_stored_as_bytes_are_those_of_the_host_but_for_its_rounding_to_levels():
    agree(Batches(pictures(dtype=np.uint8), 7, seed=1, augment=["flip", ("crop", {"padding": 2})]), (5,), 1e-6)
    turned = Batches(pictures((12, 12, 3), dtype=np.uint8), 7, seed=1, augment=["rotation", "colour_jitter"])
    agree(turned, (2,), 3 / 255)


@pytest.mark.parametrize("name", ["rotation", "resized_crop", "colour_jitter"])
@pytest.mark.parametrize("dtype", [bool, np.int64, np.float16])
def test_images_of_other_numbers_are_changed_as_float32(name: str, dtype: Any):
    """What lies between two truths or two whole numbers is neither."""
    source = pictures()
    inputs = source.inputs > 0.5 if dtype is bool else np.rint(source.inputs).astype(dtype)
    made, same = (
        Batches(Arrays("own", x, source.targets, source.classes), 10, seed=3, augment=[(name, CHANGES[name])])
        for x in (inputs, inputs.astype(np.float32))
    )
    np.testing.assert_array_equal(made.at(0)[0], same.at(0)[0])
    agree(made, (0, 5), 1e-4)


def test_targets_that_are_no_labels_and_float64_samples(x64: None):
    x = np.random.default_rng(0).normal(size=(9, 5))
    agree(Batches(Arrays("points", x, x[:, :2]), 4), (0, 1, 40), 1e-6)
    agree(Batches(pictures(dtype=np.float64), 4, augment=["rotation"]), (7,), 1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_whole_numbers_stay_what_they_are(dtype: Any):
    numbers = np.random.default_rng(0).integers(0, 99, (21, 5)).astype(dtype)
    host = Batches(Arrays("numbers", numbers, np.arange(21) % 4, 4, "tokens"), 6, seed=2)
    x, y = resident(host).chunk(0)
    for step in (0, 4):
        np.testing.assert_array_equal(x[:, step], host.at(step)[0])
        np.testing.assert_array_equal(y[:, step], host.at(step)[1])
    assert x.dtype == host.at(0)[0].dtype == np.int32


def test_which_samples_lie_on_the_device():
    digits = Batches(source("digits"), 8, augment=["flip"])
    assert fits(digits)
    own = Batches(source("digits"), 8, augment=Augmentation((lambda image, random: image,)))
    assert not fits(own)
    assert "no compiled form" in lacking(own)
    with pytest.raises(ValueError, match="digits cannot lie on the devices: there is no compiled form"):
        resident(own)
    large = Arrays("large", np.broadcast_to(np.float32(0), (1000, 1000, 1000, 3)), np.zeros(1000, int), 2)
    assert not fits(Batches(large, 8))
    assert not lacking(Batches(large, 8))


# Several steps


@functools.cache
def trained() -> tuple[Trainer, Resident]:
    program = Program(MLP(8, 1, outputs=4), optax.adam(0.01), mse)
    batches = Batches(pictures((4, 4, 1)), 6, augment=["flip"])
    return Trainer(program, make_mesh(data=1, devices=jax.devices()[:1]), (6, 4, 4, 1)), resident(batches)


def test_several_steps_are_one_after_the_other():
    trainer, made = trained()
    chunk = made.chunk(1)
    state, losses = trainer.initial(), []
    for i in range(3, 10):
        state, numbers = trainer.step(state, tuple(np.asarray(part[:, i]) for part in chunk))
        losses.append(numbers["loss"].item())
    at_once, numbers = trainer.several(trainer.initial(), chunk, 3, 7)
    np.testing.assert_allclose(numbers["loss"][:7], losses, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), at_once, state)
    # However they are divided into dispatches, not a bit differs.
    parts = trainer.initial()
    for begin, count in ((3, 1), (4, 4), (8, 2)):
        parts, _ = trainer.several(parts, chunk, begin, count)
    jax.tree.map(np.testing.assert_array_equal, parts, at_once)


@pytest.mark.parametrize(("seconds", "expected"), [(0.012, [1, 1, 2, 4, 8, 8, 8]), (0.06, [1, 1, 1, 1, 1, 1, 1])])
def test_a_dispatch_has_as_many_steps_as_are_soon_done(
    seconds: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
):
    trainer, made = trained()
    monkeypatch.setattr(several, "SECONDS", 0.1)
    clock = [0.0, 20.0]  # the first dispatch is compiled

    def steps(state: Any, chunk: Any, begin: int, count: int) -> Any:
        clock[0] += seconds * count + clock.pop() if len(clock) > 1 else seconds * count
        return state + count, Numbers(jnp.zeros((made.size, 1)), ("loss",))

    monkeypatch.setattr(trainer, "several", steps)
    advance = Several(trainer, made, now=lambda: clock[0])
    found, k = [], 0
    for _ in expected:
        _, _, count = advance(0, k, 100)
        found.append(count)
        k += count
    assert found == expected


def test_steps_end_where_something_is_due_and_chunks_end(monkeypatch: pytest.MonkeyPatch):
    trainer, made = trained()
    monkeypatch.setattr(several, "SECONDS", 1e9)
    advance, state, k, found = Several(trainer, made), trainer.initial(), made.size - 12, []
    for most in (100, 100, 3, 100, 100, 100):
        state, _, count = advance(state, k, most)
        found.append(count)
        k += count
    assert found == [1, 1, 2, 4, 4, 8]  # four are left in the chunk
    assert int(state.step) == 20
