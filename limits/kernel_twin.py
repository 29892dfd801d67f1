"""What the kernel twins of all architectures share: from a walk through the network to kernels of many inputs."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from limits import kernels as algebra
from limits.inputs import as_block, as_float, as_pair, as_samples
from limits.kept.identity import numerics
from limits.kept.precision import computing_in, full_products
from limits.kept.remembered import forget_other_code
from limits.kernels.in_range import check_in_range
from limits.kernels.propagation import Walk
from limits.training import names_layers
from limits.twin import NTK_GROWS, NTK_OF_BASE, Twin
from limits.types import Kernels, Provenance
from zoo import Parameterization, activation_function, checks, parameterization

_FIRST_ORDERS = 32  # of a Hermite series, to find out how large signals get: variances are exact whatever the orders


@dataclasses.dataclass(frozen=True)
class KernelTwin(Twin):
    """A twin whose limit at initialisation is Gaussian, layer by layer.

    A subclass says how inputs are prepared (`_prepare`), the state they start in (`_start`), the way through the network
    up to the features that enter the readout (`_walk`), and which numbers of the definition are traced (`_numbers`) and
    hence need no compilation of their own (`_shape`).

    In `ntk` the output is divided by γ, so nngp is the covariance of the readout over γ²; in `mup` it is the kernel of
    the last features times the readout's scale, and f(0) = 0. The tangent kernel is that of the parameterization's
    learning rate: df = −η₀ K ∂loss/∂f.

    `tolerance` is that of the layer-time equations of an infinitely deep network (`limits.depth.layer_time`).
    """

    tolerance: float = 1e-10

    def _prepare(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), -1)

    def _start(self, x1: jax.Array, x2: jax.Array) -> Any:
        return algebra.inputs(x1, x2)

    def _walk(self, state: Any, walk: Walk) -> tuple[Any, Any]:
        """(covariance, tangent kernel) of the features that enter the readout; every subclass has its own."""
        raise NotImplementedError(f"{type(self).__name__} must say the way through its network in _walk.")

    def _numbers(self) -> dict[str, Any]:
        return {}

    def _shallow(self) -> tuple[Any, int]:
        """For infinite depth: (the definition with one block in every run of equal blocks, how many runs there are)."""
        raise NotImplementedError(f"{type(self).__name__} has no infinite depth.")

    def _walker(self, *parts: Any, **options: Any) -> Walk:
        """What walks through the network: layer by layer, or in layer time."""
        if not self.deep:
            return Walk(*parts, **options)
        from limits.depth.layer_time import LayerTime

        return LayerTime(*parts, **options, still=float(parameterization(self.net.parameterization).alpha) > 0.5)

    @property
    def _branch_rate(self) -> float:
        """L^(2α − 1), the learning-rate factor of branches with α > 1/2; in layer time it is part of the time."""
        p = parameterization(self.net.parameterization)
        return 1.0 if self.deep else float(p.depth_ratio(self.net.depth) ** p.branch_rate_exponent)

    def _shape(self) -> Any:
        """The definition without what is traced: twins of equal shape share a compilation."""
        net = self.net.clone(w_std=1.0, b_std=1.0, gamma=1.0, parameterization="ntk", bias_init="normal")
        if not self.deep:
            return net
        still = float(parameterization(self.net.parameterization).alpha) > 0.5
        shallow = dataclasses.replace(self, net=net)._shallow()[0]
        return shallow.clone(parameterization=Parameterization.ntk.replace(alpha=1.0)) if still else shallow

    def _positions(self, x: Any) -> int:
        """How many covariances a pair of inputs has."""
        return 1

    @property
    def _absent(self) -> dict[str, Provenance]:
        """The kernels that do not exist, with the reason."""
        p, bias = parameterization(self.net.parameterization), ("bias",) if self._has_bias else ()
        largest = max(float(p.tangent_exponent(role)) for role in ("input", "hidden", *bias))
        if largest > 0:
            return {"ntk": Provenance("absent", NTK_GROWS.format(name=p.name, power=largest))}
        if algebra.has_infinite_slope(activation_function(self.net.activation)):
            return {"ntk": Provenance("absent", algebra.NO_SLOPE)}
        # Only with multipliers in the forward pass does every layer enter with its own w² and b², whatever its fan-in.
        return {} if float(p.forward) == 1 and p.base_width is None else {"ntk": Provenance("absent", NTK_OF_BASE)}

    def absent(self, x: Any) -> dict[str, Provenance]:
        """The kernels that do not exist, with the reason."""
        del x
        return self._absent

    @property
    def _has_bias(self) -> bool:
        return float(self.net.b_std) > 0

    @property
    def _output_variance(self) -> float:
        """nngp over the covariance of the last pre-activation: 1/γ² where the output stays random, else 1."""
        p = parameterization(self.net.parameterization)
        return 1 / float(self.net.gamma) ** 2 if p.d == 0 else 1.0

    def _tangent_weight(self, role: str) -> float:
        """1 where parameters of this role learn in the limit, 0 where they are frozen."""
        if self.trained is not None and role not in self.trained:
            return 0.0
        return 1.0 if float(parameterization(self.net.parameterization).tangent_exponent(role)) == 0 else 0.0

    def _layers(self) -> dict[str, algebra.Affine]:
        """The constants of a layer of each role; "zero" is a branch's layer that starts at zero."""
        net, p = self.net, parameterization(self.net.parameterization)
        if max(abs(2 * p.a + p.b - 1), abs(2 * p.a_in + p.b_in)) > 1e-9:  # sums of decimals
            raise ValueError(
                f"The {p.name} parameterization has no infinite-width limit: pre-activations are O(1) only if 2a + b = 1 "
                f"and 2 a_in + b_in = 0, here {2 * p.a + p.b:g} and {2 * p.a_in + p.b_in:g}."
            )
        w, b = float(net.w_std) ** 2, float(net.b_std) ** 2
        start = 0.0 if net.bias_init == "zeros" else b
        weight, bias = self._branch_rate, self._tangent_weight("bias") * b
        layers = {
            role: algebra.Affine(w, start, w * self._tangent_weight(role), bias)
            for role in ("input", "hidden", "readout")
        }
        layers["branch"] = algebra.Affine(w, start, weight * w * self._tangent_weight("branch"), weight * bias)
        return layers | {"zero": dataclasses.replace(layers["branch"], w=0.0, b=0.0)}

    def _arguments(self, dtype: Any) -> tuple:
        """Everything that is traced."""
        if self.deep:
            from limits.depth.layer_time import layer_time

            shallow, runs = self._shallow()
            times = np.full(shallow.branches, layer_time(self.net) / runs, dtype)
            return self._layers(), times, self._numbers() | {"tolerance": self._tolerance(dtype)}
        scales = np.broadcast_to(np.asarray(self.net.branch_scale, dtype), (self.net.branches,))
        return self._layers(), scales, self._numbers()

    def _orders(self, inputs: list[np.ndarray]) -> tuple[int, Provenance]:
        """How long a Hermite series must be for the largest signal that these inputs make (0: closed form)."""
        phi, largest = activation_function(self.net.activation), 0.0
        if getattr(phi, "__hash__", None) is None:
            raise ValueError(
                f"The activation {phi!r} cannot be hashed, so it cannot be compiled for: wrap it in a function."
            )
        if algebra.depends_on_size(phi):
            largest = max(
                float(np.max(_own(self._static(_FIRST_ORDERS), algebra.padded(x), *self._arguments(x.dtype), None)[2]))
                for x in inputs
            )
        return algebra.dual_for(phi, largest)

    def _static(self, orders: int) -> tuple:
        return (
            type(self)(self._shape(), self.depth if self.deep else None),
            activation_function(self.net.activation),
            orders,
            self._has_bias,
        )

    def _draws(self, x: np.ndarray, samples: int, seed: int) -> list[Any]:
        """Sample points for averages without closed form; each entry is one independent estimate."""
        return [None]

    @checks.arguments(diagonal=checks.flag, folder=checks.path, samples=checks.count(), seed=checks.seed)
    @full_products()
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
        """NNGP and NTK between x1 and x2 (or x1 and itself), or of each input with itself (`diagonal`).

        Computed in blocks of `block` rows, spread over the devices there are, in float64 whatever the caller's jax settings
        (dtype=np.float32 for speed). With `folder`, finished blocks are kept there and an interrupted computation goes on from
        them (processes that are given a `limits.Share` of it fill it together); the kernels are then memory maps of files in it.
        `samples` and `seed` are for averages without closed form (softmax of random logits): their standard errors are in
        `nngp_sem` and `ntk_sem`.
        """
        if names_layers(self.trained):  # the walk knows roles; the forward code, layers
            from limits.sampled_twin import SampledTwin

            read = SampledTwin(self.net, self.depth, self.trained).kernels
            return read(x1, x2, diagonal=diagonal, block=block, dtype=dtype, folder=folder, seed=seed)
        dtype, block = as_float(dtype), as_block(block)
        x1, x2 = as_pair(x1, x2, diagonal, lambda x, name: as_samples(x, name, dtype))
        forget_other_code(self.net, x1)
        absent = self._absent
        if "nngp" in absent:
            return Kernels(absent["nngp"], absent.get("ntk", absent["nngp"]), absent)
        x1, x2 = self._prepare(x1), None if x2 is None else self._prepare(x2)
        with computing_in(dtype):
            orders, provenance = self._orders([x for x in (x1, x2) if x is not None])
            static, arguments, estimates = self._static(orders), self._arguments(dtype), []
            rows = block or algebra.block_rows(self._positions(x1), dtype.itemsize)
            all_draws = self._draws(x1, samples, seed)
            for i, draws in enumerate(all_draws):

                def pair(a: Any, b: Any, tolerance: Any = None, draws: Any = draws) -> Any:
                    layers, scales, numbers = arguments
                    numbers = numbers if tolerance is None else numbers | {"tolerance": tolerance}
                    with computing_in(dtype):  # settings belong to a thread, and blocks run in several
                        return _compiled(static, a, b, layers, scales, numbers, draws)[:2]

                if self.deep:
                    pair, provenance = self._in_layer_time(pair, x1, x2, rows, orders > 0 and not diagonal, provenance)
                if diagonal:
                    parts = _own(static, algebra.padded(x1), *arguments, draws)[:2]
                    estimates.append([np.asarray(part)[: len(x1)] for part in parts])
                    continue
                kept = None
                if folder is not None:
                    whole = folder if isinstance(folder, algebra.Share) else Path(folder)
                    place = folder if len(all_draws) == 1 else whole / f"estimate_{i}"
                    kept = algebra.KeptKernels(place, (self, dtype, samples, seed, i, numerics()), ("nngp", "ntk"))
                found = algebra.pairwise(pair, x1, x2, 2, rows, kept=kept)
                # The two sides of a pair meet different draws.
                estimates.append(found if draws is None or x2 is not None else [(a + a.T) / 2 for a in found])
        return self._collect(estimates, provenance, samples, absent)

    def _in_layer_time(self, pair: Any, x1: Any, x2: Any, rows: int, series: bool, base: Provenance) -> Any:
        """(the kernels of two blocks at infinite depth, where they come from)."""
        from limits.depth.layer_time import in_layer_time

        if float(parameterization(self.net.parameterization).alpha) > 0.5:
            return pair, base  # nothing to be solved
        return in_layer_time(pair, x1, x2, rows, self._tolerance(x1.dtype), base, series and self._positions(x1) == 1)

    def _tolerance(self, dtype: Any) -> float:
        return max(self.tolerance, 100 * float(np.finfo(dtype).eps))

    def _collect(self, estimates: list, provenance: Provenance, samples: int, absent: dict) -> Kernels:
        """The mean of the estimates (there is one where all averages are closed), over γ²."""
        scale, errors, count = self._output_variance, {}, len(estimates)
        nngp, ntk = estimates[0]
        wanted = {"NNGP": nngp} | ({} if "ntk" in absent else {"NTK": ntk})
        check_in_range(wanted, np.inf if self.deep else self.net.depth)
        if count > 1:
            columns = {name: np.stack([each[i] for each in estimates]) for i, name in enumerate(("nngp", "ntk"))}
            nngp, ntk = (column.mean(0) for column in columns.values())
            errors = {name: column.std(0, ddof=1) / count**0.5 for name, column in columns.items()}
            errors["nngp"] = errors["nngp"] * scale
            drawn = f"attention averaged over {count} × {samples} scrambled Sobol points"
            provenance = Provenance.monte_carlo(f"{drawn}; {provenance.detail}" if self.deep else drawn, count)
        how = {"nngp": provenance, "ntk": absent.get("ntk", provenance)}
        return Kernels(nngp if scale == 1 else nngp * scale, absent.get("ntk", ntk), how, errors)

    def readout(self, features: Any, x: Any = None) -> Any:
        """A kernel Φ of the features that enter the readout, the limit's or a finite network's, carried through it: w² Φ + b²."""
        layer = self._layers()["readout"]
        return (layer.w * features + layer.b) * self._output_variance

    @checks.arguments()
    def layers(self, x: Any) -> tuple[list[Float[np.ndarray, "n n"]], list[Float[np.ndarray, "n n"]]]:
        """(Φ^l, G^l) at initialisation for every h^l that the definition returns: features <φφ'> and gradients <g g'>.

        Averaged over equal positions. The tangent kernel is linear in what layers add to it, and G^l is its derivative
        with respect to what is added at h^l.
        """
        x = as_samples(x, "x", np.float64)
        forget_other_code(self.net, x)
        x = self._prepare(x)
        with jax.enable_x64(True):
            orders, _ = self._orders([x])
            static, draws = (self, *self._static(orders)[1:]), self._draws(x, 256, 0)[0]
            # Step by step, so that layers of one shape share their compilation; whole where positions make it heavy.
            run = _by_layer if self._positions(x) == 1 and not self.deep else _compiled_by_layer
            parts = run(static, jnp.asarray(algebra.padded(x)), *self._arguments(np.float64), draws)  # pyright: ignore[reportCallIssue]
        features, slopes = ([np.asarray(a)[: len(x), : len(x)] for a in part] for part in parts)
        return features, slopes

    def _recorded(self, state: Any, dual: Any) -> Any:
        """What `phi` records, from a marked state: the activations."""
        return algebra.activate(state, dual)


