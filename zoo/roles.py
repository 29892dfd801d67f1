"""From a definition to one number a parameter: its role, and its learning rate over η₀."""

import contextlib
import dataclasses
import functools
import math
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import optax
from jax.core import Tracer

from zoo import checks
from zoo.abstract import abstract
from zoo.added import added_to_outputs
from zoo.definition import asked_beside_inputs, check_definition, definition_of, in_form, name_of, rows_and_columns
from zoo.inner import Forward, forwards, is_inner
from zoo.layers import HasRoles, Linear
from zoo.names import by_name, names_of
from zoo.once import once
from zoo.parameterization import Parameterization, parameterization


@checks.arguments(net=checks.module, x=checks.inputs)
def roles(net: nn.Module, x: Any) -> dict[str, Any]:
    """The role of every parameter, as a tree like the parameters'. Nothing is computed: shapes are enough.

    >>> from zoo import MLP
    >>> roles(MLP(width=4, depth=1, b_std=0.1), jax.ShapeDtypeStruct((1, 3), "float32"))["hidden_1"]
    {'bias': 'bias', 'kernel': 'input'}
    """
    if asked_beside_inputs(net):
        check_definition("roles", net)
    here = placed(without_dials(net), x)
    return jax.tree.map(lambda where: where.role, here, is_leaf=lambda where: isinstance(where, Where))


@dataclasses.dataclass(frozen=True)
class Where:
    """What a definition says of one parameter: `std` at initialisation, `multiplier` in the forward pass.

    `stored`: the parameter over that of the form in which multipliers are in the forward pass; it is as much slower.
    """

    role: str
    in_branch: bool
    std: Any
    multiplier: Any
    stored: Any = 1.0
    sides: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # see `Factors`
    unsure: bool = False
    constant: bool = False  # one number for all neurons
    # Its signals are few and act on all neurons, as a constant's or a router's: what comes back to them is no share of 1/N^d.
    inner: bool = False
    of_outputs: bool = False  # the readout's bias, whose gradient is no neuron's share of 1/√N but that of the output
    large: bool = False  # weights inside whose signals are of O(1) at the start: in `mup` they should begin at zero

    def over(self, p: Parameterization, width: float) -> Any:
        """`stored`, over N^d where it is inner: the parameter is as much slower, and its gradient as much larger."""
        return self.stored / p.width_ratio(width) ** p.d if self.inner else self.stored


@functools.singledispatch
def placed(net: Any, x: Any) -> dict:
    """`Where` every parameter is: a tree like the parameters. Of a network of zoo's layers, which say it."""
    return _placed(net, tuple(x.shape), str(jax.dtypes.canonicalize_dtype(x.dtype)))


_OF_LAYERS = placed.dispatch(object)


def without_dials(net: Any) -> Any:
    """A definition of zoo's layers whose form and γ₀ are being traced, with numbers instead: roles are the same, found once."""
    dials = jax.tree.leaves([getattr(net, name, None) for name in ("parameterization", "gamma")])
    traced = placed.dispatch(type(net)) is _OF_LAYERS and any(isinstance(number, Tracer) for number in dials)
    return in_form(net, Parameterization.ntk, 1.0) if traced else net


