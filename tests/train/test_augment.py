import math

import numpy as np
import pytest
from ml_collections import ConfigDict

from train.data import augmentation, source
from train.data.augment import AUGMENTATIONS
from train.data.batches import Batches
from train.data.colour import brightened, colour_jitter, contrasted, grey, saturated, turned
from train.data.geometry import affine, crop, flip, resized_crop, rotation, shifted, warped
from train.data.sources import Arrays

SEVERAL = [(8, 8, 1), (7, 10, 3)]
# At these strengths nothing is changed.
NOTHING = {
    "flip": {"probability": 0.0},
    "crop": {"padding": 0},
    "resized_crop": {"area": 1.0, "aspect": 1.0},
    "rotation": {"degrees": 0.0},
    "affine": {"translate": 0.0, "scale": 0.0, "shear": 0.0},
    "colour_jitter": {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0},
}


def picture(shape=(7, 10, 3), dtype="float32", seed=0):
    x = np.random.default_rng(seed).random(shape)
    return (x * 255).astype(dtype) if dtype == "uint8" else x.astype(dtype)


def dot(row, column, size=21):
    image = np.zeros((size, size, 1), np.float32)
    image[row, column] = 1
    return image


def centre(image):
    """(row, column) of the centre of mass."""
    plane = image[..., 0] / image.sum()
    return tuple(
        float((plane * np.arange(n).reshape(s)).sum()) for n, s in zip(plane.shape, ((-1, 1), (1, -1)), strict=True)
    )


# What holds for all


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("shape", SEVERAL)
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_shape_type_and_range_stay_and_draws_decide(name, shape, dtype):
    image = picture(shape, dtype)
    before = image.copy()
    change = augmentation([name])
    found = [change(image, np.random.default_rng(seed)) for seed in range(8)]
    assert {(each.shape, each.dtype) for each in found} == {(shape, np.dtype(dtype))}
    assert min(each.min() for each in found) >= 0
    assert max(each.max() for each in found) <= (255 if dtype == "uint8" else 1)
    np.testing.assert_array_equal(image, before)  # the source's own array is left alone
    for seed in range(8):
        np.testing.assert_array_equal(change(image, np.random.default_rng(seed)), found[seed])
    assert len({each.tobytes() for each in found}) > 1


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("shape", SEVERAL)
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_at_strength_zero_the_image_stays(name, shape, dtype):
    image = picture(shape, dtype)
    found = augmentation([(name, NOTHING[name])])(image, np.random.default_rng(0))
    np.testing.assert_allclose(found, image, rtol=1e-6, atol=0)  # float64 passes through Pillow's float32


# Geometry


def test_flip():
    image, random = picture(), np.random.default_rng(0)
    once = flip(image, random, probability=1.0)
    np.testing.assert_array_equal(once[:, 0], image[:, -1])
    np.testing.assert_array_equal(flip(once, random, probability=1.0), image)
    flipped = sum(bool((flip(image, random) != image).any()) for _ in range(400))
    assert abs(flipped - 200) < 4 * 10  # standard deviation √(400/4)


@pytest.mark.parametrize("size", [(6, 9), (2, 2)])  # of the smaller one nothing may be left
def test_crops_are_the_windows_of_the_padded_image(size):
    image = 1 + picture((*size, 2))
    padded = np.pad(image, ((3, 3), (3, 3), (0, 0)))
    windows = {padded[r : r + size[0], c : c + size[1]].tobytes() for r in range(7) for c in range(7)}
    random = np.random.default_rng(0)
    found = {crop(image, random, padding=3).tobytes() for _ in range(1000)}
    assert found == windows


def test_shifts_move_down_and_right():
    np.testing.assert_array_equal(shifted(dot(4, 9), 2, -3), dot(6, 6))


