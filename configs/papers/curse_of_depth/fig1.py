"""Figure 1: eigenvalues of deep tangent kernels on the sphere collapse with depth, exponentially in the ordered phase.

small: 15 seconds on two cores, no data. paper: the same and 31 depths to 3000, no data.
found: theory alone, tested in tests/limits/depth/test_spectra.py.
"""

import numpy as np

from limits.depth import edge_of_chaos, plot_spectra, sphere_spectrum
from train.study.figure import Settings

NETWORKS = {
    "relu, edge of chaos": ("relu", None, 0.0),
    "tanh, edge of chaos": ("tanh", None, 0.2),
    "relu, ordered": ("relu", 1.0, 1.0),
    "tanh, ordered": ("tanh", 1.0, 1.0),
}
TESTED = "tests/limits/depth/test_spectra.py"

get_config = Settings(
    "fig1",
    {"dimension": 3, "depths": (3, 30, 300), "largest_order": 20},
    {"depths": (3, *(int(d) for d in np.geomspace(10, 3000, 30).round()))},
)


def run(config, screen):
    orders = np.arange(1, config.largest_order + 1)
    found = {"depths": np.array(config.depths), "orders": orders}
    for title, (activation, w_std, b_std) in NETWORKS.items():
        w_std = edge_of_chaos(activation, b_std) if w_std is None else w_std
        screen.print(f"{title}: w_std {w_std:.5f}, b_std {b_std:g}", highlight=False)
        found[title] = sphere_spectrum(config.depths, orders, config.dimension, activation, w_std, b_std)
    return found


def figures(arrays):
    depths = arrays["depths"]
    shown = sorted({int(np.argmin(abs(depths - d))) for d in (3, 30, 300, 3000)})
    spectra = {title: (depths[shown], arrays[title][shown]) for title in NETWORKS}
    text = "Eigenvalues of the tangent kernel on S² over that of constants. What is missing is below 1e-15 (rounding)."
    return [("Spectra", text, plot_spectra(spectra, arrays["orders"]))]
