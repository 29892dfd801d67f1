"""Roles of a model of your own, from what its parameters do when its width and its depth change."""

import contextlib
import dataclasses
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo import checks
from zoo.asleep import sleepers
from zoo.by_hand import with_by_hand
from zoo.held import Entrywise, Use
from zoo.inferred import TIED, Place, Roles, TiedError, refuse_what_seems_tied
from zoo.initial import init_powers, zeros_of
from zoo.inner import forwards_of, is_multiplied, with_inner
from zoo.modules import pair_of, signature_of, takes_rngs
from zoo.names import numberless
from zoo.passes import Models
from zoo.role_of import are_mixed, role_of, sides_of
from zoo.sums import may_be_means, told_apart
from zoo.uses import Pass

IN_CODE = "in code"
_MULTIPLIED = (
    "infer_roles: {names}: the code multiplies it by a number that goes with the width, as √width of scaled embeddings: roles "
    "keep the parameter's own size and rate at every width, so that these features would grow or fall with it, and learn at "
    "another rate. Write the number of the base instead (its √width), whatever the width."
)
_IS_TIED = f"{{name}}: this matrix makes features from inputs, and is also the readout. {TIED}"


@checks.arguments(
    init=checks.function,
    base=checks.table,
    target=checks.table,
    alpha=checks.number(),
    gamma=checks.number(positive=True),
    width=checks.word,
    depth=checks.word,
    roles=checks.table,
    apply=checks.function,
    layers=checks.pattern,
)
def infer_roles(
    init: Callable[..., Any],
    base: Mapping[str, Any],
    target: Mapping[str, Any],
    alpha: float = 0.5,
    gamma: Any = 1.0,
    branch_outputs: Any = None,
    width: str = "width",
    depth: str = "depth",
    roles: Mapping[str, str] | None = None,
    apply: Callable[..., Any] | None = None,
    tied: bool | None = None,
    layers: str | None = None,
    compare: Mapping[str, Any] | None = None,
) -> Roles:
    """The roles of init(key, **target)'s parameters, by comparison with the widths and depths of `base`.

    An axis that grows by target/base width is a wide one: a matrix with two is hidden, with the first an output side only
    readout, with the last only input (embeddings too). A vector is a bias, or a readout where the forward pass is seen to sum
    over it. Parameters in layers that the deeper model has more of, under
    names of their own or along a leading axis (scanned), or that it uses more often (shared), lie in blocks. How the
    initialisation scales is read off the program of `init`, or measured where that is not known.
    At the base size itself, what grows is seen from twice its width and depth (or from the sizes `compare`). Which axes
    are summed over, which are of layers, and whether an embedding is also the readout is seen in the forward pass: in that
    of a Linen model's `init`, or in apply(params, **sizes), which runs any other model on some input.
    Nothing else is guessed: what does not fit is an error that names the parameter, and a use that is not followed a warning.
    Where code sums products of activations over the width (h·h′, a head hᵀQh′ with a wide Q), no role makes up for a missing 1/N:
    it is the code's, as 1/d of logits is, and `train.coord_check` sees it.

    init(key, **sizes) returns parameters (any pytree). base, target: sizes such as {"width": 64, "depth": 2}; `width` and
    `depth` say which of them these are (no depth: one depth). branch_outputs: where depths differ, a regular expression
    for the layers that write to the residual stream, which take the branch factor m_L^(−α) into their weights; or
    "in code" if the forward pass multiplies by it. roles: {parameter: role} where you know better. tied=True: an embedding
    is also the readout, and the code divides its outputs by m. layers: a regular expression for parameters whose first
    axis is one of layers ("$^" for none), which Muon asks for where nothing else tells.

    >>> import jax
    >>> def init(key, width):
    ...     a, b, c = jax.random.split(key, 3)
    ...     normal = jax.random.normal
    ...     return {"in": normal(a, (3, width)), "mid": normal(b, (width, width)) / width**0.5,
    ...             "out": normal(c, (width, 1)) / width**0.5}
    >>> roles = infer_roles(init, base={"width": 64}, target={"width": 256})
    >>> {name: place.role for name, place in roles.places.items()}
    {'in': 'input', 'mid': 'hidden', 'out': 'readout'}
    >>> params = roles.rescale(init(jax.random.key(0), width=256))
    """
    init = _of_key(init, base)
    models = Models(init, apply)
    shapes = models.shapes
    m, m_depth = _ratio(base, target, width), _ratio(base, target, depth) if depth in target else 1.0
    deep = {**base, **({depth: target[depth]} if depth in target else {})}
    tall, large = shapes(deep), shapes(target)
    narrow, wide, grown = (tall, large, m) if m != 1 else _wider(shapes, target, width, compare)
    if narrow.keys() != wide.keys():
        raise ValueError(
            "infer_roles: parameters come and go with the width: "
            + ", ".join(sorted(narrow.keys() ^ wide.keys()))
            + "."
        )
    deeper = deep if m_depth != 1 else {**base, depth: 2 * base[depth]} if depth in base else None
    stacks = _stacks(shapes, base, deeper, certain=m_depth != 1)
    blocks = _in_blocks(shapes({**target, depth: base[depth]}), large) if m_depth != 1 else set()
    shared = _shared(models, base, deep) - blocks if m_depth != 1 else set()
    other = {**target, **({} if m != 1 else compare or {width: 2 * base[width]})}
    other |= {depth: base[depth]} if depth in base else {}
    seen, known = _seen(models, base, other, other[width] / base[width]), dict(roles or {})
    places: dict[str, Place] = {}
    for name, leaf in large.items():
        shape, met = tuple(leaf.shape), seen.get(name, seen.get(numberless(name)))
        used = [use for use in met or () if isinstance(use, Use)]
        grows = _grows(name, tuple(narrow[name].shape), tuple(wide[name].shape), grown, width)
        stacked = _layers(name, used, grows, stacks, layers)
        role = known.pop(name, None) or role_of(name, shape, grows, stacked or 0, met)
        sides = sides_of(used, grows, role)
        unsure = (
            role == "hidden" and sides is None and (stacked is None or are_mixed(used)) and min(grows, default=0) > 0
        )
        again = name in shared and not stacked
        inside = bool(stacked) or again or name in blocks
        places[name] = Place(role, shape, grows, stacked or 0, inside, sides=sides, unsure=unsure, shared=again)
    places |= _inside(places, models, base, other)
    if m != 1:
        _warn_of_multipliers(places, models, base, other)
        _warn_of_sleepers(places, models, base, init)
    small = {n: p for n, p in places.items() if p.shared and p.role in ("readout", "constant") and not p.inner}
    if any(place.role == "readout" for place in small.values()):  # heads of all layers are no block
        places |= {name: dataclasses.replace(place, in_block=False, shared=False) for name, place in small.items()}
    if known:
        raise ValueError(f"infer_roles: there are no parameters {', '.join(known)}; there are {', '.join(large)}.")
    if tied is not True:
        tied = False if _refuse_tied(places, seen, m) else tied
        if tied is None:
            refuse_what_seems_tied(places, m)
    _mark_branch_outputs(places, branch_outputs, m_depth, alpha)
    entries = {name: int(math.prod(p.shape[p.stacked :]) / max(m, 1.0) ** len(p.grows)) for name, p in places.items()}
    powers = init_powers(init, (base, deep, target), (m, m_depth), entries)
    places = {name: dataclasses.replace(place, init=powers[name]) for name, place in places.items()}
    places |= with_by_hand(places, models, (base, other), other[width] / base[width], lambda: zeros_of(init, base))
    return Roles(places, m, m_depth, alpha, gamma, branch_outputs == IN_CODE, tied)


