"""Sums, multiples and products of kernels, with all that follows from kernels: functions, posteriors, training."""

import dataclasses
import functools
import math
import numbers
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from limits.combined_function import CombinedFunction
from limits.initial import Initial
from limits.inputs import check_same_positions
from limits.kernels.kept import Share
from limits.lazy import lazy
from limits.posterior.infer import posterior
from limits.program.read import KERNELS
from limits.types import AbsentError, Kernels, Provenance, Task
from zoo import Parameterization, checks
from zoo.definition import name_of
from zoo.hyperparameters import hyperparameters
from zoo.messages import did_you_mean

_ORDER = ("absent", "monte_carlo", "approximate", "exact")  # of what is said of several
_NO_NETWORK = (
    "a combination of kernels is of no single network: kernels, kernel_function, lazy (gradient descent) and the posterior at "
    "infinite width are what follows from kernels alone. For feature learning, optimisers and finite widths write the "
    "combination as a module, such as a sum of two networks' outputs, and take its twin."
)


@dataclasses.dataclass(frozen=True)
class Term:
    """scale × the entrywise product of the kernels of these twins."""

    scale: float
    twins: tuple[Any, ...]


def _terms(kernel: Any) -> tuple[Term, ...]:
    return kernel.terms if isinstance(kernel, Combination) else (Term(1.0, (kernel,)),)


def _is_kernel(value: Any) -> bool:
    return isinstance(value, Combination) or (hasattr(value, "kernels") and hasattr(value, "kernel_function"))


def _made(terms: list[Term], *given: Any) -> "Combination":
    trained = {each.trained for each in given}
    if len(trained) > 1:
        raise ValueError(f"combination of kernels: all must be of the same trained roles; these are {trained}.")
    return Combination(tuple(terms), trained.pop())


def plus(one: Any, other: Any) -> Any:
    """one + other, of twins and combinations; of 0 too, where `sum` begins."""
    if isinstance(other, numbers.Real) and other == 0:
        return one
    if not _is_kernel(other):
        checks.Check("a kernel: twin(net), or a combination of such", lambda _: False)("kernel + what", other)
    return _made([*_terms(one), *_terms(other)], one, other)


_SCALE = checks.Check("a number above 0, as a multiple of a kernel is", lambda v: np.ndim(v) == 0 and 0 < v < np.inf)


def times(one: Any, other: Any) -> Any:
    """one · other: entry by entry, or a multiple."""
    if _is_kernel(other):
        pairs = [(a, b) for a in _terms(one) for b in _terms(other)]
        return _made([Term(a.scale * b.scale, (*a.twins, *b.twins)) for a, b in pairs], one, other)
    (checks.Check("a kernel", _is_kernel) | _SCALE)("kernel * what", other)
    return _made([Term(term.scale * float(other), term.twins) for term in _terms(one)], one)


def over(one: Any, other: Any) -> Any:
    """one / other, a number."""
    _SCALE("kernel / what", other)
    return times(one, 1 / float(other))


_POWER = checks.Check(
    "a whole number of at least 1, as the power of a kernel is",
    lambda v: isinstance(v, numbers.Integral) and not isinstance(v, bool) and int(v) >= 1,
)


def power(one: Any, count: Any) -> Any:
    """one ** count: the product of so many of it, entry by entry."""
    _POWER("kernel ** what", count)
    return math.prod([one] * int(count))


def minus(one: Any, other: Any = None) -> Any:
    """Refused: −one, one − other, other − one."""
    del one, other
    raise ValueError(
        "kernel - what: kernels have sums, multiples by numbers above 0, and products. A difference of kernels may have negative "
        "eigenvalues, and is then the kernel of no network; of matrices take it from what twin(net).kernels(x) returns."
    )


