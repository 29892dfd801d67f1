"""Regression with kernels of infinite networks on a whole data set: all 1,437 digits, or any images of TFDS.

    python3 -m launch.limit --config=configs/kernels_large.py
    python3 -m launch.limit --config=configs/kernels_large.py --config.data.name=cifar10 --config.regression.flip=True \\
        --shard=0/16

The second line is one of sixteen jobs that share a folder of kernels. A plan of time and disk comes first. Ends in
runs/kernels_large/report.html.
"""

from ml_collections import ConfigDict

from configs.kernels import RELU


def get_config() -> ConfigDict:
    """Digits: a few minutes on two CPU cores, most of them for the convolutions."""
    return ConfigDict(
        {
            "name": "kernels_large",
            "variants": {
                "MLP": {"architecture": "mlp", **RELU},
                "CNN, flattened": {"architecture": "cnn", **RELU},
                "CNN, average": {"architecture": "cnn", "readout": "average", **RELU},
            },
            "widths": (64,),  # plays a part in random features only
            "depths": (3,),
            "gamma": 1.0,
            "data": {"name": "digits", "train": "train", "test": "test"},  # and options of train.data.source
            "regression": {
                "n_train": 0,  # the first so many; 0: all
                "n_test": 0,
                "dtype": "float32",
                "block": 0,  # rows of a tile; 0: as many as fit
                "flip": False,  # images and their mirror images count as one
                "ridges": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1),  # in units of the mean diagonal
                "direct": 4000,  # samples up to which leave-one-out is exact
                "rank": 200,  # of the preconditioner beyond
                "landmarks": 0,  # Nyström's approximation with so many; 0: whole kernels, in tiles on disk
                "networks": 0,  # features of so many random networks, as wide as `widths` says, in place of kernels
            },
        }
    )
