"""How parameters move in training, the same for finite networks and for their limits."""

import dataclasses
from typing import Any

import jax
import optax

from zoo import learning_rate_factors, roles, scale_gradients
from zoo.parameterization import ROLES


@dataclasses.dataclass(frozen=True)
class Rule:
    """v ← momentum v + factor ∂loss/∂w,   w ← (1 − η₀ weight_decay) w − η₀ v,   for parameters of `trained` roles.

    The factors are the definition's (`zoo.learning_rate_factors`). `centred`: the outputs at the start are subtracted in
    the loss. `trained` names roles (input, hidden, branch, readout, bias, norm, embedding), None all of them; the
    parameters of other roles stay where they are.
    """

    loss: str
    momentum: float = 0.0
    weight_decay: float = 0.0
    centred: bool = False
    trained: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        unknown = [role for role in self.trained or () if role not in ROLES]
        if unknown or self.trained in ((), []) or isinstance(self.trained, str):
            raise ValueError(f"trained must name roles of {', '.join(ROLES)}; got {self.trained}.")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum}.")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay}.")

    def moves(self, net: Any, x: Any) -> Any:
        """Whether each parameter is trained: a tree like the parameters."""
        return jax.tree.map(lambda role: self.trained is None or role in self.trained, roles(net, x))

    def factors(self, net: Any, x: Any) -> Any:
        """Learning rates over η₀, 0 where nothing moves: a tree like the parameters."""
        return jax.tree.map(
            lambda factor, moves: factor if moves else 0.0, learning_rate_factors(net, x), self.moves(net, x)
        )

    def optimiser(self, net: Any, x: Any, learning_rate: Any) -> optax.GradientTransformation:
        """The same for a finite network, by Optax."""
        parts = [scale_gradients(self.factors(net, x))]
        if self.momentum:
            parts.append(optax.trace(self.momentum))
        if self.weight_decay:
            parts.append(optax.add_decayed_weights(self.weight_decay, mask=self.moves(net, x)))
        return optax.chain(*parts, optax.scale_by_learning_rate(learning_rate))
