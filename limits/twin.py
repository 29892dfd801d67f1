"""From a definition to its limit: a registry by the definition's type."""

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

import flax.linen as nn
import numpy as np

from limits.combination import minus, over, plus, power, times
from limits.feature_learning import rich
from limits.initial import Initial
from limits.inputs import as_fed, check_outputs
from limits.kernel_function import kernel_function
from limits.lazy import lazy
from limits.posterior.infer import posterior
from limits.training import check_roles
from limits.types import AbsentError, Kernels, Provenance, Task
from zoo import Parameterization, checks
from zoo import parameterization as by_name
from zoo.definition import Network, check_alike, check_definition, definition_of, is_layered, name_of
from zoo.hyperparameters import with_hyperparameters
from zoo.plain import at_depth

if TYPE_CHECKING:
    from limits.kernel_twin import KernelTwin
    from limits.resnet import HeResNetTwin
    from limits.sampled_twin import SampledTwin
    from zoo import HeResNet

NTK_GROWS = (
    "the tangent kernel of the {name} parameterization grows as N^{power:g} with the width: it has no limit. "
    'Use parameterization="ntk" or "mup".'
)
NTK_OF_BASE = (
    "with multipliers folded into the initialisation (forward=0, or a base width) layers of different fan-in learn at "
    "different speeds, and the tangent kernel has no closed form here. Use the form without a base, Parameterization.ntk or "
    "Parameterization.mup, whose twin has one; rich and ensembles work with either."
)
T = TypeVar("T", bound="type[Twin]")
_TWINS: dict[type, "type[Twin]"] = {}


