"""What neural-tangents' README, examples and cookbook build with `stax`, as modules: a line of code for a line of theirs."""

import flax.linen as nn
import jax.numpy as jnp
from jax.scipy.special import erf

from zoo import Conv, Dense, Norm, parameterization
from zoo import activations as zoo
from zoo.geometry import mean_pool


class Recipe(nn.Module):
    """Layers in the "ntk" parameterization, with standard deviations of their own."""

    width: int
    parameterization: str = "ntk"

    def dense(self, role, w_std=1.0, b_std=0.0):
        features = 1 if role == "readout" else self.width
        return Dense(features, role, self.width, parameterization(self.parameterization), w_std, b_std)

    def conv(self, role, size, w_std=1.0, b_std=0.0, **options):
        p = parameterization(self.parameterization)
        return Conv(self.width, role, self.width, p, w_std, b_std, size=size, **options)

    def norm(self):
        return Norm("layer", self.width, parameterization(self.parameterization), affine=False, epsilon=1e-12)


class ReadmeDense(Recipe):
    """serial(Dense(512), Relu(), Dense(512), Relu(), Dense(1))."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(self.dense("input")(x))
        return self.dense("readout")(nn.relu(self.dense("hidden")(h)))


class ReadmeWideResnet(Recipe):
    """Blocks of FanOut, parallel, FanInSum; strides; AvgPool, Flatten."""

    def block(self, h, strides=1, mismatch=False):
        main = self.conv("hidden", 3, strides=strides)(nn.relu(h))
        main = self.conv("hidden", 3)(nn.relu(main))
        return main + (self.conv("hidden", 3, strides=strides)(h) if mismatch else h)

    @nn.compact
    def __call__(self, x):
        h = self.block(self.conv("input", 3)(x))
        h = mean_pool(self.block(h, strides=2, mismatch=True), 4)
        return self.dense("readout")(h.reshape(len(x), -1))


class InfiniteFcn(Recipe):
    """serial(Dense(1, 2., 0.05), Relu(), Dense(1, 2., 0.05))."""

    @nn.compact
    def __call__(self, x):
        return self.dense("readout", 2.0, 0.05)(nn.relu(self.dense("input", 2.0, 0.05)(x)))


class Elementwise(Recipe):
    """Elementwise(fn, nngp_fn): no closed form is asked for here."""

    @nn.compact
    def __call__(self, x):
        return self.dense("readout")(jnp.exp(self.dense("input", 0.7)(x) / 2))


class ElementwiseNumerical(Recipe):
    """ElementwiseNumerical(sigmoid, deg=60)."""

    @nn.compact
    def __call__(self, x):
        return self.dense("readout")(nn.sigmoid(self.dense("input", 0.8, 0.1)(x)))


class Imdb(Recipe):
    """A convolution over words, Relu, GlobalSumPool."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(self.conv("input", 3, padding="VALID", dimensions=1)(x))
        return self.dense("readout")(h.sum(1))


class Masked(Recipe):
    """mask_constant: what follows the end of a sequence does not count."""

    @nn.compact
    def __call__(self, x):
        here = (x[..., :1] != 100.0).astype(x.dtype)
        h = here * nn.relu(self.dense("input", 1.2, 0.3)(x))
        return self.dense("readout")(erf(self.dense("hidden")(h.sum(1) / here.sum(1))))


class Myrtle(Recipe):
    """Conv, Relu, AvgPool, …, GlobalAvgPool."""

    @nn.compact
    def __call__(self, x):
        h = mean_pool(nn.relu(self.conv("input", 3, 2**0.5)(x)), 2)
        h = mean_pool(nn.relu(self.conv("hidden", 3, 2**0.5)(h)), 2)
        h = nn.relu(self.conv("hidden", 3, 2**0.5)(h))
        return self.dense("readout", 2**0.5)(h.mean((1, 2)))


class Cookbook(Recipe):
    """serial(Dense(2048, 1.5, 0.05), Erf(), Dense(2048, 1.5, 0.05), Erf(), Dense(1, 1.5, 0.05))."""

    @nn.compact
    def __call__(self, x):
        h = erf(self.dense("input", 1.5, 0.05)(x))
        return self.dense("readout", 1.5, 0.05)(erf(self.dense("hidden", 1.5, 0.05)(h)))


class PhaseDiagram(Recipe):
    """Thirty layers of Erf."""

    @nn.compact
    def __call__(self, x):
        h = erf(self.dense("input", 1.7, 0.3)(x))
        for _ in range(29):
            h = erf(self.dense("hidden", 1.7, 0.3)(h))
        return self.dense("readout", 1.7, 0.3)(h)


