"""Kernels of limits as kernels of GPJax, so that the whole of that package works with them. Needs `pip install gpjax`."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from gpjax.kernels import AbstractKernel  # pyright: ignore[reportMissingImports]
from gpjax.kernels.computations import DenseKernelComputation  # pyright: ignore[reportMissingImports]
from gpjax.parameters import PositiveReal, val  # pyright: ignore[reportMissingImports]

from limits.kernel_function import KernelFunction
from zoo import checks


class _WholeMatrices(DenseKernelComputation):
    """Kernels of many pairs at once, rather than a pair at a time."""

    def _cross_covariance(self, kernel: Any, x: Any, y: Any) -> Any:
        return kernel.matrix(x, y)


class TwinKernel(AbstractKernel):
    """The NNGP (or NTK) of `twin(net)` as a kernel of GPJax; `gpjax_kernel` makes it."""

    function: KernelFunction = eqx.field(static=True)
    which: str = eqx.field(static=True)
    shape: Any = eqx.field(static=True)
    values: dict[str, Any]

    def __init__(self, function: KernelFunction, which: str, shape: Any, values: dict[str, Any]) -> None:
        super().__init__(compute_engine=_WholeMatrices())
        self.function, self.which, self.shape, self.values = function, which, shape, values

    def matrix(self, x: Any, y: Any) -> Any:
        """Of inputs [n, D] and [m, D]."""
        x, y = (jnp.asarray(self.slice_input(a)).reshape(len(a), *(self.shape or a.shape[1:])) for a in (x, y))
        return getattr(self.function(x, y, **{name: val(each) for name, each in self.values.items()}), self.which)

    def __call__(self, x: Any, y: Any) -> Any:  # noqa: D102
        return self.matrix(x[None], y[None])[0, 0]


@checks.arguments(over=checks.names, which=checks.choice("nngp", "ntk"))
def gpjax_kernel(
    twin: Any, over: tuple[str, ...] = (), which: str = "nngp", shape: Any = None, like: Any = None
) -> TwinKernel:
    """A kernel for `gpjax.gps.Prior`; the hyperparameters `over` are GPJax's to optimise, positive ones.

    shape: of one input, for images and tokens: GPJax has inputs [n, D], which are then [n, *shape].
    """
    function = twin.kernel_function(like)
    unknown = [name for name in over if name not in function.hyperparameters]
    if unknown:
        raise ValueError(
            f"gpjax_kernel: no hyperparameters {', '.join(unknown)}; there are {', '.join(function.hyperparameters)}."
        )
    values = {name: PositiveReal(jnp.asarray(np.asarray(function.hyperparameters[name], float))) for name in over}
    return TwinKernel(function, which, shape, values)
