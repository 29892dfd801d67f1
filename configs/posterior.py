"""Bayesian MLPs of finite width meet their theory: kernels that learn, layer by layer.

    python3 -m launch.compare --config=configs/posterior.py

About a minute on two CPU cores. Expect: at every width and in every layer the theory's kernels are three to seven times
closer to those of the chains than the NNGP's, by ten standard errors and more; the NNGP's distance falls about as 1/N, the
theory's a little faster. Ends in runs/posterior/report.html.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The widths and the settings of the chains."""
    return ConfigDict(
        {
            "name": "posterior",
            "architecture": "mlp",
            "activations": ("erf",),
            "parameterizations": ("ntk",),
            "widths": (64, 128, 256),
            "depths": (2,),
            "gamma": 1.0,
            "fields": {},
            "net": {"erf": {"w_std": 1.2**0.5, "b_std": 0.05**0.5}},
            "task": {"name": "xor_clusters", "n_train": 8, "n_test": 8, "seed": 0},
            # The variance of the labels' noise, and options of train.posterior.sample_posterior.
            "posterior": {"noise": 0.01, "method": "hamiltonian", "chains": 4, "steps": 2000, "warmup": 300},
            "seed": 0,
        }
    )
