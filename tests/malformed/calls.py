"""A valid call of every public function, as small as it can be: what malformed arguments are put into."""

import dataclasses
import functools
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import limits.cumulants
import limits.depth
import limits.posterior
import limits.predict
import train.analysis
import train.cumulants
import train.data
import train.evaluate
import train.posterior
import train.schedules
import train.transfer
import zoo
from limits import Task, Trajectory, twin
from limits.cumulants import Cumulants
from limits.feature_learning import rich as rich_training
from limits.posterior import Draws, Stack
from zoo import MLP
from zoo.checks import Check

ROOMS: tuple[ModuleType, ...] = (
    zoo, limits, limits.predict, limits.posterior, limits.depth, limits.cumulants, train, train.data, train.posterior,
    train.cumulants, train.analysis, train.schedules, train.transfer, train.evaluate,
)  # fmt: skip
# What the library makes and a user only reads.
RECORDS = {
    "Explanation", "Roles", "Convergence", "Kernels", "Provenance", "Posterior", "GaussianPosterior", "Solution",
    "ConvergenceRate", "DeepKernels", "Fluctuations", "LimitingKernel", "Phase", "PhaseDiagram", "Recommendation", "Response", "Surrogate",
    "Trained", "Optimum", "Outcome", "Prediction", "Compared", "NotPredictableError", "Sweep", "Transfer", "Comparison",
    "AbsentError", "DivergenceError", "NotConvergedWarning", "CoordCheck", "Cumulants", "Mixture",
    "Combination", "Initial", "Training", "Fit", "KernelFunction", "KernelPair", "LeaveOneOut", "LinearSolution", "UnfinishedError", "LowRank", "RidgePath",
}  # fmt: skip
# Words for messages, and what others are made of.
PARTS = {"did_you_mean", "check_outputs", "identity", "numerics", "LinearRule"}


@dataclasses.dataclass(frozen=True)
class Call:
    """A function and arguments that it takes."""

    name: str
    function: Callable
    given: dict[str, Any]

    @property
    def arguments(self) -> list[str]:
        """The names of all that it takes, of its options too."""
        parameters = inspect.signature(self.function).parameters.values()
        named = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        return [name for name in dict.fromkeys([*named, *self.given]) if name not in ("parent", "name", "self", "twin")]

    def run(self, **changes: Any) -> Any:
        """Calls it."""
        return self.function(**{**self.given, **changes})


def public() -> dict[str, Any]:
    """Every function and class that a room shows, by its name with the room."""
    found: dict[str, Any] = {}
    for room in ROOMS:
        for name, value in vars(room).items():
            ours = getattr(value, "__module__", "").split(".")[0] in ("zoo", "limits", "train")
            local = room.__name__ == "train.schedules"  # of this all is public that is made there
            if (
                name.startswith("_")
                or inspect.ismodule(value)
                or not callable(value)
                or not ours
                or isinstance(value, Check)
            ):
                continue
            if isinstance(value, type) and issubclass(value, limits.Twin):  # which `twin` makes
                continue
            if name in RECORDS | PARTS or (local and value.__module__ != room.__name__) or value in found.values():
                continue
            found[f"{room.__name__}.{name}"] = value
    return found


X = np.array([[1.0, 0.0], [0.6, 0.8]])
TASK = Task(X, [1.0, -1.0], X[:1], [1.0])
NET = MLP(4, 1, activation="erf")
RICH = MLP(4, 1, activation="erf", parameterization="mup")
K = np.array([[1.0, 0.4], [0.4, 1.0]])
ONES = np.ones((1, 2))
Y = np.array([[1.0], [-1.0]])
STACK = Stack(K, [1.2, 1.2], [0.1, 0.1])
SKETCH = {"width": 4, "depth": 1}


class Plain(nn.Module):
    """A model of one's own."""

    width: int
    depth: int = 1

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """One hidden layer."""
        return nn.Dense(1, name="out")(nn.relu(nn.Dense(self.width, name="in")(x)))