@dataclasses.dataclass(frozen=True)
class Twin:
    """The limit of a definition as its width goes to infinity. Subclasses compute; `twin(net)` finds the right one."""

    net: Any
    depth: float | None = None
    trained: tuple[str, ...] | None = None  # roles and layers that the tangent kernel is of; None: all

    deepens: ClassVar[bool] = False  # whether definitions of this type have an infinite-depth limit

    @property
    def deep(self) -> bool:
        """Whether this is the joint limit of width and depth."""
        return self.depth is not None and math.isinf(self.depth)

    def kernels(
        self,
        x1: Any,
        x2: Any = None,
        *,
        diagonal: bool = False,
        block: int | None = None,
        dtype: Any = np.float64,
        folder: Any = None,
        samples: int = 256,
        seed: int = 0,
    ) -> Kernels:
        """NNGP and NTK at initialisation, between x1 and x2 (or x1 and itself)."""
        raise AbsentError(f"{type(self).__name__} has no closed kernels.")

    def absent(self, x: Any) -> dict[str, Provenance]:
        """The kernels that this limit has not for inputs like x, with the reason."""
        del x
        return {}

    def check_width(self, x: Any) -> None:
        """Raises where the network does not scale with the width as its parameterization says; definitions of zoo do."""

    def mixture(self, x: Any) -> str:
        """Why networks differ from one another however wide; "" where they do not, as zoo's, or where that is not known."""
        del x
        return ""

    def check_inside(self, x: Any) -> None:
        """Raises where features move along weights of few signals inside, and have no limit."""

    def check_training(self, x: Any) -> None:
        """Raises where training has no limit though the network at its start has one; definitions of zoo train."""

    def check_start(self, caller: str, x: Any, centred: bool = False) -> None:
        """Raises where outputs before training are no centred Gaussian process, or (centred) no sum of readouts; zoo's are."""

    def check_depth(self, x: Any) -> None:
        """Raises where there is no limit of infinite depth; definitions of zoo are refused by `twin`."""

    def of_trained(self, trained: tuple[str, ...]) -> "Twin":
        """The twin whose tangent kernel is that of the parameters of these roles and layers."""
        if self.deep:
            check_roles(trained)
        return dataclasses.replace(self, trained=trained)

    def initial(self, x: Any) -> Initial:
        """What this limit says of these inputs before training, each computed once, when it is first asked for."""
        return Initial(self, x)

    # With their own signatures, which `help` and an editor show; the twin is their first argument.
    kernel_function = kernel_function
    lazy = lazy
    rich = rich
    posterior = posterior
    # Of kernels: sums, multiples, products entry by entry (`limits.combination`).
    __add__ = __radd__ = plus
    __mul__ = __rmul__ = times
    __truediv__ = over
    __pow__ = power
    __sub__ = __rsub__ = __neg__ = minus
    __array_ufunc__: ClassVar[None] = None  # a NumPy number before it is a multiple, not an array of objects

    @property
    def parameterization(self) -> Parameterization:
        """That of the definition."""
        return by_name(self.net.parameterization)

    def fed(self, task: Task) -> Task:
        """The task as its network takes it: whole numbers become numbers, unless they are words."""
        return as_fed(self.net, task)

    def check_outputs(self, owner: str, task: Task) -> None:
        """Raises unless the network has an output for each of the task's targets."""
        check_outputs(owner, self.net, task)

    @property
    def net_read(self) -> Any:
        """The network whose program is read."""
        return self.net

    def with_hyperparameters(self, **values: Any) -> Any:
        """The twin of the definition with other numbers (`kernel_function().hyperparameters` names them)."""
        return dataclasses.replace(self, net=with_hyperparameters(self.net, **values))

    def layers(self, x: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(Φ^l, G^l) at initialisation for every h^l that the definition returns."""
        raise AbsentError(f"{type(self).__name__} has no closed kernels of its layers.")

    def readout(self, features: Any, x: Any = None) -> Any:
        """A kernel Φ of what enters the readout for inputs like x, the limit's or a finite network's, carried through it."""
        raise AbsentError(f"{type(self).__name__} does not say how its readout scales.")

    def dense_stack(self, x: Any, width: float | None = None) -> Any:
        """The layers as the posterior's theory sees them; of fully connected networks only."""
        raise AbsentError(
            f"posterior: the correction at finite width is known for MLP only, not for {name_of(self.net)}. There a "
            "kernel of every layer, the same for all neurons, fixes the law of the next one; with convolutions and attention "
            "the sums run over kernels at pairs of positions or tokens, and with skip connections the fluctuations of "
            "different layers are not independent. Take width=None, or sample networks (train.posterior)."
        )


@checks.arguments(definition=checks.Check("a class of Flax Linen modules", lambda v: issubclass(v, nn.Module)))
def register_twin(definition: type[nn.Module]) -> Callable[[T], T]:
    """Class decorator: the twin of this definition. A registered type serves its subclasses too, unless they have their own."""

    def register(cls: T) -> T:
        _TWINS[definition] = cls
        return cls

    return register


# The last is for modules that are none of zoo's, which types cannot say.
@overload
def twin(  # pyright: ignore[reportOverlappingOverload]
    net: Network, depth: float | None = None
) -> "KernelTwin": ...
@overload
def twin(net: "HeResNet", depth: float | None = None) -> "HeResNetTwin": ...
@overload
def twin(net: nn.Module, depth: float | None = None) -> "SampledTwin": ...
@checks.arguments(net=checks.module, depth=checks.Check("None or inf", lambda v: v >= 0))
def twin(net: nn.Module, depth: float | None = None) -> Twin:
    """The infinite-width limit of a definition, with the same depth and parameterization.

    A module of your own gets a `SampledTwin`: kernels read off its forward code, or Monte-Carlo ones, and training. It is
    built from zoo's layers and has the fields `width` and `parameterization`, or is a plain one, Linen or NNX, in
    `zoo.in_parameterization`. `register_twin` is for twins that you write.

    depth=inf asks for the joint limit of width and depth: residual networks whose branches are scaled by L^(−1/2) have one
    (the definition's own depth plays no part in it), see `limits.depth`.

    >>> from zoo import MLP
    >>> twin(MLP(width=32, depth=2)).kernels([[1.0, 0.0], [0.6, 0.8]]).ntk.shape
    (2, 2)
    """
    for cls in type(net).__mro__:
        if cls in _TWINS:
            found = _TWINS[cls]
            break
    else:
        check_definition("twin", net)
        found = None
    if depth is not None and math.isinf(depth):
        check_alike("The limit of infinite depth", net)
    if found is None or is_layered(net):
        from limits.sampled_twin import SampledTwin

        found = SampledTwin
    if depth is not None and math.isinf(depth) and found.deepens:
        from limits.depth.layer_time import layer_time

        layer_time(net)  # raises where there is no limit
        return found(net, math.inf)
    if depth is not None and math.isinf(depth) and not any(cls in _TWINS for cls in type(net).__mro__):
        at_depth(net, 8)  # raises where no field says the depth
        return found(net, math.inf)
    if depth is not None and math.isinf(depth) and definition_of(net).branches:
        raise AbsentError(
            f"{name_of(net)} has no infinite-depth twin: only {_deepening()} do. Its kernels exist at any finite depth."
        )
    if depth is not None and math.isinf(depth):
        raise AbsentError(
            f"{name_of(net)} has no infinite-depth limit: without residual branches scaled down with depth its kernel "
            "degenerates (every pair of inputs looks alike, or unrelated). Its kernels at any finite depth exist: "
            "set the definition's depth."
        )
    if depth is not None and depth != getattr(net, "depth", None):
        raise ValueError(f"twin: the depth belongs to the definition; use {name_of(net)}(…, depth={depth}).")
    return found(net, depth)


def _deepening() -> str:
    *most, last = sorted(cls.__name__ for cls, found in _TWINS.items() if found.deepens)
    return f"{', '.join(most)} and {last}"
