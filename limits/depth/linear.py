"""Training of deep linear residual networks at infinite width, exactly, at a cost that lets depth be extrapolated away."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import scipy

from limits.fields.sweeps import Plan
from zoo import ResNet, activation_function, parameterization
from zoo.activations import PiecewiseLinear

if TYPE_CHECKING:
    import scipy.linalg
    import scipy.special

_SMALLEST = 1e-8  # part of a vector that counts as a new direction, as in `limits.fields`


def applies(net: Any) -> bool:
    """Whether this is a dense residual network, linear, with branches of one layer and without biases."""
    if not isinstance(net, ResNet) or net.form != "dense" or net.branch_layers > 1 or float(net.b_std) > 0:
        return False
    return activation_function(net.activation) in (PiecewiseLinear(1.0, 1.0), PiecewiseLinear(1, 1))


def memory(plan: Plan, depth: int) -> int:
    """Bytes that a run of this depth takes."""
    inputs, outputs = _rooms(plan)
    steps = len(plan.training.rates) + 1
    kept = 2 * (inputs + outputs) + steps * (plan.n + plan.task.outputs)
    return 8 * depth * kept * _coordinates(plan, depth)


def _rooms(plan: Plan) -> tuple[int, int]:
    """How many directions a matrix meets, of inputs and of outputs."""
    looks, steps = len(plan.times), len(plan.training.rates)
    return len(plan.task.x) * looks + plan.n * steps, plan.task.outputs * (looks + steps)


def _coordinates(plan: Plan, depth: int) -> int:
    return len(plan.task.x) + plan.task.outputs + depth * sum(_rooms(plan))


class Gaussian:
    """A matrix with entries N(0, 1/N), N = ∞, in coordinates: known by its images of the vectors that it has met.

    W q for a new direction q is Σ_u u <Wᵀu, q> over the directions u of outputs that Wᵀ has met, and a unit vector that
    nothing else knows of; Wᵀ is the mirror image. The same as `limits.fields.matrix.Matrix`, at the cost of its arithmetic alone.
    """

    def __init__(self, rooms: tuple[int, int], size: int) -> None:
        self.basis = [np.zeros((room, size)) for room in rooms]
        self.images = [np.zeros((room, size)) for room in rooms]
        self.known = [0, 0]

    def times(self, a: np.ndarray, side: int, fresh: Any) -> np.ndarray:
        """W a for rows a (side 0), or Wᵀ a (side 1); `fresh` hands out coordinates."""
        v, y = self.basis[side], self.images[side]
        m = self.known[1 - side]
        u, z = self.basis[1 - side][:m], self.images[1 - side][:m]
        for row in a:
            n, rest = self.known[side], row
            for _ in range(2):  # twice, against rounding
                rest = rest - (v[:n] @ rest) @ v[:n]
            length = np.linalg.norm(rest)
            if length > _SMALLEST * np.linalg.norm(row):
                v[n] = rest / length
                y[n] = (z @ v[n]) @ u
                y[n, fresh()] += 1
                self.known[side] += 1
        n = self.known[side]
        return (a @ v[:n].T) @ y[:n]


class DeepLinear:
    """Fields of h^(l+1) = h^l + s w W h^l in coordinates: <a, b> = a·b stands for the mean over neurons.

    Trained with coefficients A_t on the gradients of every step (momentum and weight decay are in them), D = −∂loss/∂f:

        f_k = (w/γ) <w_k, h^L>,   g_k^L = w w_k,   g^l = g^(l+1) + s w Wᵀ g^(l+1)
        W h = W(0) h + γ r s w Σ_t A_t Σ_kμ D_kμ(t) g_k^(l+1)(t) <h_μ^l(t), h>

    with r = L^(2α − 1) for α > 1/2; read-in and readout alike, with their own vectors.
    """

    def __init__(self, plan: Plan, depth: int) -> None:
        net = plan.net.clone(depth=depth)
        p, self.plan, self.net = parameterization(net.parameterization), plan, net
        self.w, self.gamma, self.s = float(net.w_std), float(net.gamma), float(net.branch_scale)
        trains = {
            role: plan.training.trained is None or role in plan.training.trained
            for role in ("input", "branch", "readout")
        }
        self.moves = {role: float(move) for role, move in trains.items()}
        self.moves["branch"] *= float(p.depth_ratio(depth) ** p.branch_rate_exponent)
        self.start = {"input": 1.0, "branch": 0.0 if net.zero_init else 1.0, "readout": 1.0}
        x, outputs = plan.task.x.reshape(len(plan.task.x), -1), plan.task.outputs
        self.gram = x @ x.T / x.shape[1]
        values, vectors = np.linalg.eigh(self.gram)
        size = _coordinates(plan, depth)
        self.read_in, self.readout = np.zeros((len(x), size)), np.zeros((outputs, size))
        self.read_in[:, : len(x)] = self.w * vectors * np.sqrt(np.maximum(values, 0))
        self.readout[:, len(x) : len(x) + outputs] = np.eye(outputs)
        self.used = len(x) + outputs
        self.matrices = [Gaussian(_rooms(plan), size) for _ in range(net.branches)]
        # By layer, of every step; before the first there is nothing, so that what is trained is a sum of no terms.
        self.hs = [[np.zeros((0, size))] for _ in range(net.branches + 1)]
        self.gs = [[np.zeros((outputs, size))] for _ in range(net.branches + 1)]
        self.rows, self.d = [np.zeros(0, int)], [np.zeros((0, outputs))]
        self.velocity, self.a = np.zeros(1), np.zeros(1)

    def _fresh(self) -> int:
        self.used += 1
        return self.used - 1

    def _outer(self) -> np.ndarray:
        """A_t D_kμ(t) as a matrix [steps · outputs, steps · points]."""
        return np.asarray(scipy.linalg.block_diag(*[a * d.T for a, d in zip(self.a, self.d, strict=True)]))

    def forward(self, points: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """(h^l of these points, f)."""
        w, s, h = self.w, self.s, self.start["input"] * self.read_in[points]
        c = self._outer()
        met = self.gram[np.ix_(np.concatenate(self.rows), points)]
        h = h + self.gamma * self.moves["input"] * w**2 * (c @ met).T @ np.concatenate(self.gs[0])
        hs = [h]
        for l, matrix in enumerate(self.matrices):
            branch = self.start["branch"] * matrix.times(h, 0, self._fresh) if self.start["branch"] else 0.0
            met = np.concatenate(self.hs[l]) @ h.T
            trained = (c @ met).T @ np.concatenate(self.gs[l + 1])
            branch = branch + self.gamma * self.moves["branch"] * s * w * trained
            h = h + s * w * branch
            hs.append(h)
        return hs, (w / self.gamma) * h @ self._readout().T

    def _readout(self) -> np.ndarray:
        """w_k at this time."""
        each = np.concatenate([a * d.T for a, d in zip(self.a, self.d, strict=True)], axis=1)
        trained = self.gamma * self.moves["readout"] * self.w * each @ np.concatenate(self.hs[-1])
        return self.start["readout"] * self.readout + trained

    def backward(self) -> list[np.ndarray]:
        """g^l [outputs, coordinate]: in a linear network the same for all points."""
        c, w, s = self._outer(), self.w, self.s
        g = w * self._readout()
        gs = [g]
        for l, matrix in reversed(list(enumerate(self.matrices))):
            back = self.start["branch"] * matrix.times(g, 1, self._fresh) if self.start["branch"] else 0.0
            met = np.concatenate(self.gs[l + 1]) @ g.T
            back = back + self.gamma * self.moves["branch"] * s * w * (met.T @ c) @ np.concatenate(self.hs[l])
            g = g + s * w * back
            gs.append(g)
        return gs[::-1]

    def step(self, rows: np.ndarray, rate: float) -> None:
        """One step of gradient descent on these training points."""
        hs, f = self.forward(rows)
        for kept, new in ((self.hs, hs), (self.gs, self.backward())):
            for layer, field in zip(kept, new, strict=True):
                layer.append(field)
        task, rule = self.plan.task, self.plan.training
        aim = f if task.loss == "mse" else scipy.special.softmax(f, axis=-1)
        self.rows.append(rows)
        self.d.append((task.y_train[rows] - aim) / len(rows))
        self.velocity = np.append(rule.momentum * self.velocity, 1.0)
        shrink = 1 - rate * rule.weight_decay
        self.a = shrink * np.append(self.a, 0.0) + rate * self.velocity
        for role, moves in self.moves.items():
            self.start[role] *= shrink if moves else 1.0

    def look(self, kernels: tuple[str, ...]) -> dict[str, Any]:
        """f, and Φ^l, G^l and the tangent kernel as asked, of all points."""
        hs, f = self.forward(np.arange(len(self.gram)))
        found: dict[str, Any] = {"f": f}
        if not kernels:
            return found
        gs = self.backward()
        phi = [h @ h.T for h in hs]
        slopes = [float(np.sum(g * g)) / len(g) for g in gs]
        share = [phi[-1] * self.moves["readout"], self.gram * slopes[0] * self.moves["input"]]
        inner = [self.s**2 * self.moves["branch"] * k * g for k, g in zip(phi[:-1], slopes[1:], strict=True)]
        every = {
            "phi": tuple(phi),
            "g": tuple(g * np.ones_like(f @ f.T) for g in slopes),
            "ntk": self.w**2 * sum(share + inner),
        }
        return found | {name: every[name] for name in kernels}


def run(plan: Plan, depth: int) -> dict[str, Any]:
    """What the network of this depth sees at the recorded times: leaves [1, time, …].

    >>> from limits.training import Training
    >>> from limits.types import Task
    >>> task, net = Task([[1.0]], [1.0]), ResNet(8, 4, activation="linear", parameterization="mup")
    >>> plan = Plan(net, task, Training.of(task, 2, 0.1), np.arange(3))
    >>> run(plan, 4)["f"][0, :, 0, 0].round(6).tolist()  # theory notes, fixture F1
    [0.0, 0.507812, 0.787651]
    """
    net, seen, now = DeepLinear(plan, depth), [], 0
    rows = plan.training.rows(plan.n)
    for t in plan.times.tolist():
        while now < t:
            net.step(rows[now], float(plan.training.rates[now]))
            now += 1
        seen.append(net.look(plan.looks(t)))
    names = dict.fromkeys(name for each in seen for name in each)  # kernels are looked at at some of the times
    looks = {name: [each[name] for each in seen if name in each] for name in names}
    return {name: jax.tree.map(lambda *parts: np.stack(parts)[None], *each) for name, each in looks.items()}
