"""Attention as one kernel of a GPU, which keeps no weights [heads, a, b]: for training in half precision."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax

_WANTED = ContextVar("fused_attention", default=False)
_KERNEL = "cudnn"  # of jax.nn.dot_product_attention
_HEAD = 128  # features of a head at most, and a multiple of 8: what cuDNN has kernels for on every GPU from Ampere on


@contextlib.contextmanager
def fused_attention() -> Iterator[None]:
    """Inside, attention that `fits` is cuDNN's kernel: less time and memory, and first derivatives alone.

    It counts while a program is traced; what `jax.jit` traced before stays as it was. `launch.train` and `launch.transfer` step
    in here; who reads a network's program, or differentiates it twice or forwards, stays outside. Sums are those of the
    written-out attention in another order, with float32 in between.

    >>> from zoo import GPT
    >>> net = GPT(width=16, depth=1, heads=2, context=8, vocabulary=11, dtype="bfloat16")
    >>> with fused_attention():  # elsewhere than on a GPU nothing changes
    ...     f, _ = net.init_with_output(jax.random.key(0), jax.numpy.zeros((1, 8), int))
    >>> f.shape
    (1, 8, 11)

    Reference: Dao et al. (2022), FlashAttention.
    """
    token = _WANTED.set(True)
    try:
        yield
    finally:
        _WANTED.reset(token)


def fits(q: jax.Array, k: jax.Array, v: jax.Array) -> bool:
    """Whether the kernel is asked for, and there for q [n, a, heads, d], k and v [n, b, heads or fewer, d]."""
    half = {jax.numpy.dtype(each.dtype).name for each in (q, k, v)} in ({"bfloat16"}, {"float16"})
    even = not (q.shape[1] % 2 or k.shape[1] % 2)
    return _WANTED.get() and half and even and not q.shape[-1] % 8 and q.shape[-1] <= _HEAD and _has_kernel()


def fused(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool, scale: float) -> jax.Array:
    """Σ_b softmax_b(scale · q_a·k_b) v_b by head, b ≤ a if `causal`: [n, a, heads, d]."""
    return jax.nn.dot_product_attention(q, k, v, scale=scale, is_causal=causal, implementation=_KERNEL)


def _has_kernel() -> bool:
    if jax.default_backend() != "gpu":
        return False
    chosen: Any = jax.config.jax_default_device or jax.local_devices()[0]  # pyright: ignore[reportAttributeAccessIssue]
    found: Any = getattr(chosen, "compute_capability", "")
    return found[:1].isdigit() and int(found.split(".")[0]) >= 8  # Ampere; AMD's are names