def _through(static: tuple, x1: Any, x2: Any, layers: Any, scales: Any, numbers: Any, draws: Any) -> Any:
    twin, phi, orders, has_bias = static
    walk = twin._walker(layers, algebra.dual(phi, orders), has_bias, scales, {**numbers, "draws": draws})
    k, ntk = twin._walk(twin._start(x1, x2), walk)
    last = layers["readout"]
    b, b_tangent = (last.b, last.b_tangent) if has_bias else (0.0, 0.0)
    return last.w * k + b, last.w * ntk + last.w_tangent * k + b_tangent, walk.largest


_compiled = algebra.compiled(_through, static_argnums=0)


def _each(static: tuple, x: Any, layers: Any, scales: Any, numbers: Any, draws: Any) -> Any:
    """Each input with itself: [n]."""

    def one(sample: Any) -> Any:
        nngp, ntk, largest = _through(static, sample[None], sample[None], layers, scales, numbers, draws)
        return nngp[0, 0], ntk[0, 0], largest

    batch = algebra.block_rows(static[0]._positions(x), x.dtype.itemsize) ** 2
    return jax.lax.map(one, x, batch_size=min(len(x), batch))


_own = algebra.compiled(_each, static_argnums=0)


def _by_layer(static: tuple, x: Any, layers: Any, scales: Any, numbers: Any, draws: Any) -> Any:
    """(Φ^l, G^l) [n, n] at every mark, averaged over equal positions."""
    twin, phi, orders, has_bias = static
    dual = algebra.compiled_dual(phi, orders)

    def tangent(shifts: list | None) -> tuple:
        walk = twin._walker(layers, dual, has_bias, scales, {**numbers, "draws": draws}, unrolled=True, shifts=shifts)
        _, ntk = twin._walk(twin._start(x, x), walk)
        return layers["readout"].w * ntk, walk.marks

    shapes = jax.eval_shape(lambda: [state.ntk for state in tangent(None)[1]])
    _, pull, marks = jax.vjp(tangent, [jnp.zeros(a.shape, a.dtype) for a in shapes], has_aux=True)
    (slopes,) = pull(jnp.ones((len(x), len(x))))
    pairs = [getattr(state, "cross", False) for state in marks]
    features = [twin._recorded(state, dual).covariance for state in marks]
    return tuple(
        [algebra.over_positions(a, cross, True) for a, cross in zip(part, pairs, strict=True)]
        for part in (features, slopes)
    )


_compiled_by_layer = algebra.compiled(_by_layer, static_argnums=0)
