"""The twin of a module of one's own: kernels read off its forward code, or drawn where they cannot be read."""

import dataclasses
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from limits.fields.after_readout import MORE, multiple, over_readout
from limits.fields.network import readout_scales
from limits.fields.sweep import check_apart, check_finite
from limits.fields.sweeps import compiled_sweep
from limits.finite.forward import absent_kernels, unrecorded
from limits.inputs import as_block, as_float, as_pair, as_signals
from limits.kept.precision import computing_in, full_products
from limits.kept.remembered import forget_other_code
from limits.mlp import stack_of
from limits.program.closed import check_scale, closed_kernels, deep_program_of, program_of, start_of
from limits.program.read import KERNELS
from limits.program.undefined import check_defined
from limits.program.values import InfiniteKernel, MixedKernel, Refused
from limits.training import Training
from limits.twin import NTK_GROWS, Twin
from limits.types import AbsentError, Kernels, Provenance
from limits.waiting import patient_bar
from zoo import CNN, MLP, ResNet, ViT, checks, parameterization
from zoo.definition import definition_of, is_ours, name_of
from zoo.roles import Where, placed, too_large

_NO_SUM = (
    "{caller}: the outputs of {name} are no sum of readouts, but a function of them, or times numbers that are trained: at the "
    "start they are not Gaussian, and their tangent kernel differs from one network to the next, however wide, and moves in "
    "training. Apply the function outside of the network, or use `rich` in the mup parameterization."
)
_MEAN = (
    "{caller}: the outputs of {name} have a mean at the start that is not zero (a term without drawn weights), which a kernel "
    "does not know. Take it out of the network and of the targets, or, in `lazy`, use centred=True, which subtracts f(0)."
)
_MIXED = "{caller}: the outputs of {name} are no Gaussian process, but a mixture: {why}. kernels(x) is its mean over networks."
_INSIDE = (
    "rich: {names} of {name} make few signals of all neurons, which act on all of them, and start with weights of 1/√width: "
    "along these features move by more the wider the network is, and there is no limit. Start them at zero (kernel_init="
    "nn.initializers.zeros; zero_init=True of zoo's layers) or with a standard deviation of 1/width; and give what they act "
    "through numbers of O(1) where that starts at zero (as in LoRA), since two zeros do not learn."
)
_SCALARS = (
    "lazy: {names} of {name} do not grow with the width, and what a gradient by them adds to the tangent kernel differs from one "
    "network to the next, however wide: kernels(x) has its mean over networks, and no training follows it. Leave them where they "
    "are (`trained` names layers and roles), or use `rich` in the mup parameterization."
)


