"""Roles of a model of your own, from what its parameters do when its width and its depth change."""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo import checks
from zoo.parameterization import Parameterization
from zoo.roles import Factors, number, times

IN_CODE = "in code"
_VECTORS = ("bias", "scale", "gain", "b")  # names of parameters that are no matrices, whatever their shape
_MEASURED = 2**24  # parameters drawn in all to see how initialisations scale
_POWERS = (0.0, -0.5, -1.0, 0.5)  # of the width or depth that initialisations scale with


@dataclasses.dataclass(frozen=True)
class Place:
    """What is known of one parameter. `init`: the powers of width and depth its initialisation scales with."""

    role: str  # input, hidden, readout, bias (anything with one long side that is no matrix), constant
    shape: tuple[int, ...]
    grows: tuple[int, ...]  # its axes that grow with the width
    stacked: int = 0
    in_block: bool = False
    branch_output: bool = False
    init: tuple[float, float] = (0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Roles:
    """Roles of a model's parameters, and its size over the base size: what `scaled`, `explain` and `rescale` need.

    No multiplier in the forward pass: initialisation, learning rate and ε carry every factor.

        hidden:   std m^(−1/2), rate 1, size 1/m        input, biases, norms: std 1, rate m, size 1/m
        readout:  std 1/m, rate 1/m, size 1             with m = width over base width, all at γ₀ = 1

    In blocks rate × m_L^(2α−1) for α > 1/2 and size × m_L^(−α); what the last layers of the branches hold is multiplied by
    m_L^(−α), which stands for the branch factor (unless the model's own code has it).
    """

    places: dict[str, Place]
    width: float = 1.0
    depth: float = 1.0
    alpha: float = 0.5
    gamma: Any = 1.0
    in_code: bool = False  # the forward pass multiplies branches by m_L^(−α)

    def factors(self, params: Any) -> Any:
        """The `zoo.Factors` of every parameter: a tree like params."""
        return jax.tree_util.tree_map_with_path(lambda path, leaf: self._factor(self._place(path, leaf)), params)

    def rescale(self, params: Any) -> Any:
        """Freshly initialised parameters, with the standard deviations that this size needs. At the base size: as they are.

        >>> roles = Roles({"readout": Place("readout", (4, 1), (0,), init=(-0.5, 0.0))}, width=4.0)
        >>> roles.rescale({"readout": jnp.ones((4, 1))})["readout"][0].tolist()
        [0.5]
        """

        def rescaled(path: Any, leaf: Any) -> Any:
            return times(leaf, self.init_factor(self._place(path, leaf)))

        return jax.tree_util.tree_map_with_path(rescaled, params)

    def init_factor(self, place: Place) -> Any:
        """By what `rescale` multiplies it: the standard deviation over the base's that is wanted, over what it has."""
        return self._stored(place) / (self.width ** place.init[0] * self.depth ** place.init[1])

    def _stored(self, place: Place) -> Any:
        """The parameter over that of the mean-field form, in which weights are N(0, 1) whatever the width."""
        s = {"hidden": self.width**-0.5, "readout": 1 / (self.gamma * self.width)}.get(place.role, 1.0)
        return s * (self.depth**-self.alpha if place.branch_output and not self.in_code else 1.0)

    def _factor(self, place: Place) -> Factors:
        if place.role == "constant":
            return Factors("constant", 1.0, 1.0)
        p, s = Parameterization.mup.replace(alpha=self.alpha), self._stored(place)
        how = (place.role, self.width, self.gamma, self.depth, place.in_block)
        rate, size = p.learning_rate_factor(*how) * s**2, p.gradient_size(*how) / s
        return Factors(place.role, number(rate), number(size), place.role == "hidden", self.width, place.stacked)

    def _place(self, path: Any, leaf: Any) -> Place:
        name = path_name(path)
        if name not in self.places:
            raise ValueError(
                f"No role is known for the parameter {name} of shape {tuple(leaf.shape)}: infer_roles again."
            )
        if tuple(leaf.shape) != self.places[name].shape:
            raise ValueError(
                f"{name} has the shape {tuple(leaf.shape)}, and its role was inferred for {self.places[name].shape}: give "
                "infer_roles the size of this model as target."
            )
        return self.places[name]


@checks.arguments(
    init=checks.function,
    base=checks.table,
    target=checks.table,
    alpha=checks.number(),
    gamma=checks.number(positive=True),
    width=checks.word,
    depth=checks.word,
    roles=checks.table,
)
def infer_roles(
    init: Callable,
    base: Mapping[str, Any],
    target: Mapping[str, Any],
    alpha: float = 0.5,
    gamma: Any = 1.0,
    branch_outputs: Any = None,
    width: str = "width",
    depth: str = "depth",
    roles: Mapping[str, str] | None = None,
) -> Roles:
    """The roles of init(key, **target)'s parameters, by comparison with the widths and depths of `base`.

    An axis that grows by target/base width is a wide one: a matrix with two is hidden, with the first an output side only
    readout, with the last only input (embeddings too). Parameters in layers that the deeper model has more of, under
    names of their own or along a leading axis (scanned), lie in blocks. How the initialisation scales is measured.
    Nothing else is guessed: what does not fit is an error that names the parameter.

    init(key, **sizes) returns parameters (any pytree). base, target: sizes such as {"width": 64, "depth": 2}; `width` and
    `depth` say which of them these are (no depth: one depth). branch_outputs: where depths differ, a regular expression
    for the layers that write to the residual stream, which take the branch factor m_L^(−α) into their weights; or
    "in code" if the forward pass multiplies by it. roles: {parameter: role} where you know better.

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
    m, m_depth = _ratio(base, target, width), _ratio(base, target, depth) if depth in target else 1.0
    deep = {**base, **({depth: target[depth]} if depth in target else {})}
    small, tall, large = _each_once(lambda sizes: _leaves(jax.eval_shape(_at(init, sizes))), (base, deep, target))
    same = tall.keys() == large.keys()
    if not same:
        raise ValueError(
            "infer_roles: parameters come and go with the width: " + ", ".join(sorted(tall.keys() ^ large.keys())) + "."
        )
    blocks, known = _in_blocks(small, large), dict(roles or {})
    places: dict[str, Place] = {}
    for name, leaf in large.items():
        shape, narrow = tuple(leaf.shape), tuple(tall[name].shape)
        stacked = _stacked(small.get(name), tall[name])
        grows = tuple(i for i, (a, b) in enumerate(zip(narrow, shape, strict=True)) if a != b)
        for i in grows:
            if not np.isclose(shape[i] / narrow[i], m):
                raise ValueError(
                    f"infer_roles: axis {i} of {name} grows from {narrow[i]} to {shape[i]}, by {shape[i] / narrow[i]:g}, "
                    f"while the {width} grows by {m:g}. Make it grow in proportion, or keep it fixed."
                )
        in_block = stacked > 0 or name in blocks
        role = known.pop(name, None) or _role(name, shape, grows, stacked)
        places[name] = Place(role, shape, grows, stacked, in_block)
    if known:
        raise ValueError(f"infer_roles: there are no parameters {', '.join(known)}; there are {', '.join(large)}.")
    _mark_branch_outputs(places, branch_outputs, m_depth, alpha)
    powers = _init_powers(init, (base, deep, target), (m, m_depth), places)
    places = {name: dataclasses.replace(place, init=powers[name]) for name, place in places.items()}
    return Roles(places, m, m_depth, alpha, gamma, branch_outputs == IN_CODE)


def path_name(path: Any) -> str:
    """A key path as words with dots between."""
    words = (str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
    return ".".join(word for word in words if word != "value")


def _each_once(function: Callable, sizes: Sequence[Mapping[str, Any]]) -> list[Any]:
    """function of each, once where they are the same."""
    found: dict[tuple, Any] = {}
    for each in sizes:
        key = tuple(sorted(each.items()))
        found[key] = found[key] if key in found else function(each)
    return [found[tuple(sorted(each.items()))] for each in sizes]


def _leaves(tree: Any) -> dict[str, Any]:
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _at(init: Callable, sizes: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: init(jax.random.key(0), **sizes)


def _ratio(base: Mapping[str, Any], target: Mapping[str, Any], name: str) -> float:
    if name not in base or name not in target:
        raise ValueError(f'infer_roles: base and target must both have "{name}"; got {dict(base)} and {dict(target)}.')
    return target[name] / base[name]


def _stacked(small: Any, tall: Any) -> int:
    """1 where the first axis is one of layers."""
    if small is None or small.shape == tall.shape:
        return 0
    if small.shape[1:] == tall.shape[1:]:
        return 1
    raise ValueError(
        f"infer_roles: a parameter changes from {small.shape} to {tall.shape} with the depth; layers are expected along the "
        "first axis, or under names of their own."
    )


def _in_blocks(small: dict[str, Any], large: dict[str, Any]) -> set[str]:
    """Parameters of layers that the deeper model has more of: equal names but for their numbers, and equal shapes (a
    read-in that is counted with the blocks differs from them when the width does)."""
    kind = {name: (_numberless(name), tuple(leaf.shape)) for name, leaf in large.items()}
    more = {kind[name] for name in large.keys() - small.keys()}
    return {name for name in large if kind[name] in more}


def _role(name: str, shape: tuple[int, ...], grows: Sequence[int], stacked: int) -> str:
    axes = len(shape) - stacked
    if not grows:
        return "constant"
    if name.split(".")[-1] in _VECTORS or axes == 1:
        return "bias"
    if len(grows) > 2 or (len(grows) == 2 and axes == 2 and list(grows) != [stacked, stacked + 1]):
        raise ValueError(f"infer_roles: {name} of shape {shape} grows along the axes {grows}; say its role in `roles`.")
    if len(grows) == 2:
        return "hidden"
    if grows[0] == len(shape) - 1:
        return "input"
    if grows[0] == len(shape) - 2:
        return "readout"
    raise ValueError(
        f"infer_roles: {name} of shape {shape} grows along axis {grows[0]} only, which is neither its input nor its output "
        'side; say its role in `roles`, as in roles={"' + name + '": "readout"}.'
    )


def _mark_branch_outputs(places: dict[str, Place], pattern: Any, depth: float, alpha: float) -> None:
    if depth == 1 or alpha == 0 or pattern == IN_CODE:
        return
    matrices = [name for name, place in places.items() if place.in_block and place.role == "hidden"]
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


def _init_powers(init: Callable, sizes: Any, ratios: tuple[float, float], places: dict[str, Place]) -> dict:
    """The powers of width and depth that initialisations scale with, measured and rounded to halves."""

    def squares(at: Mapping[str, Any]) -> Callable[[Any], Any]:
        return lambda key: jax.tree.map(lambda a: jnp.mean(jnp.square(a.astype("float32"))), init(key, **at))

    count = int(np.clip(_MEASURED / sum(math.prod(place.shape) for place in places.values()), 1, 64))

    def sizes_of(at: Mapping[str, Any]) -> dict[str, float]:
        with jax.ensure_compile_time_eval():  # a caller may be tracing
            keys = jax.random.split(jax.random.key(0), count)
            found: Any = jax.jit(lambda keys: jax.lax.map(squares(at), keys))(keys)
        return {name: float(np.mean(np.asarray(value)) ** 0.5) for name, value in _leaves(found).items()}

    small, tall, large = _each_once(sizes_of, sizes)
    out = {}
    for name, place in places.items():
        first = small.get(name, next((small[other] for other in small if _numberless(other) == _numberless(name)), 0.0))
        entries = math.prod(place.shape[place.stacked :]) / max(ratios[0], 1.0) ** len(place.grows)
        noise = 5 / max(entries * count, 1) ** 0.5  # of a ratio of two root mean squares, five standard errors
        out[name] = (
            _power(f"{name}: the width", tall[name], large[name], ratios[0], noise),
            _power(f"{name}: the depth", first, tall[name], ratios[1], noise),
        )
    return out


def _numberless(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _power(what: str, before: float, after: float, ratio: float, noise: float) -> float:
    """The power of the ratio that the change is."""
    if ratio == 1 or before == 0 or after == 0:
        return 0.0
    power = float(np.log(after / before) / np.log(ratio))
    nearest = min(_POWERS, key=lambda p: abs(p - power))
    if abs(power - nearest) > min(noise / abs(np.log(ratio)), 0.24):
        raise ValueError(
            f"infer_roles: {what} changes by {ratio:g} and its initialisation by {after / before:.3g}, which is the power "
            f"{power:.2f}, none of {', '.join(f'{p:g}' for p in _POWERS)}. Initialise with a power of the fan-in."
        )
    return nearest
