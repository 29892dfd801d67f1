"""The role of one parameter, from the axes that grow and its uses."""

import warnings
from collections.abc import Sequence
from typing import Any

from zoo.held import Entrywise, Use

VECTORS = ("bias", "scale", "gain", "b")  # of several axes, where one grows: [heads, d_head], or layers side by side


def sides_of(used: Sequence[Use], grows: Sequence[int], role: str) -> Any:
    """(axes of inputs, axes of outputs), where all uses agree and both grow; of a readout those of inputs."""
    if role not in ("hidden", "readout") or are_mixed(used):
        return None
    if role == "hidden" and used and all(set(use.outputs) == set(grows) for use in used):
        return (grows[0],), (grows[1],)  # whole matrices are looked up, or weighted: experts, of which routers choose
    layers = {axis for use in used for axis in use.stacked}
    found = {tuple(tuple(i for i in side if i not in layers) for side in use[:2]) for use in used}
    sides = found.pop() if len(found) == 1 else None
    return sides if sides and all(set(side) & set(grows) for side in sides[: 2 if role == "hidden" else 1]) else None


def are_mixed(used: Sequence[Use]) -> bool:
    """Whether axes of inputs and of outputs were joined to one, so that they are not told apart."""
    return any(set(use.inputs) & set(use.outputs) for use in used)


def role_of(
    name: str, shape: tuple[int, ...], grows: Sequence[int], stacked: int, met: Sequence[Use | Entrywise] | None
) -> str:
    """The role, or an error that asks for it; met: the uses, None where the forward pass is not seen.

    >>> role_of("taps", (64, 3), (0,), 0, [Entrywise("kept", 0)]), role_of("out", (64, 3), (0,), 0, None)
    ('bias', 'readout')
    """
    axes, used = len(shape) - stacked, [use for use in met or () if isinstance(use, Use)]
    if not grows:
        return "constant"
    named = name.split(".")[-1] in VECTORS and len(grows) == 1 and not any(use.inputs for use in used)
    if axes == 1:
        return _of_vector(name, shape, stacked, met or ()) if list(grows) == [stacked] else "bias"
    if named:
        return "bias"
    if len(grows) > 2 or (len(grows) == 2 and axes == 2 and list(grows) != [stacked, stacked + 1]):
        raise ValueError(f"infer_roles: {name} of shape {shape} grows along the axes {grows}; say its role in `roles`.")
    if len(grows) == 2:
        return "hidden"
    wide = grows[0]
    if used and all(wide in use.inputs for use in used):
        return "readout"  # whatever the order of its axes, as [outputs, width] that the forward pass transposes
    if used and all(wide in use.outputs for use in used):
        return "input"
    by_shape = {len(shape) - 1: "input", len(shape) - 2: "readout"}.get(wide)
    ways = {use.how for use in met or () if isinstance(use, Entrywise) and use.axis == wide}
    if used and not all(wide in use.stacked for use in used):
        ways = set()
    elif used:
        ways |= {"kept"}
    role = _entrywise(ways, by_shape)
    if role is None and by_shape is None:
        raise ValueError(
            f"infer_roles: {name} of shape {shape} grows along axis {wide} only, which is neither its input nor its output "
            'side; say its role in `roles`, as in roles={"' + name + '": "readout"}.'
        )
    if role is None and ways:
        _warn(name, shape, wide, by_shape)
    return role or str(by_shape)


def _of_vector(name: str, shape: tuple[int, ...], wide: int, met: Sequence[Use | Entrywise]) -> str:
    """A readout where all that it does is that activations times it are summed over the width, or are a product with it."""
    used = [use for use in met if isinstance(use, Use) and wide not in use.stacked]
    ways = {use.how for use in met if isinstance(use, Entrywise) and use.axis == wide}
    if used:
        return "readout" if all(wide in use.inputs for use in used) and ways <= {"alike"} else "bias"
    if "unclear" in ways and name.split(".")[-1] not in VECTORS:
        _warn(name, shape, wide, "bias")
    return "readout" if "summed" in ways and ways <= {"alike", "kept", "summed"} else "bias"


def _warn(name: str, shape: tuple[int, ...], wide: int, role: str | None) -> None:
    warnings.warn(
        f"infer_roles: {name} of shape {shape} meets activations along its axis {wide}, which grows, in a way that is not "
        f'followed; it is taken for "{role}" by its shape. Say its role in `roles`.',
        stacklevel=4,
    )


def _entrywise(ways: set[str], by_shape: str | None) -> str | None:
    """From how it meets activations along the axis that grows, if by no product of matrices."""
    if "made" in ways:
        return "input"
    if ways & {"unclear", "picked"} or ("reduced" in ways and "weighed" not in ways):
        return None
    if "summed" in ways:
        return "readout"
    if "kept" in ways:
        return "bias"
    if by_shape == "input" or not ways:
        return by_shape
    return None if "alike" in ways else "bias"
