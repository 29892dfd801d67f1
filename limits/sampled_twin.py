"""The twin of any network built from zoo's layers that has no closed algebra of its own: Monte-Carlo, by sweeps."""

import dataclasses
from typing import Any

import jax
import numpy as np

from limits.fields.network import readout_scales
from limits.fields.sweep import check_apart, check_finite
from limits.fields.sweeps import compiled_sweep
from limits.finite.forward import absent_kernels
from limits.finite.output_power import check_output_power
from limits.inputs import as_float, as_samples, check_same_shape
from limits.training import Training
from limits.twin import NTK_GROWS, Twin
from limits.types import Kernels, Provenance
from limits.waiting import patient_bar
from zoo import checks, parameterization
from zoo.definition import definition_of


@dataclasses.dataclass(frozen=True)
class SampledTwin(Twin):
    """Kernels, training in the kernel regime and `rich` of a module with the fields `width` and `parameterization`.

    The module's own forward code runs with `samples` neurons and matrices that are revealed where they are met: in law a
    network of that width, at a cost linear in it. Kernels are means over `replicas`, with standard errors; O(1/samples)
    is dropped. They are those of one readout.

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
    >>> k = twin(Squares(8)).kernels(np.array([[1.0]]), samples=4096)
    >>> bool(abs(k.nngp - 3).item() < 5 * k.nngp_sem.item()), k.provenance["ntk"].kind
    (True, 'monte_carlo')
    """

    @checks.arguments(samples=checks.count(2), replicas=checks.count(2), seed=checks.key)
    def kernels(
        self, x1: Any, x2: Any = None, *, samples: int = 2048, replicas: int = 8, seed: int = 0, dtype: Any = np.float32
    ) -> Kernels:
        """NNGP and NTK between x1 and x2 (or x1 and itself), from `replicas` networks of `samples` neurons a layer."""
        if replicas < 2 or samples < 2:
            raise ValueError(f"kernels: samples and replicas must be at least 2, got {samples} and {replicas}.")
        dtype = as_float(dtype)
        first, n = as_samples(x1, "x1", dtype), len(np.asarray(x1))
        if x2 is not None:
            second = as_samples(x2, "x2", dtype)
            check_same_shape(first, second)
            first = np.concatenate([first, second])
        p = parameterization(self.net.parameterization)
        power = max(float(p.tangent_exponent(role)) for role in ("input", "hidden"))
        absent = {"ntk": Provenance("absent", NTK_GROWS.format(name=p.name, power=power))} if power > 0 else {}
        absent |= {name: why for name, why in absent_kernels(self.net, first).items() if name == "ntk"}
        runs = self._looks(first, ("features",) if absent else ("features", "ntk"), samples, replicas, seed, dtype)
        how = Provenance.monte_carlo(f"{replicas} sweeps of {samples} samples; O(1/{samples}) dropped", replicas)
        block = (slice(None), slice(None, n), slice(None) if x2 is None else slice(n, None))
        stacks = {"nngp": np.stack([run["nngp"] for run in runs])[block]}
        stacks |= {} if absent else {"ntk": np.stack([run["ntk"] for run in runs])[block]}
        values: dict[str, Any] = {name: each.mean(0) for name, each in stacks.items()}
        errors = {name: each.std(0, ddof=1) / replicas**0.5 for name, each in stacks.items()}
        return Kernels(**(values | absent), provenance={"nngp": how, "ntk": how} | absent, errors=errors)

    def _looks(
        self, x: Any, kernels: tuple, samples: int, replicas: int, seed: int, dtype: Any
    ) -> list[dict[str, Any]]:
        """What networks at initialisation look like, in float64."""
        self.check_width(x)
        found, net = [], self.net.clone(width=samples)
        with jax.enable_x64(dtype == np.float64), patient_bar(f"networks of {samples} samples", replicas) as advance:
            sweep = compiled_sweep(
                net, Training("mse", trained=self.trained), x.shape, len(x), str(np.dtype(dtype)), steps=0
            )
            for r in range(replicas):
                key = jax.random.fold_in(jax.random.key(seed), r)
                state = sweep.begin(jax.random.fold_in(key, 0), x)
                seen = sweep.measure(state, x, jax.random.fold_in(key, 1), kernels)
                seen = jax.tree.map(lambda a: np.asarray(a, np.float64), seen)
                check_finite(seen["f"], 0, 0.0)
                check_apart(self.net, seen["f"], state.offset)
                if "features" in seen:
                    seen["nngp"] = self.readout(seen["features"], x)
                found.append(seen)
                advance()
        return found

    def readout(self, features: Any, x: Any = None) -> Any:
        """A kernel Φ of what enters the readout for inputs like x, carried through it: (w² Φ + b²)/γ²."""
        w, b = readout_scales(self.net, jax.ShapeDtypeStruct(np.shape(x), np.float32))
        lazy = parameterization(self.net.parameterization).d == 0
        scale = float(definition_of(self.net).gamma) ** -2 if lazy else 1.0
        return scale * (w**2 * features + b**2)

    def check_width(self, x: Any) -> None:
        """Raises unless the outputs scale with the width as the parameterization says."""
        check_output_power(self.net, tuple(np.shape(x)[1:]))

    def layers(self, x: Any, samples: int = 2048, replicas: int = 8, seed: int = 0) -> Any:
        """(Φ^l, G^l) at initialisation for every h^l that the module returns; none where inputs mix."""
        if "g" in absent_kernels(self.net, np.asarray(x)):
            return [], []
        runs = self._looks(as_samples(x, "x", np.float32), ("phi", "g"), samples, replicas, seed, np.float32)
        return tuple(
            [np.mean(parts, axis=0) for parts in zip(*(run[name] for run in runs), strict=True)]
            for name in ("phi", "g")
        )
