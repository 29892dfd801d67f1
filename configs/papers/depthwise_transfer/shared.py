"""What the figures of this paper share: networks, loss, batches, and claims about optima over width and depth.

Learning rates are those of a network of the base size, so that one grid serves every size. "Moves": the shift of the optimum
in octaves between the smallest and the largest size; where the largest size diverges at the smallest one's optimum, that too
counts as not transferring.
"""

import itertools
import math

import optax
from ml_collections import ConfigDict

from train.evaluate.claim import Claim
from train.images import image_batches
from train.transfer import Outcome, Transfer
from train.transfer.shift import percent
from zoo import HeResNet, Parameterization, ResNet, ViT

MUP, OURS = "muP, branches not scaled", "muP, branches times 1/√L"


def settings(name, size, small, paper):
    """The fields of a figure at this size."""
    if size not in ("small", "paper"):
        raise ValueError(f'{name}: size must be "small" or "paper", got "{size}".')
    fields = {"seed": 0, "dataset": "digits", "batch": 16, "n_train": 1500, "image": 0, "grid": "cross"}
    fields |= small if size == "small" else {"batch": 64, "n_train": 0, **paper}
    return ConfigDict({"name": name, "size": size, **fields})


def octaves(low, high, each=1):
    """2^low … 2^high."""
    return tuple(2.0 ** (k / each) for k in range(low * each, high * each + 1))


def loss(outputs, targets):
    return optax.softmax_cross_entropy(outputs, targets).mean()


def batches(dataset, batch, steps, seed, image, n_train):
    return image_batches(dataset, batch, steps, seed, image or None, n_train or None)


def classes(dataset):
    """How many there are."""
    return {"digits": 10, "cifar10": 10, "imagenet_resized/64x64": 1000, "imagenet2012": 1000}[dataset]


def conv_resnet(width, depth, dataset, base, alpha, **fields):
    """The simplified residual network (appendix A.1): a convolution a block, average pooling, channels doubled after it."""
    stages = 2 if dataset == "digits" else 4
    p = (
        Parameterization.mup.replace(alpha=alpha).based(*base)
        if base
        else Parameterization.standard.replace(alpha=alpha)
    )
    return ResNet(width, depth, classes(dataset), form="conv", stages=stages, parameterization=p, **fields)


def he_resnet(width, depth, dataset, base, alpha, norm, beta=1.0, **fields):
    """Two convolutions a block, each followed by a norm (appendix A.2); `depth` blocks, dealt to the stages."""
    count = 2 if dataset == "digits" else 4
    stages = tuple(depth // count + (s < depth % count) for s in range(count))
    p = Parameterization.mup.replace(alpha=alpha).based(base)
    return HeResNet(width, stages, classes(dataset), parameterization=p, norm=norm, beta=beta, stem="small", **fields)


def vit(width, depth, dataset, base, alpha, norm, **fields):
    """Queries that start at zero, logits over N (appendix A.3)."""
    p = Parameterization.mup.replace(alpha=alpha).based(*base)
    patch = {"digits": 2, "imagenet_resized/64x64": 8, "imagenet2012": 16}[dataset]
    options = {"patch": patch, "heads": 1, "query_init": "zeros", "norm": norm, "pool": "mean", "b_std": 0.0}
    return ViT(width, depth, classes(dataset), parameterization=p, **{**options, **fields})


def moved(series: Transfer) -> float:
    """By how many octaves the optimum moves; infinite where the largest size diverges everywhere."""
    large = series.sweeps[-1].optimum()
    return abs(large.log_rate - series.sweeps[0].optimum().log_rate) if math.isfinite(large.loss) else math.inf


def lost(series: Transfer) -> bool:
    """Whether a size diverges at the optimum of the smallest one."""
    return not math.isfinite(series.regret()[0])


def keeps(outcome: Outcome, label: str, over: str, octave: float = 1.0, text: str = "") -> Claim:
    """The optimum moves by at most so many octaves, and nothing diverges there."""
    series = outcome.over(label, over)
    holds = moved(series) <= octave and not lost(series)
    what = outcome.dial.replace("_", " ")
    return Claim(
        text or f"{label}: the best {what} is the same at every {over}, to {octave:g} octave", holds, series.sentence
    )


def loses(outcome: Outcome, label: str, over: str, octave: float = 2.0) -> Claim:
    """The optimum moves by at least so many octaves, or what was best for the smallest size diverges at the largest."""
    series = outcome.over(label, over)
    text = f"{label}: the best learning rate moves with the {over}, by {octave:g} octaves or into divergence"
    return Claim(text, moved(series) >= octave or lost(series), series.sentence)


def compared(outcome: Outcome, worse: str, better: str, over: str) -> Claim:
    """What the smallest size's optimum costs the largest is more in one setting than in the other, beyond the intervals."""
    (a, a_low, a_high), (b, b_low, b_high) = (outcome.over(label, over).regret() for label in (worse, better))
    costs = ((worse, a, a_low, a_high), (better, b, b_low, b_high))
    figures = "; ".join(f"{name}: {percent(x)} [{percent(low)}, {percent(high)}]" for name, x, low, high in costs)
    holds = True if a_low > b_high else False if b_low > a_high else None
    return Claim(
        f"Over {over}, the smallest size's optimum costs the largest more in “{worse}” than in “{better}”",
        holds,
        figures,
    )


def improves(outcome: Outcome, label: str, over: str, until: float = 1.0) -> Claim:
    """The tuned loss falls with every size, after this share of the steps."""
    sweeps = outcome.over(label, over).sweeps
    step = max(int(sweeps[0].curves.shape[-1] * until), 1)
    losses = [float(sweep.until(step).mean(1).min()) for sweep in sweeps]
    falls = all(b < a for a, b in itertools.pairwise(losses))
    figures = f"after {step} steps: " + ", ".join(f"{loss:.4g}" for loss in losses)
    return Claim(f"{label}: the tuned loss falls with the {over}", falls, figures)


def worsens(outcome: Outcome, label: str, over: str, until: float) -> Claim:
    """The contrary of `improves`."""
    right = improves(outcome, label, over, until)
    losses = [float(part) for part in right.figures.split(": ")[1].split(", ")]
    rises = all(b > a for a, b in itertools.pairwise(losses))
    return Claim(f"{label}: early in training the tuned loss rises with the {over}", rises, right.figures)


def overlap(outcome: Outcome, label: str, over: str, within: float) -> Claim:
    """At the smallest size's best value the loss curves of all sizes lie together, on average over the steps."""
    sweeps = outcome.over(label, over).sweeps
    best = int(sweeps[0].losses.mean(1).argmin())
    curves = [sweep.curves[best].mean(0) for sweep in sweeps]
    away = [float(abs(curve - curves[0]).mean() / curves[0].mean()) for curve in curves[1:]]
    figures = (
        ", ".join(f"{part:.1%}" for part in away) + f" apart on average, at {outcome.dial} {sweeps[0].rates[best]:.3g}"
    )
    return Claim(
        f"{label}: loss curves at one {outcome.dial} agree over {over} to {within:.0%}", max(away) <= within, figures
    )
