"""Kernel regression on handwritten digits (ten classes) with the kernels of every architecture.

    python3 -m launch.limit --config=configs/kernels.py

207 seconds, measured on two CPU cores that did other work beside. Expect test errors of 3 % for dense networks, 1.3 % for
the tangent kernel of a convolutional network with a global average. No network is trained. Ends in runs/kernels/limit.json.
"""

from ml_collections import ConfigDict

RELU = {"activation": "relu", "w_std": 2**0.5, "b_std": 0.1}


def get_config() -> ConfigDict:
    """One entry of `variants` a row."""
    return ConfigDict(
        {
            "name": "kernels",
            "variants": {
                "MLP": {"architecture": "mlp", **RELU},
                "CNN, flattened": {"architecture": "cnn", **RELU},
                "CNN, average": {"architecture": "cnn", "readout": "average", **RELU},
                "ResNet": {"architecture": "resnet", **RELU},
                "ResNet, conv, average": {"architecture": "resnet", "form": "conv", "readout": "average", **RELU},
                "ViT": {"architecture": "vit", "patch": 2, "activation": "gelu", "b_std": 0.1},
            },
            "widths": (64,),  # plays no part in the limit
            "depths": (3,),
            "gamma": 1.0,
            "task": {
                "name": "digits",
                "classes": tuple(range(10)),
                "targets": "one_hot",
                "n_train": 400,
                "n_test": 400,
                "seed": 0,
            },
            "steps": 0,
            "learning_rate": 1.0,
            "seed": 0,
        }
    )
