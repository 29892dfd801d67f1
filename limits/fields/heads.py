"""Heads whose number grows with the width: what sweeps of samples take in their place, and what of them is no law of 1/width.

Logits q·k/d of random queries and keys fluctuate by 1/√d, which moves means by terms of order 1/d. With a fixed number of heads
1/d falls as 1/N; with about √N of them it falls as 1/√N, in jumps, since a width's divisors decide what d is. In the limit all
heads have one law, however many there are, so that a sweep has a single one, of all of its samples. Not where heads share what is
trained, the gains of normalised queries and keys: each entry of these is moved by all heads at once, by one alone as by no other.
"""

from typing import Any

from limits.types import AbsentError
from zoo import GPT, ViT
from zoo.attention import heads_of

_NO_WIDTH = (
    'rich: {name} has heads="grow", whose networks are off their limit by what falls as one over the size of a head, '
    "about 1/√width, not as 1/width. For networks of one width name its number of heads, as in heads={heads} of width {width}; "
    "or leave width out (in a config of compare, order=2)."
)
_NO_ORDER = (
    'rich: order=2 takes off what falls as 1/samples. With heads="grow" and logits of 1/√d, or gains of queries and keys that '
    "all heads share, sweeps are off by what falls as one over the number of heads, about 1/√samples: take order=1 and more "
    "samples."
)


def in_one_head(net: Any) -> Any:
    """The definition of the same limit that sweeps of samples run: of growing heads with 1/d logits one head alone.

    >>> in_one_head(ViT(16, 1, patch=2, heads="grow")).heads, in_one_head(ViT(16, 1, patch=2, heads=2)).heads
    (1, 2)
    """
    return net.clone(heads=1) if _by_divisors(net) and _are_alike(net) else net


def falls_as_samples(net: Any) -> bool:
    """Whether what sweeps are off their limit by falls as 1/samples: not where they have about √samples heads."""
    return not _by_divisors(net) or _are_alike(net)


def check_order(net: Any, order: int, finite: bool) -> None:
    """Raises where what is left out of the limit falls more slowly than 1/samples, or than 1/width where that is asked for."""
    if finite and _by_divisors(net):
        raise AbsentError(_NO_WIDTH.format(name=type(net).__name__, heads=heads_of(net.width), width=net.width))
    if order == 2 and not falls_as_samples(net):
        raise AbsentError(_NO_ORDER)


def dropped(net: Any, samples: int) -> str:
    """What a sweep of so many samples leaves out."""
    return f"O(1/{samples})" if falls_as_samples(in_one_head(net)) else f"O(1/{heads_of(samples)}), of so many heads,"


def _are_alike(net: Any) -> bool:
    """Whether one head stands for all: with logits that are none of random numbers, and nothing that heads share."""
    return net.logits == "1/d" and not getattr(net, "qk_norm", False)


def _by_divisors(net: Any) -> bool:
    """Whether both number and size of the heads grow."""
    return isinstance(net, (GPT, ViT)) and net.heads == "grow" and getattr(net, "head_dim", None) is None
