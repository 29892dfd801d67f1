"""Figure 3.5: on two classes of images, posterior kernels of finite networks align with the labels more than the NNGP.

small: 3 minutes on two cores, handwritten digits 0 and 3 in place of MNIST.
paper: 10 data sets, width 2000; MNIST as array_record on this machine.
"""

import numpy as np

from configs.papers.beyond_gaussian.sampled import ARMS, NAMES, convergence, mean_and_error, settings, sure, sweep
from limits import Task
from train.data import digits
from train.evaluate.claim import Claim
from train.evaluate.page import panels
from train.images import image_batches

DEPTH, CLASSES = 2, (0, 3)


def get_config(size="small"):
    small = {"dataset": "digits", "datasets": 2, "w2": (0.5, 0.8, 1.2, 1.8), "width": 500, "points": 20}
    paper = {
        "dataset": "mnist",
        "datasets": 10,
        "w2": (0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 1.8, 2.2),
        "width": 2000,
        "points": 80,
    }
    return settings("fig3_5", size, small, paper)


def images(dataset, points, seed):
    """Images of two classes with labels ±1."""
    if dataset == "digits":
        return digits(points, 0, CLASSES, seed=seed)
    found, labels = [], []
    for x, y in image_batches(dataset, 100, 100, seed):
        for image, label in zip(x, y.argmax(1), strict=True):
            if label in CLASSES and len(found) < points:
                found.append(image.ravel())
                labels.append(1.0 if label == CLASSES[0] else -1.0)
    return Task(np.array(found), np.array(labels), name=dataset)


def run(config, folder, screen, part):
    w2 = sorted(config.w2)
    cells = [(w, config.width, config.points) for w in w2]
    table = sweep(cells, lambda points, seed: images(config.dataset, points, seed), DEPTH, config, screen)
    return {"w2": np.array(w2), **table}


def claims(arrays):
    nngp = arrays["nngp"]
    found = [convergence(arrays["converged"])]
    for arm, errors in (("chains", arrays["chains_sem"]), ("theory", None)):
        mean, error = mean_and_error(arrays[arm] - nngp, errors)
        kept = np.isfinite(mean)
        found.append(
            Claim(
                f"{arm}: CKA above that of the NNGP at every w²",
                sure([(mean[kept], error[kept])]),
                f"above by {', '.join(f'{m:.4f} ± {e:.4f}' for m, e in zip(mean, error, strict=True))}",
            )
        )
    theory, exact, base = (arrays[name].mean(1) for name in ("theory", "chains", "nngp"))
    left = np.abs(theory - exact) / np.abs(base - exact)
    found.append(
        Claim(
            "The theory is closer to networks than the NNGP at every w²",
            bool(np.nanmax(left) < 1),
            f"share of the NNGP's distance that is left: {', '.join(f'{x:.2f}' for x in left)}",
        )
    )
    found.append(
        Claim(
            "Alignment of networks is largest at the smallest w²",
            bool(exact.argmax() == 0),
            f"CKA {', '.join(f'{x:.3f}' for x in exact)} at w² = {', '.join(f'{w:g}' for w in arrays['w2'])}",
        )
    )
    return found


def figures(arrays):
    figure, axes = panels(1, 2, 4.2, 3.4)
    for arm, (colour, style) in ARMS.items():
        errors = arrays["chains_sem"] if arm == "chains" else None
        for axis, values in zip(axes[0], (arrays[arm], arrays[arm] - arrays["nngp"]), strict=True):
            mean, error = mean_and_error(values, errors)
            axis.errorbar(arrays["w2"], mean, 2 * error, fmt=style, ms=4, capsize=2, color=colour, label=NAMES[arm])
    axes[0, 0].set(xlabel="w²", ylabel="CKA(C, yyᵀ)")
    axes[0, 1].set(xlabel="w²", ylabel="the same, above the NNGP's")
    axes[0, 0].legend(fontsize=7)
    return [("Alignment with the labels", "Bars: two standard errors over data sets.", figure)]
