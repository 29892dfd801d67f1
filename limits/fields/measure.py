"""Kernels at one time of a sweep: one pass with all points, whose reveals are thrown away."""

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from limits.fields import plain
from limits.fields.matrix import Matrix
from limits.fields.network import REVEALED, forward, on_points
from limits.fields.responses import coefficients
from limits.fields.taps import LayerUse, Taps, taken_apart
from limits.finite.forward import mixes_inputs, shows_inside
from limits.finite.observables import OBSERVABLES, Inside, gradient_scale, output_basis, take
from limits.finite.tangent import contract, trace
from limits.finite.watched import watched
from limits.inputs import ONE_OUTPUT
from zoo.definition import name_of
from zoo.plain import PlainNetwork
from zoo.starts import readouts

BACKWARD = {name for name, each in OBSERVABLES.items() if each.backward} | {"fields", "responses"}
_NO_FEATURES = (
    "What enters the readout cannot be read: its layer is called inside nn.remat, nn.jit, nn.scan or nn.vmap. "
    "Call it outside of these."
)
_NO_READOUT = (
    "What enters the readout of {name} cannot be read: no product or no layer has weights of that role. Outputs that are means "
    "or sums over neurons have no kernel here; end with a layer of weights, or say by roles which it is. Of rows that are looked "
    "up, (h * w[x]).sum(-1), take entries of the product: jnp.take_along_axis(h @ w.T, x[:, None], 1)."
)
_READOUTS = (
    "What enters the readout of {name} cannot be read, as {names} all have that role. Outputs of several layers have a kernel "
    "each: make a network of each. A layer of few outputs that go on into the network (a gate) makes the network's outputs a "
    "mixture, of which no kernel knows all. `ensemble` takes both, and so does `rich` in the mup parameterization."
)
_NO_RESPONSES = (
    'record="responses" needs matrices that are met in the network itself, not inside nn.scan, nn.remat, nn.jit or nn.vmap: '
    "{layers} are."
)


class Seen(NamedTuple):
    """What a pass shows: outputs, h^l and φ^l where the network returns them, and what enters the readout."""

    f: Any
    h: Any
    phi: Any
    features: Any


def measure(
    net: nn.Module, factors: Any, kernels: tuple[str, ...], variables: Any, x: Any, n_train: int, key: Any
) -> tuple[dict[str, Any], Any]:
    """(f [n, outputs] and, as asked, features, phi, g (tuples by layer) and ntk [n, n]; the matrices after it).

    `factors`: learning rates over η₀, by path. phi and g need a network that returns its intermediates, g and ntk one that
    does not mix inputs. "features" is the kernel of what enters the readout. "fields" adds what the kernels are averages
    of: fields_h, fields_phi [n, …, neurons] and fields_g [outputs, n, …, neurons], tuples by layer; "responses" adds what
    `limits.fields.responses` needs.
    """
    if BACKWARD & set(kernels) and not mixes_inputs(variables):
        return _with_gradients(net, factors, kernels, variables, x, key)

    def run(net: Any, held: Any, x: Any, key: Any, **options: Any) -> Any:
        return _pass(net, held, x, key, Taps(), **options)

    if mixes_inputs(variables):
        seen, after = on_points(net, variables, x, n_train, key, run)
    else:
        seen, after = run(net, variables, x, key)
        after = after.get(REVEALED, {})
    return {"f": seen.f, **take(kernels, _inside(net, x, seen))}, after


def _pass(net: Any, held: Any, x: Any, key: Any, taps: Taps, **options: Any) -> tuple[Seen, Any]:
    if isinstance(net, PlainNetwork):
        f, after, features = plain.forward(net, held, x, key, **options)
        return Seen(f, (), (), features), after
    shows = shows_inside(net)
    with nn.intercept_methods(taps):
        out, after = forward(net, held, x, key, **options, **({"intermediates": True} if shows else {}))
    f, inside = out if shows else (out, {"h": (), "phi": ()})
    return Seen(f, inside["h"], inside["phi"], taps.features), after


def _inside(net: Any, x: Any, seen: Seen, slopes: Any = None, tangent: Any = None) -> Inside:
    def features() -> Any:
        if seen.features is None:
            raise ValueError(_no_features(net, x))
        return seen.features

    return Inside(net, lambda: {"h": seen.h, "phi": seen.phi}, features, slopes, tangent)


def _no_features(net: Any, x: Any) -> str:
    """Why they were not seen."""
    names = readouts(net, x)
    if names and not isinstance(net, PlainNetwork):
        return _NO_FEATURES
    said = _READOUTS if len(names) > 1 else _NO_READOUT
    return said.format(name=name_of(net), names=" and ".join(names))


