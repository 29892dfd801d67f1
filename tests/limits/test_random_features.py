"""Features of random finite networks against the kernels of infinite ones."""

import numpy as np
import pytest

from limits import AbsentError, random_features, twin
from zoo import CNN, MLP, ResNet, ViT

NETS = [
    (MLP(128, 2, activation="erf", w_std=1.3, b_std=0.3, gamma=2.0), (3,)),
    pytest.param(CNN(128, 2, w_std=1.4, b_std=0.2, readout="average"), (4, 4, 2), marks=pytest.mark.slow),
    pytest.param(ResNet(128, 3, b_std=0.2), (3,), marks=pytest.mark.slow),
    pytest.param(ViT(128, 1, patch=2, heads="grow", b_std=0.1), (4, 4, 1), marks=pytest.mark.slow),
]


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("kernel", [pytest.param("nngp", marks=pytest.mark.slow), "ntk"])
@pytest.mark.parametrize(("net", "shape"), NETS)
def test_they_come_near_the_kernel(net, shape, kernel):
    """The error that is said is that of all entries here (10 inputs), and goes with the number of networks (as 1/√: 4).

    That of two networks is a normal number's size, which may be small by chance: a mean over three seeds is taken.
    """
    x = draw(10, *shape)
    few = [random_features(twin(net), x, 2, kernel=kernel, seed=seed) for seed in range(3)]
    many = random_features(twin(net), x, 32, kernel=kernel)
    exact = getattr(twin(net).kernels(x), kernel)
    for found in (*few, many):
        off = np.linalg.norm(found.features @ found.features.T - exact) / np.linalg.norm(exact)
        np.testing.assert_allclose(found.error, off, rtol=1e-9)
    # A relu's kernel scales by 1 ± √(5/128) a layer and network: 3 standard errors of two layers, 32 networks. Others: less.
    most = 3 * (2 * 5 / 128 / 32) ** 0.5
    assert many.error < min(most, np.mean([found.error for found in few]))
    np.testing.assert_allclose(many.of(x[3:5]), many.features[3:5], atol=1e-6)
    other = many.of(draw(2, *shape, seed=1)) @ many.features.T
    want = getattr(twin(net).kernels(draw(2, *shape, seed=1), x), kernel)
    assert np.linalg.norm(other - want) < 1.5 * most * np.linalg.norm(want)


def test_what_is_refused():
    x = draw(3, 2)
    with pytest.raises(AbsentError, match='parameterization="ntk"'):
        random_features(twin(MLP(8, 1, parameterization="mup")), x, 2, kernel="ntk")
    with pytest.raises(AbsentError, match="nystrom"):
        random_features(twin(MLP(8, 1, w_std=(1.0, 2.0))), x, 2)