def test_rotation_is_counter_clockwise_about_the_middle():
    image = picture((9, 9, 3), "float64")
    for quarters in (1, 2, 3):
        np.testing.assert_allclose(warped(image, degrees=90 * quarters), np.rot90(image, quarters), atol=1e-6)
    for degrees in (10.0, -10.0, 37.0):
        # A point 6 to the right of the middle (10, 10) goes to 6 (cos, sin), up being counter-clockwise.
        row, column = centre(warped(dot(10, 16), degrees=degrees))
        angle = math.radians(degrees)
        assert row == pytest.approx(10 - 6 * math.sin(angle), abs=0.1)  # what bilinear sampling moves a dot by
        assert column == pytest.approx(10 + 6 * math.cos(angle), abs=0.1)


def test_random_rotations_fill_their_range():
    random = np.random.default_rng(0)
    rows = [centre(rotation(dot(10, 16), random, degrees=10.0))[0] for _ in range(300)]
    angles = np.degrees(np.arcsin((10 - np.array(rows)) / 6))
    assert -11 < angles.min() < -9
    assert 9 < angles.max() < 11
    assert abs(angles.mean()) < 4 * 10 / math.sqrt(3 * 300)


def test_affine_maps_move_scale_and_shear():
    assert centre(warped(dot(10, 16), right=2, down=-3)) == pytest.approx((7, 18))
    assert centre(warped(dot(10, 14), scale=2)) == pytest.approx((10, 18), abs=1e-6)
    # What is 5 below the middle goes to the right by 5 tan.
    assert centre(warped(dot(15, 10), shear=20.0)) == pytest.approx((15, 10 + 5 * math.tan(math.radians(20))), abs=0.1)
    # Turning comes after shearing and scaling, moving last: (0, 4) → (4 tan, 4) → twice → a quarter turn → down 1.
    found = centre(warped(dot(14, 10), degrees=90, right=0, down=1, scale=1.5, shear=math.degrees(math.atan(0.5))))
    assert found == pytest.approx((10 - 3 + 1, 10 + 6), abs=0.1)


def test_random_affine_maps_stay_within_their_strengths():
    random = np.random.default_rng(0)
    moved = (
        np.array([centre(affine(dot(10, 10), random, translate=0.2, scale=0.0, shear=0.0)) for _ in range(300)]) - 10
    )
    assert np.all(np.abs(moved) < 0.2 * 21 + 0.01)
    assert np.all(np.abs([moved.min(0), moved.max(0)]) > 0.18 * 21)
    wider = [centre(affine(dot(10, 17), random, translate=0.0, scale=0.2, shear=0.0))[1] for _ in range(300)]
    assert 10 + 7 * 0.78 < min(wider) < 10 + 7 * 0.83
    assert 10 + 7 * 1.17 < max(wider) < 10 + 7 * 1.22


