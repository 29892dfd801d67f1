"""The tangent kernel of a network as an operator: products, leading eigenpairs, influence, without a kernel or a Jacobian."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from limits.finite.leading import leading
from limits.kept.precision import full_products
from limits.waiting import patient_bar
from zoo import checks
from zoo.abstract import abstract

if TYPE_CHECKING:
    import scipy.sparse.linalg

_BATCH_BYTES = 2**26  # of inputs that are run at a time, unless `batch` says otherwise


def _kind(x: np.ndarray) -> Any:
    """The type in which `apply` is given x: whole numbers, True and False as such, all else in that of numbers."""
    return jax.dtypes.canonicalize_dtype(x.dtype if x.dtype.kind in "biu" else float)


class Eigenpairs(NamedTuple):
    """Eigenvalues, largest first, eigenvectors [n, outputs, count], and |K v − λ v|: an eigenvalue of K is no farther away."""

    values: np.ndarray
    vectors: np.ndarray
    residuals: np.ndarray


@checks.arguments(
    apply=checks.function,
    params=checks.tree,
    x=checks.array(least=1),
    rates=checks.nothing | checks.rates,
    batch=checks.nothing | checks.count(),
)
class TangentOperator:
    """K = Σ_θ rate_θ ∂f/∂θ (∂f/∂θ)ᵀ over inputs and outputs, [n · outputs, n · outputs], as what it does to vectors.

    K v = J (rates · Jᵀ v): one backward and one forward pass over the inputs, a batch at a time, so that it takes the memory of
    a few copies of the parameters whatever n is. `apply(params, x)` → [n, outputs] treats inputs one by one; `rates` (a tree like
    params, default 1) are learning-rate factors, `zoo.learning_rate_factors(net, x)`; products are in the precision of the
    parameters, what is made of them in float64. For as few points as fit into tiles `empirical_ntk(block=)` is faster.

    >>> op = TangentOperator(lambda w, x: x @ w, jnp.ones((3, 1)), np.eye(2, 3))
    >>> (op @ np.array([[1.0], [2.0]])).ravel().tolist(), op.eigenpairs(1).values.round(6).tolist()
    ([1.0, 2.0], [1.0])

    Reference: Novak, Sohl-Dickstein, Schoenholz (2022), Fast finite width neural tangent kernel (products); Koh & Liang (2017),
    Understanding black-box predictions via influence functions.
    """

    def __init__(
        self, apply: Callable[[Any, Any], Any], params: Any, x: Any, rates: Any = None, batch: int | None = None
    ) -> None:
        self.apply, self.params, self.x = apply, params, np.asarray(x)
        try:
            shape = jax.eval_shape(apply, params, self._like(len(self.x))).shape
        except Exception as error:
            why = (str(error).splitlines() or [""])[0]
            raise ValueError(
                f"TangentOperator: apply(params, x) cannot be computed ({type(error).__name__}: {why}): are params those of this "
                "apply, and x its inputs [n, …]?"
            ) from error
        if len(shape) != 2 or shape[0] != len(self.x):
            raise ValueError(
                f"TangentOperator: apply must return [n, outputs]; for {len(self.x)} inputs it returns {shape}."
            )
        trees = None if rates is None else (jax.tree.structure(rates), jax.tree.structure(params))
        if trees is not None and trees[0] != trees[1]:
            raise ValueError(
                f"TangentOperator: rates must be a tree like params; it is {trees[0]}, and params {trees[1]}."
            )
        self.rates, self.outputs = rates, int(shape[1])
        each = max(1, self.x[:1].nbytes)
        self.batch = min(len(self.x), batch or max(1, min(1024, _BATCH_BYTES // each)))

    @property
    def shape(self) -> tuple[int, int]:
        """(n · outputs, n · outputs)."""
        size = len(self.x) * self.outputs
        return size, size

    def __matmul__(self, v: Any) -> np.ndarray:
        """K v for v [n, outputs], or [n, outputs, columns], in float64."""
        v = np.asarray(v)
        if v.shape[:2] != (len(self.x), self.outputs) or v.ndim > 3:
            raise ValueError(
                f"TangentOperator: v must be [n, outputs] or [n, outputs, columns] with n, outputs = {len(self.x)}, "
                f"{self.outputs}; its shape is {v.shape}."
            )
        if v.ndim == 3:
            return np.stack([self @ v[..., i] for i in range(v.shape[2])], axis=-1)
        return self.forward(self.backward(v))

    @full_products()
    def backward(self, v: Any, x: Any = None) -> Any:
        """rates · Jᵀ v, a tree like the parameters; with J at these inputs or others."""
        x, total = self.x if x is None else np.asarray(x), jax.tree.map(jnp.zeros_like, self.params)
        for rows in self._batches(len(x)):
            total = self._pull(total, self.params, *self._padded(rows, x, np.asarray(v)))
        return (
            total if self.rates is None else jax.tree.map(lambda g, r: g * jnp.asarray(r, g.dtype), total, self.rates)
        )

    @full_products()
    def forward(self, direction: Any, x: Any = None) -> np.ndarray:
        """J d for a direction d in the parameters, at these inputs or others, [n, outputs]."""
        x = self.x if x is None else np.asarray(x)
        out = [
            np.asarray(self._push(self.params, direction, self._padded(rows, x)[0]), np.float64)[
                : rows.stop - rows.start
            ]
            for rows in self._batches(len(x))
        ]
        return np.concatenate(out)

    @checks.arguments(
        count=checks.count(), tolerance=checks.number(positive=True), steps=checks.count(), seed=checks.seed
    )
    def eigenpairs(self, count: int, tolerance: float = 1e-6, steps: int = 1000, seed: int = 0) -> Eigenpairs:
        """The `count` largest, each as often as it occurs, to `tolerance` of the largest or as far as products are exact; by
        Lanczos (ARPACK), and again beside what was found until nothing larger is left: twice the products, or more."""
        size = self.shape[0]
        if count >= size:
            raise ValueError(
                f"eigenpairs: count must be below n · outputs = {size}, got {count}; for all of them take empirical_ntk."
            )
        with patient_bar("products of the tangent kernel", None) as advance:
            operator = self._flat(advance)
            values, vectors = leading(operator, count, tolerance, steps, seed)
            left = [np.linalg.norm(operator @ vectors[:, i] - values[i] * vectors[:, i]) for i in range(count)]
        return Eigenpairs(values, vectors.reshape(len(self.x), self.outputs, count), np.array(left))

    @checks.arguments(
        x=checks.array(least=1), residual=checks.array(), noise=checks.number(positive=True),
        tolerance=checks.number(positive=True), steps=checks.count(),
    )  # fmt: skip
    def influence(self, x: Any, residual: Any, noise: float, tolerance: float = 1e-6, steps: int = 1000) -> np.ndarray:
        """∂f_k(x)/∂(weight of training point i in the loss), [len(x), outputs, n], of the linearised network at its optimum.

        The loss is Σ_i w_i ½ |f(x_i) − y_i|² + (noise/2) |θ − θ₀|²/rates, and `residual` y − f at the inputs [n, outputs] there:

            ∂f(x)/∂w_i = k(x, X) (K + noise)⁻¹_i · (y_i − f(x_i)),

        with conjugate gradients on products of K. To leave point i out changes f(x) by −∂f(x)/∂w_i to first order (exactly:
        `predict.influence`, where the kernel is formed).
        """
        x, residual = np.asarray(x), np.asarray(residual, np.float64)
        if residual.shape != (len(self.x), self.outputs):
            raise ValueError(
                f"influence: residual must be [n, outputs] = [{len(self.x)}, {self.outputs}]; its shape is {residual.shape}."
            )
        out = np.empty((len(x), self.outputs, len(self.x)))
        with patient_bar("products of the tangent kernel", None) as advance:
            operator = self._flat(advance, noise)
            for i in range(len(x)):
                for k in range(self.outputs):
                    one = np.eye(self.outputs)[k][None]
                    here = self.forward(self.backward(one, x[i : i + 1])).ravel()
                    solved, failed = scipy.sparse.linalg.cg(operator, here, rtol=tolerance, maxiter=steps)
                    if failed:
                        raise RuntimeError(
                            f"influence: conjugate gradients did not reach {tolerance:g} in {steps} steps: raise noise, which "
                            f"makes K + noise better conditioned (now {noise:g}), steps or tolerance."
                        )
                    out[i, k] = (solved.reshape(residual.shape) * residual).sum(1)
        return out

    def _flat(self, advance: Callable[[], None], noise: float = 0.0) -> Any:
        """K + noise on flat vectors, as SciPy takes it; every product is counted."""

        def times(v: np.ndarray) -> np.ndarray:
            advance()
            return (self @ v.reshape(-1, self.outputs)).ravel() + noise * v

        return scipy.sparse.linalg.LinearOperator(self.shape, matvec=times, dtype=np.float64)  # pyright: ignore

    def _like(self, n: int) -> Any:
        return abstract((n, *self.x.shape[1:]), _kind(self.x))

    def _batches(self, n: int) -> list[slice]:
        return [slice(i, min(i + self.batch, n)) for i in range(0, n, self.batch)]

    def _padded(self, rows: slice, *arrays: np.ndarray) -> list[Any]:
        """These rows, with copies of the last input (of weight 0) up to a whole batch, so that one program serves all."""
        missing = self.batch - (rows.stop - rows.start)
        out = []
        for number, each in enumerate(arrays):
            part = each[rows]
            more = np.repeat(part[-1:], missing, axis=0)
            out.append(np.concatenate([part, 0 * more if number else more]) if missing else part)
        return [jnp.asarray(each, jnp.asarray(0.0).dtype if number else _kind(each)) for number, each in enumerate(out)]

    @functools.cached_property
    def _pull(self) -> Callable[..., Any]:
        @functools.partial(jax.jit, donate_argnums=0)
        def pull(total: Any, params: Any, x: Any, v: Any) -> Any:
            f, back = jax.vjp(lambda p: self.apply(p, x), params)
            return jax.tree.map(jnp.add, total, back(v.astype(f.dtype))[0])

        return pull

    @functools.cached_property
    def _push(self) -> Callable[..., Any]:
        return jax.jit(lambda params, d, x: jax.jvp(lambda p: self.apply(p, x), (params,), (d,))[1])
