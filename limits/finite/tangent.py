"""The tangent kernel of a finite network with any parameters, and the network's linearisation."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from limits.finite import dense_calls
from limits.finite.tiles import in_tiles
from limits.kept.precision import full_products
from zoo import checks

_JACOBIAN_ENTRIES = 2**26  # as many entries of a Jacobian are held at a time


@checks.arguments(apply=checks.function)
def linearize(apply: Callable[[Any, Any], Any], params: Any) -> Callable[[Any, Any], Any]:
    """f_lin(p, x) = f(params, x) + ∂f/∂params · (p − params), a function of any parameters p.

    >>> f = linearize(lambda p, x: x * p**2, jnp.array(3.0))
    >>> f(jnp.array(4.0), jnp.array(1.0)).item()
    15.0
    """

    @full_products()
    def linear(p: Any, x: Any) -> Any:
        f, change = jax.jvp(lambda q: apply(q, x), (params,), (jax.tree.map(jnp.subtract, p, params),))
        return f + change

    return linear


@checks.arguments(
    apply=checks.function,
    params=checks.tree,
    rates=checks.rates,
    x1=checks.array(least=1),
    x2=checks.array(least=1),
    outputs=checks.choice("mean", "full"),
    folder=checks.nothing | checks.path,
    block=checks.nothing | checks.count(),
)
@full_products()
def empirical_ntk(
    apply: Callable[[Any, Any], Any],
    params: Any,
    x1: Any,
    x2: Any = None,
    outputs: Literal["mean", "full"] = "mean",
    rates: Any = None,
    folder: Any = None,
    block: int | None = None,
) -> Float[Array, "n1 n2 *outputs"] | Float[np.ndarray, "n1 n2"]:
    """K = Σ_θ rate_θ ∂f(x1)/∂θ ∂f(x2)/∂θ, for any pure apply(params, x) → [n, outputs] and any parameters.

    outputs="mean" is the trace over outputs divided by their number, [n1, n2]; "full" is [n1, n2, outputs, outputs].
    `rates` (a tree like params, default 1) are learning-rate factors, `zoo.learning_rate_factors(net, x)`.

    Dense and conv layers (zoo's; flax.linen's dense ones) are taken apart: the gradient of one is input ⊗ backward signal,
    so their share is (a·a')(g·g') and no Jacobian is built, be the input of each sample its own or the same for all. All
    other parameters, and those that are used in another way too, are differentiated a few samples at a time. The function
    must treat samples independently (no batch statistics); it may be used under jit and vmap.

    With `folder` or `block` the kernel is computed in tiles of `block` × `block` inputs, compiled once, and returned as a NumPy
    array; `folder` keeps finished tiles (`limits.Share` of it: with other processes) and the array is a memory map of its file.

    >>> net = lambda w, x: x @ w
    >>> empirical_ntk(net, jnp.ones((3, 1)), jnp.eye(2, 3)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]

    Reference: Novak, Sohl-Dickstein, Schoenholz (2022), Fast finite width neural tangent kernel.
    """
    checks.one_array("x1", x1)
    checks.one_array("x2", x2)
    x1 = jnp.asarray(x1)
    x2 = None if x2 is None else jnp.asarray(x2)
    if x2 is not None and x1.shape[1:] != x2.shape[1:]:
        raise ValueError(f"x1 has samples of shape {x1.shape[1:]} and x2 of shape {x2.shape[1:]}: they must agree.")
    if outputs not in ("mean", "full"):
        raise ValueError(f'outputs must be "mean" or "full", got "{outputs}".')
    if folder is not None or block is not None:
        if outputs != "mean":
            raise ValueError(
                "empirical_ntk: tiles hold a number for each pair of inputs: leave out `outputs`, or folder and block."
            )
        what = (dense_calls.without_jit(apply), rates)
        return in_tiles(lambda p, a, b: empirical_ntk(apply, p, a, b, rates=rates), params, x1, x2, what, folder, block)
    leaves = jax.tree.leaves(params)
    if len({id(leaf) for leaf in leaves}) < len(leaves):  # layers are recognised by their arrays
        params = jax.tree.map(jnp.copy, params)
        leaves = jax.tree.leaves(params)
    weights = [1.0] * len(leaves) if rates is None else jax.tree.leaves(rates)
    if len(weights) != len(leaves):
        raise ValueError(f"rates has {len(weights)} leaves and params has {len(leaves)}: they must be trees alike.")

    try:
        found = jax.eval_shape(dense_calls.without_jit(apply), params, x1)
    except Exception as error:
        why = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"apply(params, x1) cannot be computed ({type(error).__name__}: {why}): are params those of this apply, and x1 its "
            "inputs [n, …]?"
        ) from error
    if not checks.is_array(found):
        raise ValueError(
            f"apply must return one array [n, outputs]; it returns {checks.parts(found)}: choose one of them."
        )
    shape = found.shape
    if len(shape) != 2 or shape[0] != len(x1):
        raise ValueError(f"apply must return [n, outputs]; for {len(x1)} samples it returns shape {shape}.")
    calls = dense_calls.find(apply, params, x1)
    total: Any = 0.0
    if calls:
        left = dense_calls.gradients(apply, params, x1, calls)
        right = left if x2 is None else dense_calls.gradients(apply, params, x2, calls)
        total = total + _structured(calls, left, right, weights, outputs)
    claimed = {i for call in calls for i in call.leaves.values()}
    rest = [i for i in range(len(leaves)) if i not in claimed]
    if rest:
        total = total + _by_jacobian(apply, params, x1, x1 if x2 is None else x2, rest, weights, outputs)
    return total


def _structured(calls: list, left: Any, right: Any, weights: list, outputs: str) -> Any:
    """Σ over layers of (a·a')(g·g'), the uses of one layer (and its positions) summed before the product."""
    total: Any = 0.0
    for kernel in dict.fromkeys(call.leaves["kernel"] for call in calls):
        uses = [i for i, call in enumerate(calls) if call.leaves["kernel"] == kernel]
        (a1, g1), (a2, g2) = (
            (jnp.concatenate([a[i] for i in uses], axis=1), jnp.concatenate([g[i] for i in uses], axis=2))
            for a, g, _ in (left, right)
        )
        leaves, scale, kind = calls[uses[0]].leaves, left[2][uses[0]], jnp.result_type(a1, g1)
        strength = jnp.asarray(weights[kernel] * scale["kernel"] ** 2, kind)
        total = total + strength * contract(a1, g1, a2, g2, outputs)
        if "bias" in leaves:
            strength = jnp.asarray(weights[leaves["bias"]] * scale["bias"] ** 2, kind)
            total = total + strength * trace(g1.sum(2), g2.sum(2), outputs)
    return total


def contract(a1: Any, g1: Any, a2: Any, g2: Any, outputs: str) -> Any:
    """Inner products of Σ_p a_p ⊗ g_p; a: [n, p, d], g: [k, n, p, m]. By pairs of positions, or by the sums themselves."""
    (n1, p, d), (k, n2, q, m) = a1.shape, g2.shape
    if p == q == 1:
        similar = a1[:, 0] @ a2[:, 0].T
        return (similar if outputs == "mean" else similar[:, :, None, None]) * trace(g1[:, :, 0], g2[:, :, 0], outputs)
    many = k if outputs == "mean" else k * k
    if n1 * n2 * p * q * (d + many * m) < (n1 * p + n2 * q + n1 * n2 * many / k) * k * d * m:
        similar = jnp.einsum("ipd,jqd->ijpq", a1, a2)
        if outputs == "mean":
            return jnp.einsum("ijpq,kipm,kjqm->ij", similar, g1, g2) / k
        return jnp.einsum("ijpq,kipm,ljqm->ijkl", similar, g1, g2)
    j1, j2 = (jnp.einsum("ipd,kipm->kidm", a, g) for a, g in ((a1, g1), (a2, g2)))
    return trace(j1.reshape(k, n1, -1), j2.reshape(k, n2, -1), outputs)


def trace(j1: Any, j2: Any, outputs: str) -> Any:
    """J Jᵀ of [k, n, size]: summed over outputs and divided by their number, or for every pair of outputs."""
    if outputs == "mean":
        return jnp.einsum("kis,kjs->ij", j1, j2) / j1.shape[0]
    return jnp.einsum("kis,ljs->ijkl", j1, j2)


def _one_output_at_a_time(one: Callable, chosen: list[Any], sample: Any) -> list[Any]:
    """∂one/∂chosen, [outputs, …] of each."""
    f, pullback = jax.vjp(lambda chosen: one(chosen, sample), chosen)
    return jax.lax.map(lambda cotangent: pullback(cotangent)[0], jnp.eye(len(f), dtype=f.dtype))


def _by_jacobian(apply: Any, params: Any, x1: Any, x2: Any, which: list[int], weights: list, outputs: str) -> Any:
    """The share of the leaves in `which`, by Jacobians of a few samples at a time."""
    leaves, tree = jax.tree.flatten(params)
    plain = dense_calls.without_jit(apply)

    def jacobian(x: Any) -> list[Any]:
        def one(chosen: list[Any], sample: Any) -> Any:
            full = list(leaves)
            for i, leaf in zip(which, chosen, strict=True):
                full[i] = leaf
            return plain(jax.tree.unflatten(tree, full), sample[None])[0]

        chosen = [leaves[i] for i in which]
        try:
            parts = jax.vmap(lambda sample: jax.jacrev(one)(chosen, sample))(x)
        except NotImplementedError:  # jax has no convolutions that are mapped over members, samples and outputs at once
            parts = jax.lax.map(lambda sample: _one_output_at_a_time(one, chosen, sample), x)
        return [part.reshape(*part.shape[:2], -1).swapaxes(0, 1) for part in parts]

    sizes = sum(leaves[i].size for i in which)
    k = jax.eval_shape(plain, params, x1).shape[-1]
    rows = max(1, _JACOBIAN_ENTRIES // max(1, sizes * k))
    blocks = []
    for i in range(0, len(x1), rows):
        left = jacobian(x1[i : i + rows])
        line = []
        for j in range(0, len(x2), rows):
            right = left if x2 is x1 and i == j else jacobian(x2[j : j + rows])
            shares = [
                jnp.asarray(weights[leaf], j1.dtype) * trace(j1, j2, outputs)
                for leaf, j1, j2 in zip(which, left, right, strict=True)
            ]
            line.append(sum(shares[1:], shares[0]))
        blocks.append(jnp.concatenate(line, axis=1))
    return jnp.concatenate(blocks, axis=0)
