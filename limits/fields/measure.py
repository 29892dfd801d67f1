"""Kernels at one time of a sweep: one pass with all points, whose reveals are thrown away."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from limits.fields.network import REVEALED, forward, on_points
from limits.fields.responses import coefficients
from limits.observables import feature_kernels, gradient_kernels, gradient_scale, output_basis
from limits.passes import mixes_inputs, shows_inside
from limits.tangent import contract, trace
from zoo.layers import HasRoles, Linear, Norm

BACKWARD = {"g", "ntk", "fields", "responses"}  # what takes a backward pass for every output


class Tap(NamedTuple):
    """One use of a layer with parameters: what enters its gradient beside the signal that comes back."""

    path: tuple[str, ...]
    multipliers: dict[str, Any]
    seen: Any  # [n, …, features], or None


class Taps:
    """An interceptor that adds shifts to the outputs of layers with parameters, and notes what enters their gradients."""

    def __init__(self, shifts: list[Any] | None) -> None:
        self.shifts, self.taps, self.shapes, self.normalised, self.features = shifts, [], [], None, None

    def __call__(self, run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        """What flax.linen asks for."""
        module, out = context.module, run(*args, **kwargs)
        if isinstance(module, Norm) and context.method_name == "normalise":
            self.normalised = out
        if context.method_name != "__call__" or not isinstance(module, HasRoles):
            return out
        seen, inputs = None, 1
        if isinstance(module, Linear):
            seen, inputs = module.patches(args[0]), args[0].shape[-1]
            if module.role == "readout":
                self.features = args[0]
        elif isinstance(module, Norm):
            seen = self.normalised
        multipliers = module.multipliers(inputs)
        if not multipliers:
            return out
        self.taps.append(Tap(module.path, multipliers, seen))
        self.shapes.append(jax.ShapeDtypeStruct(out.shape, out.dtype))
        return out if self.shifts is None else out + self.shifts[len(self.taps) - 1]


def measure(
    net: nn.Module, factors: Any, kernels: tuple[str, ...], variables: Any, x: Any, n_train: int, key: Any
) -> tuple[dict[str, Any], Any]:
    """(f [n, outputs], the features' kernel and, as asked, phi, g (tuples by layer) and ntk [n, n]; the matrices after it).

    `factors`: learning rates over η₀, by path. All backward passes share one state, so that they agree on overlaps.
    phi and g need a network that returns its intermediates, g and ntk one that does not mix inputs. "fields" adds what the
    kernels are averages of: fields_h, fields_phi [n, …, neurons] and fields_g [outputs, n, …, neurons], tuples by layer;
    "responses" adds what `limits.fields.responses` needs.
    """
    if mixes_inputs(variables):
        (f, inside), after = on_points(net, variables, x, n_train, key, intermediates=True)
        found = {"f": f, "features": feature_kernels([inside["features"]])[0]}
        return found | ({"phi": feature_kernels(inside["phi"])} if "phi" in kernels else {}), after
    revealed = variables.get(REVEALED, {})
    fixed = {name: value for name, value in variables.items() if name != REVEALED}
    shows = shows_inside(net)

    def run(shifts: list | None, fields: dict, revealed: Any) -> Any:
        taps = Taps(shifts)
        held = {**fixed, "perturbations": fields} | ({REVEALED: revealed} if revealed else {})
        with nn.intercept_methods(taps):
            out, after = forward(net, held, x, key, **({"intermediates": True} if shows else {}))
        f, inside = out if shows else (out, {"h": (), "phi": ()})
        return (f, after.get(REVEALED, {})), inside, taps

    layers: list[tuple[Any, Any]] = []

    def shapes() -> Any:
        _, inside, taps = run(None, {}, revealed)
        layers.extend((tap.path, tap.multipliers) for tap in taps.taps)
        return inside["h"], taps.shapes

    hidden, outputs = jax.eval_shape(shapes)

    def tapped(shifts: list, fields: dict, revealed: Any) -> Any:
        out, inside, taps = run(shifts, fields, revealed)
        return out, (inside["h"], inside["phi"], taps.features, [tap.seen for tap in taps.taps])

    shifts = [jnp.zeros(a.shape, a.dtype) for a in outputs]
    fields = {f"h{l}": jnp.zeros(h.shape, h.dtype) for l, h in enumerate(hidden, start=1)}
    passed: Any = jax.vjp(tapped, shifts, fields, revealed, has_aux=True)
    (f, after), pull, (hs, phis, features, seen) = passed
    found: dict[str, Any] = {"f": f, "features": feature_kernels([features])[0]}
    if "phi" in kernels:
        found["phi"] = feature_kernels(phis)
    if not BACKWARD & set(kernels):
        return found, after
    backs, slopes = [], []
    for cotangent in output_basis(f):
        back, slope, after = pull((cotangent, after))
        backs.append(back)
        slopes.append([slope[name] for name in fields])
    gradients = [jnp.stack(each) for each in zip(*slopes, strict=True)]
    if "g" in kernels:
        found["g"] = gradient_kernels(net, gradients)
    if "fields" in kernels:
        scale = gradient_scale(net)
        found |= {"fields_h": hs, "fields_phi": phis, "fields_g": tuple(scale * g for g in gradients)}
    whole = [jnp.stack(each) for each in zip(*backs, strict=True)]
    if "ntk" in kernels:
        found["ntk"] = _tangent(layers, seen, whole, factors)
    if "responses" in kernels:
        found |= coefficients(layers, seen, whole, after, gradient_scale(net))
    return found, after


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
    return user(Infinite(net, key), variables | {k: v for k, v in after.items() if k == REVEALED}, x)


def _tangent(layers: list, seen: list, backs: list, factors: Any) -> jax.Array:
    """Σ over parameters of factor · ∂f ∂f', the uses of one layer taken together; backs: [outputs, n, …, features]."""
    total: Any = 0.0
    for path in dict.fromkeys(path for path, _ in layers):
        uses = [i for i, (other, _) in enumerate(layers) if other == path]
        flat = [backs[i].reshape(*backs[i].shape[:2], -1, backs[i].shape[-1]) for i in uses]
        g = jnp.concatenate(flat, axis=2)
        for name, multiplier in layers[uses[0]][1].items():
            strength = factors[(*path, name)] * multiplier**2
            if name in ("kernel", "scale"):
                a = jnp.concatenate([seen[i].reshape(len(seen[i]), -1, seen[i].shape[-1]) for i in uses], axis=1)
            if name == "kernel":
                share = contract(a, g, a, g, "mean")
            else:  # a gain sees what it multiplies, a bias sums over positions, an embedding has one entry a position
                j = (
                    (g * a[None] if name == "scale" else g).sum(2)
                    if name != "embedding"
                    else g.reshape(*g.shape[:2], -1)
                )
                share = trace(j, j, "mean")
            total = total + jnp.asarray(strength, g.dtype) * share
    return total