@functools.cache
def variables(net: Any = NET) -> Any:
    """Parameters of the network."""
    return net.init(jax.random.key(0), jnp.ones((1, 2)))


@functools.cache
def roles() -> Any:
    """Roles of the model of one's own."""
    return zoo.infer_roles(init_plain, {"width": 4}, {"width": 8})


def init_plain(key: Any, width: int) -> Any:
    """Parameters of the model of one's own."""
    return Plain(width).init(key, jnp.ones((1, 2)))["params"]


def loss_fn(f: Any, y: Any) -> Any:
    """Half the square."""
    return 0.5 * jnp.mean((f - y) ** 2)


def apply(params: Any, x: Any) -> Any:
    """A linear function."""
    return jnp.asarray(x) @ params


def mixture() -> Any:
    """Two clusters."""
    return limits.cumulants.xor_mixture()


def sizes_of(definition: Any) -> dict[str, int]:
    """Those of its sizes that it has fields for."""
    sizes = {"width": 4, "depth": 1, "heads": 2, "vocabulary": 5, "context": 4}
    return {name: size for name, size in sizes.items() if name in definition.__dataclass_fields__}


@functools.cache
def given() -> dict[str, dict[str, Any]]:
    """name → valid arguments."""
    task = {"task": TASK, "steps": 1, "learning_rate": 0.1}
    sizes = {"n_train": 4, "n_test": 2, "seed": 0}
    layer = {"features": 2, "role": "hidden", "width": 4, "parameterization": zoo.Parameterization.ntk}
    ntk = {"width": 4, "parameterization": zoo.Parameterization.ntk}
    stds = {"w_std": 1.2, "b_std": 0.2}
    gp = {"k_train": K, "y": Y, "k_test_train": ONES}
    moves = {"times": [0, 1], "learning_rate": 0.1}
    moments = {"mean": np.zeros(2), "covariance": np.eye(2)}
    batch = (jnp.ones((2, 2)), jnp.ones((2, 1)))
    stream = tuple(b[None] for b in batch)
    made = {"make": lambda width, depth: Plain(width), "widths": (4, 8, 16), "depths": (1,)}
    seen = {"net": NET, "variables": variables(), "x": X}
    return {
        **{f"zoo.{cls.__name__}": sizes_of(cls) for cls in vars(zoo).values() if hasattr(cls, "field_checks")},
        "zoo.Dense": layer, "zoo.Conv": layer,
        "zoo.Attention": ntk, "zoo.FeedForward": ntk, "zoo.Embed": ntk | {"entries": 5},
        "zoo.Norm": {"kind": "layer", "width": 4, "parameterization": zoo.Parameterization.ntk},
        "zoo.Parameterization": {"a": 0.5, "b": 0.0, "c": 0.0, "d": 0.0, "a_in": 0.0, "b_in": 0.0},
        "zoo.PiecewiseLinear": {"negative": 0.0, "positive": 1.0}, "zoo.Quadratic": {"eps": 0.5},
        "zoo.activation_function": {"activation": "relu"}, "zoo.parameterization": {"name": "ntk"},
        "zoo.explain": {"net": NET, "x": X, "show": False}, "zoo.scaled": {"optimizer": "adam", "net": NET, "x": X, "learning_rate": 0.1},
        "zoo.factors": {"net": NET, "params": variables()["params"], "x": X},
        "zoo.learning_rate_factors": {"net": NET, "x": X}, "zoo.roles": {"net": NET, "x": X},
        "zoo.in_parameterization": {"module": Plain(4), "parameterization": "mup", "width": "width"},
        "zoo.Rescaled": {"net": NET, "roles": roles()},
        "zoo.scale_gradients": {"factors": zoo.learning_rate_factors(NET, X)},
        "zoo.infer_roles": {"init": init_plain, "base": {"width": 4}, "target": {"width": 8}},
        "zoo.fused_attention": {}, "zoo.variant": {"name": "vit_s16"},
        "limits.Task": {"x_train": X, "y_train": [1.0, 2.0], "x_test": X, "y_test": [1.0, 2.0]},
        "limits.Trajectory": {"times": np.arange(2), "loss": np.ones(2)},
        "limits.twin": {"net": NET},
        "limits.lazy": {"twin": twin(NET), **task}, "limits.register_twin": {"definition": Plain},
        "limits.convergence": {"net": zoo.ResNet(4, 4, activation="erf"), "x": X, "depths": (4, 8, 16)},
        "limits.random_features": {"limit": twin(NET), "x": X, "networks": 1},
        "limits.empirical_ntk": {"apply": apply, "params": jnp.ones((2, 1)), "x1": X, "x2": X},
        "limits.TangentOperator": {"apply": apply, "params": jnp.ones((2, 1)), "x": X},
        "limits.predict.ridge_path": {"kernel": K, "y": Y, "ridges": (0.1, 1.0), "rank": 1},
        "limits.predict.feature_ridge": {"features": K, "y": Y, "ridges": (0.1, 1.0)},
        "limits.predict.error_rate": {"f": Y, "y": Y},
        "limits.predict.nystrom": {"kernel": lambda a, b: a.reshape(len(a), -1) @ b.reshape(len(b), -1).T, "x": X, "diagonal": (X**2).sum(1), "rank": 1},
        "limits.predict.influence": {"kernel": K, "y": Y, "k_test_train": np.ones((1, len(K))), "noise": 0.1},
        "limits.linearize": {"apply": apply, "params": jnp.ones((2, 1))},
        "limits.predict.posterior": gp | {"k_test": np.eye(1), "noise": 0.1},
        "limits.fit": {"net": NET, "task": TASK, "over": ("w_std",), "noise": 0.1},
        "limits.kernel_function": {"twin": twin(NET)},
        "limits.predict.draws": {"mean": ONES[:1], "cov": np.eye(1), "count": 2},
        "limits.predict.solve": {"kernel": K, "y": Y, "noise": 0.1, "rank": 1},
        "limits.predict.pivoted_cholesky": {"kernel": K, "rank": 1},
        "limits.Share": {"folder": "kernels", "index": 0, "of": 2},
        "limits.predict.leave_one_out": {"k": K, "y": Y, "noise": 0.1},
        "limits.predict.log_marginal_likelihood": {"k": K, "y": Y, "noise": 0.1},
        "limits.predict.kernel_regression": gp | {"noise": 0.1},
        "limits.predict.mse_dynamics": gp | moves | {"f0_train": 0 * Y, "f0_test": np.zeros((1, 1))},
        "limits.predict.cross_entropy_dynamics": gp | moves | {"f0_train": 0 * Y, "f0_test": np.zeros((1, 1))},
        "limits.predict.response": {"k_train": K} | moves,
        "limits.predict.mse_ensemble": {"nngp": K, "ntk": K, "y": Y[:1]} | moves,
        "limits.posterior.posterior": {"twin": twin(NET), "task": TASK, "noise": 0.1, "width": 200, "samples": 64, "errors": False, "fluctuations": False},
        "limits.posterior.Stack": {"k0": K, "weights": [1.2], "biases": [0.1]}, "limits.posterior.Sweeps": {"damping": 0.5},
        "limits.posterior.Draws": {"activation": "erf", "z": np.ones((4, 2))},
        "limits.posterior.backpropagated": {"stack": STACK, "kernels": limits.posterior.prior_kernels(STACK), "force": np.eye(2)},
        "limits.posterior.contraction": {"draws": Draws("erf", np.ones((4, 2))), "c": K, "force": np.eye(2)},
        "limits.posterior.draw_kernels": {"stack": STACK, "width": 4, "members": 4, "seed": 0},
        "limits.posterior.log_evidence": {"stack": STACK, "y": Y, "noise": 9.0, "width": 400, "members": 100},
        "limits.posterior.output_force": {"c": K, "y": Y, "noise": 0.1},
        "limits.posterior.pair_averages": {"activation": "erf", "c": K},
        "limits.posterior.prior_kernels": {"stack": STACK}, "limits.posterior.response_to_output": {"stack": STACK},
        "limits.posterior.solve": {"stack": STACK, "y": Y, "noise": 0.1, "width": 200, "draws": Draws("erf", np.ones((4, 2)))},
        "limits.depth.convergence_rate": {"activation": "relu"}, "limits.depth.limiting_kernel": {"activation": "relu"},
        "limits.depth.correlation_map": {"activation": "tanh", **stds, "q": 1.0},
        "limits.depth.variance_map": {"activation": "tanh", **stds},
        "limits.depth.deep_kernels": {"x": X, "depths": [2, 3]}, "limits.depth.deep_pair": {"c": [0.5], "depths": [2, 3]},
        "limits.depth.deep_scale": {"k0": K}, "limits.depth.edge_of_chaos": {"activation": "tanh", "b_std": 0.2},
        "limits.depth.estimated_scale": {"variance": 0.05, "depth": 10},
        "limits.depth.finite_kernels": {"k0": K, "depth": 2, "width": 4, "members": 2, "rho": 0.5},
        "limits.depth.fluctuations": {"k0": K, "depth": 2, "rho": 0.5, "points": 16},
        "limits.depth.input_kernel": {"x": X}, "limits.depth.log_normaliser": {"depths": [2, 3]},
        "limits.depth.log_response": {"k0": K, "depth": 2, "rho": 0.5},
        "limits.depth.one_step_profile": {"tau": 0.5, "learning_rate": 0.1},
        "limits.depth.one_step_recursion": {"depth": 2, "learning_rate": 0.1},
        "limits.depth.optimal_scale": {"k0": K, "depth": 2}, "limits.depth.phase": {"activation": "tanh", **stds},
        "limits.depth.phase_diagram": {"activation": "tanh", "w_std": [1.0], "b_std": [0.3], "depth": 4},
        "limits.depth.plot_phase_diagram": {
            "diagram": limits.depth.phase_diagram("relu", w_std=[0.8, 1.0], b_std=[0.3, 0.5], depth=4)},
        "limits.depth.plot_spectra": {"spectra": {"a": ([2, 3], np.ones((2, 2)))}, "orders": [1, 2]},
        "limits.depth.recommend_residual_scale": {
            "net": zoo.ResNet(4, 4, activation="erf", residual="fixed"), "data": X, "samples": 4},
        "limits.depth.response": {"k0": K, "depth": 2, "rho": 0.5}, "limits.depth.saturation_variance": stds,
        "limits.depth.sphere_spectrum": {"depths": [2], "orders": [1, 2]},
        "limits.depth.uniform_divergence": {"variance": 0.3}, "limits.depth.uniform_variance": {"activation": "erf"},
        "limits.depth.variance_per_layer": {"activation": "relu"},
        "limits.depth.zonal_eigenvalues": {"kernel": lambda gap: 1 - gap, "d": 3, "orders": [0, 1]},
        "limits.cumulants.bivariate": {"a": 0.0, "b": 0.1, "r": 0.5},
        "limits.cumulants.class_cumulants": {"x": [[0.0], [2.0], [5.0]], "y": [[1.0], [1.0], [-1.0]]},
        "limits.cumulants.density": {"mixture": limits.cumulants.gaussian_mixture([1.0], [1], [[0.0]], [[1.0]]), "y": [0.0]},
        "limits.cumulants.diagrams": {"legs": 3},
        "limits.cumulants.divergence": {"mixture": limits.cumulants.gaussian_mixture([1.0], [1], [[0.0]], [[1.0]]),
            "y": np.linspace(-1, 1, 50)},
        "limits.cumulants.empirical_cumulants": {"x": [[0.0], [0.0], [3.0]]},
        "limits.cumulants.expected_overlaps": {"activation": zoo.Quadratic(0.1), "w_std": 0.76, "b_std": 0.76, "depth": 2},
        "limits.cumulants.gaussian_mixture": {"probability": [0.5, 0.5], "target": [1, -1], "mean": [[1.0], [-1.0]], "covariance": [[0.1]]},
        "limits.Store": {"folder": "nowhere"},
        "limits.cumulants.gaussian_moments": {"activation": "quadratic", **moments},
        "limits.cumulants.gaussian_surrogate": {"x": np.arange(8.0).reshape(4, 2) ** 2, "y": [1, 1, -1, -1]},
        "limits.cumulants.higher_cumulants": {"z": [[-1.0], [1.0]]},
        "limits.cumulants.indefinite": {"layers": limits.cumulants.propagate(NET_Q, variables(NET_Q), mixture())},
        "limits.cumulants.overlaps": {"layers": limits.cumulants.propagate(NET_Q, variables(NET_Q), mixture())},
        "limits.cumulants.mean_correction": {"activation": "relu", "mean": np.ones(1), "variance": np.ones(1), "third": np.ones(1)},
        "limits.cumulants.output_statistics": {"net": NET_Q, "variables": variables(NET_Q), "data": mixture()},
        "limits.cumulants.propagate": {"net": NET_Q, "variables": variables(NET_Q), "data": mixture()},
        "limits.cumulants.statistical_loss": {"net": NET_Q, "variables": variables(NET_Q), "data": mixture()},
        "limits.cumulants.overlap_phase": {"activation": zoo.Quadratic(0.1), "w_std": 0.76, "b_std": 0.76},
        "limits.cumulants.pooled": {"mixture": mixture()}, "limits.cumulants.quadratic_moments": {"eps": 0.5, **moments},
        "limits.cumulants.quadrature_moments": {"phi": jnp.tanh, **moments}, "limits.cumulants.relu_moments": moments,
        "limits.cumulants.sample": {"mixture": mixture(), "n": 4},
        "limits.cumulants.taylor_mean": {"activation": zoo.Quadratic(0.5), "cumulants": (jnp.ones(1), 2 * jnp.ones(1)), "order": 2},
        "limits.cumulants.third_cumulant_mixture": {"variance": 0.05}, "limits.cumulants.xor_mixture": {"variance": 0.05},
        "limits.cumulants.through_linear": {"cumulants": Cumulants(np.ones(2), np.eye(2)), "weights": np.ones((1, 2)), "bias": np.ones(1)},
        "train.ensemble": {"net": NET, "members": 2, **task, "kernels": ()},
        "train.coord_check": made | {"batch": batch, "loss_fn": loss_fn, "optimizer": lambda net: optax.sgd(0.1), "steps": 1, "seeds": 2},
        "train.sample_posterior": {"net": NET, "task": TASK, "noise": 0.5, "steps": 30, "chains": 2, "thin": 1},
        "train.data.digits": sizes, "train.data.gaussian_teacher": sizes, "train.data.xor_mixture": sizes,
        "train.data.xor_clusters": sizes, "train.data.sphere": sizes, "train.data.make_task": {"name": "sphere", **sizes},
        "train.data.on_sphere": {"x": X}, "train.data.shuffled_batches": {"n": 4, "size": 2, "steps": 2},
        "train.data.minibatches": {"task": TASK, "size": 1, "steps": 2},
        "train.data.image_batches": {"dataset": "digits", "batch": 4, "steps": 1, "n_train": 100},
        "train.cumulants.signal_cumulants": {"net": NET, "x": X, "layer": 1, "members": 2},
        "train.cumulants.train_samples": {"net": NET_Q, "task": TASK, "steps": 1, "every": 1, "batch": 1},
        "train.cumulants.train_statistics": {"net": NET_Q, "data": mixture(), "steps": 1, "every": 1},
        "train.analysis.against_twin": {"members": [{"steps": np.arange(1), "batch_statistics": False, "absent": {}, "ntk": {"ntk": K[None]}}], "limit": twin(NET).kernels(X)},
        "train.analysis.analyse": {"net": NET, "checkpoints": [(0, variables())], "inputs": X, "targets": Y, "parts": ("kernels",)},
        "train.analysis.cka": {"k": K, "l": K}, "train.analysis.hsic": {"k": K, "l": K},
        "train.analysis.kernel_alignment": {"k": K, "l": K},
        "train.analysis.drift": {"kernels": K, "reference": K},
        "train.analysis.edge_of_stability": {"learning_rate": 0.1, "momentum": 0.5},
        "train.analysis.effective_rank": {"values": np.ones(3)}, "train.analysis.participation_ratio": {"values": np.ones(3)},
        "train.analysis.label_alignment": {"kernels": K, "targets": Y},
        "train.analysis.largest_eigenvalues": {"product": lambda v: np.diag([1.0, 2.0]) @ v, "size": 2},
        "train.analysis.layer_kernels": seen, "train.analysis.tangent_kernel": seen,
        "train.analysis.limits_of": {"net": NET, "task": TASK, "times": [0, 1], "learning_rate": 0.1, "which": ("kernels",)},
        "train.analysis.linearisation_distance": seen | {"start": variables()},
        "train.analysis.parameter_movement": {"start": variables(), "variables": variables()},
        "train.analysis.sharpness": {"net": NET, "variables": variables(), "data": (X, Y)},
        "train.analysis.spectrum": {"kernels": K}, "train.analysis.weight_spectra": {"params": variables()["params"]},
        "train.schedules.make_schedule": {"name": "cosine", "learning_rate": 0.1, "steps": 4, "warmup": 2},
        "train.data.augmentation": {"steps": ["flip"]},
        "train.data.Batches": {"source": train.data.source("digits"), "batch": 4, "seed": 0, "augment": ["flip"]},
        "train.data.evaluation_batches": {"source": train.data.source("digits"), "batch": 4},
        "train.data.source": {"name": "digits"},
        "train.data.python_text": {"split": "test", "context": 32, "stride": 16},
        "train.data.file_text": {"path": __file__, "context": 32, "pattern": "*.py", "held_out": 0.5},
        "train.data.file_arrays": {"path": arrays_file(), "classes": 2},
        "train.data.file_task": {"path": arrays_file(), "n_train": 2, "n_test": 1, "seed": 1, "normalise": "none"},
        "train.data.random_hierarchy": {"n_train": 4, "n_test": 2, "seed": 1},
        "train.data.RandomHierarchy": {"depth": 2, "vocabulary": 4, "synonyms": 2, "branching": 2, "classes": 3},
        "train.data.of_tokens": {"name": "associative_recall", "n_train": 2, "n_test": 1, "seed": 1},
        "train.data.associative_recall": {"n_train": 4, "n_test": 2, "pairs": 2, "queries": 1, "keys": 4, "values": 4},
        "train.transfer.loss_at": {"rates": np.array([0.1, 0.2, 0.4]), "losses": np.array([2.0, 1.0, 3.0]), "log_rate": -2.0},
        "train.transfer.optimum": {"rates": [0.1, 0.2, 0.4], "losses": np.array([2.0, 1.0, 3.0])},
        "train.transfer.predict": {"sweeps": {(n, 1): swept(n) for n in (8, 16, 32)}, "width": 64, "depth": 1, "limits": {1: swept(np.inf)}},
        "train.transfer.compare_variants": {"variants": {"a": {(8, 1): swept(8)}, "b": {(8, 1): swept(8)}}, "width": 8, "depth": 1,
            "limits": {"a": {1: swept(np.inf)}}},
        "train.transfer.sweep_rates": {"make": made["make"], "optimizer": sgd, "loss_fn": loss_fn, "batches": stream, "width": 4,
            "depth": 1, "rates": [0.1, 0.2], "seeds": 2},
        "train.transfer.transfer": made | {"optimizer": sgd, "loss_fn": loss_fn, "batches": stream, "rates": [0.1, 0.2], "seeds": 2},
        "train.transfer.train_runs": {"build": lambda job: (Plain(4), optax.sgd(0.1)), "loss_fn": loss_fn, "batches": [batch],
            "steps": 1, "jobs": {"rate": jnp.ones(1)}, "seeds": jnp.arange(1)},
        "train.evaluate.compare": {"families": {"a": lambda width, depth: MLP(width, depth)}, "widths": (4, 8), "depths": (1,),
            "task": TASK, "steps": 1, "learning_rate": 0.1, "members": 8, "init_members": 8},
    }  # fmt: skip


