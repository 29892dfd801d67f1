"""What an optimiser does to every parameter of a model, as a table; and the misuses that it shows."""

import dataclasses
import inspect
import re
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from zoo import checks
from zoo.definition import check_definition, definition_of, name_of
from zoo.inferred import Place, Roles
from zoo.messages import as_text
from zoo.names import by_name, numberless
from zoo.plain import PlainNetwork
from zoo.rescaled import Rescaled
from zoo.roles import Factors, Where, factors, placed, too_large
from zoo.scaled import CONSISTENT_RMS, OF_MATRICES, check_options, misuses, muon_states, named
from zoo.starts import held_at_zero, starts

_HEADS = (
    "{name}: d_head grows with the width{more}, so logits must be q·k / d_head: with 1/√d_head they grow as √d_head once queries "
    "and keys have aligned. {how}"
)
_PLAIN_HEADS = "Flax's attention divides by √d_head: divide queries by it once more, or give it an attention_fn."
_TWICE = (
    "{name}: its initialisation falls as depth^({power:.3g}) and it also takes the branch factor depth^(−{alpha:g}): depth would "
    "count twice (GPT-2's 1/√(2L) beside a branch factor). rescale takes the former out; without it, initialise "
    "branches as at the base depth."
)
_INSIDE = (
    "{names}: what stands inside the network and makes few signals of all neurons, as a router, a gate or a bottleneck does, "
    "should start at zero where features learn (kernel_init=nn.initializers.zeros; zero_init=True of zoo's layers), or with a "
    "standard deviation of 1/width: with 1/√width features move along these weights, and the signals by more in wider networks."
)
_UNUSED = (
    "{names}: weights of heads on which the outputs do not depend. A loss of the outputs leaves them as they start (but for "
    "decay); the numbers here are those of heads that are part of the outputs."
)
_MUON_READOUT = (
    "{name} ({role}) is under Muon, which is for matrices whose both sides grow: orthogonalised updates of a {role} do not "
    'scale as it needs. Use scaled("muon", …), or give muon_weight_dimension_numbers that leave it to Adam.'
)
_ADAM_DECAY = (
    "weight_decay with plain Adam enters the gradient and is divided by its size: what decays depends on the width. Use "
    '"adamw".'
)
_ATTENTION = re.compile(r"att|quer|qkv|(^|[._])(q|k|key)([._]|$)")
_BIAS_OUTSIDE = (
    "{name}: a bias of a layer whose weights take the branch factor, but outside it: its updates in all blocks would add up. "
    "Let branch_outputs name the layer, not its weights alone."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One parameter: numbers that it starts with and is trained with."""

    name: str
    shape: tuple[int, ...]
    role: str
    std: str  # at initialisation; for inferred roles, what rescale multiplies it by
    multiplier: float  # in the forward pass
    rate: float  # learning rate
    epsilon: float | None
    decay: float  # shrinks by learning rate × this; the product is the same for all sizes


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The table and its warnings; printing shows both."""

    optimizer: str
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        return as_text(self)

    def __rich__(self) -> Group:
        table = Table(title=f"{self.optimizer}: what every parameter is trained with")
        for column in ("parameter", "shape", "role", "initial std", "multiplier", "learning rate", "ε", "decay"):
            side = "left" if column in ("parameter", "role") else "right"
            table.add_column(column, justify=side, no_wrap=column != "parameter", overflow="fold")
        table.columns[0].min_width = 24  # long names go on in another line
        alike: dict[Row, list[str]] = {}  # layers that are treated alike share a line
        for row in self.rows:
            alike.setdefault(dataclasses.replace(row, name=numberless(row.name)), []).append(row.name)
        for row, names in alike.items():
            table.add_row(
                f"{row.name} ({len(names)})" if len(names) > 1 else names[0],
                "×".join(map(str, row.shape)), row.role, row.std, f"{row.multiplier:.4g}", f"{row.rate:.4g}",
                "" if row.epsilon is None else f"{row.epsilon:.3g}", f"{row.decay:.4g}",
            )  # fmt: skip
        return Group(table, *(Text(f"• {warning}") for warning in self.warnings))


@checks.arguments(
    net=checks.module | checks.roles,
    optimizer=checks.word | checks.transformation,
    x=checks.inputs,
    learning_rate=checks.number(),
    eps=checks.number(0),
    weight_decay=checks.number(),
    tied=checks.flag,
    show=checks.flag,
)
def explain(
    net: Any,
    optimizer: Any = "adam",
    x: Any = None,
    learning_rate: float = 1.0,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    tied: bool = False,
    show: bool = True,
    **options: Any,
) -> Explanation:
    """Prints and returns what `scaled(optimizer, net)` does: effective learning rate, ε, decay, start and multiplier.

    net: a definition (with an input x, else one is made up), or `Roles`. optimizer: a name, or an Optax transformation of
    your own, which is looked into: for a use of Muon, and for what `scaled` warns of. Muon's weight_decay is that of matrices,
    adam_weight_decay that of the rest. Misuses come as warnings; what the form cannot express is a ValueError that names the
    parameter and the line to change.

    >>> from zoo import MLP, Parameterization
    >>> net = MLP(width=256, depth=2, parameterization=Parameterization.mup.based(width=64))
    >>> table = explain(net, "adamw", learning_rate=1e-3, weight_decay=0.1, show=False)
    >>> [(row.name, row.rate, row.decay) for row in table.rows]
    [('hidden_1.kernel', 0.001, 0.1), ('hidden_2.kernel', 0.0005, 0.2), ('readout.kernel', 0.001, 0.1)]
    """
    if isinstance(optimizer, str):
        check_options("explain", optimizer, options)
    net = net.roles if isinstance(net, Rescaled) else net
    if isinstance(net, nn.Module):
        check_definition("explain", net)
    net = dataclasses.replace(net, tied=True) if tied and isinstance(net, Roles) else net
    if options.get("consistent_rms") is not None or _root_of_the_larger_side(optimizer):
        raise ValueError(CONSISTENT_RMS)
    shapes, stds, multipliers = _inferred(net) if isinstance(net, Roles) else _defined(net, x)
    table = _by_name(factors(net, shapes, None if isinstance(net, Roles) else _input(net, x)))
    warnings = _warnings(net, optimizer, table, shapes, weight_decay, x)
    name = optimizer if isinstance(optimizer, str) else "your optimiser"
    linear, has_epsilon = _nature(optimizer)
    rows = []
    for path, leaf in _by_name(shapes).items():
        factor = table[path]
        by_adam = name in OF_MATRICES and not factor.matrix  # with a decay of its own
        by_norm = name in OF_MATRICES and factor.matrix
        rate = factor.rate if linear else factor.spectral if by_norm else factor.step
        decay = options.get("adam_weight_decay", 0.0) if by_adam else weight_decay
        role = f"{factor.role}, inside" if factor.inner and factor.role == "readout" else factor.role
        rows.append(
            Row(
                path, tuple(leaf.shape), role, stds[path], multipliers[path], learning_rate * rate,
                eps * factor.size if has_epsilon or by_adam else None, decay / rate,
            )
        )  # fmt: skip
    found = Explanation(name, tuple(rows), tuple(warnings))
    if show:
        Console(width=max(Console().width, 120)).print(found)
    return found


def _nature(optimizer: Any) -> tuple[bool, bool]:
    """Whether its updates grow with the gradient, as SGD's do; whether it has an ε, as what divides by the gradient's size."""
    if not isinstance(optimizer, str):
        linear = _is_linear(optimizer)
        return linear, not linear
    make = named("explain", optimizer)
    linear = optimizer not in OF_MATRICES and _is_linear(make(learning_rate=1.0))
    return linear, "eps" in inspect.signature(make).parameters


def _is_linear(optimizer: optax.GradientTransformation) -> bool:
    w = jnp.ones((4, 4))

    def moved(size: float) -> Any:
        # In three steps, since a schedule may start at 0; the gradient's norm is one that is seldom clipped.
        total: Any = 0.0
        state = optimizer.init(w)
        for _ in range(3):
            update, state = optimizer.update(size * 0.1 * w, state, w)
            total = total + update
        return total

    try:
        still, once, twice = map(moved, (0.0, 1.0, 2.0))
    except (TypeError, ValueError):
        return False  # it asks for more than gradients
    return bool(jnp.any(once != still) and jnp.allclose(twice - still, 2 * (once - still), rtol=1e-3, atol=0))


def _by_name(tree: Any) -> dict[str, Any]:
    return by_name(tree, is_leaf=lambda leaf: isinstance(leaf, (Factors, Where)))


def _inferred(roles: Roles) -> tuple[Any, dict[str, str], dict[str, float]]:
    shapes = {name: jax.ShapeDtypeStruct(place.shape, "float32") for name, place in roles.places.items()}
    stds = {name: f"× {roles.init_factor(place):.4g}" for name, place in roles.places.items()}
    return shapes, stds, dict.fromkeys(shapes, 1.0)


def _defined(net: nn.Module, x: Any) -> tuple[Any, dict[str, str], dict[str, float]]:
    x = _input(net, x)
    where = _by_name(placed(net, x))
    shapes = jax.eval_shape(net.init, jax.random.key(0), x)["params"]
    stds = {name: f"{float(each.std):.4g}" for name, each in where.items()}
    return shapes, stds, {name: float(each.multiplier) for name, each in where.items()}


def _input(net: Any, x: Any) -> Any:
    """x, or the shape of some input that the definition takes."""
    if x is not None:
        x = checks.input_like("explain: x", x)
        return jax.ShapeDtypeStruct(x.shape, x.dtype if jnp.issubdtype(x.dtype, jnp.integer) else "float32")
    if hasattr(net, "example"):
        return net.example
    for shape in ((1, 32, 32, 3), (1, 8)):
        try:
            jax.eval_shape(net.init, jax.random.key(0), jax.ShapeDtypeStruct(shape, "float32"))
        except (ValueError, TypeError):
            continue
        return jax.ShapeDtypeStruct(shape, "float32")
    raise ValueError(f"explain: pass an input of {name_of(net)} as x.")


def _warnings(net: Any, optimizer: Any, table: Any, shapes: Any, weight_decay: float, x: Any) -> list[str]:
    found = []
    if optimizer == "adam" and weight_decay:
        found.append(_ADAM_DECAY)
    if not isinstance(optimizer, str):
        state = jax.eval_shape(optimizer.init, shapes)
        found += misuses(optimizer, state, table)
        under = _under_muon(state)
        found += [_MUON_READOUT.format(name=n, role=table[n].role) for n in under if not table[n].matrix]
    if isinstance(net, Roles):
        return found + _of_roles(net)
    asleep = held_at_zero(net, _input(net, x)) if isinstance(net, PlainNetwork) else {}
    found += [each.said(name) for name, each in asleep.items()]
    if inside := [name for name in too_large(net, _input(net, x)) if name not in asleep]:
        found.append(_INSIDE.format(names=", ".join(inside)))
    if isinstance(net, PlainNetwork):
        known = starts(net, _input(net, x))
        if unused := [name for name, start in known.items() if start.unused]:
            found.append(_UNUSED.format(names=", ".join(unused)))
        return found + _of_heads({name: start.place for name, start in known.items()}, _PLAIN_HEADS)
    if definition_of(net).logits == "1/sqrt(d)" and net.heads != "grow":
        how = 'Use logits="1/d", or heads="grow" with heads of one size.'
        found.append(_HEADS.format(name=type(net).__name__, more="", how=how))
    return found


def _of_heads(places: dict[str, Place], how: str) -> list[str]:
    heads = [name for name in places if _is_attention(name, places)]
    more = f" (so do {len(heads) - 1} more)" if len(heads) > 1 else ""
    return [_HEADS.format(name=heads[0], more=more, how=how)] if heads else []


def _of_roles(roles: Roles) -> list[str]:
    places = roles.places
    found = _of_heads(places, "Multiply by √(d_head at the base) to keep the base as it is.")
    for name, place in places.items():
        if place.branch_output and place.init[1] != 0 and roles.alpha > 0:
            found.append(_TWICE.format(name=name, power=place.init[1], alpha=roles.alpha))
        vector = place.role == "bias" or (place.role == "constant" and len(place.shape) - place.stacked == 1)
        outside = vector and place.in_block and not place.branch_output and not roles.in_code
        if outside and any(places[other].branch_output for other in places if _layer(other) == _layer(name)):
            found.append(_BIAS_OUTSIDE.format(name=name))
    return found


def _is_attention(name: str, places: dict[str, Place]) -> bool:
    """Whether it makes queries or keys with a d_head that grows: [width, …, heads, d_head], named so or one of several."""

    def heads(place: Place) -> bool:
        if place.role != "hidden":
            return False
        inputs, outputs = place.matrix
        return len(inputs) == 1 and len(outputs) > 1 and [i for i in outputs if i in place.grows] == [outputs[-1]]

    if not heads(places[name]):
        return False
    parent = _layer(_layer(name))
    beside = [each for each in places if _layer(_layer(each)) == parent and each != name and heads(places[each])]
    return bool(_ATTENTION.search(name.lower())) or any(places[each].shape == places[name].shape for each in beside)


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _under_muon(state: Any) -> list[str]:
    """Names of the parameters whose momentum Muon keeps."""
    return [name for part in muon_states(state) for name in _by_name(part.mu)]


def _root_of_the_larger_side(optimizer: Any) -> bool:
    """Whether it is a Muon whose updates of a wide and of a tall matrix have one norm, √max(fan_in, fan_out)."""
    if isinstance(optimizer, str):
        return False
    norms = []
    for shape in ((4, 64), (64, 4)):
        w = jax.random.normal(jax.random.key(0), shape)
        state = optimizer.init(w)
        if not muon_states(state):
            return False
        norms.append(float(jnp.linalg.norm(jax.jit(optimizer.update)(w, state, w)[0], 2)))
    return norms[0] > 0 and 0.5 < norms[0] / norms[1] < 2
