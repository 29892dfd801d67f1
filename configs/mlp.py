"""Ensembles of relu MLPs meet their infinite-width twin in both regimes, on handwritten digits.

    python3 -m launch.compare --config=configs/mlp.py

50 to 75 seconds on two CPU cores, compilation included; half of it the next time. Expect: NNGP and tangent kernel agree with
the twin when extrapolated to infinite width, variances fall as 1/N; trained predictions agree with the lazy limit in `ntk`, and
in `mup` with γ₀ = 1 (at depth 2) with the limit with feature learning, 13 % away from the lazy one. Ends in
runs/mlp/report.html.

configs/mlp.py:lazy holds `mup` at all depths against the lazy limit, from which it is 5 to 41 % off at any width; one minute.
"""

from ml_collections import ConfigDict


def under(config: ConfigDict, optimizer: str, **rates: float) -> ConfigDict:
    """The config with another optimiser, at the learning rate that is given for it."""
    if optimizer and optimizer not in rates:
        raise ValueError(f'"{config.name}:{optimizer}" is no config: after the colon, {" or ".join(rates)} may stand.')
    if optimizer:
        config.update({"name": f"{config.name}_{optimizer}", "optimizer": optimizer, "learning_rate": rates[optimizer]})
    return config


def get_config(against: str = "") -> ConfigDict:
    """Both regimes: `ntk` and the lazy limit, `mup` and the limit with feature learning, or `against` the "lazy" one too."""
    config = settings()
    if against not in ("", "lazy"):
        raise ValueError(f'"mlp:{against}" is no config: after the colon, lazy may stand.')
    if against:
        config.name = "mlp_lazy"
    else:
        config.rich = {"samples": 2048, "replicas": 32, "depths": (2,)}
    return config


def settings() -> ConfigDict:
    """The grid and its settings, those of other comparisons too."""
    return ConfigDict(
        {
            "name": "mlp",
            "architecture": "mlp",
            "activations": ("relu",),
            "parameterizations": ("ntk", "mup"),
            "widths": (32, 64, 128, 256, 512),
            "depths": (1, 2, 4),
            "gamma": 1.0,  # γ₀
            "fields": {},  # of the definition, for all activations
            "net": {"relu": {"w_std": 2**0.5, "b_std": 0.0}, "erf": {"w_std": 1.5, "b_std": 0.1}},
            "task": {"name": "digits", "classes": (0, 1), "n_train": 20, "n_test": 20, "seed": 0},
            "steps": 12,
            "learning_rate": 0.05,  # η₀; the width and γ₀ factors are the parameterization's
            "centred": True,  # f(0) subtracted in the loss and the output
            "members": 64,  # trained networks a cell
            "init_members": 256,  # untrained networks a cell, for the kernels at initialisation
            # Samples and replicas of the limit with feature learning, for families in `mup`, at some of the `depths` or at
            # all; {} holds them against the lazy limit, which they do not follow.
            "rich": {},
            "optimizer": "",  # a name that zoo.scaled knows: adam, muon, …; "" is gradient descent
            "seed": 0,
        }
    )