def _with_gradients(
    net: nn.Module, factors: Any, kernels: tuple[str, ...], variables: Any, x: Any, key: Any
) -> tuple[dict[str, Any], Any]:
    """The same with gradients of the outputs of every input, whichever way a parameter enters them.

    The network is mapped over inputs, so that a shift of a layer's output, and what comes back to it, belongs to one input by
    construction, be the signal there batched or not. Rows of all inputs meet the matrices together, and all backward passes
    share one state, so that they agree on overlaps. What is not made of layers (`limits.fields.taps`) has a copy for every
    input: parameters one to be shifted, matrices a gradient with respect to their trained part.
    """
    revealed, n = variables.get(REVEALED, {}), len(x)
    fixed = {name: value for name, value in variables.items() if name not in ("params", REVEALED)}

    def run(taps: Taps, sample: Any, params: Any, revealed: Any, fields: Any) -> tuple[Seen, Any]:
        held = {**fixed, "params": params, "perturbations": fields} | ({REVEALED: revealed} if revealed else {})
        seen, after = _pass(net, held, sample[None], key, taps)
        return seen, after.get(REVEALED, {})

    params: Any = flax.traverse_util.flatten_dict(variables["params"])
    shown = jax.eval_shape(lambda: run(Taps(), x[0], variables["params"], revealed, {})[0])
    _check_shapes(net, shown)
    uses, elsewhere = taken_apart(
        lambda taps, params, revealed: run(taps, x[0], params, revealed, {})[0].f, variables["params"], revealed
    )
    whole = {path for path in _matrices(revealed) if path[:-1] in elsewhere}
    if "responses" in kernels and whole:
        raise ValueError(_NO_RESPONSES.format(layers=", ".join(sorted(".".join(path) for path in whole))))

    def one(sample: Any, own: Own, revealed: Any) -> Any:
        taps = Taps(own.shifts)
        mine = flax.traverse_util.unflatten_dict(
            {path: leaf + own.params[path] if path in own.params else leaf for path, leaf in params.items()}
        )
        seen, after = run(
            taps, sample, mine, _with_slopes(revealed, dict.fromkeys(_matrices(revealed)) | own.slopes), own.fields
        )
        slopes = {path: matrix.gradient for path, matrix in _matrices(after).items() if path in whole}
        seen = seen._replace(**{name: jax.tree.map(lambda a: a[0], getattr(seen, name)) for name in ("f", "h", "phi")})
        return (seen.f, _with_slopes(after, dict.fromkeys(whole)), slopes), (seen, taps.seen)

    def zeros(a: Any) -> jax.Array:
        return jnp.zeros((n, *a.shape), a.dtype)

    own = Own(
        {i: zeros(use.output) for i, use in enumerate(uses) if use.path not in elsewhere},
        {f"h{l}": zeros(h) for l, h in enumerate(shown.h, start=1)},
        {path: zeros(leaf) for path, leaf in params.items() if path[:-1] in elsewhere},
        {path: zeros(matrix.gradient) for path, matrix in _matrices(revealed).items() if path in whole},
    )
    mapped = jax.vmap(one, in_axes=(0, 0, None), out_axes=((0, None, 0), 0))
    bare = _in_turn(_with_slopes(revealed, dict.fromkeys(_matrices(revealed))), 0)
    passed: Any = jax.vjp(lambda own, revealed: mapped(x, own, revealed), own, bare, has_aux=True)
    (f, after, slopes), pull, (seen, entered) = passed
    backs: list[Own] = []
    for turn, cotangent in enumerate(output_basis(f)):
        back, after = pull((cotangent, _in_turn(after, turn), slopes))
        backs.append(back)
    back = jax.tree.map(lambda *each: jnp.stack(each), *backs)  # [outputs, n, …]
    g = {i: a.reshape(len(backs), n, -1, a.shape[-1]) for i, a in back.shifts.items()}
    a = {i: None if a is None else a.reshape(n, -1, a.shape[-1]) for i, a in entered.items()}
    gradients = [back.fields[name][:, :, 0] for name in own.fields]
    scale = gradient_scale(net)

    def tangent() -> Any:
        return _of_layers(uses, a, g, factors) + _of_copies(back.params | back.slopes, factors)

    found: dict[str, Any] = {"f": seen.f, **take(kernels, _inside(net, x, seen, lambda: gradients, tangent))}
    if "fields" in kernels:
        found |= {"fields_h": seen.h, "fields_phi": seen.phi, "fields_g": tuple(scale * g for g in gradients)}
    after = _in_turn(_with_slopes(after, {path: each.gradient for path, each in _matrices(revealed).items()}), None)
    if "responses" in kernels:
        found |= coefficients(uses, a, g, after, scale)
    return found, after


