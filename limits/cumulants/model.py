"""The statistical model: a network's own parameters applied to the cumulants of data instead of to samples."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.cumulants.cumulants import Cumulants, Mixture, layers_of, mixture_of
from limits.cumulants.gram_charlier import mean_correction
from limits.cumulants.linear import repeated, through_linear
from limits.cumulants.quadratic import quadratic_moments
from limits.cumulants.quadrature import ORDERS, quadrature_moments, warn_if_coarse
from limits.cumulants.relu import as_piecewise_linear, piecewise_linear_moments
from zoo import MLP, activation_function, checks, parameterization
from zoo.activations import Quadratic


@checks.arguments(
    activation=checks.activation,
    mean=checks.array(least=1),
    covariance=checks.array(least=2),
    orders=checks.count(1, 512),
)
def gaussian_moments(activation: Any, mean: Any, covariance: Any, orders: int = ORDERS) -> tuple[Any, Any]:
    """(mean [N], covariance [N, N]) of φ(z), z ~ N(mean, covariance): closed forms for piecewise linear and quadratic φ,
    Hermite series of `orders` terms for any other (`quadrature_moments`: what it drops, and when it says so). Pure and
    differentiable.

    >>> m, c = gaussian_moments("quadratic", jnp.ones(1), jnp.eye(1))
    >>> m.tolist(), c.tolist()
    ([2.0], [[4.5]])
    """
    n = jnp.shape(mean)[-1]
    if jnp.shape(covariance)[-2:] != (n, n):
        raise ValueError(
            f"gaussian_moments: covariance must be [{n}, {n}] as mean is [{n}]; it is {jnp.shape(covariance)}."
        )
    phi = activation_function(activation)
    if isinstance(phi, Quadratic):
        return quadratic_moments(phi.eps, mean, covariance)
    linear = as_piecewise_linear(phi)
    if linear is not None:
        return piecewise_linear_moments(linear, mean, covariance)
    return quadrature_moments(phi, mean, covariance, orders)


def weights(net: Any, variables: Any) -> list[tuple[Any, Any]]:
    """(W [outputs, inputs], b) of every layer as the network applies them, in any parameterization; the readout last."""
    if not isinstance(net, MLP):
        raise TypeError(f"Cumulants go through fully connected networks (MLP); this is a {type(net).__name__}.")
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


def layer(activation: Any, w: Any, b: Any, data: Cumulants) -> tuple[Cumulants, Cumulants]:
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


def check_mixture(data: Any) -> None:
    """An error where this is no `Mixture`."""
    if not isinstance(data, Mixture):
        raise TypeError(
            f"Cumulants: the data are a Mixture, this is a {type(data).__name__}; of samples: class_cumulants(x, y)."
        )


def _layers(net: Any, variables: Any, data: Cumulants) -> list[tuple[Cumulants, Cumulants]]:
    """(z^(l), y^(l)) of one component for l = 1 … L, and (output, output) at the end."""
    found, y = [], data
    *hidden, (w, b) = weights(net, variables)
    first = [*hidden, (w, b)][0][0]
    if first.shape[1] != np.shape(data.mean)[-1]:
        raise ValueError(
            f"Cumulants: the network has {first.shape[1]} inputs and the data have {np.shape(data.mean)[-1]}; initialise it "
            "with inputs like the data's."
        )
    for w_l, b_l in hidden:
        z, y = layer(net.activation, w_l, b_l, y)
        found.append((z, y))
    f = through_linear(y, w, b)
    return [*found, (f, f)]


@functools.partial(jax.jit, static_argnums=0)
def _all_components(net: Any, variables: Any, cumulants: Cumulants) -> list[tuple[Cumulants, Cumulants]]:
    return jax.vmap(lambda part: _layers(net, variables, part))(cumulants)


@checks.arguments(net=checks.module, data=mixture_of, variables=checks.table)
def output_statistics(net: Any, variables: Any, data: Mixture) -> Mixture:
    """g_stat: mean and covariance of the network's outputs for every component of the data. Pure, jittable, differentiable.

    Linear layers are exact; activations see Gaussian pre-activations (in the first layer with the data's own third and fourth
    cumulants, see `layer`), whose distance to the network's is what `divergence` measures.
    """
    check_mixture(data)
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
    check_mixture(data)
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