def _of_key(init: Callable, base: Mapping[str, Any]) -> Callable:
    """init(key, **sizes); of make(…, rngs) → an NNX module, that of its parameters."""
    if takes_rngs(init):
        return lambda key, **sizes: pair_of(init, sizes, "infer_roles").init(key, None)
    given = signature_of(init)
    try:
        given.bind(None, **base)
        return init
    except TypeError as error:
        raise ValueError(
            f"infer_roles: init must take a key and the sizes, init(key, {', '.join(base)}), and return parameters; it is "
            f"init{given} ({error}). Of an NNX module give make({', '.join(base)}, rngs)."
        ) from None


def _ratio(base: Mapping[str, Any], target: Mapping[str, Any], name: str) -> float:
    if name not in base or name not in target:
        raise ValueError(f'infer_roles: base and target must both have "{name}"; got {dict(base)} and {dict(target)}.')
    return target[name] / base[name]


def _wider(shapes: Callable, target: Mapping[str, Any], width: str, compare: Mapping[str, Any] | None) -> Any:
    """(shapes at target, shapes at another width, that width over the target's)."""
    other = {**target, **(compare or {width: 2 * target[width]})}
    if other[width] == target[width]:
        raise ValueError(f"infer_roles: compare must have another {width} than {target[width]}; got {dict(other)}.")
    try:
        return shapes(target), shapes(other), other[width] / target[width]
    except Exception as error:  # whatever a model says to a size that it cannot have
        raise ValueError(
            f"infer_roles: base and target have the same {width}, {target[width]}, so that what grows must be seen from another "
            f"one, and there is no model of the sizes {other} ({type(error).__name__}: {error}). Say which there is, as in "
            f'compare={{"{width}": {2 * target[width]}}}.'
        ) from error


