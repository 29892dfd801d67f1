"""Networks with windows, branches and attention, and their inputs: NumPy only, so that both environments can import it.

A case names every field that matters, so that a changed default of the zoo changes no network here.
"""

import itertools
from typing import Any

import numpy as np

SHAPES = {"CNN": (6, 5, 2), "ResNet": (6, 5, 2), "ViT": (4, 6, 2)}  # rows, columns, channels
EPSILON = 1e-12

_CNN = {
    "depth": 2,
    "activation": "relu",
    "w_std": 1.4,
    "b_std": 0.3,
    "kernel": 3,
    "strides": 1,
    "padding": "SAME",
    "pool": "average",
    "pool_after": (),
    "pool_size": 2,
    "readout": "flatten",
}
_RESNET = {
    "depth": 4,
    "activation": "relu",
    "w_std": 1.2,
    "b_std": 0.2,
    "form": "dense",
    "residual": "uniform",
    "beta": 1.0,
    "branch_layers": 1,
    "kernel": 3,
    "padding": "SAME",
    "stages": 1,
    "readout": "flatten",
}
_VIT = {
    "depth": 2,
    "activation": "gelu",
    "w_std": 1.2,
    "b_std": 0.2,
    "patch": 2,
    "heads": 4,
    "logits": "1/d",
    "tied": True,
    "attention": "softmax",
    "norm": None,
    "norm_affine": False,
    "norm_epsilon": EPSILON,
    "positions": None,
    "pool": "mean",
    "beta": 1.0,
}
_DEFAULTS = {"CNN": _CNN, "ResNet": _RESNET, "ViT": _VIT}


def inputs(definition: str) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of images, 4 and 3."""
    return _images(4, SHAPES[definition], 0.0), _images(3, SHAPES[definition], 1.0)


def _images(n: int, shape: tuple[int, int, int], phase: float) -> np.ndarray:
    i, row, column, channel = np.ogrid[:n, : shape[0], : shape[1], : shape[2]]
    wave = np.sin(0.7 * (i + 1) * row + 0.9 * column * (channel + 1) + 2.1 * i + phase)
    return (1 + 0.3 * i) * wave + 0.3 * np.cos(0.9 * i + row * column + channel)


def _product(**choices: tuple) -> list[dict[str, Any]]:
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


_READOUTS = ("flatten", "average")
_IDENTITY: dict[str, tuple] = {"attention": ("identity",), "b_std": (0.0, 0.2)}
_INDEPENDENT: dict[str, tuple] = {"logits": ("1/sqrt(d)",), "tied": (False,), "heads": ("grow",)}

# What differs from the defaults above. Maps of one position, where both readouts are the same, are kept few.
_CHANGES = {
    "CNN": [
        *_product(depth=(1, 3), readout=_READOUTS),
        *_product(activation=("relu", "erf", "gelu"), readout=_READOUTS),
        *_product(b_std=(0.0,), readout=_READOUTS),
        *_product(padding=("VALID", "CIRCULAR"), readout=_READOUTS),
        *_product(padding=("SAME", "CIRCULAR"), strides=(2,), readout=_READOUTS),
        *_product(padding=("SAME", "CIRCULAR"), depth=(3,), strides=((1, 2, 1),), readout=("average",)),
        *_product(padding=("VALID",), depth=(1,), strides=(2,), activation=("erf",), readout=_READOUTS),
        *_product(padding=("VALID",), strides=((1, 2),), kernel=(2,), readout=_READOUTS),
        *_product(padding=("SAME", "CIRCULAR"), kernel=(2, 5), readout=("average",)),
        *_product(padding=("SAME", "VALID", "CIRCULAR"), strides=(2,), kernel=(2,)),
        *_product(padding=("VALID",), depth=(1,), kernel=(5,), readout=("average",)),
        *_product(pool=("average", "sum"), pool_after=((1,),), readout=_READOUTS),
        *_product(pool=("average", "sum"), pool_after=((1, 2),), readout=("average",)),
        *_product(pool=("sum",), pool_after=((2,),), pool_size=(3,), padding=("CIRCULAR",), readout=_READOUTS),
        *_product(depth=(3,), pool_after=((2,),), activation=("gelu",), readout=_READOUTS),
    ],
    "ResNet": [
        *_product(activation=("relu", "erf", "gelu")),
        *_product(b_std=(0.0,)),
        *_product(beta=(0.7,), residual=("uniform", "decreasing", "fixed"), branch_layers=(1, 2)),
        *_product(depth=(1,)),
        *_product(form=("conv",), padding=("SAME", "CIRCULAR"), readout=_READOUTS),
        *_product(form=("conv",), beta=(0.7,), residual=("decreasing", "fixed"), readout=("average",)),
        *_product(form=("conv",), branch_layers=(2,), b_std=(0.0,), kernel=(2,), readout=_READOUTS),
        *_product(form=("conv",), stages=(2,), branch_layers=(1, 2), beta=(0.7,), readout=_READOUTS),
        *_product(form=("conv",), stages=(2,), padding=("CIRCULAR",), residual=("decreasing", "fixed")),
        *_product(form=("conv",), stages=(2,), depth=(1,), readout=("average",)),
        *_product(form=("conv",), stages=(3,), depth=(5,), activation=("erf",)),
    ],
    "ViT": [
        *_product(norm=(None, "layer"), depth=(1, 2)),
        *_product(norm=(None, "layer"), b_std=(0.0,)),
        *_product(norm=(None, "layer"), activation=("relu", "erf"), beta=(0.7,)),
        *_product(norm=(None, "layer"), heads=("grow",), patch=(1,), depth=(1,)),
        *_product(norm=(None,), depth=(1,), **_IDENTITY),
        *_product(norm=("layer",), **_IDENTITY),
        *_product(norm=(None,), depth=(1,), **_IDENTITY, **_INDEPENDENT),
        *_product(norm=("layer",), **_IDENTITY, **_INDEPENDENT),
    ],
}


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    """(key, name of the definition in zoo, its arguments except the width)."""
    return [
        (
            " ".join([definition, *(f"{field}={value}" for field, value in changes.items())]).replace("/", ":"),
            definition,
            {**_DEFAULTS[definition], **changes},
        )
        for definition, listed in _CHANGES.items()
        for changes in listed
    ]
