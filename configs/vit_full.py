"""configs/vit.py with more networks, twice as wide: every exponent's interval is narrower than 0.3.

    python3 -m launch.compare --config=configs/vit_full.py

9 minutes, measured on two CPU cores that did other work beside. Expect: all eight rows agree, with standard errors below
0.6 % and exponents from -0.95 to -1.02. Ends in runs/vit_full/report.html.
"""

from ml_collections import ConfigDict

from configs import vit


def get_config() -> ConfigDict:
    """The grid and its settings."""
    config = vit.get_config()
    config.update({"name": "vit_full", "parameterizations": ("ntk",), "members": 384, "init_members": 384})
    config.widths = (32, 64, 128, 256)  # so many networks of width 16 show terms beyond a + b/N
    return config
