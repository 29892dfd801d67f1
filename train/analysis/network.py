"""A network as analysis sees it: in inference mode, a function of what is trained; and what it does not tell."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

from limits.passes import shows_inside
from zoo import checks, learning_rate_factors


@dataclasses.dataclass(frozen=True)
class Inference:
    """apply(trained, x) in inference mode: other collections (running averages of batch normalisation) stay as `state`.

    So samples do not mix, and kernels of pairs of inputs exist. net: a Flax module whose default is inference, as the
    zoo's is, or a function apply(variables, x).

    >>> Inference(lambda w, x: x @ w, {}).apply(2.0 * jax.numpy.eye(2), jax.numpy.ones((1, 2))).tolist()
    [[2.0, 2.0]]
    """

    net: Any
    state: Any

    def apply(self, trained: Any, x: Any, **options: Any) -> Any:
        """The network's outputs; options go to the network."""
        if isinstance(self.net, nn.Module) and not isinstance(trained, Mapping):
            raise ValueError(
                f"The variables (also start and reference) must be what {type(self.net).__name__}.init returns, a dictionary; "
                f"got {checks.shown(trained)}."
            )
        variables = {**trained, **self.state} if self.state else trained
        return getattr(self.net, "apply", self.net)(variables, x, **options)


def is_definition(net: Any) -> bool:
    """Whether the network says its width and parameterization, as definitions of the zoo do."""
    return isinstance(net, nn.Module) and {"width", "parameterization"} <= {f.name for f in dataclasses.fields(net)}


def missing(net: Any) -> dict[str, str]:
    """Which quantities this network cannot give, and why.

    >>> missing(nn.Dense(1))["phi"]
    'Dense has no argument `intermediates` to return its layers with (see zoo/mlp.py).'
    """
    name = type(net).__name__
    absent: dict[str, str] = {}
    if not isinstance(net, nn.Module):
        reason = "A function does not show its layers: pass a module that returns its intermediates (see zoo/mlp.py)."
        absent |= dict.fromkeys(("phi", "g", "nngp"), reason)
    elif not shows_inside(net):
        reason = f"{name} has no argument `intermediates` to return its layers with (see zoo/mlp.py)."
        absent |= dict.fromkeys(("phi", "g", "nngp"), reason)
    if not is_definition(net):
        who = name if isinstance(net, nn.Module) else "A function"
        reason = f"{who} has no fields `width` and `parameterization`, from which {{}} would follow."
        absent.setdefault("g", reason.format("the scale of gradients"))
        absent.setdefault("nngp", reason.format("the readout's scale"))
        absent["preconditioned"] = reason.format("learning-rate factors") + " Pass them as `rates`."
    return absent


def rates_of(net: Any, trained: Any, x: Any) -> Any:
    """The definition's learning-rate factors, a tree like `trained`; 1 for what is no definition."""
    if not is_definition(net):
        return jax.tree.map(lambda leaf: 1.0, trained)
    factors = learning_rate_factors(net, jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype))
    leaves, tree = jax.tree.leaves(factors), jax.tree.structure(trained)
    if len(leaves) != tree.num_leaves:
        raise ValueError(
            f"This {type(net).__name__} has {len(leaves)} parameters and the variables have {tree.num_leaves}: give the "
            "definition that they were initialised with."
        )
    return jax.tree.unflatten(tree, [float(leaf) for leaf in leaves])


def check_rates(rates: Any, trained: Any) -> Any:
    """The user's own factors as a tree like `trained`: numbers, none negative."""
    leaves, tree = [float(leaf) for leaf in jax.tree.leaves(rates)], jax.tree.structure(trained)
    if len(leaves) != tree.num_leaves or min(leaves, default=0.0) < 0:
        raise ValueError(
            f"rates must be one number ≥ 0 for each of {tree.num_leaves} parameters; got {len(leaves)}, the smallest "
            f"{min(leaves, default=0.0):g}."
        )
    return jax.tree.unflatten(tree, leaves)
