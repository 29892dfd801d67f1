"""Figure 3.4: posterior kernels of finite networks align with the labels of an XOR task, as the theory says.

small: 4 minutes on two cores, no data.
paper: 10 data sets and more settings; an hour on two cores, no data.
"""

import numpy as np

from configs.papers.beyond_gaussian.sampled import ARMS, NAMES, convergence, mean_and_error, settings, sure, sweep
from train.data import xor_clusters
from train.evaluate.claim import Claim
from train.evaluate.page import panels

W2, WIDTH, POINTS, DEPTH = 1.2, 500, 12, 3
AXES = (("w2", "w²"), ("width", "width N"), ("points", "points P"))


def get_config(size="small"):
    small = {"datasets": 2, "w2": (0.6, 0.8, 1.2, 1.6), "width": (125, 250, 500), "points": (4, 12, 24)}
    wider = {"w2": (0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.6, 2.0), "width": (125, 250, 500, 1000, 2000)}
    return settings("fig3_4", size, small, {"datasets": 10, "points": (4, 8, 12, 16, 24, 32), **wider})


def run(config, folder, screen, part):
    values = {name: sorted(getattr(config, name)) for name, _ in AXES}
    standard = {"w2": W2, "width": WIDTH, "points": POINTS}
    cells = [tuple((standard | {name: value}).values()) for name, _ in AXES for value in values[name]]
    unique = list(dict.fromkeys(cells))
    table = sweep(unique, lambda points, seed: xor_clusters(points, seed=seed), DEPTH, config, screen)
    arrays = {f"{name} axis": np.array(values[name], float) for name, _ in AXES}
    where = np.array([unique.index(cell) for cell in cells])
    split = np.cumsum([len(values[name]) for name, _ in AXES])[:-1]
    for (name, _), rows in zip(AXES, np.split(where, split), strict=True):
        arrays |= {f"{name} {key}": found[rows] for key, found in table.items()}
    return arrays


def shift(arrays, name, arm):
    """CKA − CKA of the NNGP, [settings, data sets], and the errors of each."""
    errors = arrays[f"{name} chains_sem"] if arm == "chains" else None
    return arrays[f"{name} {arm}"] - arrays[f"{name} nngp"], errors


def claims(arrays):
    shifts = {
        (name, arm): mean_and_error(*shift(arrays, name, arm)) for name, _ in AXES for arm in ("theory", "chains")
    }
    found = [convergence(np.concatenate([arrays[f"{name} converged"].ravel() for name, _ in AXES]))]
    for arm in ("chains", "theory"):
        each = [shifts[name, arm] for name, _ in AXES]
        low = min(float(np.nanmin(mean)) for mean, _ in each)
        kept = [(mean[np.isfinite(mean)], error[np.isfinite(mean)]) for mean, error in each]
        found.append(Claim(f"{arm}: ΔCKA > 0 everywhere", sure(kept), f"smallest {low:.4f}"))
    i = list(arrays["w2 axis"]).index(W2)
    theory, exact = shifts["w2", "theory"], shifts["w2", "chains"]
    ratio = theory[0][i] / exact[0][i]
    error = abs(ratio) * np.hypot(theory[1][i] / theory[0][i], exact[1][i] / exact[0][i])
    found.append(
        Claim(
            f"At w² = {W2}, N = {WIDTH}, P = {POINTS} the theory's ΔCKA is that of networks, within 10 %",
            None if abs(abs(ratio - 1) - 0.1) < 2 * error else bool(abs(ratio - 1) < 0.1),
            f"theory {theory[0][i]:.4f} ± {theory[1][i]:.4f}, chains {exact[0][i]:.4f} ± {exact[1][i]:.4f}, ratio {ratio:.2f}",
        )
    )
    mean, error = exact
    found.append(
        Claim(
            "ΔCKA falls with w²",
            sure([(mean[:-1] - mean[1:], np.hypot(error[:-1], error[1:]))]),
            f"{', '.join(f'{m:.4f}' for m in mean)} at w² = {', '.join(f'{w:g}' for w in arrays['w2 axis'])}",
        )
    )
    mean, error = shifts["width", "chains"]
    product = mean * arrays["width axis"]
    found.append(
        Claim(
            "ΔCKA falls as 1/N: N ΔCKA is constant within 30 %",
            bool(product.max() / product.min() < 1.3),
            f"N ΔCKA = {', '.join(f'{p:.1f}' for p in product)} at N = {', '.join(f'{n:g}' for n in arrays['width axis'])}",
        )
    )
    for name, words, order in (("width", "as N falls", slice(None, None, -1)), ("points", "as P grows", slice(None))):
        away = [1 - shifts[name, "theory"][0] / shifts[name, "chains"][0]]
        away = np.abs(away[0])[order]
        kept = np.isfinite(away)
        found.append(
            Claim(
                f"The theory departs from networks {words}",
                bool(away[kept][-1] > away[kept][0]),
                f"relative distance of ΔCKA {', '.join(f'{a:.2f}' for a in away)}"
                + ("" if kept.all() else "; NaN: the theory's equations do not converge"),
            )
        )
    return found


def figures(arrays):
    figure, axes = panels(1, 3, 3.7, 3.4)
    for axis, (name, label) in zip(axes[0], AXES, strict=True):
        for arm in ("theory", "chains"):
            colour, style = ARMS[arm]
            mean, error = mean_and_error(*shift(arrays, name, arm))
            axis.errorbar(
                arrays[f"{name} axis"], mean, 2 * error, fmt=style, ms=4, capsize=2, color=colour, label=NAMES[arm]
            )
        axis.axhline(0, color="0.6", lw=0.8)
        axis.set(xlabel=label)
    axes[0, 0].set_ylabel("ΔCKA = CKA(C, yyᵀ) − CKA(NNGP, yyᵀ)")
    axes[0, 0].legend(fontsize=7)
    text = (
        f"Where it is not on the axis, w² = {W2}, N = {WIDTH}, P = {POINTS}. Bars: two standard errors over data sets."
    )
    return [("Alignment with the labels beyond the NNGP's", text, figure)]