@once(maxsize=64)
def _placed(net: Any, shape: tuple[int, ...], kind: str) -> dict:
    x = abstract(shape, kind)
    found, axes, biases = dict[tuple[str, ...], Where](), dict[tuple[str, ...], int](), set[tuple[str, ...]]()

    def note(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        if context.method_name == "__call__" and isinstance(module, HasRoles):
            inputs = args[0].shape[-1] if isinstance(module, Linear) else 1
            for name, role in module.param_roles.items():
                std, multiplier = module.scales(name, inputs)
                zero = isinstance(module, Linear) and (
                    module.zero_init or (name == "bias" and module.bias_init == "zeros")
                )
                where = Where(role, getattr(module, "in_branch", False), 0.0 if zero else std, multiplier)
                found[(*module.path, name)] = where
                if isinstance(module, Linear) and module.role == "readout" and name == "bias":
                    biases.add((*module.path, name))
                if isinstance(module, Linear) and name == "kernel":
                    axes[(*module.path, name)] = len(module.window) + 2
        return run(*args, **kwargs)

    with nn.intercept_methods(note):
        # A function of its own: a trace of net.init that jax has kept would pass the interceptor by.
        variables = jax.eval_shape(lambda key, x: net.init(key, x), jax.eval_shape(jax.random.key, 0), x)
    params = flax.traverse_util.flatten_dict(variables["params"])
    missing = [".".join(path) for path in params if path not in found]
    if missing:
        raise ValueError(
            f"No role is known for {', '.join(missing)}: build the network from zoo's layers, or let "
            "zoo.in_parameterization(net, …) find the roles."
        )
    apply, rest = _forward(net, variables)
    last = added_to_outputs(apply, variables["params"], rest, x) if biases else set()
    inside = _inside(net, x, {".".join(path) for path in params if found[path].role == "readout"})
    for path in biases:
        inner = ".".join((*path[:-1], "kernel")) in inside
        found[path] = dataclasses.replace(found[path], of_outputs=".".join(path) in last, constant=inner, inner=inner)
    for path in params:
        if (power := inside.get(".".join(path))) is not None:
            small = power < -0.75  # it starts as 1/N, and its signals move by as much as those of 1/√N
            stored = parameterization(net.parameterization).width_ratio(net.width) ** 0.5 if small else 1.0
            large = not small and not _is_zero(found[path].std)
            found[path] = dataclasses.replace(found[path], inner=True, large=large, stored=stored)
    for path, count in axes.items():
        leaf: Any = params.get(path)
        more = leaf.ndim - count if leaf is not None else 0
        if more:  # of layers side by side, as under nn.scan
            sides = tuple(range(more, more + count - 1)), (more + count - 1,)
            found[path] = dataclasses.replace(found[path], sides=sides)
    return flax.traverse_util.unflatten_dict({path: found[path] for path in params})


def _is_zero(value: Any) -> bool:
    return not isinstance(value, Tracer) and not value


def too_large(net: Any, x: Any) -> list[str]:
    """The weights of layers inside, such as routers, that start too large for a form in which features learn.

    With W₀ of size N^(−1/2), features move by rates of N along it, and the signals W₀ h by √N: W must begin at zero, or as
    N^(−1/2 − d), as outputs f = W h / N^d do.
    """
    if not parameterization(net.parameterization).d > 0:
        return []
    found = by_name(placed(net, x), is_leaf=lambda where: isinstance(where, Where))
    return [name for name, where in found.items() if where.large]


def _forward(net: Any, variables: Any) -> tuple[Any, Any]:
    """apply(params, the rest of the variables, x), and that rest: the forward pass, which may change what is no parameter."""
    rest = {name: part for name, part in variables.items() if name != "params"}

    def apply(p: Any, rest: Any, x: Any) -> Any:
        found: Any = net.apply({**rest, "params": p}, x, mutable=list(rest) if rest else False)
        return found[0] if rest else found

    return apply, rest


def _inside(net: Any, x: Any, names: set[str]) -> dict[str, float]:
    """Which of these weights of role readout are inside, with the power of N as which they start; none without other widths."""

    def seen(width: int) -> tuple[dict[str, Forward], dict[str, float]]:
        wide, starts = net.clone(width=width), dict[str, float]()

        def unscaled(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
            """Without the numbers that the role asks for, which are no such numbers of the network itself."""
            found, module = run(*args, **kwargs), context.module
            if isinstance(module, Linear) and context.method_name == "scales" and module.role == "readout":
                name = ".".join((*module.path, args[0]))
                starts[name] = 0.0 if any(isinstance(each, Tracer) for each in found) else found[0] * found[1]
                return found[0], 1.0
            return found

        with nn.intercept_methods(unscaled):
            variables = jax.eval_shape(lambda key, x: wide.init(key, x), jax.eval_shape(jax.random.key, 0), x)
            apply, rest = _forward(wide, variables)
            return forwards(apply, variables["params"], rest, x), starts

    def power(a: float, b: float, ratio: float) -> float:
        return math.log(b / a, ratio) if a and b else -0.5

    for other in (2 * net.width, net.width // 2) if len(names) > 1 else ():  # one alone is the way out
        with contextlib.suppress(Exception):  # whatever a definition says to a width that it cannot have
            (one, start), (two, wide) = seen(net.width), seen(other)
            inside = {name for name in names & one.keys() & two.keys() if is_inner(one[name], two[name])}
            return {name: power(start.get(name, 0), wide.get(name, 0), other / net.width) for name in inside}
    return {}


@dataclasses.dataclass(frozen=True)
class Factors:
    """What a plain optimiser is corrected by for one parameter; 1 at the base size.

    `rate`: SGD's learning rate over η₀. `size`: of the entries of its gradient. `step` = rate × size: the learning rate of
    optimisers that divide by the size of the gradient (Adam, Lion; their ε gets `size`). Learning rate × weight decay
    stays what it is. `matrix`: both sides grow with the width, so that Muon applies, with the factor `spectral`.
    """

    role: str
    rate: Any  # numbers, or traced arrays where γ₀ is traced
    size: Any
    matrix: bool = False
    width: float = 1.0  # N over the base width
    # Axes of a matrix's inputs and outputs; None: the last one is of outputs.
    sides: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    unsure: bool = False  # whether its first axis may be one of layers
    inner: bool = False  # of few signals inside, see `Where`

    @property
    def step(self) -> Any:
        """rate × size."""
        return self.rate * self.size

    @property
    def spectral(self) -> Any:
        """Muon's learning rate: its updates have entries of size 1/√(fan_in fan_out), Adam's of size 1."""
        return self.step * self.width


@checks.arguments(
    net=checks.module | checks.roles,
    params=checks.tree,
    x=checks.inputs,
)
def factors(net: Any, params: Any, x: Any = None) -> Any:
    """The `Factors` of every parameter: a tree like params (arrays or shapes), for a definition or `Roles`.

    x: an input (or its shape), where it does not follow from the parameters: for modules of your own.

    >>> from zoo import MLP, Parameterization
    >>> net = MLP(width=256, depth=2, parameterization=Parameterization.mup.based(width=64))
    >>> params = jax.eval_shape(net.init, jax.random.key(0), jax.ShapeDtypeStruct((1, 3), "float32"))["params"]
    >>> hidden = factors(net, params)["hidden_2"]["kernel"]
    >>> hidden.rate, hidden.step, hidden.spectral
    (4.0, 0.5, 2.0)
    """
    if not isinstance(net, nn.Module):
        return net.factors(params)
    if isinstance(params, dict) and set(params) == {"params"}:
        return {"params": factors(net, params["params"], x)}
    check_definition("factors", net)
    x = example_input(net, params) if x is None else checks.input_like("x", x)
    said, p = definition_of(net), parameterization(net.parameterization)

    def factor(where: Where) -> Factors:
        matrix = where.role in ("hidden", "branch")
        if not p.learning_rates_scale:
            return Factors(where.role, 1.0, 1.0, matrix)
        how = (where.role, said.width, said.gamma, said.depth, where.in_branch)
        ratio, stored = p.width_ratio(said.width), where.over(p, said.width)
        gradient = p.gradient_size(*how) * (ratio**0.5 if where.constant or where.of_outputs else 1)
        rate, size = p.learning_rate_factor(*how) * stored**2, gradient / stored
        return Factors(where.role, number(rate), number(size), matrix, ratio, where.sides, where.unsure, where.inner)

    found = by_name(jax.tree.map(factor, placed(net, x), is_leaf=lambda where: isinstance(where, Where)), is_factors)
    names, leaves = names_of(params), jax.tree.structure(params)
    if len(names) == len(found):
        return jax.tree.unflatten(leaves, found.values())
    if not (_masked(params) and set(names) <= found.keys()):
        raise ValueError(
            f"factors: params is not the tree of the parameters of this {name_of(net)}, which has {len(found)} of them; got "
            f"{checks.shown(params)}."
        )
    return jax.tree.unflatten(leaves, [found[name] for name in names])


def is_factors(leaf: Any) -> bool:
    """Whether a leaf of a tree is that of one parameter."""
    return isinstance(leaf, Factors)


def _masked(params: Any) -> bool:
    """Whether Optax shows some of the parameters only."""
    hole = optax.MaskedNode
    return any(isinstance(leaf, hole) for leaf in jax.tree.leaves(params, is_leaf=lambda leaf: isinstance(leaf, hole)))


def number(value: Any) -> Any:
    """A Python float, or the array itself while jax traces it (γ₀ may be swept)."""
    return value if isinstance(value, Tracer) else float(value)


def times(leaf: Any, factor: Any) -> Any:
    """leaf × factor; the leaf itself, bit for bit, where the factor is 1."""
    if isinstance(factor, Tracer):
        return leaf * factor.astype(leaf.dtype)
    return leaf if factor == 1 else leaf * factor


def example_input(net: nn.Module, params: Any) -> Any:
    """The shape of an input for which the network has these parameters (its layers, whatever the number of positions)."""
    if hasattr(net, "example"):
        return net.example  # pyright: ignore[reportAttributeAccessIssue]
    wanted = {name: tuple(leaf.shape) for name, leaf in by_name(params).items()}
    inputs = sorted({shape[-2] for shape in wanted.values() if len(shape) > 1}) or [1]
    said = definition_of(net)
    pixels = math.prod(rows_and_columns(said.patch))
    channels = [n // pixels for n in inputs if n % pixels == 0]
    images = [(1, size, size, n) for n in channels for size in (32, 64, 56)]
    vectors = [(1, n) for n in inputs]
    why = None
    for shape in {True: images, False: vectors, None: vectors + images}[said.images]:
        x = jax.ShapeDtypeStruct(shape, "float32")
        try:
            found = by_name(jax.eval_shape(net.init, jax.random.key(0), x)["params"])
        except Exception as error:  # whatever a module of one's own raises of an input that it does not take
            why = error
            continue
        if (wanted.keys() == found.keys() or (_masked(params) and wanted.keys() <= found.keys())) and all(
            found[name].shape == shape
            for name, shape in wanted.items()
            if not name.startswith(("readout.", "positions."))
        ):
            return x
    raise ValueError(
        f"The parameters are not those of this {name_of(net)}, or it takes inputs of another kind: pass an input as x "
        '(or its shape, jax.ShapeDtypeStruct((1, …), "float32")), and give the definition that the parameters were initialised '
        "with."
    ) from why


@checks.arguments(net=checks.module, x=checks.inputs)
def learning_rate_factors(net: Any, x: Any) -> dict[str, Any]:
    """SGD's learning rate over η₀ for every parameter: what the definition's width, depth and γ₀ make of it.

    >>> from zoo import MLP
    >>> net = MLP(width=100, depth=1, parameterization="mup", gamma=2.0)
    >>> learning_rate_factors(net, jax.ShapeDtypeStruct((1, 3), "float32"))["readout"]
    {'kernel': 400.0}
    """
    check_definition("learning_rate_factors", net)
    said, p = definition_of(net), parameterization(net.parameterization)
    return jax.tree.map(
        lambda where: (
            p.learning_rate_factor(where.role, said.width, said.gamma, said.depth, where.in_branch)
            * where.over(p, said.width) ** 2
        ),
        placed(without_dials(net), checks.input_like("x", x)),
        is_leaf=lambda where: isinstance(where, Where),
    )


@checks.arguments()
def scale_gradients(factors: Any) -> optax.GradientTransformation:
    """Multiplies each gradient by its factor: `optax.chain(scale_gradients(factors), optax.sgd(η₀, momentum))`."""
    return optax.stateless(lambda updates, _: jax.tree.map(lambda g, factor: factor * g, updates, factors))
