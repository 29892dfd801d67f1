"""The statistical model: a network's own parameters applied to the cumulants of data instead of to samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.cumulants.cumulants import Cumulants, Mixture, layers_of, mixture_of, repeated, through_linear
from limits.cumulants.moments import gaussian_moments, mean_correction, quadratic_moments
from limits.cumulants.quadrature import warn_if_coarse
from limits.cumulants.relu import as_piecewise_linear
from limits.depth.phases import Phase, correlation_map, phase
from zoo import MLP, activation_function, checks, parameterization
from zoo.activations import Quadratic
from zoo.definition import check_alike
from zoo.once import jitted


def applied_weights(net: Any, variables: Any) -> list[tuple[Any, Any]]:
    """(W [outputs, inputs], b) of every layer as the network applies them, in any parameterization; the readout last."""
    if not isinstance(net, MLP):
        raise TypeError(f"Cumulants go through fully connected networks (MLP); this is a {type(net).__name__}.")
    check_alike("The theory of cumulants", net)
    if "params" not in variables:
        raise ValueError(
            f'Cumulants: the variables are what net.init returns, {{"params": …}}; these have the keys {sorted(variables)}.'
        )
    p, params, found = parameterization(net.parameterization), variables["params"], []
    names = [f"hidden_{l}" for l in range(1, net.depth + 1)] + ["readout"]
    for l, name in enumerate(names):
        role = "readout" if name == "readout" else "hidden" if l else "input"
        kernel = jnp.asarray(params[name]["kernel"])
        scale = p.scales(role, kernel.shape[0], net.width, net.w_std)[1]
        shift = p.scales("bias", 1, net.width, net.b_std)[1] if "bias" in params[name] else 0.0
        bias = jnp.asarray(params[name].get("bias", jnp.zeros(kernel.shape[1], kernel.dtype)))
        gamma = p.output_scale(net.width, net.gamma) if name == "readout" else 1.0
        found.append((scale / gamma * kernel.T, shift / gamma * bias))
    return found


def through_layer(activation: Any, w: Any, b: Any, data: Cumulants) -> tuple[Cumulants, Cumulants]:
    """(cumulants of z = W y + b, cumulants of φ(z)), both as mean and covariance.

    Where `data` has third and fourth cumulants: exact for quadratic φ; for others their first-order change of the mean
    (`mean_correction`), while the covariance is that of Gaussian z.
    """
    phi, z = activation_function(activation), through_linear(data.upto(2), w, b)
    third, fourth = repeated(data, w)
    if isinstance(phi, Quadratic):
        return z, Cumulants(*quadratic_moments(phi.eps, z.mean, z.covariance, third, fourth))
    mean, covariance = gaussian_moments(phi, z.mean, z.covariance)
    if data.order > 2:
        own = [None if each is None else jnp.diagonal(each) for each in (third, fourth)]
        mean = mean + mean_correction(phi, z.mean, jnp.diagonal(z.covariance), *own)
    return z, Cumulants(mean, covariance)


def _layers(net: Any, variables: Any, data: Cumulants) -> list[tuple[Cumulants, Cumulants]]:
    """(z^(l), y^(l)) of one component for l = 1 … L, and (output, output) at the end."""
    found, y = [], data
    all_layers = applied_weights(net, variables)
    inputs, own = np.shape(data.mean)[-1], all_layers[0][0].shape[1]
    if own != inputs:
        raise ValueError(
            f"Cumulants: the network has {own} inputs and the data have {inputs}; initialise it with inputs like the data's."
        )
    for w, b in all_layers[:-1]:
        z, y = through_layer(net.activation, w, b, y)
        found.append((z, y))
    f = through_linear(y, *all_layers[-1])
    return [*found, (f, f)]


@jitted(static_argnums=0)
def _all_components(net: Any, variables: Any, cumulants: Cumulants) -> list[tuple[Cumulants, Cumulants]]:
    return jax.vmap(lambda part: _layers(net, variables, part))(cumulants)


@checks.arguments(net=checks.module, data=mixture_of, variables=checks.table)
def output_statistics(net: Any, variables: Any, data: Mixture) -> Mixture:
    """g_stat: mean and covariance of the network's outputs for every component of the data. Pure, jittable, differentiable.

    Linear layers are exact; activations see Gaussian pre-activations (in the first layer with the data's own third and fourth
    cumulants, see `through_layer`), whose distance to the network's is what `divergence` measures.
    """
    out = jax.vmap(lambda part: _layers(net, variables, part)[-1][0])(jax.tree.map(jnp.asarray, data.cumulants))
    return Mixture(jnp.asarray(data.probability), jnp.asarray(data.target), out)


@checks.arguments(net=checks.module, data=mixture_of, variables=checks.table)
def statistical_loss(net: Any, variables: Any, data: Mixture) -> jax.Array:
    """The mean squared error of a network as a function of the data's cumulants: Σ_t p(t) (tr Σ_y^t + |μ_y^t − t|²).

    The error is summed over outputs, without ½: twice the "mse" of a `Task`. A pure function of `variables`: differentiate
    it, train with it (`train.cumulants`), and load the parameters into the network that they belong to.

    >>> from limits.cumulants import xor_mixture
    >>> net = MLP(width=4, depth=1, activation="quadratic", parameterization="standard")
    >>> variables = net.init(jax.random.key(0), jnp.ones((1, 2)))
    >>> slopes = jax.jit(jax.grad(lambda v: statistical_loss(net, v, xor_mixture())))(variables)
    >>> slopes["params"]["hidden_1"]["kernel"].shape
    (2, 4)

    Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, eqs. 2.14 and 2.22 to 2.25.
    """
    out = output_statistics(net, variables, data)
    mean, covariance, *_ = out.cumulants
    if mean.shape != out.target.shape:
        raise ValueError(
            f"statistical_loss: the network has {mean.shape[1]} outputs and the data have {out.target.shape[1]} targets; give "
            f"it outputs={out.target.shape[1]}, or the mixture other targets."
        )
    errors = jnp.trace(covariance, axis1=1, axis2=2) + ((mean - out.target) ** 2).sum(1)
    return (out.probability * errors).sum()


@checks.arguments(net=checks.module, data=mixture_of, variables=checks.table)
def propagate(net: Any, variables: Any, data: Mixture) -> list[tuple[Mixture, Mixture]]:
    """(pre-activations, activations) of every hidden layer and then (outputs, outputs), as mixtures in NumPy float64.

    >>> from limits.cumulants import xor_mixture
    >>> net = MLP(width=4, depth=2, activation="quadratic")
    >>> found = propagate(net, net.init(jax.random.key(0), jnp.ones((1, 2))), xor_mixture())
    >>> [z.cumulants.covariance.shape for z, _ in found]
    [(4, 4, 4), (4, 4, 4), (4, 1, 1)]
    """
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (variables, data.cumulants))
        found = jax.tree.map(np.asarray, _all_components(net, *exact))
        phi = activation_function(net.activation)
        if not isinstance(phi, Quadratic) and as_piecewise_linear(phi) is None:
            for z, _ in found[:-1]:
                for mean, covariance in zip(z.mean, z.covariance, strict=True):
                    warn_if_coarse(phi, jnp.asarray(mean), jnp.asarray(covariance))
    return [(data._replace(cumulants=z), data._replace(cumulants=y)) for z, y in found]


@checks.arguments(layers=layers_of, tolerance=checks.number(0))
def indefinite(layers: list[tuple[Mixture, Mixture]], tolerance: float = 1e-10) -> np.ndarray:
    """How many components have an indefinite covariance of activations, for every layer that `propagate` returned.

    Cumulants cut off at the third need not belong to any distribution: then Σ has eigenvalues below −tolerance times the
    largest one. They are reported, not clipped: the exact formulas hold for them too, but a Gaussian with that Σ does not exist.
    """
    lowest = [np.linalg.eigvalsh(y.cumulants.covariance) for _, y in layers]
    return np.array([(values[:, 0] < -tolerance * np.abs(values).max(1)).sum() for values in lowest])


@checks.arguments(layers=layers_of)
def overlaps(layers: list[tuple[Mixture, Mixture]]) -> np.ndarray:
    """O^(l) = Σ_k p_k |μ_y^(l)|²/N for the hidden layers of `propagate`: the overlap <y(x)·y(x')>/N of two independent inputs.

    (Of one component. With several, inputs of the same one.)

    Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, eq. A.67.
    """
    return np.array([np.asarray(y.probability) @ (y.cumulants.mean**2).mean(-1) for _, y in layers[:-1]])


@checks.arguments(activation=checks.activation, start=checks.number(0))
def overlap_phase(activation: Any, w_std: float, b_std: float, start: float = 1.0) -> Phase:
    """Fixed points of signals of wide random networks; `.q` is A_0, and `.depth_scale` is ξ = −1/ln(σ_w² <φ'φ'>).

    >>> from zoo.activations import Quadratic
    >>> found = overlap_phase(Quadratic(0.1), 0.76, 0.76)
    >>> round(found.q, 3), round(found.depth_scale, 2)
    (1.454, 2.03)
    """
    return phase(activation, w_std, b_std, start)


@checks.arguments(activation=checks.activation, depth=checks.count(0, 10**6), start=checks.number(0))
def expected_overlaps(activation: Any, w_std: float, b_std: float, depth: int, start: float = 1.0) -> np.ndarray:
    """O^(l), l = 1 … depth, of infinitely wide random networks, for independent inputs of mean zero and variance A_0 a feature.

        C^(1) = σ_b²,   O^(l) = <φφ'>_{A_0, C^(l)},   C^(l+1) = σ_w² O^(l) + σ_b²

    >>> from zoo.activations import Quadratic
    >>> expected_overlaps(Quadratic(0.1), 0.76, 0.76, depth=2).round(2).tolist()
    [0.61, 0.97]
    """
    phi, q = activation_function(activation), overlap_phase(activation, w_std, b_std, start).q
    if not 0 < q < np.inf:
        raise ValueError(
            f"expected_overlaps: with w_std = {w_std:g} and b_std = {b_std:g} the variance of signals goes to {q:g} in depth, "
            "so that there is no A_0 to start from; take another w_std or b_std."
        )
    ahead, gap, found = correlation_map(phi, w_std, b_std, q), 1 - b_std**2 / q, []
    for _ in range(depth):
        gap = float(np.ravel(ahead(gap)[0])[0])
        found.append((q * (1 - gap) - b_std**2) / w_std**2)
    return np.array(found)
