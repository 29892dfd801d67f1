"""What the figures of this paper share: networks, loss and batches.

Learning rates are those of a network of the base size, so that one grid serves every size. Adam's updates of branches shrink as
L^(−1/2) (`zoo.scaled`), on which the paper says nothing.
"""

import optax
from ml_collections import ConfigDict

from train.images import image_batches
from zoo import HeResNet, Parameterization, ResNet, ViT

MUP, OURS = "muP, branches not scaled", "muP, branches times 1/√L"


def settings(name, size, small, paper):
    """The fields of a figure at this size."""
    if size not in ("small", "paper"):
        raise ValueError(f'{name}: size must be "small" or "paper", got "{size}".')
    fields = {"seed": 0, "dataset": "digits", "batch": 16, "n_train": 1500, "image": 0, "grid": "cross"}
    fields |= small if size == "small" else {"batch": 64, "n_train": 0, **paper}
    return ConfigDict({"name": name, "size": size, **fields})


def octaves(low, high):
    """2^low … 2^high."""
    return tuple(2.0**k for k in range(low, high + 1))


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


def he_resnet(width, depth, dataset, base, alpha, norm, beta=1.0):
    """Two convolutions a block, each followed by a norm (appendix A.2); `depth` blocks, dealt to the stages."""
    count = 2 if dataset == "digits" else 4
    stages = tuple(depth // count + (s < depth % count) for s in range(count))
    p, stem = (
        Parameterization.mup.replace(alpha=alpha).based(base),
        "imagenet" if dataset == "imagenet2012" else "small",
    )
    return HeResNet(width, stages, classes(dataset), parameterization=p, norm=norm, beta=beta, stem=stem)


def vit(width, depth, dataset, base, alpha, norm):
    """Queries that start at zero, logits over N (appendix A.3)."""
    p = Parameterization.mup.replace(alpha=alpha).based(*base)
    patch = {"digits": 2, "imagenet_resized/64x64": 8, "imagenet2012": 16}[dataset]
    options = {"patch": patch, "heads": 1, "query_init": "zeros", "norm": norm, "pool": "mean", "b_std": 0.0}
    return ViT(width, depth, classes(dataset), parameterization=p, **options)
