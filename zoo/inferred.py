"""Roles of a model of your own: what is known of each parameter, and what follows from it."""

import dataclasses
import math
from typing import Any

from rich.table import Table

from zoo.in_forward import NONE, InForward
from zoo.messages import as_text
from zoo.names import map_named
from zoo.parameterization import Parameterization
from zoo.roles import Factors, number, times

TIED = (
    "One matrix cannot have the initialisation and learning rate of both: where your code has logits = h @ {name}.T (or "
    "attend(h)), write logits = h @ {name}.T / {m:g} (width over base width), and say so by tied=True."
)
_SEEMS_TIED = (
    "{name}: no parameter maps features to outputs, so it seems that the embedding {name} is also the readout. "
    f"{TIED} If it is not, say tied=False."
)


class TiedError(ValueError):
    """One matrix is embedding and readout, and nobody said that the code divides by the factor of its width."""


@dataclasses.dataclass(frozen=True)
class Place:
    """What is known of one parameter. `init`: the powers of width and depth its initialisation scales with."""

    role: str  # input, hidden, readout, bias (anything with one long side that is neither matrix nor readout), constant
    shape: tuple[int, ...]
    grows: tuple[int, ...]  # its axes that grow with the width
    stacked: int = 0
    in_block: bool = False
    branch_output: bool = False
    init: tuple[float, float] = (0.0, 0.0)
    sides: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # axes of inputs, of outputs; None: by the shape
    unsure: bool = False  # whether its first axis may be one of layers
    shared: bool = False  # one parameter for all blocks, whose gradient is a sum over them
    inner: bool = False  # of a layer of role readout whose few signals act on all neurons, as a router's or a gate's
    by_hand: InForward = NONE  # numbers in the code that stand for its start, as in h @ W / √N

    @property
    def matrix(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(axes of inputs, axes of outputs) of a hidden matrix; all others are matrices side by side.

        Fixed axes go with their neighbour; between two that grow, where the sides become more alike, or with the outputs.

        >>> Place("hidden", (64, 4, 16), (0, 2)).matrix, Place("hidden", (4, 16, 64), (1, 2)).matrix
        (((0,), (1, 2)), ((0, 1), (2,)))
        """
        if self.sides is not None:
            return self.sides
        axes = range(self.stacked, len(self.shape))
        if len(self.grows) != 2:
            return tuple(axes[:-1]), (axes[-1],)
        first, last = self.grows

        def uneven(cut: int) -> float:
            return abs(math.log(math.prod(self.shape[axes[0] : cut]) / math.prod(self.shape[cut:])))

        cut = first + 1 if uneven(first + 1) <= uneven(last) else last
        return tuple(axes[: cut - self.stacked]), tuple(axes[cut - self.stacked :])


@dataclasses.dataclass(frozen=True)
class Roles:
    """Roles of a model's parameters, and its size over the base size: what `scaled`, `explain` and `rescale` need.

    No multiplier in the forward pass: initialisation, learning rate and ε carry every factor.

        hidden:   std m^(−1/2), rate 1, size 1/m        input, biases, norms: std 1, rate m, size 1/m
        readout:  std 1/m, rate 1/m, size 1             with m = width over base width, all at γ₀ = 1

    In blocks rate × m_L^(2α−1) for α > 1/2 and size × m_L^(−α); what the last layers of the branches hold is multiplied by
    m_L^(−α), which stands for the branch factor (unless the model's own code has it). Of one layer that all blocks share,
    gradients add up: rate / m_L, size × m_L. What does not grow with the width has the factors in depth alone. A layer of role
    readout inside the network (`Place.inner`) has those of a readout, and no γ₀ in its initialisation.
    """

    places: dict[str, Place]
    width: float = 1.0
    depth: float = 1.0
    alpha: float = 0.5
    gamma: Any = 1.0
    in_code: bool = False  # the forward pass multiplies branches by m_L^(−α)
    tied: bool | None = None  # an embedding is also the readout, and the code divides by m; None: not known

    def __rich__(self) -> Table:
        size = f"width × {self.width:g}, depth × {self.depth:g}, α = {self.alpha:g}"
        table = Table(title=f"Roles at {size} of the base")
        for column in ("parameter", "role", "shape", "grows along", "in blocks", "initialisation"):
            table.add_column(column, no_wrap=True)
        for name, place in self.places.items():
            inside = (
                "branch output"
                if place.branch_output
                else "shared"
                if place.shared
                else "yes"
                if place.in_block
                else ""
            )
            role = f"{place.role}, inside" if place.inner else place.role
            along, shape = ", ".join(map(str, place.grows)), "×".join(map(str, place.shape))
            table.add_row(name, role, shape, along, inside, f"× {self.init_factor(place):.4g}")
        return table

    def __str__(self) -> str:
        return as_text(self)

    def factors(self, params: Any) -> Any:
        """The `zoo.Factors` of every parameter: a tree like params."""
        if self.tied is None:
            refuse_what_seems_tied(self.places, self.width)
        return map_named(lambda name, leaf: self._factor(self._place(name, leaf)), params)

    def rescale(self, params: Any) -> Any:
        """Freshly initialised parameters, with the standard deviations that this size needs. At the base size: as they are.

        >>> import numpy as np
        >>> roles = Roles({"readout": Place("readout", (4, 1), (0,), init=(-0.5, 0.0))}, width=4.0)
        >>> roles.rescale({"readout": np.ones((4, 1))})["readout"][0].tolist()
        [0.5]
        """

        return map_named(lambda name, leaf: times(leaf, self.init_factor(self._place(name, leaf))), params)

    def init_factor(self, place: Place) -> Any:
        """By what `rescale` multiplies it: the standard deviation over the base's that is wanted, over what it has."""
        return self._stored(place) / (self.width ** place.init[0] * self.depth ** place.init[1])

    def _stored(self, place: Place) -> Any:
        """The parameter over that of the mean-field form, in which weights are N(0, 1) whatever the width."""
        s = {"hidden": self.width**-0.5, "readout": 1 / (self.gamma * self.width)}.get(place.role, 1.0)
        s = 1 / self.width if place.inner and place.role == "readout" else s
        s /= self.width**place.by_hand.power  # the code multiplies it
        return s * (self.depth**-self.alpha if place.branch_output and not self.in_code else 1.0)

    def _factor(self, place: Place) -> Factors:
        p, s = Parameterization.mup.replace(alpha=self.alpha), self._stored(place)
        fixed = place.role == "constant"  # what no width or γ₀ changes: depth alone
        width, gamma = (1.0 if fixed else self.width), (1.0 if fixed and not place.inner else self.gamma)
        how = (place.role, width, gamma, self.depth, place.in_block)
        of_blocks = self.depth if place.shared else 1.0
        rate, size = p.learning_rate_factor(*how) * s**2 / of_blocks, p.gradient_size(*how) / s * of_blocks
        hidden = place.role == "hidden"
        sides = place.matrix if hidden else None
        return Factors(place.role, number(rate), number(size), hidden, self.width, sides, place.unsure, place.inner)

    def _place(self, name: str, leaf: Any) -> Place:
        inner = name.removeprefix("params.")  # roles of all variables, or of the parameters alone
        name = next((each for each in (name, inner, f"params.{name}") if each in self.places), name)
        if name not in self.places:
            raise ValueError(
                f"No role is known for the parameter {name} of shape {tuple(leaf.shape)}: infer_roles again."
            )
        if tuple(leaf.shape) != self.places[name].shape:
            raise ValueError(
                f"{name} has the shape {tuple(leaf.shape)}, and its role was inferred for {self.places[name].shape}: give "
                "infer_roles the size of this model as target."
            )
        return self.places[name]


def refuse_what_seems_tied(places: dict[str, Place], m: float) -> None:
    """An error where there are embeddings and no readout."""
    embeddings = [name for name, place in places.items() if place.role == "input" and len(place.shape) > 1]
    if embeddings and not any(place.role == "readout" for place in places.values()):
        raise TiedError(_SEEMS_TIED.format(name=embeddings[0], m=m))
