"""What a posterior is, of the limit or of sampled networks: predictions, and the kernels of every layer."""

import dataclasses
from typing import Any

import jax
import numpy as np

from limits.types import Provenance, _KnowsAbsence


@dataclasses.dataclass(frozen=True, repr=False)
class Posterior(_KnowsAbsence):
    """The distribution of networks given y = f + N(0, noise), at P training and M test points (rows in this order).

    f_train [P, outputs], f_test [M, outputs]: the mean; f_train_cov, f_test_cov: covariance between points, the same for every
    output. kernels: C^(0) … C^(L), each [P + M, P + M], averaged over the posterior, C^(l) the covariance of the pre-activations
    after l activations. conjugate: C̃^(0) … C̃^(L), the force of the data on each kernel, likewise. log_evidence: log p(y).
    What does not exist is a `Provenance("absent", reason)` and reading it raises. NAME_sem is a standard error, zero where the
    number is not Monte-Carlo, NaN where its error is not known (the provenance says why).

    >>> one = np.ones((1, 1))
    >>> p = Posterior(one, one, one, one, (one,), (0 * one,), 0.0, noise=0.1)
    >>> p.kernels_sem[0].item(), p.layers
    (0.0, 0)
    """

    f_train: Any
    f_train_cov: Any
    f_test: Any
    f_test_cov: Any
    kernels: Any
    conjugate: Any
    log_evidence: Any
    noise: Any  # a variance, or one a training point
    width: int | None = None  # None: infinite
    provenance: dict[str, Provenance] = dataclasses.field(default_factory=dict)
    errors: dict[str, Any] = dataclasses.field(default_factory=dict)
    diagnostics: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the solver, or of the chains

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("_sem") or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no {name}.")
        name = name.removesuffix("_sem")
        value = getattr(self, name)  # raises where it is absent
        return self.errors.get(name, jax.tree.map(np.zeros_like, value))

    @property
    def layers(self) -> int:
        """L: how many activations there are."""
        return len(self.kernels) - 1

    def __repr__(self) -> str:
        width = "infinite width" if self.width is None else f"width {self.width}"
        noise = (
            f"{self.noise:g}" if np.ndim(self.noise) == 0 else f"from {np.min(self.noise):g} to {np.max(self.noise):g}"
        )
        return f"Posterior({len(self.f_train)} training and {len(self.f_test)} test points, noise {noise}, {width})"