@dataclasses.dataclass(frozen=True)
class SampledTwin(Twin):
    """Kernels, training in the kernel regime and `rich` of a module with the fields `width` and `parameterization`.

    Kernels are read off the module's forward code (`limits.program`), exactly where averages have a closed form; the
    provenance says what is dropped where not. What cannot be read, and why is said too, is drawn: the forward code runs with
    `samples` neurons and matrices that are revealed where they are met, in law a network of that width at a cost linear in
    it, `replicas` times, with standard errors; O(1/samples) is dropped. Drawn kernels are those of one readout.

    >>> import flax.linen as nn
    >>> from limits import twin
    >>> from zoo import Dense
    >>> class Squares(nn.Module):
    ...     width: int
    ...     parameterization: str = "ntk"
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         p = parameterization(self.parameterization)
    ...         h = Dense(self.width, "input", self.width, p)(x)
    ...         return Dense(1, "readout", self.width, p)(h * h)
    >>> k = twin(Squares(8)).kernels(np.array([[1.0]]))
    >>> k.nngp.round(12).item(), k.provenance["ntk"].kind
    (3.0, 'exact')
    >>> drawn = twin(Squares(8)).kernels(np.array([[1.0]]), samples=4096)
    >>> bool(abs(drawn.nngp - 3).item() < 5 * drawn.nngp_sem.item()), drawn.provenance["ntk"].kind
    (True, 'monte_carlo')
    """

    @checks.arguments(
        diagonal=checks.flag, samples=checks.count(2), replicas=checks.count(2), seed=checks.key, folder=checks.path
    )
    @full_products()
    def kernels(
        self,
        x1: Any,
        x2: Any = None,
        *,
        diagonal: bool = False,
        block: int | None = None,
        samples: int | None = None,
        replicas: int | None = None,
        seed: int = 0,
        dtype: Any = None,
        folder: Any = None,
    ) -> Kernels:
        """NNGP and NTK between x1 and x2 (or x1 and itself), or of each input with itself (`diagonal`).

        Of outputs [n, positions, outputs] they are [n1, n2, positions, positions], or [n, positions, positions].
        `samples` (2048) and `replicas` (8), where one is given, have both drawn rather than read. dtype: float64 for what is
        read, float32 for what is drawn. `block`: rows of a block of what is read; `folder` keeps finished blocks.
        """
        drawn = samples is not None or replicas is not None
        samples, replicas = 2048 if samples is None else samples, 8 if replicas is None else replicas
        kind, block = as_float(np.float64 if dtype is None else dtype), as_block(block)
        first, second = as_pair(x1, x2, diagonal, lambda x, name: as_signals(self.net, x, name, kind))
        forget_other_code(self.net, first)
        absent = self.absent(first)
        values, provenance, errors, reasons = dict[str, Any](absent), dict(absent), dict[str, Any](), dict[str, str]()
        if not drawn or self.deep:
            self.check_width(first)
            both = first, second
            if first.dtype.kind == "f":
                both = first.astype(np.float64), None if second is None else second.astype(np.float64)
            found, how, reasons = closed_kernels(self.net_read, *both, self.trained, diagonal, block, folder, self.deep)
            values |= {name: a.astype(kind, copy=False) for name, a in found.items() if name not in absent}
            provenance |= {name: how for name in found if name not in absent}
            for name, why in reasons.items():
                if isinstance(why, InfiniteKernel):
                    values[name] = provenance[name] = Provenance("absent", why)
        missing = tuple(name for name in KERNELS if name not in values)
        if missing and self.deep:
            why = "; ".join(dict.fromkeys(reasons.values())) or "it is drawn at finite depths only"
            raise AbsentError(f"{name_of(self.net)} has no infinite-depth limit in closed form: {why}.")
        if missing and self._said(first, "masks"):
            why = "; ".join(dict.fromkeys(reasons.values())) or "masks that a forward pass draws are read, not drawn"
            raise AbsentError(f"{name_of(self.net)} has no kernels with dropout: {why}.")
        if drawn and isinstance(why := self._start(first)[1], InfiniteKernel):
            values["ntk"] = provenance["ntk"] = Provenance("absent", why)
            missing = tuple(name for name in missing if name != "ntk")
        if missing:
            dtype = as_float(np.float32 if dtype is None else dtype)
            try:
                if "nngp" in missing and (why := self._no_multiple(first)):
                    values["nngp"] = provenance["nngp"] = Provenance("absent", why)
                    missing = tuple(name for name in missing if name != "nngp")
                sampled = self._drawn(missing, first, second, samples, replicas, seed, dtype)
            except ValueError as error:
                unread = "; ".join(dict.fromkeys(reasons.values()))
                more = f" It was drawn, as there is no closed form: {unread}" if unread else ""
                raise ValueError(f"{error}{more}") from error
            how = f"{replicas} sweeps of {samples} samples; O(1/{samples}) dropped"
            for name, each in sampled.items():
                each = np.moveaxis(np.diagonal(each, axis1=1, axis2=2), -1, 1) if diagonal else each
                values[name], errors[name] = each.mean(0), each.std(0, ddof=1) / replicas**0.5
                why = f"; drawn, as there is no closed form: {reasons[name]}" if name in reasons else ""
                provenance[name] = Provenance.monte_carlo(f"{how}{why}", replicas)
        return Kernels(values["nngp"], values["ntk"], {name: provenance[name] for name in KERNELS}, errors)

    def absent(self, x: Any) -> dict[str, Provenance]:
        """Why there is no tangent kernel, where there is none."""
        p = parameterization(self.net.parameterization)
        power = max(float(p.tangent_exponent(role)) for role in ("input", "hidden"))
        if power > 0:
            return {"ntk": Provenance("absent", NTK_GROWS.format(name=p.name, power=power))}
        return {name: why for name, why in absent_kernels(self.net, x).items() if name == "ntk"}

    def _drawn(
        self, names: tuple[str, ...], first: Any, second: Any, samples: int, replicas: int, seed: int, dtype: Any
    ) -> dict[str, Any]:
        """Kernels of networks at initialisation: [replicas, n1, n2]."""
        n = len(first)
        x = first if second is None else np.concatenate([first, second])
        x = x.astype(dtype) if x.dtype.kind == "f" else x
        kernels = tuple({"nngp": "features"}.get(name, name) for name in names)
        runs = self._looks(x, kernels, samples, replicas, seed, dtype)
        block = (slice(None), slice(None, n), slice(None) if second is None else slice(n, None))
        return {name: np.stack([run[name] for run in runs])[block] for name in names}

    def _looks(
        self, x: Any, kernels: tuple, samples: int, replicas: int, seed: int, dtype: Any
    ) -> list[dict[str, Any]]:
        """What networks at initialisation look like, in float64."""
        self.check_width(x)
        found, net = [], self.net.clone(width=samples)
        with computing_in(dtype), patient_bar(f"networks of {samples} samples", replicas) as advance:
            sweep = compiled_sweep(net, Training("mse", trained=self.trained), x.shape, len(x), str(x.dtype), steps=0)
            behind = "features" in kernels and self._ratios(x) is None
            covariance = over_readout(sweep, net, x) if behind else None
            for r in range(replicas):
                key = jax.random.fold_in(jax.random.key(seed), r)
                state = sweep.begin(jax.random.fold_in(key, 0), x)
                seen = sweep.measure(state, x, jax.random.fold_in(key, 1), kernels)
                seen = jax.tree.map(lambda a: np.asarray(a, np.float64), seen)
                check_defined(self.net, x, seen["f"])
                check_finite(seen["f"], 0, None)
                check_apart(self.net, seen["f"], state.offset)
                if covariance is not None:
                    seen["nngp"] = self._undivided(covariance(state, x, jax.random.fold_in(key, 2)), samples)
                elif "features" in seen:
                    seen["nngp"] = self.readout(seen["features"], x)
                found.append(seen)
                advance()
        return found

    def readout(self, features: Any, x: Any = None) -> Any:
        """A kernel Φ of what enters the readout for inputs like x, carried through it and what the module does then.

        That is (w² Φ + b²)/γ², times the square of the number by which the module multiplies its readout; an `AbsentError` where
        the outputs are more than a multiple of it.
        """
        return self._multiple(x) * self._of_readout(features, x)

    def _of_readout(self, features: Any, x: Any) -> Any:
        shape, kind = np.shape(x), np.asarray(x).dtype
        w, b = readout_scales(self.net, jax.ShapeDtypeStruct(shape, kind if kind.kind in "iu" else np.float32))
        lazy = parameterization(self.net.parameterization).d == 0
        scale = float(definition_of(self.net).gamma) ** -2 if lazy else 1.0
        return scale * (w**2 * features + b**2)

    def _no_multiple(self, x: Any) -> str:
        """Why the NNGP is no covariance over the readout's weights; "" where it is."""
        try:
            self._ratios(x)
        except AbsentError as error:
            return str(error)
        return ""

    def _multiple(self, x: Any) -> float:
        """The square of the number that the readout is multiplied by."""
        found = self._ratios(x)
        if found is None:
            what = "they are multiplied by what differs from input to input, or are sums of it at several positions"
            raise AbsentError(MORE.format(name=name_of(self.net), what=what))
        return found

    def _ratios(self, x: Any) -> float | None:
        """The same; None where there is no one number, as of a mean over positions behind the readout."""
        if type(self) is not SampledTwin or type(self.net) in (CNN, MLP, ResNet, ViT):  # these end with it
            return 1.0
        shape, kind = np.shape(x)[1:], np.asarray(x).dtype.name
        found = multiple(self.net, shape, kind)
        if found is None:
            return 1.0
        k, features = self._undivided(found[0], self.net.width), found[1]
        plain = self._of_readout(features, np.zeros((1, *shape), kind))
        if not np.any(plain) and not np.any(k):  # a readout of zeros: whatever multiplies it, outputs are zero
            return 1.0
        k, plain = np.ravel(k), np.ravel(plain)
        ratio = k[plain != 0] / plain[plain != 0]
        if np.any(k[plain == 0]) or np.ptp(ratio) > 0.01 * ratio.mean():  # where it is used twice nothing is `plain`
            return None
        return 1.0 if abs(ratio.mean() - 1) < 1e-3 else float(ratio.mean())

    def _undivided(self, k: Any, width: int) -> Any:
        """A covariance of outputs without the division by γ N^d, where features learn."""
        p = parameterization(self.net.parameterization)
        return k * (float(p.output_scale(width, definition_of(self.net).gamma)) ** 2 if p.d else 1.0)

    def dense_stack(self, x: Any, width: float | None = None) -> Any:
        """That of an MLP whose layers differ."""
        return stack_of(self.net, x, width) if isinstance(self.net, MLP) else super().dense_stack(x, width)

    def check_width(self, x: Any) -> None:
        """Raises unless the outputs scale with the width as the parameterization says."""
        check_scale(self.net, np.asarray(x))

    def mixture(self, x: Any) -> str:
        """Why networks differ from one another however wide: signals that are few at every width go on into the network."""
        where = jax.tree.leaves(placed(self.net, x), is_leaf=lambda leaf: isinstance(leaf, Where))
        few = sum(each.role == "readout" for each in where) > 1 or any(each.constant and each.std for each in where)
        why = self._start(x)[1] if few and not self.deep else ""
        return why if isinstance(why, MixedKernel) else ""

    def check_training(self, x: Any) -> None:
        """Raises where the network draws other masks at every step."""
        masks = self._said(x, "masks")
        if masks:
            raise AbsentError(
                f"{name_of(self.net)} draws masks in its forward pass ({masks[0]}), others at every step of training, and "
                "that has no limit here. Its kernels and their regression (`posterior`) have one; to train, switch dropout off."
            )

    def check_inside(self, x: Any) -> None:
        """Raises where features move along weights inside, and these signals by √N: there is no limit of feature learning."""
        if names := too_large(self.net, x):
            raise AbsentError(_INSIDE.format(name=name_of(self.net), names=", ".join(names)))

    def check_start(self, caller: str, x: Any, centred: bool = False) -> None:
        """Raises where outputs before training are no centred Gaussian process, or their tangent kernel stays random."""
        law, drawn = self._start(x)
        if isinstance(drawn, InfiniteKernel) and caller == "lazy":
            raise AbsentError(f"lazy: {name_of(self.net)} has no tangent kernel. {drawn}.")
        if isinstance(drawn, MixedKernel):
            raise AbsentError(_MIXED.format(caller=caller, name=name_of(self.net), why=drawn))
        if caller == "posterior" and drawn and (few := self._drawn_scalars(x)):
            why = f"of {', '.join(few)} there are as many at every width, and each network draws others"
            raise AbsentError(_MIXED.format(caller=caller, name=name_of(self.net), why=why))
        if law == "other" or (law == "mean" and not centred):
            raise AbsentError({"other": _NO_SUM, "mean": _MEAN}[law].format(caller=caller, name=name_of(self.net)))
        random = drawn and caller == "lazy" and parameterization(self.net.parameterization).d == 0
        if random and (scalars := self._scalars(x)):
            raise AbsentError(_SCALARS.format(names=", ".join(scalars), name=name_of(self.net)))

    def _start(self, x: Any) -> tuple[str, str]:
        """`ProgramKernels.start`; where the program cannot be read, nothing of the law, and the reason."""
        program, kind = self._program(x), np.asarray(x).dtype
        if isinstance(program, Refused):
            return "", program.reason
        return start_of(program, np.shape(x)[1:], "float64" if kind.kind == "f" else str(kind))

    def _scalars(self, x: Any) -> tuple[str, ...]:
        """The trained parameters that do not grow with the width and stand before the readout."""
        moves: Any = flatten_dict(Training("mse", trained=self.trained).moves(self.net, x))
        where: Any = flatten_dict(placed(self.net, x))
        return tuple(".".join(path) for path, each in where.items() if each.constant and moves[path])

    def _drawn_scalars(self, x: Any) -> tuple[str, ...]:
        """The parameters that are drawn, do not grow with the width and stand before the readout."""
        where: Any = flatten_dict(placed(self.net, x))
        return tuple(".".join(path) for path, each in where.items() if each.constant and each.std)

    def _program(self, x: Any) -> Any:
        return program_of(self.net_read, np.shape(x)[1:], str(np.asarray(x).dtype), None)

    def _said(self, x: Any, what: str) -> tuple:
        """What the program for inputs like x says of itself ("masks", "positions"); nothing where it cannot be read."""
        program = self._program(x)
        return () if isinstance(program, Refused) else getattr(program, what)

    def check_depth(self, x: Any) -> None:
        """Raises where the program of the network has no limit of infinite depth, or its equation in layer time none."""
        x = np.asarray(x) if np.asarray(x).dtype.kind in "iu" else np.asarray(x, np.float64)
        program = deep_program_of(self.net_read, x.shape[1:], str(x.dtype), None)
        if isinstance(program, Refused):
            raise AbsentError(f"{name_of(self.net)} has no infinite-depth limit: {program.reason}.")
        if is_ours(self.net):  # whose blocks `twin` has looked at
            return
        try:  # whether all branches fall as they must is known where they are worked out
            closed_kernels(self.net_read, x[:1], None, diagonal=True, deep=True)
        except FloatingPointError as error:
            raise AbsentError(f"{name_of(self.net)} has no infinite-depth limit: {error}") from error

    def layers(self, x: Any, samples: int = 2048, replicas: int = 8, seed: int = 0) -> Any:
        """(Φ^l, G^l) at initialisation for every h^l that the module returns; none where inputs mix, or of infinite depth."""
        if self.deep or "g" in absent_kernels(self.net, np.asarray(x)):
            return [], []
        x = as_signals(self.net, x, "x", np.float32)
        names = tuple(name for name in ("phi", "g") if name not in unrecorded(self.net, x))
        runs = self._looks(x, names, samples, replicas, seed, np.float32)
        return tuple(
            [np.mean(parts, axis=0) for parts in zip(*(run[name] for run in runs), strict=True)]
            if name in names
            else []
            for name in ("phi", "g")
        )
