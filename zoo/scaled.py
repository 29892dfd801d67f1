"""Any Optax optimiser with the learning rates, epsilons and decays that a definition's width and depth ask for."""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

import flax.linen as nn
import jax
import optax
from jax.core import Tracer

from zoo import checks
from zoo.definition import check_definition
from zoo.dependences import asks_for_norms, asks_for_weights
from zoo.messages import did_you_mean
from zoo.names import names_of
from zoo.roles import Factors, factors, is_factors, times

# States that Optax reads together with the parameters, by the field that is in their units: gradients that a search along a line
# keeps (`optax.value_and_grad_from_state`), and the point beside the average (`optax.contrib.schedule_free_eval_params`).
_OUTSIDE = {
    optax.ScaleByBacktrackingLinesearchState: "grad",
    optax.ScaleByZoomLinesearchState: "grad",
    optax.contrib.ScheduleFreeState: "z",
}
# L-BFGS asks for inner products of changes of w and of g: those of w / √rate and √rate g, in which SGD steps as by `scaled`.
_OF_PRODUCTS = (lambda factor: factor.rate**0.5, lambda factor: factor.rate**-0.5)


def _momentum(
    learning_rate: Any, momentum: Any = 0.9, nesterov: bool = False, accumulator_dtype: Any = None
) -> optax.GradientTransformation:
    return optax.sgd(learning_rate, momentum, nesterov, accumulator_dtype)


OPTIMIZERS: dict[str, Callable] = {
    "sgd": optax.sgd,
    "momentum": _momentum,
    "adam": optax.adam,
    "adamw": optax.adamw,
    "lion": optax.lion,
}
_MUON_NOT_WRAPPED = (
    "scaled: this optimiser is Muon, whose updates of matrices scale otherwise than those of the rest. Say "
    'scaled("muon", net, learning_rate=…): it applies Muon to the matrices whose both sides grow and Adam to the others.'
)
_LAYERS = (
    "scaled: whether {name} of shape {shape} is {first} layers, whose updates Muon makes orthogonal each for itself, or one "
    "matrix (with a window, or heads), does not follow from its shape. Tell infer_roles: give init a depth and say it in base "
    'and target, or a forward pass as apply=…, or say layers="{name}" (layers="$^" if it is one matrix).'
)
_NORMS = (
    "scaled: this optimiser compares the norm of all gradients with a number (as clip_by_global_norm does) or with the loss (as "
    "polyak_sgd and momo do), and inside `scaled` gradients have entries of O(1) at every width, so that their norm grows with "
    "the width and the more is cut off the wider the network is: training slows down and has no limit. Put clipping before, with "
    "a threshold that goes with the width as the norm of raw gradients does, and take Adam or SGD in place of the others. In mup "
    "that of zoo's definitions falls as N^(-1/2): "
    "optax.chain(optax.clip_by_global_norm(c * (N_ref / N) ** 0.5), scaled(…)), c the threshold at width N_ref; that of modules "
    "of in_parameterization keeps its size: optax.clip_by_global_norm(c)."
)
_LOW_RANK = (
    "scaled: GaLore takes gradients to a basis of fixed rank, in which their entries grow with the width and Adam's steps do "
    "not: a matrix moves less the wider the network is, and the learning rate does not transfer. Take Adam or Muon."
)
_LARGEST = (
    "scaled: SM3 divides by the largest gradients of a row and of a column, which grow with the width (of Gaussian ones as "
    "√(2 log N)): a matrix moves less the wider the network is, though slowly, and there is no limit. Take Adam, or Adafactor "
    "with multiply_by_parameter_scale=False."
)
_WEIGHTS = (
    "scaled: the steps of this optimiser depend on the size of the weights themselves, as those of LAMB, LARS, Adafactor, "
    "Fromage and of adaptive clipping do: weights 4 times as large it moves {ratio:.3g} times as far by the same gradients. "
    "Inside `scaled` the size of weights goes with the width, so that features move otherwise at every width and the learning "
    "rate does not transfer. Use Adafactor with multiply_by_parameter_scale=False, Adam or AdamW in place of LAMB and Fromage, "
    "SGD with momentum in place of LARS, and clip_by_global_norm before `scaled` in place of adaptive clipping."
)
_OF_ROLES = "muon_weight_dimension_numbers"
_DIMENSIONS = (
    f"{{caller}}: leave out {_OF_ROLES}: which parameters are matrices, and which of their axes are inputs and outputs, follows "
    "from the definition's roles. Of your own module, infer_roles says them: where one is wrong, tell it there."
)
CONSISTENT_RMS = (
    "scaled: Muon with consistent_rms multiplies its updates by √max(fan_in, fan_out), so that features move more the wider "
    "the network is: the learning rate does not transfer. Leave consistent_rms out."
)


