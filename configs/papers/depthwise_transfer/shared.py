"""What the figures of this paper share: networks, loss and batches.

Learning rates are those of a network of the base size, so that one grid serves every size. Adam's updates of branches shrink as
L^(−1/2) (`zoo.scaled`), on which the paper says nothing.
"""

import dataclasses
import functools

import numpy as np
import optax

from train.data import image_batches
from train.study.figure import Finding, Settings, every, jackknife
from train.transfer import claims
from zoo import HeResNet, Parameterization, ResNet, ViT, scaled

MUP, OURS = "muP, branches not scaled", "muP, branches times 1/√L"


def settings(name, small, paper):
    """Those of a figure, with the fields that all have."""
    fields = {"dataset": "digits", "batch": 16, "n_train": 1500, "image": 0, "grid": "cross"}
    return Settings(name, fields | small, {"batch": 64, "n_train": 0} | paper)


def octaves(low, high):
    """2^low … 2^high."""
    return tuple(2.0**k for k in range(low, high + 1))


def loss(outputs, targets):
    return optax.softmax_cross_entropy(outputs, targets).mean()


def optimizer(net, learning_rate):
    return scaled(optax.sgd(learning_rate), net)


def batches(dataset, batch, steps, seed, image, n_train):
    return image_batches(dataset, batch, steps, seed, image or None, n_train or None)


def classes(dataset):
    """How many there are."""
    return {"digits": 10, "cifar10": 10, "imagenet_resized/64x64": 1000, "imagenet2012": 1000}[dataset]


def conv_resnet(width, depth, dataset, base, alpha, **fields):
    """The simplified residual network (appendix A.1): a convolution a block, average pooling, channels doubled after it."""
    stages = 2 if dataset == "digits" else 4
    kind = Parameterization.mup.based(*base) if base else Parameterization.standard
    p = kind.replace(alpha=alpha)
    return ResNet(width, depth, classes(dataset), form="conv", stages=stages, parameterization=p, **fields)


def he_resnet(width, depth, dataset, alpha, norm, beta=1.0):
    """Two convolutions a block, each followed by a norm (appendix A.2); `depth` blocks, dealt to the stages."""
    count = 2 if dataset == "digits" else 4
    stages = tuple(depth // count + (s < depth % count) for s in range(count))
    p = Parameterization.mup.replace(alpha=alpha).based(8 if dataset == "digits" else 64)
    stem = "imagenet" if dataset == "imagenet2012" else "small"
    return HeResNet(width, stages, classes(dataset), parameterization=p, norm=norm, beta=beta, stem=stem)


def vit(width, depth, dataset, base, alpha, norm):
    """Queries that start at zero, logits over N (appendix A.3)."""
    p = Parameterization.mup.replace(alpha=alpha).based(*base)
    patch = {"digits": 2, "imagenet_resized/64x64": 8, "imagenet2012": 16}[dataset]
    options = {"patch": patch, "heads": 1, "query_init": "zeros", "norm": norm, "pool": "mean", "b_std": 0.0}
    return ViT(width, depth, classes(dataset), parameterization=p, **options)


def _begun(check):
    """A check of optima that also does not hold where losses are not numbers or a smallest size has no optimum to begin from."""

    @functools.wraps(check)
    def judge(outcome, *how):
        with np.errstate(invalid="ignore"):  # infinite losses are taken from one another
            found = check(outcome, *how)
        labels = [each for each in how if each in outcome.sweeps]
        over = next(each for each in how if each in ("width", "depth"))
        if found.holds:
            sweeps = [outcome.over(label, over).sweeps for label in labels]
            known = not any(np.isnan(sweep.curves).any() for series in sweeps for sweep in series)
            begun = all(np.isfinite((first := series[0].optimum()).loss) and not first.edge for series in sweeps)
            return found if known and begun else dataclasses.replace(found, holds=None)
        return found

    return judge


keeps, loses, compared = map(_begun, (claims.keeps, claims.loses, claims.compared))
falls, ends_lower = map(_begun, (claims.falls, claims.ends_lower))


def overlap(outcome, label, over, within=0.1):
    """Whether loss curves of all sizes lie together at every value of the grid at which not all of them diverge."""
    dial = outcome.dial.replace("_", " ")
    text = f"{label}: at every {dial} at which any size trains, loss curves agree over {over} to {within:.0%}"
    try:
        sweeps = outcome.over(label, over).sweeps
    except ValueError as error:
        return Finding(text, None, str(error))
    verdicts, words = [], []
    for i, value in enumerate(sweeps[0].rates):
        lost = [sweep.diverged[i] > 0 for sweep in sweeps]
        if any(lost):
            words.append(f"{value:.3g}: {'every' if all(lost) else f'one {over} but not every'} one diverges")
            verdicts += [] if all(lost) else [False]
            continue
        parts = [jackknife(_apart, sweep.curves[i], sweeps[0].curves[i]) for sweep in sweeps[1:]]
        verdicts += [part.below(within) for part in parts]
        words.append(f"{value:.3g}: " + " and ".join(f"{part:.1%}" for part in parts))
    return Finding(text, every(*verdicts), "; ".join(words) + " apart on average over the steps")


def _apart(curves, others):
    """How far mean curves over seeds are from one another, over the mean loss."""
    return np.abs(curves.mean(0) - others.mean(0)).mean() / others.mean()