@dataclasses.dataclass(frozen=True)
class Combination:
    """Σ_t c_t Π_i K_ti of twins: `0.3 * twin(a) + twin(b) * twin(c)`.

    A sum is the limit of f = √c₁ f₁ + √c₂ f₂ of independent networks; a product that of f = M^(−1/2) Σ_m f₁ᵐ f₂ᵐ over many
    outputs m of each,

        K = K₁ K₂,   Θ = Θ₁ K₂ + K₁ Θ₂   (entry by entry).

    Kernels that are drawn have standard errors that are added up, an upper bound: parts may share their draws.
    Hyperparameters of part i carry its number (`w_std_1`), and scale_i that of the term that begins with it.

    >>> from limits import twin
    >>> from zoo import MLP
    >>> both = 0.5 * twin(MLP(8, depth=1)) + twin(MLP(8, depth=1, activation="erf"))
    >>> both.kernels([[1.0, 0.0], [0.6, 0.8]]).provenance["ntk"].kind, both.kernel_function().hyperparameters["scale_1"]
    ('exact', 0.5)
    """

    terms: tuple[Term, ...]
    trained: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        powers = {float(each.parameterization.d) for each in self.twins}
        if len(powers) > 1:
            raise ValueError(
                "combination of kernels: outputs at initialisation are random in some of these parameterizations "
                f"({', '.join(dict.fromkeys(each.parameterization.name for each in self.twins))}) and zero in others: take one."
            )
        if powers != {0.0} and any(len(term.twins) > 1 for term in self.terms):
            raise AbsentError(
                f"product of kernels: in the {self.parameterization.name} parameterization f(0) = 0, so a product of outputs "
                'has no tangent kernel. Take parameterization="ntk".'
            )

    @property
    def net(self) -> Any:
        """There is none: raises."""
        raise AbsentError(_NO_NETWORK)

    def of_trained(self, trained: tuple[str, ...]) -> "Combination":
        """With the tangent kernels of the parameters of these roles and layers."""
        return dataclasses.replace(self, trained=trained)

    @property
    def twins(self) -> tuple[Any, ...]:
        """All parts, in order."""
        return tuple(each for term in self.terms for each in term.twins)

    @property
    def parameterization(self) -> Parameterization:
        """That of the first part, whose output scale is that of all."""
        return self.twins[0].parameterization

    @property
    def deep(self) -> bool:
        """Whether a part is of infinite depth."""
        return any(each.deep for each in self.twins)

    def kernels(
        self,
        x1: Any,
        x2: Any = None,
        *,
        diagonal: bool = False,
        block: int | None = None,
        dtype: Any = None,
        folder: Any = None,
        samples: int | None = None,
        seed: int = 0,
    ) -> Kernels:
        """NNGP and NTK between x1 and x2 (or x1 and itself); `folder` keeps the blocks of each part, in a folder of its own."""
        options: dict[str, Any] = {"seed": seed}  # and what is asked for: not every twin has all of them
        options |= {"diagonal": True} if diagonal else {}
        given = {"block": block, "samples": samples, "dtype": dtype}
        options |= {name: value for name, value in given.items() if value is not None}
        places: list[dict[str, Any]] = [{} for _ in self.twins]
        if folder is not None:
            whole = folder if isinstance(folder, Share) else Path(folder)
            places = [{"folder": whole / f"part_{i + 1}"} for i in range(len(self.twins))]
        found = [each.kernels(x1, x2, **options, **place) for each, place in zip(self._of_roles, places, strict=True)]
        said = {name: self._provenance([each.provenance[name] for each in found]) for name in KERNELS}
        said["ntk"] = said["ntk"] if said["nngp"].kind != "absent" else said["nngp"]
        values: dict[str, Any] = {name: how for name, how in said.items() if how.kind == "absent"}
        errors: dict[str, Any] = {}
        k = [(each.nngp, each.nngp_sem) for each in found if "nngp" not in values]
        theta = [(each.ntk, each.ntk_sem) for each in found if "ntk" not in values]
        if k:
            check_same_positions(self.twins, [v for v, _ in k])
            values["nngp"], errors["nngp"] = self._summed([[_product(part)] for part in self._by_term(k)])
        if k and theta:
            both = zip(self._by_term(k), self._by_term(theta), strict=True)
            values["ntk"], errors["ntk"] = self._summed([_derivatives(*each) for each in both])
        errors = {name: e for name, e in errors.items() if np.any(e)}
        return Kernels(values["nngp"], values["ntk"], said, errors)

    def absent(self, x: Any) -> dict[str, Provenance]:
        """The kernels that a part has not."""
        return {name: why for each in self._of_roles for name, why in each.absent(x).items()}

    def initial(self, x: Any) -> Initial:
        """What this says of these inputs before training."""
        return Initial(self, x)

    def kernel_function(self, like: Any = None) -> CombinedFunction:
        """k(x1, x2, **hyperparameters) → (nngp, ntk) of JAX arrays, as that of a twin."""
        return CombinedFunction(self, like)

    lazy = lazy
    posterior = posterior
    __add__ = __radd__ = plus
    __mul__ = __rmul__ = times
    __truediv__ = over
    __pow__ = power
    __sub__ = __rsub__ = __neg__ = minus
    __array_ufunc__ = None  # a NumPy number before it is a multiple, not an array of objects

    def fed(self, task: Task) -> Task:
        """The task as the networks take it."""
        return min(
            (each.fed(task) for each in self.twins), key=lambda fed: fed.x_train.dtype.kind == "f"
        )  # words stay words

    def check_outputs(self, owner: str, task: Task) -> None:
        """Raises unless every part has an output for each of the task's targets."""
        for each in self.twins:
            each.check_outputs(owner, task)

    def check_training(self, x: Any) -> None:
        """Raises where training of one of the networks has no limit."""
        for each in self.twins:
            each.check_training(x)

    def check_start(self, caller: str, x: Any, centred: bool = False) -> None:
        """Raises where the outputs of one of the networks are no centred Gaussian process."""
        for each in self.twins:
            each.check_start(caller, x, centred)

    def layers(self, x: Any) -> tuple[list[Any], list[Any]]:
        """None: those of different networks are not added up."""
        del x
        return [], []

    def rich(self, *arguments: Any, **options: Any) -> Any:
        """Refused: there is no network whose features could be learnt."""
        raise AbsentError(_NO_NETWORK)

    def dense_stack(self, x: Any, width: float | None = None) -> Any:
        """Refused, as for all but MLPs."""
        raise AbsentError(_NO_NETWORK)

    def with_hyperparameters(self, **values: Any) -> "Combination":
        """The same with other numbers, by the names that `kernel_function` gives them."""
        scales, parts = self._split(values)
        made = iter(each.with_hyperparameters(**own) for each, own in zip(self.twins, parts, strict=True))
        terms = [
            Term(float(scale), tuple(next(made) for _ in term.twins))
            for scale, term in zip(scales, self.terms, strict=True)
        ]
        return Combination(tuple(terms), self.trained)

    @functools.cached_property
    def hyperparameters(self) -> dict[str, Any]:
        """Names and values of the numbers of all parts, and the scales."""
        found = dict(zip(self._scale_names, (term.scale for term in self.terms), strict=True))
        for i, each in enumerate(self.twins):
            found |= {f"{name}_{i + 1}": value for name, value in hyperparameters(each.net).items()}
        return found

    @property
    def _scale_names(self) -> list[str]:
        first = np.cumsum([1, *(len(term.twins) for term in self.terms)])
        return [f"scale_{i}" for i in first[:-1]]

    def _split(self, values: dict[str, Any]) -> tuple[list[Any], list[dict[str, Any]]]:
        """(the scales, the numbers of each part) where some are given."""
        for name in values:
            if name not in self.hyperparameters:
                raise ValueError(
                    f"kernel function: no hyperparameter {name} to vary. {did_you_mean(name, self.hyperparameters)}"
                )
        scales = [values.get(name, term.scale) for name, term in zip(self._scale_names, self.terms, strict=True)]
        own: list[dict[str, Any]] = [{} for _ in self.twins]
        for name, value in values.items():
            if name not in self._scale_names:
                base, _, number = name.rpartition("_")
                own[int(number) - 1][base] = value
            else:
                _SCALE(name, value)
        return scales, own

    @property
    def _of_roles(self) -> tuple[Any, ...]:
        """The parts, with tangent kernels of the roles that are trained."""
        if self.trained is None:
            return self.twins
        return tuple(each.of_trained(self.trained) for each in self.twins)

    def _by_term(self, values: list[Any]) -> list[list[Any]]:
        taken: Iterator[Any] = iter(values)
        return [[next(taken) for _ in term.twins] for term in self.terms]

    def _summed(self, parts: list[list[Any]]) -> tuple[Any, Any]:
        """Σ_t c_t of sums of (value, error)."""
        scaled = [
            (term.scale * v, term.scale * e) for term, each in zip(self.terms, parts, strict=True) for v, e in each
        ]
        return sum(v for v, _ in scaled), sum(e for _, e in scaled)

    def _provenance(self, parts: list[Provenance]) -> Provenance:
        kind: Any = min((part.kind for part in parts), key=_ORDER.index)
        of = [(name_of(each.net), part) for each, part in zip(self.twins, parts, strict=True)]
        if kind == "exact":
            return Provenance(kind, "; ".join(dict.fromkeys(part.detail for part in parts if part.detail)))
        told = [f"{name}: {part.kind}, {part.detail}" for name, part in of if part.kind != "exact"]
        return Provenance(kind, "; ".join(dict.fromkeys(told)))


def _product(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Π K_i of (value, error), errors to first order, added up."""
    value, error = parts[0]
    for other, spread in parts[1:]:
        value, error = value * other, error * abs(other) + abs(value) * spread
    return value, error


def _derivatives(k: list[tuple[Any, Any]], theta: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Θ_i Π_(j≠i) K_j for every i."""
    return [_product([*k[:i], theta[i], *k[i + 1 :]]) for i in range(len(k))]