NET_Q: Any = MLP(4, 1, activation="quadratic", parameterization="standard")


def swept(width: float) -> train.transfer.Sweep:
    """Losses of one size, two seeds."""
    curves = np.exp(0.2 * np.arange(-2.0, 3.0)[:, None] ** 2 + 4 / width + np.array([0.0, 0.1]))
    return train.transfer.Sweep(width, 1, 2.0 ** np.arange(-2, 3), np.repeat(curves[..., None], 2, 2))


def sgd(net: Any, rate: Any) -> Any:
    """An optimiser for a sweep."""
    return optax.sgd(rate)


@functools.cache
def saved(run: Trajectory) -> str:
    """A file of it."""
    return str(run.save(Path(tempfile.mkdtemp()) / "run"))


def arrays_file() -> str:
    """Of samples, as `train.data.file_arrays` reads them."""
    place = Path(tempfile.mkdtemp()) / "own.npz"
    np.savez(place, x_train=X, y_train=np.arange(len(X)) % 2, x_test=X, y_test=np.arange(len(X)) % 2)
    return str(place)


def methods() -> list[Call]:
    """What a user calls on objects."""
    closed, sampled = twin(NET), limits.SampledTwin(NET)
    run = Trajectory(np.arange(2), loss=np.ones(2))
    how = {"task": TASK, "steps": 1, "learning_rate": 0.1, "samples": 8, "replicas": 2, "kernels": ()}
    everything = {
        name: p.default for name, p in inspect.signature(rich_training).parameters.items() if p.default is not p.empty
    }
    return [
        Call("twin.kernels", closed.kernels, {"x1": X, "x2": X}),
        Call("twin.layers", closed.layers, {"x": X}),
        Call("twin.rich", twin(RICH).rich, everything | how),
        Call("SampledTwin.kernels", sampled.kernels, {"x1": X, "x2": X, "samples": 8, "replicas": 2}),
        Call("Trajectory.plot", run.plot, {"what": "curves"}),
        Call("Trajectory.load", Trajectory.load, {"path": saved(run)}),
        Call("Parameterization.based", zoo.Parameterization.mup.based, {"width": 4}),
        Call("Parameterization.family", zoo.Parameterization.family, {"a": 0.5, "d": 0.0}),
    ]


def calls() -> list[Call]:
    """All of them."""
    known = given()
    return [Call(name, function, known[name]) for name, function in public().items() if name in known] + methods()


def without_a_call() -> list[str]:
    """Public functions of which nobody has written down a valid call."""
    return sorted(set(public()) - set(given()))


# What compiles: the names that such calls begin with.
SLOW = (
    "zoo.infer_roles", "zoo.explain", "zoo.factors", "zoo.learning_rate_factors", "limits.convergence", "limits.lazy", "limits.posterior.",
    "limits.fit", "limits.random_features",
    "limits.depth.", "limits.empirical", "limits.cumulants.", "train.ensemble", "train.coord_check", "train.sample_posterior",
    "train.cumulants", "train.analysis.", "train.transfer.", "train.evaluate", "twin.", "SampledTwin", "Trajectory.plot",
)  # fmt: skip