def test_resized_crops_are_parts_of_the_image():
    # On a plane of constant slopes, a part resized is a plane whose slopes are its share of the sides.
    height, width = 40, 60
    plane = np.stack(np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij"), -1).astype(np.float32)
    random = np.random.default_rng(0)
    shares, corners = [], []
    for _ in range(300):
        inner = resized_crop(plane, random, area=0.25, aspect=1.5)[5:-5, 5:-5]
        h, w = np.diff(inner[..., 0], axis=0), np.diff(inner[..., 1], axis=1)
        np.testing.assert_allclose(h, h.mean(), rtol=1e-2)
        np.testing.assert_allclose(w, w.mean(), rtol=1e-2)
        shares.append((h.mean(), w.mean()))
        corners.append(inner[0, 0])
    h, w = np.array(shares).T
    inside = (h < 0.999) & (w < 0.999)
    assert inside.mean() > 0.5
    assert 0.24 < (h * w)[inside].min() < 0.3
    assert np.all((w / h)[inside] < 1.51)
    assert np.all((w / h)[inside] > 1 / 1.51)
    assert np.ptp(np.array(corners), axis=0).min() > 10


# Colours


def test_colours_at_their_ends():
    image = picture(dtype="float64")
    luma = image @ [0.299, 0.587, 0.114]
    np.testing.assert_array_equal(brightened(image, 0.0), 0)
    np.testing.assert_allclose(brightened(image, 1.5), np.minimum(1.5 * image, 1))
    np.testing.assert_allclose(contrasted(image, 0.0), luma.mean(), rtol=1e-6)
    np.testing.assert_allclose(saturated(image, 0.0), np.repeat(luma[..., None], 3, -1), rtol=1e-6)
    # Half the contrast is half the spread about the mean grey.
    half = contrasted(image, 0.5)
    np.testing.assert_allclose(half - luma.mean(), (image - luma.mean()) / 2, atol=1e-7)
    np.testing.assert_allclose(grey(saturated(image, 0.5)), grey(image), rtol=1e-6)  # luma stays


def test_hues_turn_on_their_circle():
    image = picture(dtype="float64")
    np.testing.assert_allclose(turned(image, 1 / 3), image[..., [2, 0, 1]], atol=1e-12)  # red to green to blue
    np.testing.assert_allclose(turned(turned(image, 0.17), -0.17), image, atol=1e-12)
    greys = np.repeat(picture((5, 5, 1)), 3, -1)
    np.testing.assert_array_equal(turned(greys, 0.3), greys)
    one = picture((5, 5, 1))
    np.testing.assert_array_equal(turned(one, 0.3), one)


def test_jitter_is_of_the_strength_asked_for():
    random, image = np.random.default_rng(0), np.full((2, 2, 3), 0.5)
    only = {"contrast": 0.0, "saturation": 0.0, "hue": 0.0}
    levels = [colour_jitter(image, random, brightness=0.4, **only).mean() for _ in range(400)]
    assert 0.3 <= min(levels) < 0.31
    assert 0.69 < max(levels) <= 0.7
    assert abs(np.mean(levels) - 0.5) < 4 * 0.2 / math.sqrt(3 * 400)


def test_colours_of_whole_numbers_are_those_of_parts_of_one():
    image, options = picture(dtype="uint8"), {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1}
    for seed in range(5):
        whole = colour_jitter(image, np.random.default_rng(seed), **options)
        part = colour_jitter((image / 255).astype(np.float32), np.random.default_rng(seed), **options)
        np.testing.assert_allclose(whole, part * 255, atol=0.5001)
    with pytest.raises(ValueError, match="1 or 3 channels"):
        colour_jitter(picture((4, 4, 2)), np.random.default_rng(0))


# Composition


def test_steps_are_composed_in_their_order():
    image = source("digits")[0]["image"]
    change = augmentation([("crop", {"padding": 4}), ["flip", ConfigDict({"probability": 0.5})]])
    for seed in range(5):
        random = np.random.default_rng(seed)
        expected = flip(crop(image, random, padding=4), random)
        np.testing.assert_array_equal(change(image, np.random.default_rng(seed)), expected)
    assert augmentation([])(image, np.random.default_rng(0)) is image


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["flop"], 'Unknown augmentation "flop". Did you mean "flip"'),
        ([("crop", {"pad": 2})], '"crop" has no option "pad". Did you mean "padding"'),
        ("flip", r'a list of steps: \["flip"\]'),
    ],
)
def test_mistakes_are_answered_with_a_sentence(steps, message):
    with pytest.raises(ValueError, match=message):
        augmentation(steps)


def test_colours_of_what_is_no_image_are_refused_and_not_clipped():
    x = np.random.default_rng(0).normal(size=(12, 4, 4, 1))
    for inputs in (x, np.rint(100 * np.abs(x)).astype(np.int64)):
        with pytest.raises(ValueError, match=r"colour_jitter .*own has values from .* to .*normalise"):
            Batches(Arrays("own", inputs, np.arange(12) % 3, 3), 4, augment=["flip", "colour_jitter"])
    images = (x - x.min()) / (x.max() - x.min())
    Batches(Arrays("own", images, np.arange(12) % 3, 3), 4, augment=["flip", "colour_jitter"]).at(0)


@pytest.mark.parametrize("inputs", [np.ones((4, 3)) + 1j, np.array([["a"], ["b"], ["c"], ["d"]])])
def test_inputs_that_are_no_real_numbers_are_refused(inputs):
    with pytest.raises(ValueError, match=r"own.*inputs are an array of"):
        Arrays("own", inputs, np.arange(4), 4)


def test_a_scale_of_nothing_is_refused():
    with pytest.raises(ValueError, match="scale must lie in"):
        affine(picture(), np.random.default_rng(0), scale=1.0)