class Concatenated(Recipe):
    """FanOut, parallel, FanInConcat."""

    @nn.compact
    def __call__(self, x):
        h, g = nn.relu(self.dense("input")(x)), erf(self.dense("input")(x))
        return self.dense("readout")(jnp.concatenate([h, g], -1))


class ProductOfBranches(Recipe):
    """FanOut, parallel, FanInProd."""

    @nn.compact
    def __call__(self, x):
        h = self.dense("hidden")(erf(self.dense("input", 1.3)(x)))
        return self.dense("readout")(h * self.dense("input", 0.9)(x))


class LayerNorm(Recipe):
    """LayerNorm() before activations."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(self.norm()(self.dense("input", 1.3, 0.2)(x)))
        return self.dense("readout")(zoo.gelu(self.norm()(self.dense("hidden", 1.1, 0.1)(h))))


class LayersThatDiffer(Recipe):
    """LeakyRelu(0.1), Abs(), Sin(), with standard deviations of their own."""

    @nn.compact
    def __call__(self, x):
        h = nn.leaky_relu(self.dense("input", 1.3, 0.2)(x), 0.1)
        h = jnp.abs(self.dense("hidden", 0.7)(h))
        return self.dense("readout")(jnp.sin(self.dense("hidden", 1.0, 0.5)(h)))


class Dropped(Recipe):
    """Dropout(0.7, mode="train") behind Relu, Dropout(0.9, mode="train") behind Erf: theirs is the share that is kept."""

    @nn.compact
    def __call__(self, x):
        h = nn.Dropout(0.3, deterministic=False)(nn.relu(self.dense("input", 1.3, 0.2)(x)))
        h = nn.Dropout(0.1, deterministic=False)(erf(self.dense("hidden", 1.1, 0.1)(h)))
        return self.dense("readout")(h)


class Polynomial(Recipe):
    """Polynomial([0.3, 1, 0.2])."""

    @nn.compact
    def __call__(self, x):
        h = self.dense("input", 0.6)(x)
        return self.dense("readout")(0.3 + h + 0.2 * h**2)


class Gaussian(Recipe):
    """Rbf(0.7), which is √2 sin(√1.4 x + π/4)."""

    @nn.compact
    def __call__(self, x):
        return self.dense("readout")(2**0.5 * jnp.sin(1.4**0.5 * self.dense("input", 0.8)(x) + jnp.pi / 4))


class Circular(Recipe):
    """Conv(…, "CIRCULAR") with strides, in one dimension; Flatten."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(self.conv("input", 3, 1.2, 0.1, strides=2, padding="CIRCULAR", dimensions=1)(x))
        h = erf(self.conv("hidden", 2, dimensions=1)(h))
        return self.dense("readout")(h.reshape(len(x), -1))


class Volumes(Recipe):
    """Conv(64, (2, 2, 2)), GlobalAvgPool."""

    @nn.compact
    def __call__(self, x):
        return self.dense("readout")(nn.relu(self.conv("input", 2, 1.4, dimensions=3)(x)).mean((1, 2, 3)))


class Graph(Recipe):
    """Aggregate: a weighted sum over the neighbours of every node, by a graph that each input brings beside its features."""

    features: int = 3

    @nn.compact
    def __call__(self, x):
        x, edges = x[..., : self.features], x[..., self.features :]
        h = jnp.einsum("nji,njc->nic", edges, nn.relu(self.dense("input", 1.2, 0.1)(x)))
        return self.dense("readout")(nn.relu(self.dense("hidden")(h)).mean(1))


# By the name of the recipe: the module, and the kind of its inputs.
RECIPES = {
    "readme_dense": (ReadmeDense, "vectors"),
    "readme_wide_resnet": (ReadmeWideResnet, "images"),
    "infinite_fcn": (InfiniteFcn, "vectors"),
    "elementwise": (Elementwise, "vectors"),
    "elementwise_numerical": (ElementwiseNumerical, "vectors"),
    "imdb": (Imdb, "sequences"),
    "masked": (Masked, "ragged"),
    "myrtle": (Myrtle, "images"),
    "cookbook": (Cookbook, "vectors"),
    "phase_diagram": (PhaseDiagram, "vectors"),
    "concatenated": (Concatenated, "vectors"),
    "product": (ProductOfBranches, "vectors"),
    "layer_norm": (LayerNorm, "vectors"),
    "layers_that_differ": (LayersThatDiffer, "vectors"),
    "dropout": (Dropped, "vectors"),
    "polynomial": (Polynomial, "vectors"),
    "gaussian": (Gaussian, "vectors"),
    "circular": (Circular, "sequences"),
    "volumes": (Volumes, "volumes"),
    "graph": (Graph, "sequences"),
}