@checks.arguments(
    optimizer=checks.word | checks.transformation,
    x=checks.inputs,
    learning_rate=checks.real | checks.function | checks.tree,
)
def scaled(
    optimizer: str | optax.GradientTransformation, net: Any, x: Any = None, **options: Any
) -> optax.GradientTransformation:
    """The optimiser, made to move a network of any width and depth as it moves that of the base size.

        g → g / size,   w → w / step,   then the optimiser,   then Δ → step Δ,   with step = rate × size

    where `rate` is SGD's learning rate over η₀ and `size` how gradients scale (`zoo.factors`). One rule for all of Optax:
    an optimiser linear in g gets the learning rate `rate`; one that divides by the size of g (Adam, Lion) gets `step`,
    with its ε in proportion to g; weight decay inside either acts on w with the product learning rate × decay that was
    given, whatever the size of the network, and so does decay that no learning rate multiplies. A search along a line
    inside sees the loss as one of w / step (of w / √rate, with g √rate, where it is L-BFGS's), and so do others that are given
    the loss or its gradient as functions (obj_fn, grad_fn: Sophia, SAM). At the base size of
    `Parameterization.based`, and in `standard`, all factors are 1 and nothing changes, bit for bit.

    optimizer: an Optax transformation, or a name with its options: sgd, momentum, adam, adamw, lion, muon (Muon for the
    matrices whose both sides grow, Adam for the rest). net: a definition, or `Roles` of any model (`infer_roles`); x, an
    input, for modules whose input shape does not follow from their parameters. It composes: put clipping before it
    (outside it sees gradients as they are, whose norm falls as N^(−1/2) in `mup`, and so must the threshold; that of modules of
    `in_parameterization` keeps its size; inside there is a warning) and schedules after it, or inside. Rules that depend on the
    size of the weights (LAMB, LARS, Adafactor with its scale of parameters, adaptive clipping) are warned of too.

    >>> import optax
    >>> from zoo import MLP, Parameterization
    >>> net = MLP(width=256, depth=2, parameterization=Parameterization.mup.based(width=64))
    >>> clipped = optax.clip_by_global_norm(1.0 * (64 / 256) ** 0.5)  # as 1.0 at the base width
    >>> tx = optax.chain(clipped, scaled(optax.adamw(1e-3, weight_decay=0.1), net))
    >>> tx = scaled("muon", net, learning_rate=0.02)

    Reference: Yang et al. (2022), Tensor Programs V, table 8; Dey et al. (2025), CompleteP, for depth and ε. Divergence:
    there decay in blocks shrinks with depth as their learning rate; here learning rate × decay is the same at every depth.
    """
    if isinstance(net, nn.Module):
        check_definition("scaled", net)
    if isinstance(optimizer, str):
        make = named("scaled", optimizer)
        if "learning_rate" not in options:
            raise TypeError(f'scaled: {optimizer} needs a learning rate: scaled("{optimizer}", net, learning_rate=…).')
        check_options("scaled", optimizer, options)
        if optimizer in OF_MATRICES:
            return _corrected(make(net, x, **options), net, x, spectral=True)
        return _corrected(make(**options), net, x)
    if options:
        raise TypeError(
            f"scaled: {', '.join(options)} belong to an optimiser given by name; give them to the optimiser."
        )
    return _corrected(optimizer, net, x)


def named(caller: str, optimizer: str) -> Callable:
    """What makes the optimiser of this name."""
    known = OPTIMIZERS | OF_MATRICES
    if optimizer not in known:
        raise ValueError(f'{caller}: unknown optimiser "{optimizer}". {did_you_mean(optimizer, known)}')
    return known[optimizer]


def check_options(caller: str, optimizer: str, options: Iterable[str]) -> None:
    """Raises unless the optimiser of this name has arguments of these names, and leaves them to be chosen."""
    make = optax.contrib.muon if optimizer in OF_MATRICES else named(caller, optimizer)
    known = [name for name in inspect.signature(make).parameters if name != _OF_ROLES]
    for option in options:
        if option == _OF_ROLES and optimizer in OF_MATRICES:
            raise TypeError(_DIMENSIONS.format(caller=caller))
        if option not in known:
            raise TypeError(f'{caller}: {optimizer} has no argument "{option}". {did_you_mean(option, known)}')


