"""How initialisation, forward pass and learning rate scale with width and depth."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from zoo import checks
from zoo.checks import shown
from zoo.messages import did_you_mean

ROLES = ("input", "hidden", "branch", "readout", "bias", "norm", "embedding")
# Roles whose number of inputs does not grow with the width: a sum over them needs no power of N.
FINITE_FAN_IN = ("input", "bias", "norm", "embedding")


@checks.arguments()
@dataclasses.dataclass(frozen=True)
class Parameterization:
    """The (a, b, c, d) family of width exponents, with the depth exponent α.

    For a layer whose fan-in is N (roles hidden, branch, readout), gradient descent with η₀ reads

        h = N^(-a) W φ,   W ~ N(0, N^(-b)),   f = h_out / γ,   γ = γ₀ N^d,   η = η₀ γ² N^(-c),

    and a layer with finite fan-in D (role input; biases, norms and embeddings have D = 1) uses `a_in`, `b_in` for a, b.
    The finite factor w_std / sqrt(D) (b_std for a bias) multiplies the forward pass to the power `forward`, and the
    initialisation to the power 1 − `forward`. Residual branches are multiplied by L^(-α) (1/2 in `ntk` and `mup`, 0 in
    `standard`); their learning rate gets L^(2α − 1) where α > 1/2, so that an update of all L branches moves the features
    by O(1).

    Features are O(1) at initialisation if 2a + b = 1 and 2 a_in + b_in = 0; predictions move in O(1) time if
    2a + c = 1 and 2 a_in + c = 0; features move by O(1) if d = 1/2, by O(N^(-1/2)) if d = 0. What remains is the
    symmetry a → a + θ, b → b − 2θ, c → c − 2θ (`family`): the same function at every width and every step of SGD.

    Members: `standard` (fan-in initialisation, no multipliers, one learning rate: its tangent kernel grows with N),
    `ntk`, and `mup` (mean field: f = w·φ / (γ₀ N), learning rate η₀ γ₀² N).

    With a base width and depth (`based`), N and L stand for the ratios N / base_width and L / base_depth in all powers: a
    network of the base size is its `standard` self under the plain optimiser, and hyperparameters found there carry over
    to other sizes. Without (None), the powers are of N and L themselves: the form of the theory.

    >>> Parameterization.mup.output_scale(width=100, gamma=2.0)
    20.0
    >>> Parameterization.family(a=0.25, d=0.5).c
    0.5

    Reference: Yang & Hu, Tensor Programs IV; Pehlevan & Bordelon, lecture notes on mean-field limits (section 4.1).
    Divergence: there the first layer's exponents are fixed by the family; here they are fields, so that `standard`
    (a_in = b_in = 0) is a member too.
    """

    a: Any
    b: Any
    c: Any
    d: Any
    a_in: Any
    b_in: Any
    forward: Any = 1.0
    alpha: Any = 0.0
    base_width: float | None = None
    base_depth: float | None = None
    name: str = "custom"

    standard: ClassVar["Parameterization"]
    ntk: ClassVar["Parameterization"]
    mup: ClassVar["Parameterization"]

    @classmethod
    @checks.arguments(a=checks.real, d=checks.real, alpha=checks.real, name=checks.word)
    def family(cls, a: float, d: float, alpha: float = 0.5, name: str | None = None) -> "Parameterization":
        """The member with hidden exponent a of the family that has features, predictions and kernels of O(1)."""
        theta = 0.5 - a
        return cls(a, 2 * theta, 2 * theta, d, -theta, 2 * theta, alpha=alpha, name=name or f"family(a={a}, d={d})")

    def replace(self, **changes: Any) -> "Parameterization":
        """A copy with some exponents changed; it is named "custom" unless the change names it."""
        return dataclasses.replace(self, **{"name": "custom", **changes})

    @checks.arguments(width=checks.real, depth=checks.real)
    def based(self, width: float, depth: float = 1) -> "Parameterization":
        """This parameterization with powers of width and depth relative to a base size, all factors 1 there.

        >>> Parameterization.mup.based(width=64).learning_rate_factor("input", width=256, gamma=1.0)
        4.0
        """
        if not width > 0 < depth:
            raise ValueError(f"Parameterization.based: width and depth must be positive, got {width} and {depth}.")
        return dataclasses.replace(self, forward=0.0, base_width=width, base_depth=depth)

    def width_ratio(self, width: float) -> Any:
        """N, or N / base_width."""
        return width if self.base_width is None else width / self.base_width

    def depth_ratio(self, depth: float) -> Any:
        """L, or L / base_depth."""
        return depth if self.base_depth is None else depth / self.base_depth

    def branch_factor(self, depth: float) -> Any:
        """L^(−α), by which residual branches are multiplied."""
        return self.depth_ratio(depth) ** -self.alpha

    def scales(self, role: str, fan_in: int, width: int, std: Any) -> tuple[Any, Any]:
        """(standard deviation at initialisation, forward multiplier) of one parameter; std is its w_std or b_std."""
        finite, n = role in FINITE_FAN_IN, self.width_ratio(width)
        a, b = (self.a_in, self.b_in) if finite else (self.a, self.b)
        factor = std / (fan_in if finite else fan_in / n) ** 0.5
        return factor ** (1 - self.forward) * n ** (-b / 2), factor**self.forward * n ** (-a)

    def output_scale(self, width: int, gamma: Any) -> Any:
        """γ = γ₀ N^d, by which the output is divided."""
        return gamma * self.width_ratio(width) ** self.d

    def learning_rate_factor(
        self, role: str, width: float, gamma: Any, depth: float = 1, in_branch: bool | None = None
    ) -> Any:
        """γ₀² N^(2d − c), times L^(2α − 1) in a branch with α > 1/2: SGD's learning rate over η₀.

        `in_branch` (default: where the role is "branch"): biases and norms of a branch share its factor.
        """
        inside = role == "branch" if in_branch is None else in_branch
        in_depth = self.depth_ratio(depth) ** self.branch_rate_exponent if inside else 1
        return gamma**2 * self.width_ratio(width) ** (2 * self.d - self.c) * in_depth

    def gradient_size(
        self, role: str, width: float, gamma: Any, depth: float = 1, in_branch: bool | None = None
    ) -> Any:
        """How the entries of a parameter's gradient scale: an optimiser that divides by their size gets it back as a factor.

        N^(−a − d − 1/2) / γ₀ for hidden weights, N^(−a_in − d − 1/2) / γ₀ for finite fan-in, N^(−a − d) / γ₀ for the
        readout, times L^(−α) in a branch.
        """
        inside = role == "branch" if in_branch is None else in_branch
        power = self.d + (0 if role == "readout" else 0.5) + (self.a_in if role in FINITE_FAN_IN else self.a)
        return self.width_ratio(width) ** -power / gamma * (self.branch_factor(depth) if inside else 1)

    @property
    def learning_rates_scale(self) -> Any:
        """Whether learning rates follow the family (2a + c = 1); where not, as in `standard`, optimisers are plain."""
        return abs(2 * self.a + self.c - 1) < 1e-5  # sums of decimals are 1 to rounding, in float32 too

    def tied_factor(self, width: float) -> Any:
        """What a readout that is the embedding's transpose is multiplied by: N^(−1/2) where rules scale, as its entries are
        those of the embedding, else 1."""
        factor, scale = self.width_ratio(width) ** -0.5, self.learning_rates_scale
        return jnp.where(scale, factor, 1.0) if isinstance(scale, jax.Array) else factor if scale else 1.0

    @property
    def branch_rate_exponent(self) -> Any:
        """2α − 1 where α > 1/2, else 0."""
        return (
            jnp.maximum(2 * self.alpha - 1, 0.0) if isinstance(self.alpha, jax.Array) else max(2 * self.alpha - 1, 0.0)
        )

    def tangent_exponent(self, role: str) -> Any:
        """The power of N with which this role's share of γ² N^(-c) ∂f ∂f' grows: 0 = learns, < 0 = freezes."""
        return -2 * self.a_in - self.c if role in FINITE_FAN_IN else 1 - 2 * self.a - self.c


_STATIC = ["base_width", "base_depth", "name"]
_EXPONENTS = [f.name for f in dataclasses.fields(Parameterization) if f.name not in _STATIC]
# A pytree, so that the exponents can be traced: networks that differ only in them share one compilation.
jax.tree_util.register_dataclass(Parameterization, data_fields=_EXPONENTS, meta_fields=_STATIC)

Parameterization.standard = Parameterization(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, forward=0.0, name="standard")
Parameterization.ntk = Parameterization.family(a=0.5, d=0.0, name="ntk")
Parameterization.mup = Parameterization.family(a=0.5, d=0.5, name="mup")
_NAMED = {p.name: p for p in (Parameterization.standard, Parameterization.ntk, Parameterization.mup)}


def parameterization(name: "str | Parameterization") -> Parameterization:
    """The member of that name; a `Parameterization` passes through.

    >>> parameterization("ntk").d
    0.0
    """
    if isinstance(name, Parameterization):
        return name
    if not isinstance(name, str) or name not in _NAMED:
        given = name if isinstance(name, str) else shown(name)
        raise ValueError(f'Unknown parameterization "{given}". {did_you_mean(given, _NAMED)}')
    return _NAMED[name]