def _grows(name: str, before: tuple[int, ...], after: tuple[int, ...], m: float, width: str) -> tuple[int, ...]:
    """The axes that grow, all by m."""
    grows = tuple(i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
    for i in grows:
        if not np.isclose(after[i] / before[i], m):
            fixed = before[i] - (after[i] - before[i]) / (m - 1)  # of the axis, where the rest grows in proportion
            mixed = (
                f" If it is one of neurons beside {fixed:g} others (inputs that are concatenated to them), give these weights of "
                "their own and add: one matrix for both lets their share vanish as the network gets wider."
                if fixed > 0 and np.isclose(fixed, round(fixed))
                else ""
            )
            raise ValueError(
                f"infer_roles: axis {i} of {name} grows from {before[i]} to {after[i]}, by {after[i] / before[i]:g}, "
                f"while the {width} grows by {m:g}. Make it grow in proportion, or keep it fixed.{mixed}"
            )
    return grows


def _stacks(shapes: Callable, base: Mapping[str, Any], deeper: Any, certain: bool) -> dict[str, int] | None:
    """{parameter: 1 where its first axis is one of layers, else 0}; None where no depth can be varied."""
    if deeper is None:
        return None
    small = shapes(base)
    try:
        tall = shapes(deeper)
        return {name: _stacked(name, small.get(name), leaf) for name, leaf in tall.items()}
    except Exception:  # a depth that nobody asked for, which the model may not have
        if certain:
            raise
        return None


def _stacked(name: str, small: Any, tall: Any) -> int:
    if small is None or small.shape == tall.shape:
        return 0
    if small.shape[1:] == tall.shape[1:]:
        return 1
    raise ValueError(
        f"infer_roles: {name} changes from {small.shape} to {tall.shape} with the depth, as if another layer had its name in "
        'the deeper model. Name your layers, as in nn.Dense(…, name="readout"), where they are numbered through; layers that '
        "are stacked in one array are expected along its first axis."
    )


def _layers(
    name: str, used: Sequence[Use], grows: Sequence[int], stacks: dict[str, int] | None, layers: str | None
) -> int | None:
    """How many leading axes are of layers; None where that is not known."""
    if stacks is not None:
        return stacks.get(name, 0)
    if layers is not None:
        return int(re.search(layers, name) is not None)
    taken = {axis for use in used for axis in use.stacked if axis not in grows}
    return (next(i for i in range(len(taken) + 1) if i not in taken)) if used else None


def _in_blocks(small: dict[str, Any], large: dict[str, Any]) -> set[str]:
    """Parameters of layers that the deeper model has more of: equal names but for their numbers, and equal shapes (a
    read-in that is counted with the blocks differs from them when the width does)."""

    def kinds(leaves: dict[str, Any]) -> dict[str, tuple]:
        return {name: (numberless(name), tuple(leaf.shape)) for name, leaf in leaves.items()}

    more = Counter(kinds(large).values()) - Counter(kinds(small).values())
    new = {kind for name, kind in kinds(large).items() if name not in small}
    return {name for name, kind in kinds(large).items() if kind in more and kind in new}


def _inside(
    places: dict[str, Place], models: Models, base: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, Place]:
    """`with_inner` by the forward passes of two sizes; none where they are not seen."""
    if any(place.role == "readout" for place in places.values()):
        with contextlib.suppress(Exception):  # a model that has no such width leaves unclear what is inside
            return with_inner(places, *(models.seen(forwards_of, sizes) for sizes in (base, other)))
    return {}


def _warn_of_multipliers(
    places: dict[str, Place], models: Models, base: Mapping[str, Any], other: Mapping[str, Any]
) -> None:
    """Of numbers in the code that go with the width and multiply what inputs are read with."""
    found: list[str] = []
    with contextlib.suppress(Exception):  # as in `_inside`
        narrow, wide = (models.seen(forwards_of, sizes) for sizes in (base, other))
        read = [name for name, place in places.items() if place.role == "input" and name in narrow.keys() & wide.keys()]
        found += [name for name in read if any(map(is_multiplied, narrow[name], wide[name]))]
    if found:
        warnings.warn(_MULTIPLIED.format(names=", ".join(found)), stacklevel=4)


def _warn_of_sleepers(places: dict[str, Place], models: Models, base: Mapping[str, Any], init: Callable) -> None:
    """Of layers inside that are met only by what starts at zero."""
    if not any(place.inner for place in places.values()):
        return
    zeros = zeros_of(init, base) & places.keys()
    pairs = models.seen(lambda passed: sleepers(passed, places, zeros), base)
    for name, met in pairs.items():
        warnings.warn(f"infer_roles: {met[0].said(name)}", stacklevel=4)


def _shared(models: Models, base: Mapping[str, Any], deep: Mapping[str, Any]) -> set[str]:
    """Parameters that the deeper model uses more often: those of one layer that all blocks share."""
    few, many = ({name: sum(each) for name, each in models.seen(Pass.counts, sizes).items()} for sizes in (base, deep))
    return {name for name, count in many.items() if count > few.get(name, count)}


def _seen(
    models: Models, base: Mapping[str, Any], other: Mapping[str, Any], grown: float
) -> dict[str, list[Use | Entrywise]]:
    """Uses of the parameters at the base size, by their names and, for those of other depths, by names without numbers.

    other: another size, grown times as wide, that tells sums over the width from means.
    """

    def at(sizes: Mapping[str, Any]) -> dict[str, list[Any]]:
        return {name: [use for each in met for use in each] for name, met in models.seen(Pass.uses, sizes).items()}

    found = at(base)
    if any(may_be_means(met) for met in found.values()):
        wider: dict[str, list[Any]] = {}
        with contextlib.suppress(Exception):  # a forward pass that has no such width leaves unclear what is a mean
            wider = at(other)
        found = {name: told_apart(met, wider.get(name, []), grown) for name, met in found.items()}
    return {**{numberless(name): used for name, used in reversed(found.items())}, **found}


def _refuse_tied(places: dict[str, Place], seen: dict[str, list[Use | Entrywise]], m: float) -> bool:
    """An error where a matrix is seen to be both embedding and readout; False if nothing of the model is seen."""
    for name, place in places.items():
        used = seen.get(name, seen.get(numberless(name), []))
        if place.role == "input" and any(isinstance(use, Use) and place.grows[0] in use.inputs for use in used):
            raise TiedError(_IS_TIED.format(name=name, m=m))
    return any(seen.values())


def _is_matrix(place: Place) -> bool:
    """Whether it may be what a branch ends with: hidden, or of fixed size, as what mixes positions."""
    return place.role == "hidden" or (place.role == "constant" and len(place.shape) - place.stacked > 1)


def _mark_branch_outputs(places: dict[str, Place], pattern: Any, depth: float, alpha: float) -> None:
    if depth == 1 or alpha == 0 or pattern == IN_CODE:
        return
    matrices = [name for name, place in places.items() if place.in_block and _is_matrix(place)]
    if not matrices:
        raise ValueError(
            f"infer_roles: the depth grows by {depth:g}, and no hidden matrix is seen in layers that the deeper model has more "
            f"of, or uses more often. Multiply branches by {depth:g}**-{alpha:g} in your code and say "
            f'branch_outputs="{IN_CODE}"; of a model that is not Linen, apply=apply(params, **sizes) shows which are shared.'
        )
    if pattern is None:
        raise ValueError(
            f"infer_roles: the depth grows by {depth:g}, and branches need the factor {depth:g}^(−{alpha:g}). Which of these "
            f"write to the residual stream: {', '.join(matrices)}? Say branch_outputs=<regular expression>; or multiply "
            f'branches by {depth:g}**-{alpha:g} in your code and say branch_outputs="{IN_CODE}".'
        )
    found = [name for name, place in places.items() if place.in_block and re.search(pattern, name)]
    if not any(name in matrices for name in found):
        raise ValueError(f'infer_roles: branch_outputs="{pattern}" names none of {", ".join(matrices)}.')
    for name in found:
        places[name] = dataclasses.replace(places[name], branch_output=True)