def _corrected(
    inner: optax.GradientTransformation, net: Any, x: Any, spectral: bool = False
) -> optax.GradientTransformation:
    found: dict[Any, Any] = {}  # by structure and shapes, since a state from a checkpoint has no `init`

    def of(tree: Any) -> Any:
        other = _SIZES.get()
        if other is not None:
            return other(tree)
        key = (jax.tree.structure(tree), tuple(leaf.shape for leaf in jax.tree.leaves(tree)))
        if key not in found:
            found[key] = factors(net, tree, x)
        return found[key]

    def step(factor: Factors) -> Any:
        return factor.spectral if spectral and factor.matrix else factor.step

    def forms(state: Any) -> tuple[Callable[[Factors], Any], Callable[[Factors], Any]]:
        """By what parameters and gradients are divided for an optimiser of this state."""
        return _OF_PRODUCTS if _parts(optax.ScaleByLBFGSState, state) else usual

    usual = step, lambda factor: factor.size

    def scaled_by(value: Callable, tree: Any, table: Any) -> Any:
        def one(leaf: Any, factor: Any) -> Any:
            return leaf if isinstance(leaf, optax.MaskedNode) else times(leaf, value(factor))

        return jax.tree.map(one, tree, table, is_leaf=lambda leaf: isinstance(leaf, optax.MaskedNode))

    def divided(tree: Any, value: Callable, table: Any) -> Any:
        return scaled_by(lambda factor: 1 / value(factor), tree, table)

    def init(params: Any) -> Any:
        table = of(params)
        state = inner.init(divided(params, step, table))
        if forms(state) is not usual:
            state = inner.init(divided(params, forms(state)[0], table))
        if not spectral and muon_states(state):
            raise ValueError(_MUON_NOT_WRAPPED)
        for misuse in misuses(inner, state, table, at_other=_SIZES.get() is not None):
            warnings.warn(misuse, stacklevel=2)
        return turned(state, forms(state)[0], table)

    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> Any:
        table, (step, size) = of(updates), forms(state)
        for name, given in more.items():
            if callable(given):
                more[name] = translated(name, given, step, size, table)
        if jax.tree.structure(more.get("grad")) == jax.tree.structure(updates):
            more["grad"] = scaled_by(step, more["grad"], table)
        updates = divided(updates, size, table)
        params = None if params is None else divided(params, step, table)
        state = turned(state, step, table, inside=True)
        updates, state = optax.with_extra_args_support(inner).update(updates, state, params, **more)
        return scaled_by(step, updates, table), turned(state, step, table)

    def translated(name: str, given: Callable, step: Callable, size: Callable, table: Any) -> Callable:
        """A function of the parameters that the optimiser is given, as one of w / step."""
        if name not in ("value_fn", "obj_fn", "grad_fn"):
            raise TypeError(
                f"scaled: {name} is a function, and the optimiser inside would call it with other parameters than the network's; "
                "what is known of is value_fn, obj_fn (a loss of the parameters) and grad_fn (its gradient)."
            )

        @functools.wraps(given)
        def function(params: Any, *arguments: Any, **more: Any) -> Any:
            found = given(scaled_by(step, params, table), *arguments, **more)
            return divided(found, size, table) if name == "grad_fn" else found

        return function

    def turned(state: Any, step: Callable, table: Any, inside: bool = False) -> Any:
        """With what is read outside (`_OUTSIDE`) in the parameters' units; `inside`: back in those of the optimiser."""

        def one(part: Any) -> Any:
            field = _OUTSIDE.get(type(part), "")
            value = getattr(part, field, None)
            if value is None or (inside and field == "grad"):  # a search is given its gradient anew
                return part
            smaller = inside or field == "grad"
            return part._replace(**{field: scaled_by(lambda f: 1 / step(f) if smaller else step(f), value, table)})

        if not _parts(tuple(_OUTSIDE), state):
            return state
        return jax.tree.map(one, state, is_leaf=lambda part: type(part) in _OUTSIDE)

    return optax.GradientTransformationExtraArgs(init, update)


