"""Neurons of one layer that meet others of it: as parts under several names, as copies that are summed, and in another order."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from zoo import in_parameterization

X: Any = np.random.default_rng(0).normal(size=(3, 5))
VALUES = nn.initializers.variance_scaling(1.0, "fan_in", "normal")


def two(h: Any) -> Any:
    return h.reshape(len(h), 2, -1)


def shuffled(h: Any) -> Any:
    """Channels of two groups, taken in turn."""
    return two(h).swapaxes(1, 2).reshape(h.shape)


def back(h: Any) -> Any:
    return h.reshape(len(h), -1, 2).swapaxes(1, 2).reshape(h.shape)


def halves(h: Any) -> Any:
    return jnp.split(h, 2, -1)


# Of the signals h of a layer, and g of another one; then one neuron, of signals p, q, r, s of neurons of h and t of g, of which
# there is one kind or, side by side, two.
CASES: dict[str, tuple[Any, list[Any]]] = {
    "copies that are summed, and a part": (
        lambda h, g: nn.relu(two(h).sum(1)) * halves(h)[0],
        [lambda p, q, r, s, t: nn.relu(p + q) * p],
    ),
    "copies of two kinds that are summed": (
        lambda h, g: nn.relu(two(h).sum(1)) * h.reshape(len(h), -1, 2).sum(2),
        [lambda p, q, r, s, t: nn.relu(p + q) * (r + s)],
    ),
    "channels shuffled": (lambda h, g: nn.relu(shuffled(h)) * h, [lambda p, q, r, s, t: nn.relu(p) * q]),
    "channels shuffled, added": (
        lambda h, g: nn.relu(h) + nn.relu(-shuffled(h)),
        [lambda p, q, r, s, t: nn.relu(p) + nn.relu(-q)],
    ),
    "shuffled and back": (lambda h, g: nn.relu(back(shuffled(h))) * h, [lambda p, q, r, s, t: nn.relu(p) * p]),
    "a part of a part": (
        lambda h, g: nn.relu(halves(halves(h)[0])[1]) * h[:, h.shape[1] // 4 : h.shape[1] // 2],
        [lambda p, q, r, s, t: nn.relu(p) * p],
    ),
    "put together as it was": (
        lambda h, g: nn.relu(jnp.concatenate(halves(h), 1)) * h,
        [lambda p, q, r, s, t: nn.relu(p) * p],
    ),
    "put together the other way": (
        lambda h, g: nn.relu(jnp.concatenate(halves(h)[::-1], 1)) * h,
        [lambda p, q, r, s, t: nn.relu(p) * q],
    ),
    "a part beside others": (
        lambda h, g: nn.relu(jnp.concatenate([halves(h)[0], halves(g)[0]], 1)) * h,
        [lambda p, q, r, s, t: nn.relu(p) * p, lambda p, q, r, s, t: nn.relu(t) * p],
    ),
}
QUICK = ("copies of two kinds that are summed", "channels shuffled", "put together the other way")


class Orders(nn.Module):
    """Features that a function makes of the signals of two layers."""

    width: int
    features: Any

    @nn.compact
    def __call__(self, x: Any) -> Any:
        h, g = (nn.Dense(4 * self.width, use_bias=False, kernel_init=VALUES)(x) for _ in range(2))
        return nn.Dense(1, use_bias=False, kernel_init=VALUES)(self.features(h, g))


def drawn(kinds: list[Any], samples: int = 1_000_000) -> tuple[Any, Any]:
    """(kernel, tangent kernel), each (mean, standard error): E z z′ and E z z′ + Σ_a E[∂_a z ∂_a z′] K, K = x·x′/5."""
    k = X @ X.T / 5
    signals = jax.random.normal(jax.random.key(0), (5, samples, 3)) @ np.linalg.cholesky(k).T
    second, tangent = [], []
    for kind in kinds:
        z, *slopes = kind(*signals), *jax.grad(lambda s, kind=kind: kind(*s).sum())(signals)
        second.append(z[:, :, None] * z[:, None])
        tangent.append(second[-1] + sum(d[:, :, None] * d[:, None] for d in slopes) * k[None])
    return tuple((np.mean(each, (0, 1)), np.std(each, (0, 1)) / samples**0.5) for each in (second, tangent))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES])
def test_neurons_that_meet_others_of_their_layer(name: str):
    """Standard errors of .1 to .5 %; kernels were up to 45 % off, and said to be exact."""
    features, kinds = CASES[name]
    kernels = twin(in_parameterization(Orders(32, features), "ntk")).kernels(X)
    for found, (mean, error) in zip((kernels.nngp, kernels.ntk), drawn(kinds), strict=True):
        np.testing.assert_array_less(np.abs(found - mean), 4.5 * error)
    assert kernels.provenance["ntk"].kind in ("exact", "approximate")


def test_a_part_of_the_neurons_that_changes_places_has_no_closed_form():
    """Of four groups the two in the middle."""
    middle = lambda h: h.reshape(len(h), 2, 2, -1).swapaxes(1, 2).reshape(h.shape)  # noqa: E731
    net = in_parameterization(Orders(8, lambda h, g: nn.relu(middle(h)) * h), "ntk")
    with pytest.raises(ValueError, match="a part of the neurons changes places"):
        twin(net).kernel_function()(X, X)


def kernels(features: Any, width: int = 8) -> Any:
    return twin(in_parameterization(Orders(width, features), "ntk")).kernels(X)


@pytest.mark.slow
def test_copies_that_change_places_and_meet_no_others_are_copies():
    """Two by two: a half of them stays where it is. The kernel of relu is the closed one."""
    found = kernels(lambda h, g: nn.relu(h).reshape(len(h), 2, 2, -1).swapaxes(1, 2).reshape(h.shape))
    assert found.provenance["nngp"].kind == "exact"
    np.testing.assert_allclose(found.nngp, kernels(lambda h, g: nn.relu(h)).nngp, rtol=1e-12)


def test_one_in_twelve_that_stays_has_no_closed_form_either():
    """Of four by six copies two stay; a neuron that meets itself weighs three times as much."""
    turned = lambda h: h.reshape(len(h), 4, 6, -1).swapaxes(1, 2).reshape(h.shape)  # noqa: E731
    net = in_parameterization(Orders(12, lambda h, g: nn.relu(h) * turned(h)), "ntk")
    with pytest.raises(ValueError, match="a part of the neurons changes places"):
        twin(net).kernel_function()(X, X)


def test_sums_over_neurons_of_copies_in_two_orders_are_of_pairs():
    """Σ_d z_ghd z_ghd, however the copies of the second are ordered: the signal times 1 + its own mean square."""

    def gated(spec: str, turned: bool) -> Any:
        def features(h: Any, g: Any) -> Any:
            z = h.reshape(len(h), 4, 8, -1)
            squares = jnp.einsum(spec, z, z.swapaxes(1, 2) if turned else z) / z.shape[-1]
            return (z * (1 + squares[..., None])).reshape(h.shape)

        return features

    k = X @ X.T / 5
    for spec, turned in (("bhgd,bhgd->bhg", False), ("bhgd,bghd->bhg", True)):
        found = kernels(gated(spec, turned), 32)
        assert found.provenance["nngp"].kind == "exact"
        np.testing.assert_allclose(found.nngp, k * np.outer(1 + np.diag(k), 1 + np.diag(k)), rtol=1e-10)


@pytest.mark.slow
def test_parts_along_the_second_of_two_axes_are_cut_along_it():
    def parts(h: Any, g: Any) -> Any:
        h = h.reshape(len(h), 2, -1)
        half = h.shape[-1] // 2
        return (jnp.concatenate([nn.relu(h[..., :half]), nn.relu(h[..., half:])], -1) * h).reshape(len(h), -1)

    np.testing.assert_allclose(kernels(parts).nngp, kernels(lambda h, g: nn.relu(h) * h).nngp, rtol=1e-4)


@pytest.mark.slow
def test_products_along_copies_are_taken_pair_by_pair():
    """Σ_ci u_ci v_ic / N of copies c and neurons i: of other pairs than Σ_ci u_ci v_ci / N, whose mean is not zero."""

    def gate(spec: str, shape: Any) -> Any:
        return lambda h, g: h * (1 + jnp.einsum(spec, two(h), h.reshape(len(h), *shape))[:, None] / h.shape[1])

    pairs, others = (
        twin(in_parameterization(Orders(32, gate(*how)), "ntk")).kernels(X).nngp
        for how in (("bci,bci->b", (2, -1)), ("bci,bic->b", (-1, 2)))
    )
    k = X @ X.T / 5
    np.testing.assert_allclose(pairs, k * np.outer(1 + np.diag(k), 1 + np.diag(k)), rtol=1e-9)
    np.testing.assert_allclose(others, k, rtol=1e-9)
