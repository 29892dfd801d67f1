"""From a definition to one number a parameter: its role, and its learning rate over η₀."""

from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import optax

from zoo.parameterization import parameterization


def roles(net: nn.Module, x: Any) -> dict:
    """The role of every parameter, as a tree like the parameters'. Nothing is computed: shapes are enough.

    >>> from zoo import MLP
    >>> roles(MLP(width=4, depth=1, b_std=0.1), jax.ShapeDtypeStruct((1, 3), "float32"))["hidden_1"]
    {'bias': 'bias', 'kernel': 'input'}
    """
    return jax.tree.map(lambda where: where[0], _placed(net, x), is_leaf=lambda where: isinstance(where, tuple))


def _placed(net: nn.Module, x: Any) -> dict:
    """(role, whether it lies in a residual branch) of every parameter."""
    found: dict[tuple[str, ...], tuple[str, bool]] = {}

    def note(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if context.method_name == "__call__" and hasattr(context.module, "param_roles"):
            for name, role in context.module.param_roles.items():
                found[(*context.module.path, name)] = (role, getattr(context.module, "in_branch", False))
        return run(*args, **kwargs)

    with nn.intercept_methods(note):
        variables = jax.eval_shape(net.init, jax.random.key(0), x)
    params = flax.traverse_util.flatten_dict(variables["params"])
    missing = [".".join(path) for path in params if path not in found]
    if missing:
        raise ValueError(f"No role is known for {', '.join(missing)}: build the network from zoo's layers.")
    return flax.traverse_util.unflatten_dict({path: found[path] for path in params})


def learning_rate_factors(net: Any, x: Any) -> dict:
    """SGD's learning rate over η₀ for every parameter: what the definition's width, depth and γ₀ make of it.

    >>> from zoo import MLP
    >>> net = MLP(width=100, depth=1, parameterization="mup", gamma=2.0)
    >>> learning_rate_factors(net, jax.ShapeDtypeStruct((1, 3), "float32"))["readout"]
    {'kernel': 400.0}
    """
    p, gamma, depth = parameterization(net.parameterization), getattr(net, "gamma", 1.0), getattr(net, "depth", 1)
    return jax.tree.map(
        lambda where: p.learning_rate_factor(where[0], net.width, gamma, depth, in_branch=where[1]),
        _placed(net, x),
        is_leaf=lambda where: isinstance(where, tuple),
    )


def scale_gradients(factors: Any) -> optax.GradientTransformation:
    """Multiplies each gradient by its factor: `optax.chain(scale_gradients(factors), optax.sgd(η₀, momentum))`."""
    return optax.stateless(lambda updates, _: jax.tree.map(lambda g, factor: factor * g, updates, factors))