def misuses(optimizer: optax.GradientTransformation, state: Any, table: Any, at_other: bool = False) -> list[str]:
    """Why an optimiser of this state does not move networks of all widths alike inside `scaled`; none at the base size.

    table: the factors of its parameters. at_other: they are those of another network than it was made for (`at_size`).
    """
    sizes = [factor.size for factor in jax.tree.leaves(table, is_leaf=is_factors)]
    if _parts(optax.ScaleByLBFGSState, state) or all(isinstance(size, Tracer) or size == 1 for size in sizes):
        return []
    found = [_LOW_RANK] if _parts(optax.contrib.GaLoreState, state) else []
    gathered = jax.tree.leaves([part.nu for part in _parts(optax.ScaleBySM3State, state)])
    found += [_LARGEST] if any(len(leaf.shape) > 1 for leaf in gathered) else []
    if asks_for_norms(optimizer.init, optimizer.update):
        found.append(_NORMS)
    if not at_other and (ratio := asks_for_weights(optimizer.init, optimizer.update)) is not None:
        found.append(_WEIGHTS.format(ratio=ratio))
    return found


def muon_states(state: Any) -> list[optax.contrib.MuonState]:
    """All of Muon's states inside a state."""
    return _parts(optax.contrib.MuonState, state)


def _parts(kind: Any, state: Any) -> list[Any]:
    def found(part: Any) -> bool:
        return isinstance(part, kind)

    return [part for part in jax.tree.leaves(state, is_leaf=found) if found(part)]


def _muon(net: Any, x: Any, learning_rate: Any, eps: float = 1e-8, **options: Any) -> optax.GradientTransformation:
    """Optax's Muon, told which parameters are matrices."""
    if options.get("consistent_rms") is not None:
        raise ValueError(CONSISTENT_RMS)

    def dimensions(name: str, leaf: Any, factor: Factors) -> Any:
        if not factor.matrix:
            return None
        if factor.unsure:
            raise ValueError(_LAYERS.format(name=name, shape=tuple(leaf.shape), first=leaf.shape[0]))
        inputs, outputs = factor.sides or (tuple(range(leaf.ndim - 1)), (leaf.ndim - 1,))
        return optax.contrib.MuonDimensionNumbers(inputs, outputs)  # what is neither is matrices side by side

    def of(tree: Any) -> optax.GradientTransformation:
        names, other = jax.tree.unflatten(jax.tree.structure(tree), names_of(tree)), _SIZES.get()
        matrices = jax.tree.map(dimensions, names, tree, factors(net, tree, x) if other is None else other(tree))
        return optax.contrib.muon(learning_rate, eps=eps, muon_weight_dimension_numbers=matrices, **options)

    return optax.GradientTransformation(
        lambda params: of(params).init(params),
        lambda updates, state, params=None: of(updates).update(updates, state, params),
    )


# What says the factors of a tree in place of the definition that an optimiser was scaled for.
_SIZES: ContextVar[Callable[[Any], Any] | None] = ContextVar("sizes", default=None)


def at_size(optimizer: Any, of: Callable[[Any], Any]) -> optax.GradientTransformation:
    """The same optimiser for another definition than it was `scaled` for, or for other forms of its parameters.

    of(tree) → the `Factors` of its leaves; what never went through `scaled` is put through it, what did is not twice.
    """
    optimizer = optax.with_extra_args_support(optimizer)
    asked = dict[str, bool]()  # whether it asks for factors by itself

    def noted(tree: Any) -> Any:
        asked.setdefault("yes", True)
        return of(tree)

    def within(function: Callable) -> Callable:
        def run(*arguments: Any, **more: Any) -> Any:
            token = _SIZES.set(noted)
            try:
                return function(*arguments, **more)
            finally:
                _SIZES.reset(token)

        return run

    def chosen(params: Any) -> optax.GradientTransformationExtraArgs:
        if not asked:
            jax.eval_shape(within(lambda params: optimizer.init(params)), params)
            asked.setdefault("yes", False)
        return optimizer if asked["yes"] else _corrected(optimizer, None, None)  # pyright: ignore[reportReturnType]

    def init(params: Any) -> Any:
        return within(chosen(params).init)(params)

    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> Any:
        rule = chosen(updates)
        return within(rule.update)(updates, state, params, **more)

    return optax.GradientTransformationExtraArgs(init, update)


# Optimisers with a rule of their own for matrices whose both sides grow, and Adam for the rest: from (net, x, learning_rate, …).
OF_MATRICES: dict[str, Callable] = {"muon": _muon}
