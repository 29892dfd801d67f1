"""Everything that is measured of one run, from its checkpoints."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from limits.kept.precision import full_products
from limits.types import Loss
from train.analysis.alignment import label_alignment
from train.analysis.kernels import carried, drift, layer_kernels, tangent_kernel
from train.analysis.linearisation import departure, linearised, parameter_movement
from train.analysis.network import CHUNK, compiled, loss_function, missing, parts_of, probabilities, rates_of
from train.analysis.sharpness import sharpness
from train.analysis.spectra import sides_in, spectra_of, spectrum
from train.analysis.tokens import attention, loss_by_position, no_attention
from train.variables import split
from zoo import checks

PARTS = ("kernels", "ntk", "alignment", "spectra", "sharpness", "linearisation", "positions", "attention")
_SOME = checks.array(least=1) | checks.Check("none [0, …]", lambda v: np.ndim(v) and not len(v))
KERNELS = ("nngp", "phi", "g", "ntk")


@checks.arguments(
    net=checks.function,
    inputs=checks.array(least=1),
    targets=checks.array(least=1),
    loss=checks.choice(*get_args(Loss)) | checks.function,
    test_inputs=_SOME,
    test_targets=_SOME,
    parts=checks.choices(*PARTS),
    reference=checks.tree,
    rates=checks.rates,
    sharpness_on=checks.pair,
    top=checks.count(),
    tolerance=checks.number(positive=True),
    chunk=checks.count(),
    seed=checks.seed,
)
@full_products()
def analyse(
    net: Any,
    checkpoints: Iterable[tuple[int, Any]],
    inputs: Any,
    targets: Any,
    loss: Any = "mse",
    test_inputs: Any = None,
    test_targets: Any = None,
    parts: tuple[str, ...] = PARTS,
    reference: Any = None,
    rates: Any = None,
    sharpness_on: tuple[Any, Any] | None = None,
    top: int = 1,
    tolerance: float = 1e-3,
    chunk: int = CHUNK,
    seed: int = 0,
) -> dict[str, Any]:
    """Measures one run at its checkpoints, (step, variables) in order, read one at a time.

    net: a definition, any Flax module whose default is inference, or a function apply(variables, x); always the same one,
    so that it compiles once. targets: numbers, or whole numbers that say classes, where positions have them −1 for none.
    loss: "mse", "cross_entropy", or a function of (outputs, targets). Kernels are of `inputs` then `test_inputs`, as in
    `Trajectory`; alignment and spectra of `inputs` alone. Drift, movement and linearisation are from `reference`
    (default: the first checkpoint). `test_targets` are for the loss by position alone. rates: learning-rate factors
    (default: the definition's). sharpness_on: (inputs, targets) to take the loss's Hessian on, if other ones; its memory
    does not grow with their number, `chunk` at a time. Networks with batch normalisation are analysed in inference mode,
    with the running averages of each checkpoint.

    Returns a dictionary of NumPy arrays whose leading axis is time ([layer, time, …] where it is by layer):

        steps, batch_statistics, absent {quantity: reason}
        outputs        f_train, f_test, loss
        kernels        phi, g (tuples by layer of [time, n, n]), nngp;  drift {phi, g, nngp: relative, cosine}
        ntk            ntk;  drift {ntk: relative, cosine}
        alignment      {phi, g, nngp, ntk: cka, cka_unbiased, uncentred} with y yᵀ
        spectra        {phi, g, nngp, ntk: eigenvalues, effective_rank, participation_ratio}, weights {name: …}
        sharpness      {hessian, preconditioned: eigenvalues [time, top], residuals, products}
        linearisation  {train, test: distance, moved, relative}, parameters {name: moved, relative}
        positions      {train, test: cross-entropy [time, position]}, of networks of sequences with a class at every position
        attention      {maps [time, layer, head, t, t], entropy, distance [time, layer, head]} of all points (see `tokens`)

    >>> import zoo
    >>> net, x, y = zoo.MLP(width=8, depth=1), jnp.eye(4), [1.0, -1.0, 1.0, 1.0]
    >>> start = net.init(jax.random.key(0), x)
    >>> found = analyse(net, [(0, start), (5, jax.tree.map(lambda a: 1.1 * a, start))], x, y, parts=("ntk", "alignment"))
    >>> found["ntk"]["ntk"].shape, found["ntk"]["drift"]["ntk"]["relative"].round(4).tolist()
    ((2, 4, 4), [0.0, 0.21])
    >>> found["alignment"]["phi"]["cka"].shape
    (1, 2)
    """
    x, y = jnp.asarray(inputs), jnp.asarray(targets)
    y = y[:, None] if y.ndim == 1 and not jnp.issubdtype(y.dtype, jnp.integer) else y
    if len(x) != len(y) or not len(x):
        raise ValueError(f"analyse: {len(x)} inputs and {len(y)} targets: there must be as many, and at least one.")
    if test_inputs is not None and len(test_inputs) and np.shape(test_inputs)[1:] != x.shape[1:]:
        raise ValueError(
            f"analyse: test_inputs have the shape {np.shape(test_inputs)} and inputs {x.shape}: give inputs alike."
        )
    points = x if test_inputs is None or not len(test_inputs) else jnp.concatenate([x, jnp.asarray(test_inputs)])
    y_test = None if test_targets is None or not len(test_targets) else np.asarray(test_targets)
    if y_test is not None and len(y_test) != len(points) - len(x):
        raise ValueError(f"analyse: {len(points) - len(x)} test_inputs and {len(y_test)} test_targets: give as many.")
    looked = Look(net, loss, x, y, points, parts, rates, sharpness_on, chunk, (top, tolerance, chunk, seed), y_test)

    ordered = _in_order(checkpoints)
    first = next(ordered)
    start = first[1] if reference is None else reference
    steps, seen = [], []
    for step, variables in itertools.chain([first], ordered):
        steps.append(step)
        seen.append(looked.at(step, variables, start))
    together = jax.tree.map(lambda *each: np.stack(each), *seen)
    origin = jax.tree.map(lambda a: a[0], together["kernels"]) if reference is None else looked.kernels(start)
    return _report(looked, np.asarray(steps), together, origin, start)


def _in_order(checkpoints: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    before = None
    one = checks.Check(
        "pairs (step, variables)", lambda pair: checks.count(0).holds(pair[0]) and checks.tree.holds(pair[1])
    )
    listed = checks.Check(one.wanted, lambda pairs: iter(pairs) and not isinstance(pairs, dict | str))
    listed("analyse: checkpoints", checkpoints)
    for each in checkpoints:
        one("analyse: checkpoints", each)
        step, variables = each
        if before is not None and step <= before:
            raise ValueError(f"analyse: checkpoints must be in the order of their steps; {step} came after {before}.")
        before = step
        yield int(step), variables
    if before is None:
        raise ValueError("analyse: there are no checkpoints.")


@dataclasses.dataclass
class Look:
    """What is looked at, at every checkpoint; `absent` collects the reasons for what does not exist."""

    net: Any
    loss: Any
    x: Any
    y: Any
    points: Any  # x, then test inputs
    parts: tuple[str, ...]
    rates: Any
    sharpness_on: Any
    chunk: int
    search: tuple  # of eigenvalues: what `sharpness` takes last
    y_test: Any = None
    sides: Any = None  # of the matrices in the parameters: see `sides_in`

    def __post_init__(self) -> None:
        self.absent = missing(self.net)
        if self.rates is not None:
            self.absent.pop("preconditioned", None)

    def at(self, step: int, variables: Any, start: Any) -> dict[str, Any]:
        """One checkpoint; its kernels under "kernels", whether they are to be kept or only looked into."""
        trained, state = split(variables)
        outputs, slices = compiled(self.net).outputs, parts_of(len(self.points), self.chunk)
        f = np.concatenate([np.asarray(outputs(trained, state, self.points[part])) for part in slices])
        if not np.isfinite(f).all():
            raise FloatingPointError(
                f"{f.size - np.isfinite(f).sum()} of {f.size} outputs at step {step} are infinite or NaN: this run has "
                "diverged; analyse the checkpoints before."
            )
        n = len(self.x)
        self.check_targets((n, *f.shape[1:]))
        loss = float(loss_function(self.loss)(f[:n], self.y))
        found: dict[str, Any] = {"outputs": {"f_train": f[:n], "f_test": f[n:], "loss": loss}}
        if f.ndim != 2:
            self.absent.setdefault(
                "ntk", f"The tangent kernel is of outputs [n, outputs]; these have the shape {f.shape}."
            )
            self.absent.setdefault("g", f"Gradients are those of outputs [n, outputs]; these have the shape {f.shape}.")
        found["kernels"] = self.kernels(variables)
        if "spectra" in self.parts:
            self.sides = self.sides or sides_in(variables, self.net, self.x)
            found["weights"] = spectra_of(trained, self.sides)
        if "sharpness" in self.parts:
            found["sharpness"] = self.sharpness(variables)
        if "linearisation" in self.parts:
            found["linearisation"] = self.linearisation(variables, start)
        return found | self.sequences(trained, state, f)

    def sequences(self, trained: Any, state: Any, f: np.ndarray) -> dict[str, Any]:
        """What networks of sequences show; f: outputs of all points."""
        found: dict[str, Any] = {}
        if "positions" in self.parts and self.in_positions(f.shape):
            found["positions"] = {"train": loss_by_position(f[: len(self.x)], self.y)}
            if self.y_test is not None:
                found["positions"]["test"] = loss_by_position(f[len(self.x) :], self.y_test)
        elif "positions" in self.parts:
            self.absent.setdefault(
                "positions", "Outputs and targets are no classes at positions, [n, t, classes] and [n, t]."
            )
        if "attention" in self.parts and "attention" not in self.absent:
            if reason := no_attention(self.net, trained, state, self.points):
                self.absent["attention"] = reason
            else:
                found["attention"] = attention(self.net, trained, state, self.points)
        return found

    def in_positions(self, outputs: tuple[int, ...]) -> bool:
        """Whether targets are whole numbers, one at every position of outputs [n, t, classes]."""
        said = jnp.issubdtype(self.y.dtype, jnp.integer) and self.y.shape[1:] == outputs[1:-1]
        return bool(said) and len(outputs) == 3

    def check_targets(self, outputs: tuple[int, ...]) -> None:
        """Whole numbers are classes where outputs have one more axis, and else numbers like any."""
        if not jnp.issubdtype(self.y.dtype, jnp.integer):
            return
        if self.y.ndim == 1 and outputs[-1] == 1:
            self.y = self.y[:, None]
        elif self.y.shape == outputs[:-1] and not (
            int(self.y.min()) >= -(self.y.ndim > 1) and int(self.y.max()) < outputs[-1]
        ):
            raise ValueError(
                f"analyse: targets name classes from {int(self.y.min())} to {int(self.y.max())}, and the network has "
                f"{outputs[-1]} outputs."
            )

    def kernels(self, variables: Any) -> dict[str, Any]:
        """The kernels that the parts ask for, on all points."""
        look_into = bool({"alignment", "spectra"} & set(self.parts))
        found: dict[str, Any] = {}
        if "kernels" in self.parts or look_into:
            found |= layer_kernels(self.net, variables, self.points)
            if "nngp" not in found and "nngp" not in self.absent:
                self.absent["nngp"] = carried(self.net, np.ones((1, 1)), self.points)
        if ("ntk" in self.parts or look_into) and "ntk" not in self.absent:
            found["ntk"] = tangent_kernel(self.net, variables, self.points, self.factors(variables), self.chunk)
        return found

    def sharpness(self, variables: Any) -> dict[str, Any]:
        """Of the Hessian, and of the preconditioned one where there are factors."""
        look = functools.partial(sharpness, self.net, variables, self.sharpness_on or (self.x, self.y), self.loss)
        found = {"hessian": look(None, False, *self.search)}
        if "preconditioned" not in self.absent:
            rates = self.factors(variables)
            one, *others = set(
                jax.tree.leaves(rates)
            )  # one alone in every family without depth factors: no second search
            found["preconditioned"] = look(rates, True, *self.search) if others else found["hessian"].scaled(one)
        return {name: dataclasses.asdict(each) for name, each in found.items()}

    def factors(self, variables: Any) -> Any:
        """The learning-rate factors: the user's, or the definition's, found once."""
        if self.rates is None:
            self.rates = rates_of(self.net, split(variables)[0], self.x)
        return self.rates

    def linearisation(self, variables: Any, start: Any) -> dict[str, Any]:
        """On training points and test points, and of the parameters."""
        n, each = len(self.x), linearised(self.net, start, variables, self.points, self.chunk)
        found: dict[str, Any] = {"train": departure(*(part[:n] for part in each))}
        if len(self.points) > n:
            found["test"] = departure(*(part[n:] for part in each))
        return found | {"parameters": parameter_movement(start, variables)}


def _report(looked: Look, steps: np.ndarray, seen: dict[str, Any], origin: Any, start: Any) -> dict[str, Any]:
    """By part, of what was seen [time, …] and the kernels of the reference."""
    n, kernels, parts = len(looked.x), seen["kernels"], looked.parts
    result: dict[str, Any] = {
        "steps": steps,
        "batch_statistics": bool(split(start)[1]),
        "absent": dict(looked.absent),
        "outputs": seen["outputs"],
    }
    for part, names in (("kernels", ("nngp", "phi", "g")), ("ntk", ("ntk",))):
        if part in parts:
            held = {name: kernels[name] for name in names if name in kernels}
            result[part] = held | {"drift": {name: _by_layer(drift, k, origin[name]) for name, k in held.items()}}
    train = {name: jax.tree.map(lambda k: k[..., :n, :n], kernels[name]) for name in KERNELS if name in kernels}
    if "alignment" in parts:
        y = probabilities(looked.y, (n, *seen["outputs"]["f_train"].shape[2:]))
        result["alignment"] = {
            name: _by_layer(lambda kernel: label_alignment(kernel, y), k) for name, k in train.items()
        }
    if "spectra" in parts:
        result["spectra"] = {name: _by_layer(spectrum, k) for name, k in train.items()} | {"weights": seen["weights"]}
    result |= {part: seen[part] for part in ("sharpness", "linearisation", "positions", "attention") if part in seen}
    return result


def _by_layer(function: Any, kernels: Any, *others: Any) -> dict[str, Any]:
    """function of a kernel [time, n, n]; of a tuple of them, stacked by layer."""
    if not isinstance(kernels, tuple):
        return function(kernels, *others)
    layers = [function(*each) for each in zip(kernels, *others, strict=True)]
    return {name: np.stack([layer[name] for layer in layers]) for name in layers[0]}
