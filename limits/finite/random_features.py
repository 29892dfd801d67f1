"""Kernels of infinite networks by features of random finite ones, where entries of the kernel cost more than networks do."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.inputs import twin_of
from limits.kept.precision import full_products
from limits.training import Training
from limits.types import AbsentError
from zoo import checks, parameterization
from zoo.abstract import abstract
from zoo.definition import name_of

_AT_ONCE = 256  # inputs
_PROBES = 16  # inputs whose kernel is worked out exactly


@dataclasses.dataclass(frozen=True, eq=False)
class RandomFeatures:
    """K ≈ Φ Φᵀ: `features` Φ [n, m] of the inputs.

    `error`: that of the entries between 16 of the inputs, ‖Φ Φᵀ − K‖ / ‖K‖ (Frobenius) with K worked out exactly. It is of order
    1/√(networks × width), and 1/width for what networks of finite width do on average.
    """

    features: np.ndarray
    error: float
    random: "RandomNetworks"

    def of(self, x: Any) -> np.ndarray:
        """Features of other inputs, from the same networks."""
        return self.random(x)


@dataclasses.dataclass(frozen=True, eq=False)
class RandomNetworks:
    """x ↦ features of `count` networks, each drawn anew from its number: nothing but the seed is kept."""

    limit: Any
    kernel: str
    count: int
    seed: int

    @full_products()
    def __call__(self, x: Any) -> np.ndarray:
        """[n, m] of inputs [n, …]."""
        x = jnp.asarray(x, "float32")
        readout = self.limit._layers()["readout"]
        biases = (readout.b if self.kernel == "nngp" else readout.b_tangent) * float(self.limit.net.b_std > 0)
        found = []
        for key in jax.random.split(jax.random.key(self.seed), self.count):
            rows = range(0, len(x), _AT_ONCE)
            parts = [self._compiled(key, x[np.minimum(np.arange(i, i + _AT_ONCE), len(x) - 1)]) for i in rows]
            found.append(np.concatenate([np.asarray(part, np.float64) for part in parts])[: len(x)])
        features = np.concatenate(found, axis=1) / self.count**0.5
        features = np.concatenate([features, np.full((len(x), 1), biases**0.5)], axis=1) if biases else features
        return features * (self.limit._output_variance**0.5 if self.kernel == "nngp" else 1.0)

    @functools.cached_property
    def _compiled(self) -> Any:
        return jax.jit(self._one)

    def _one(self, key: Any, x: Any) -> Any:
        """√w a / √F of the features a [n, F] that enter the readout; for the NTK, √w ȧ and √w_t a, ȧ along a random direction

        of the parameters, whose squares are the learning rates: ⟨ȧ ȧ′⟩ obeys the recursion of the tangent kernel.
        """
        net, readout = self.limit.net, self.limit._layers()["readout"]
        start, turn = jax.random.split(key)
        params = net.init(start, x[:1])["params"]

        def features(params: Any) -> Any:
            return net.apply({"params": params}, x, intermediates=True)[1]["features"]

        if self.kernel == "nngp":
            a = features(params)
            return readout.w**0.5 * a / a.shape[-1] ** 0.5
        net = net.clone(gamma=1.0)  # γ² in learning rates and 1/γ in the output cancel
        rates = Training("mse", trained=self.limit.trained).factors(net, abstract(x.shape, x.dtype))
        leaves, tree = jax.tree.flatten(params)
        keys = jax.tree.unflatten(tree, list(jax.random.split(turn, len(leaves))))
        ways = jax.tree.map(lambda p, rate, k: rate**0.5 * jax.random.normal(k, p.shape, p.dtype), params, rates, keys)
        a, moved = jax.jvp(features, (params,), (ways,))
        both = jnp.concatenate([readout.w**0.5 * moved, readout.w_tangent**0.5 * a], axis=-1)
        return both / a.shape[-1] ** 0.5


@checks.arguments(
    limit=twin_of,
    networks=checks.count(),
    kernel=checks.choice("nngp", "ntk"),
    x=checks.array(least=1),
    seed=checks.seed,
)
def random_features(limit: Any, x: Any, networks: int, *, kernel: str = "nngp", seed: int = 0) -> RandomFeatures:
    """Features Φ of inputs [n, …] from `networks` finite networks of the width in the definition, with Φ Φᵀ ≈ K.

    limit: `twin(net)` of an MLP, CNN, ResNet or ViT. The cost is that of so many forward passes (with a derivative, for the NTK)
    for each input, whereas an entry of a kernel of averaged convolutions is a sum over pairs of pixels. Where entries are cheap,
    landmarks (`predict.nystrom`) come nearer with as many features. For ridge regression: `predict.feature_ridge`.

    >>> from limits import twin
    >>> from zoo import MLP
    >>> found = random_features(twin(MLP(width=256, depth=2)), np.random.default_rng(0).normal(size=(20, 3)), 8)
    >>> found.features.shape, found.error < 0.1
    ((20, 2048), True)

    Reference: Rahimi & Recht (2007), Random features for large-scale kernel machines; Novak et al. (2019), Bayesian deep
    convolutional networks with many channels are Gaussian processes (their Monte Carlo estimate).
    """
    net = limit.net
    if not hasattr(limit, "_layers") or limit.deep:
        raise AbsentError(
            f"random_features: {name_of(net)} has no readout known in closed form, or infinite depth: take an MLP, CNN, ResNet "
            "or ViT of finite depth whose layers are alike; `predict.nystrom` takes any kernel."
        )
    if kernel == "ntk" and float(parameterization(net.parameterization).d):
        raise AbsentError(
            f"random_features: in the {parameterization(net.parameterization).name} parameterization learning rates grow with "
            'the width and derivatives along random directions do not stay finite; take parameterization="ntk".'
        )
    x = np.asarray(x)
    random = RandomNetworks(limit, kernel, networks, seed)
    features = random(x)
    at = np.unique(np.linspace(0, len(x) - 1, _PROBES).astype(int))
    exact = limit.kernels(x[at])
    if not exact.has(kernel):
        raise AbsentError(f"random_features: {exact.provenance[kernel].detail}")
    exact = getattr(exact, kernel)
    error = float(np.linalg.norm(features[at] @ features[at].T - exact) / np.linalg.norm(exact))
    return RandomFeatures(features, error, random)