class Own(NamedTuple):
    """What every input has of its own, all zero: [n, …]."""

    shifts: dict[int, Any]  # of what layers return, by the number of the call
    fields: dict[str, Any]  # of h^l
    params: dict[tuple[str, ...], Any]  # of parameters
    slopes: dict[tuple[str, ...], Any]  # the gradients of matrices, by path


def _check_shapes(net: Any, shown: Seen) -> None:
    """Of one input."""
    if len(shown.f.shape) != 2 or shown.f.shape[0] != 1:
        axis = ONE_OUTPUT if shown.f.shape == (1,) else ""
        raise ValueError(
            f"{name_of(net)} must return [n, outputs]; for one input it returns shape {shown.f.shape}.{axis}"
        )
    for name, parts in (("h", shown.h), ("phi", shown.phi)):
        for part in parts:
            if part.shape[:1] != (1,):
                raise ValueError(
                    f"{name_of(net)} must return intermediates {name} with inputs along the first axis; for one input "
                    f"it returns one of shape {part.shape}."
                )


def _matrices(revealed: Any) -> dict[tuple[str, ...], Matrix]:
    """By path."""
    flat: Any = flax.traverse_util.flatten_dict(revealed)
    return flat


def _with_slopes(revealed: Any, slopes: dict[tuple[str, ...], Any]) -> Any:
    """The matrices, some of them with another gradient."""
    flat: Any = flax.traverse_util.flatten_dict(revealed)
    for path, slope in slopes.items():
        flat[path] = dataclasses.replace(flat[path], gradient=slope)
    return flax.traverse_util.unflatten_dict(flat)


def _in_turn(revealed: Any, turn: int | None) -> Any:
    """The matrices in a backward pass of this number: without one, passes for several outputs would share their draws."""

    def counted(m: Matrix) -> Matrix:
        return dataclasses.replace(m, turn=None if turn is None else jnp.full_like(m.known_in, turn))

    return jax.tree.map(counted, revealed, is_leaf=lambda leaf: isinstance(leaf, Matrix))


class Infinite:
    """A network with revealed matrices, as an observable of the user's sees it: `apply` is that of the module."""

    def __init__(self, net: nn.Module, key: Any) -> None:
        self._net, self._key, self._calls = net, key, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)

    def apply(self, variables: Any, x: Any, **options: Any) -> Any:
        """What the network returns."""
        self._calls += 1
        return forward(self._net, variables, x, jax.random.fold_in(self._key, self._calls), **options)[0]


def observed(user: Any, net: nn.Module, variables: Any, x: Any, key: Any) -> Any:
    """user(net, variables, x), all points having met the matrices, so that their parts agree with one another."""
    _, after = forward(net, variables, x, key)
    return watched(user, Infinite(net, key), variables | {k: v for k, v in after.items() if k == REVEALED}, x)


def _of_layers(uses: list[LayerUse], entered: dict[int, Any], backs: dict[int, Any], factors: Any) -> Any:
    """Σ over parameters of factor · ∂f ∂f', the uses of one layer taken together; a [n, p, d] and g [outputs, n, p, m]."""
    total: Any = 0.0
    for path in dict.fromkeys(uses[i].path for i in backs):
        calls = [i for i in backs if uses[i].path == path]
        g = jnp.concatenate([backs[i] for i in calls], axis=2)
        for name, multiplier in uses[calls[0]].multipliers.items():
            strength = jnp.asarray(factors[(*path, name)] * multiplier**2, g.dtype)
            if name in ("kernel", "scale"):
                a = jnp.concatenate([entered[i] for i in calls], axis=1)
            if name == "kernel":
                total = total + strength * contract(a, g, a, g, "mean")
                continue
            # A gain sees what it multiplies, a bias sums over positions, an embedding has one entry a position.
            j = g * a[None] if name == "scale" else g
            sums = sum(backs[i].reshape(*g.shape[:2], -1) for i in calls) if name == "embedding" else j.sum(2)
            total = total + strength * trace(sums, sums, "mean")
    return total


def at(table: dict[tuple[str, ...], Any], path: tuple[str, ...]) -> Any:
    """What holds for the parameter of this path, or for that of which it is one of several matrices side by side."""
    return table[path] if path in table else table[path[:-1]]


def _of_copies(gradients: dict[tuple[str, ...], Any], factors: Any) -> Any:
    """The same from gradients [outputs, n, …] of whole parameters and matrices, by path."""
    total: Any = 0.0
    for path, gradient in gradients.items():
        j = gradient.reshape(*gradient.shape[:2], -1)
        total = total + jnp.asarray(at(factors, path), j.dtype) * trace(j, j, "mean")
    return total
