"""What loops and calls in a program say of their operands, in the words of the JAX that traced it."""

from collections.abc import Mapping
from typing import Any

# What runs a program once, recomputed for its derivatives or not.
CALLS = {
    "jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2", "custom_jvp_call", "custom_vjp_call",
}  # fmt: skip


def scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """(how many operands are the same for all steps, how many go from step to step); the others are scanned over.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> program = jax.make_jaxpr(lambda w, x: jax.lax.scan(lambda c, y: (c + w * y, c), 0.0, x))(1.0, jnp.ones(3))
    >>> scan_counts(program.eqns[-1].params)
    (1, 1)
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    fixed, carried, _ = params["ft_in"].unpack()  # trees, from JAX 0.11 or 0.12 on
    return len(fixed), len(carried)


def is_call(eqn: Any) -> bool:
    """Whether it runs a program once, as it is."""
    return eqn.primitive.name in ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")
