"""Figure B.1: at the best learning rate and a fixed number of parameters, a depth in between is best.

small: 171 seconds on two cores with much other work, handwritten digits. paper: CIFAR-10, up to 3.4e8 parameters, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from configs.papers.depthwise_transfer.shared import batches, conv_resnet, loss, octaves, optimizer, settings  # noqa: F401
from train.study.figure import Finding, jackknife

TEXT = "At the best learning rate and a fixed number of parameters a depth in between is best"

get_config = settings(
    "figB1",
    {
        "widths": (8, 16, 32), "depths": (3, 6, 12, 24), "grid": "product", "values": octaves(-6, -1), "seeds": 3,
        "steps": 100, "base": (16, 1),
    },
    {
        "dataset": "cifar10", "widths": (128, 256, 512, 1024, 2048), "depths": (6, 9, 12, 18, 30), "values": (0.046,), "seeds": 1,
        "steps": 15640, "base": (64, 1),
    },
)  # fmt: skip


def make(width, depth, dataset, base):
    return conv_resnet(width, depth, dataset, base, 0.5)


@functools.cache
def parameters(width, depth, dataset):
    """How many a network has."""
    x = jax.ShapeDtypeStruct((1, 8, 8, 1) if dataset == "digits" else (1, 32, 32, 3), jnp.float32)
    net = conv_resnet(width, depth, dataset, (16, 1), 0.5)
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(net.init, jax.random.key(0), x)))


def claims(outcome, dataset):
    (sizes,) = outcome.sweeps.values()
    count = {(width, depth): parameters(width, depth, dataset) for width, depth in sizes}
    depths = sorted(d for d in {depth for _, depth in sizes} if sum(size[1] == d for size in sizes) > 1)
    if len(depths) < 3:
        yield Finding(TEXT, None, f"it takes at least two widths at each of three depths; there are {sorted(sizes)}")
        return
    shared = np.exp(np.mean(np.log(list(count.values()))))  # in the middle of all

    def there(*losses):
        """Logarithms of the tuned losses at the shared number of parameters by depth, from losses [seed, rate] of the sizes."""
        best = dict(zip(sizes, (each.mean(0).min() for each in losses), strict=True))
        at = [[(np.log(count[size]), np.log(best[size])) for size in sizes if size[1] == d] for d in depths]
        laws = [np.polyfit(x, y, 1) for x, y in (np.transpose(pairs) for pairs in at)]
        return np.array([np.polyval(law, np.log(shared)) for law in laws])

    losses = [sweep.losses.T for sweep in sizes.values()]
    if any(sweep.optimum().edge for sweep in sizes.values()):
        yield Finding(TEXT, None, "some optima lie at an end of the grid")
        return
    logs = there(*losses)
    least = int(np.argmin(logs))
    above = jackknife(lambda *each: there(*each) - there(*each)[least], *losses)
    words = ", ".join(f"L = {d}: {value:.4g}" for d, value in zip(depths, np.exp(logs), strict=True))
    words = f"power laws at {shared:.3g} parameters: {words}; logarithms above the least by {above:.2f}"
    if 0 < least < len(depths) - 1:
        yield Finding(TEXT, above.at([0, -1]).above(0), words)
    else:
        yield Finding(TEXT, False if above.at(slice(1, -1)).above(0) else None, words)
