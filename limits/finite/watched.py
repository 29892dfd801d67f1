"""What an observable of the user's returns."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo.checks import shown
from zoo.names import names_of


def watched(user: Callable[..., Any], net: Any, variables: Any, x: Any) -> Any:
    """observe(net, variables, x): numbers and arrays, one or a tree of them."""
    try:
        inspect.signature(user).bind(net, variables, x)
    except TypeError as error:
        raise ValueError(
            f"observe is called as observe(net, variables, x), which {shown(user)} does not take: {error}."
        ) from None
    except ValueError:  # a function whose signature is not known
        pass
    try:
        found = user(net, variables, x)
    except KeyError as error:
        held = ", ".join(names_of(variables.get("params", {})))
        raise ValueError(
            f"observe looks for {error}, and there is no such parameter; there are {held}. (A matrix between hidden layers is no "
            "array in the limit: look at what the network does with inputs, net.apply(variables, x).)"
        ) from error
    leaves = jax.tree.leaves(found)
    kinds = [np.dtype(getattr(leaf, "dtype", type(leaf))) for leaf in leaves]
    if not kinds or not all(kind.kind == "b" or jnp.issubdtype(kind, np.number) for kind in kinds):
        raise ValueError(f"observe must return numbers or arrays of them; {shown(user)} returned {shown(found)}.")
    return found
