"""What is known of the parameters of a plain module before training: roles, standard deviations, inputs that are summed."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo.abstract import variables_of
from zoo.added import added_to_outputs, met_by, used_in_outputs
from zoo.asleep import Asleep, sleepers
from zoo.in_forward import MARGIN, NONE, InForward, Stood, stand_for_starts
from zoo.infer import infer_roles
from zoo.inferred import Place, TiedError
from zoo.laws import Fixed, Law, law_of, laws
from zoo.names import by_name, map_named, names_of
from zoo.once import once
from zoo.parameterization import parameterization
from zoo.plain import PlainNetwork
from zoo.roles import Where, placed
from zoo.uses import Pass

_START = (
    "in_parameterization: {name} ({role}) starts with a standard deviation of {narrow:.4g} at width {width} and {wide:.4g} at "
    "{twice}, as N^{power:.2g}{and_code}; it must go as N^{wanted:g} for signals of O(1). Initialise {remedy}; "
    'or say its role, where it is another: roles={{"{name}": …}}.'
)
_MEAN = (
    "in_parameterization: {name} ({role}) starts with entries of mean {mean:.4g}: a sum over N inputs of them grows as N. "
    "Initialise with mean 0, as nn.initializers.lecun_normal() does (nn.initializers.uniform has none)."
)
_COLLECTION = (
    "in_parameterization: {name} reads what is no parameter, as running averages of batch normalisation and the vectors of "
    "nn.SpectralNorm are ({error}). Take layers without, such as nn.LayerNorm, or a definition of your own with zoo.Norm."
)
_REMEDIES = {
    -0.5: "it by its number of inputs, as nn.initializers.lecun_normal() does (attention and heads too), or draw it as N(0, 1) "
    "and divide what it makes by √N in the code (x @ w / √N)",
    0.0: "it with a law that the width does not enter, as in nn.Embed(…, embedding_init=nn.initializers.normal(1.0))",
}
_AND_CODE = " with the N^{power:.2g} that the code multiplies it by"
_ONCE = "and divide so that it goes as 1/√N in all: outputs of any form are divided by γ besides"


class Start(NamedTuple):
    """What is known of one parameter: where it is, its role, its law, and how many inputs are summed."""

    path: tuple[str, ...]  # in "params"
    role: str
    std: float
    inputs: int
    place: Place
    law: Law
    of_outputs: bool = False  # the readout's bias
    power: float = 0.0  # of N, with which its standard deviation goes, with numbers that stand for it
    by_hand: InForward = NONE  # these numbers in the code
    unused: bool = False  # one of several readouts, on which outputs do not depend


def starts(net: PlainNetwork, x: Any) -> dict[str, Start]:
    """`Start` of every parameter by name, for inputs like x: from its own roles and laws."""
    return _starts(_bare(net), tuple(x.shape[1:]), str(jax.dtypes.canonicalize_dtype(x.dtype)))


def _bare(net: PlainNetwork) -> PlainNetwork:
    """Without what does not enter roles, laws and shapes."""
    return net.clone(parameterization="standard", gamma=1.0)


@once(maxsize=64)
def _starts(net: PlainNetwork, shape: tuple[int, ...], kind: str) -> dict[str, Start]:
    x = jax.ShapeDtypeStruct((1, *shape), kind)

    @functools.cache
    def begun(width: int) -> Any:  # traced once, whatever is asked of it
        return jax.jit(lambda key: net.clone(width=width).init(key, jnp.zeros(x.shape, kind))["params"])

    def init(key: Any, width: int) -> Any:
        return begun(width)(key)

    def apply(params: Any, width: int) -> Any:
        try:
            return net.clone(width=width).apply(
                {"params": params}, jnp.zeros(x.shape, kind), rngs={"dropout": jax.random.key(0)}
            )
        except (flax.errors.ScopeCollectionNotFound, flax.errors.InvalidRngError) as error:
            if isinstance(error, flax.errors.InvalidRngError) and 'PRNG for "params"' not in str(error):
                raise
            raise ValueError(_COLLECTION.format(name=net.what, error=str(error).partition(" (https")[0])) from error

    size = {"width": net.width}
    try:
        found = infer_roles(init, size, size, roles=dict(net.known_roles), apply=apply, tied=False)
    except TiedError as error:
        raise ValueError(
            f"in_parameterization of {net.what}: {str(error).partition('. ')[0]}: one rate and one factor cannot be those of "
            "both. Give the readout a matrix of its own; or take zoo.GPT(tied=True), whose tied readout has a limit. Of a "
            "derivative by inputs (jax.grad), whose backward pass meets the first matrix again, take the network by itself, and "
            "differentiate what its twin and ensembles predict."
        ) from error
    if not {"input", "hidden", "readout"} & {place.role for place in found.places.values()}:
        raise ValueError(
            f"in_parameterization: no parameter of {net.what} grows with its width ({net.width}): there is no limit. Make its "
            "layers of as many neurons as the width says."
        )
    narrow, wide = (
        by_name(
            laws(functools.partial(init, width=width)),
            is_leaf=lambda leaf: hasattr(leaf, "reason") or isinstance(leaf, Law),
        )
        for width in (net.width, 2 * net.width)
    )
    shapes = nn.unbox(variables_of(net, x)["params"])
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    paths = {name: tuple(entry.key for entry in path) for (path, _), name in zip(leaves, names_of(shapes), strict=True)}
    weights = {
        name: layers for name, place in found.places.items() if (layers := _may_be_bias_of(name, place, found.places))
    }
    met = met_by(lambda params: apply(params, net.width), shapes, weights) if weights else {}
    unknown = {name for name in weights.keys() - met.keys() if found.places[name].shape}  # by their shape
    biases = {name for name, how in met.items() if how == "added"} | unknown
    last = biases and added_to_outputs(lambda params: apply(params, net.width), shapes, among=biases)
    ends = {name for name, place in found.places.items() if place.role == "readout" and not place.inner}
    unused = ends - used_in_outputs(lambda params: apply(params, net.width), shapes) if len(ends) > 1 else set[str]()
    both = {name: (_law(place, narrow[name]), _law(place, wide[name])) for name, place in found.places.items()}
    places = _by_hand(found.places, both)
    return {
        name: _start(net, name, paths[name], place, *both[name], name in biases, name in last)._replace(
            unused=name in unused
        )
        for name, place in places.items()
    }


def _law(place: Place, read: Any) -> Law:
    """What is fixed is as good a start as one value, but in a matrix, over whose inputs is summed."""
    if isinstance(read, Fixed) and place.role not in ("hidden", "readout"):
        return Law(read.size, 0.0, False, "fixed")
    return law_of(read)


def _power(law: Law, wide: Law) -> float | None:
    """Of N, with which the standard deviation goes; None at zero."""
    return math.log2(wide.variance / law.variance) / 2 if law.variance and wide.variance else None


def _by_hand(places: dict[str, Place], both: dict[str, tuple[Law, Law]]) -> dict[str, Place]:
    """With the numbers in the code that stand for the start of weights, and no others."""
    asked = {name: Stood(place.role, _power(*both[name]), place.by_hand) for name, place in places.items()}
    stands = stand_for_starts(asked)
    return {
        name: place if name in stands else dataclasses.replace(place, by_hand=NONE) for name, place in places.items()
    }


def _start(
    net: PlainNetwork, name: str, path: tuple[str, ...], place: Place, law: Law, wide: Law, bias: bool, last: bool
) -> Start:
    role, inputs = place.role, 1
    if role in ("hidden", "readout"):
        inputs = math.prod(place.shape[i] for i in _inputs(place))
        if law.mean:
            raise ValueError(_MEAN.format(name=name, role=role, mean=law.mean))
    elif bias and not place.inner:
        role = "bias"
    if role == "bias" and not law.variance and law.mean:
        role = "norm"  # a gain
    a, b = (each.variance**0.5 for each in (law, wide))
    wanted, start = -0.5 if role in ("hidden", "readout") else 0.0, _power(law, wide)
    power = wanted if start is None else start + place.by_hand.power
    few = place.inner and abs(power - 2 * wanted) < MARGIN  # signals inside that begin as 1/√N, as outputs over γ do
    if abs(power - wanted) > MARGIN and not few:
        raise ValueError(_START.format(
            name=name, role=role, narrow=a, wide=b, width=net.width, twice=2 * net.width, power=power, wanted=wanted,
            and_code=_AND_CODE.format(power=place.by_hand.power) if place.by_hand.power else "",
            remedy=_ONCE if power < wanted and place.by_hand.power else _REMEDIES[wanted],
        ))  # fmt: skip
    return Start(path, role, a, inputs, place, law, last, power, by_hand=place.by_hand)


def _may_be_bias_of(name: str, place: Place, places: dict[str, Place]) -> set[str]:
    """The readouts of its module of which what does not grow may be the bias, by its shape: one number for each output."""

    def fits(readout: Place) -> bool:
        one = (
            len(place.shape) == 1 and place.shape[0] in readout.shape
        )  # of a convolution, and whatever the order of axes
        fixed = tuple(size for axis, size in enumerate(readout.shape) if axis not in readout.grows)
        return one or place.shape == fixed  # of nn.DenseGeneral((2, 3))

    here = {
        each for each in places if each.rpartition(".")[0] == name.rpartition(".")[0] and places[each].role == "readout"
    }
    return {each for each in here if fits(places[each])} if place.role == "constant" and not place.inner else set()


def _inputs(place: Place) -> tuple[int, ...]:
    """The axes of a matrix that are summed over."""
    if place.role == "hidden":
        return place.matrix[0]
    if place.sides is not None:  # outputs may have several axes, as those of nn.DenseGeneral((2, 3))
        return place.sides[0]
    last = len(place.shape) - 1
    return place.grows if place.grows == (last,) else tuple(range(place.stacked, last))


@placed.register
def _(net: PlainNetwork, x: Any) -> dict:
    p, found = parameterization(net.parameterization), starts(net, x)

    def where(name: str, leaf: Any) -> Where:
        del leaf
        start = found[name]
        hand = start.by_hand.power
        # What starts at one value moves as if drawn with 1.
        sigma = start.std * start.inputs**0.5 * net.width**hand if start.std else 1.0
        role = "bias" if start.role == "constant" else start.role
        small = start.place.inner and start.power < -0.5 - MARGIN
        sigma = sigma * net.width**0.5 if small else sigma
        stored = p.scales(role, start.inputs, net.width, sigma)[1] / p.width_ratio(net.width) ** hand
        if start.role == "constant":  # one number for all neurons, of whose gradient all have a share: γ₀² without N
            return Where(role, False, start.std, 1.0, stored, constant=True, inner=True)
        sides = start.place.matrix if start.role == "hidden" else None
        inner = start.place.inner and start.role == "readout"
        more = {"of_outputs": start.of_outputs, "inner": inner, "large": inner and bool(start.std) and not small}
        return Where(start.role, False, start.std, 1.0, stored, sides, start.place.unsure, **more)

    return map_named(where, variables_of(_bare(net), x)["params"])


def readouts(net: PlainNetwork, x: Any) -> list[str]:
    """The parameters of that role, for inputs like x, on the way out: not those inside, and no heads whose outputs go nowhere."""
    found = starts(net, x).items()
    return [name for name, start in found if start.role == "readout" and not start.place.inner and not start.unused]


def held_at_zero(net: PlainNetwork, x: Any) -> dict[str, Asleep]:
    """`sleepers`: layers inside that act through what starts at zero; of forms in which features learn."""
    found, bare = starts(net, x), _bare(net)
    if not parameterization(net.parameterization).d > 0 or not any(start.place.inner for start in found.values()):
        return {}
    zeros = {name for name, start in found.items() if not start.law.mean and not start.law.variance}
    shapes = nn.unbox(variables_of(bare, x)["params"])
    rngs = {"dropout": jax.random.key(0)}
    passed = Pass(
        lambda params, x: bare.apply({"params": params}, x, rngs=rngs), shapes, jax.ShapeDtypeStruct(x.shape, x.dtype)
    )
    return sleepers(passed, {name: start.place for name, start in found.items()}, zeros)


def readout_of(net: PlainNetwork, x: Any) -> tuple[float, float]:
    """(w, b) of the readout, whose output has the covariance w² Φ + b²: of the one parameter of that role, and its bias."""
    found, names = starts(net, x), readouts(net, x)
    if len(names) != 1:
        raise ValueError(
            f"{net.what} has {len(names)} parameters of role readout ({', '.join(names)}); its kernels need exactly one, from "
            "the last features to the outputs."
        )
    readout, layer = found[names[0]], names[0].rpartition(".")[0]
    bias = found.get(f"{layer}.bias" if layer else "bias")
    return readout.std * readout.inputs**0.5 * readout.by_hand.factor, 0.0 if bias is None else bias.std
