"""configs/resnet.py with more networks: every exponent's interval is narrower than 0.3, that of trained kernels too.

    python3 -m launch.compare --config=configs/resnet_full.py

7.5 minutes, measured on two CPU cores that did other work beside. Expect: all twelve rows agree, with standard errors
below 0.9 % and exponents from -0.97 to -1.05. Ends in runs/resnet_full/report.html.
"""

from ml_collections import ConfigDict

from configs import resnet


def get_config() -> ConfigDict:
    """The grid and its settings."""
    config = resnet.get_config()
    config.update({"name": "resnet_full", "parameterizations": ("ntk",), "members": 256, "init_members": 256})
    return config
