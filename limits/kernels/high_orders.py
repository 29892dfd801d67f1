"""What the orders of a Hermite series beyond the last make together, continued from those before."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.special import safe_sqrt


def beyond_last(a: Any, b: Any, gap: Any, together: Any, alternating: Any) -> tuple[Any, Any]:
    """(τ, 1 − τ): what all orders beyond the last, K, make together, Σ_{k≥K} a_k b_k c^k = τ |a||b| of these.

    Of a kink or a jump a_k² falls as k^−3/2 (of φ' at a kink of φ) or k^−5/2 (of φ there), of what is smooth and steep as
    k^−1/2 e^−β√k (of φ', with a pole beside the real axis). With x = λK, e^−λ = |c|, b = β√K, y = √x + b / 2√x:

        Σ_{k≥K} k^−3/2 e^−λk ~ s(x) = e^−x − √(πx) erfc √x,    k^−5/2:  e^−x − 2x s(x),    steep:  b/2 √(π/x) e^−x e^y² erfc y.

    Which it is and how fast, whether orders are odd or even, and how far those of a go with those of b is seen in those before:
    `together` and `alternating` are Σ a_k b_k and Σ (−1)^k a_k b_k over half of them.

    >>> k = np.arange(1, 2**20, 2.0)  # odd
    >>> squares, rest = np.ravel([0 * k, k**-1.5], "F")[:1024], (k**-1.5)[512:].sum() + 2.0**-10
    >>> a, half = np.sqrt(np.r_[squares, rest]), squares[512:].sum()
    >>> bool(abs(beyond_last(a, a, 1.999, half, -half)[0] * rest + (k**-1.5 * 0.999**k)[512:].sum()) < 1e-5)
    True
    """
    orders, rounding = len(a) - 1, 32 * jnp.finfo(a.dtype).eps
    before = [jnp.sum(each[orders // 2 : -1] ** 2, 0) for each in (a, b)]
    both = safe_sqrt(before[0] * before[1])
    # Of functions without a kink, what is left is rounding: it has no kind, and must not tell near points apart.
    nothing = sum((jnp.where(each[-1] ** 2 > rounding * jnp.sum(each * each, 0), 0, 1) for each in (a, b)), 0) > 0
    of_same, of_opposite = (
        jnp.where((both > 0) & ~nothing, each / jnp.where(both > 0, both, 1), 1) for each in (together, alternating)
    )
    x = -orders * jnp.log1p(-jnp.minimum(jnp.minimum(gap, 2 - gap), 0.05))  # beyond, all is e^−50
    root = safe_sqrt(x)
    excess = np.sqrt(np.pi) * root * jax.scipy.special.erfc(root)
    lost_slow, lost_fast = excess - jnp.expm1(-x), 2 * x * (jnp.exp(-x) - excess) - jnp.expm1(-x)
    sides = [_law(each) for each in (a, b)]
    fast, smooth, fall = ((one + other) / 2 for one, other in zip(*sides, strict=True))
    lost = lost_slow + fast * (lost_fast - lost_slow)
    lost = jnp.where(nothing, -jnp.expm1(-x), lost + smooth * (1 - _steep(x, fall) - lost))
    kept = jnp.where(gap > 1, of_opposite, of_same) * (1 - lost)
    apart = jnp.where(of_same > 1 - rounding, 0, 1 - of_same)  # one point twice: nothing is lost
    return kept, jnp.where(gap > 1, 1 - kept, apart + of_same * lost)


def _law(a: Any) -> tuple[Any, Any, Any]:
    """(the part that falls as k^−5/2 rather than k^−3/2, how far it is the law of what is steep instead, its b).

    From a quarter and a half of the orders over what is beyond: of k^−3/2 2 − 2^½ and 2^½ − 1, of k^−5/2 8 − 2^3/2 and 2^3/2 − 1.
    """
    orders = len(a) - 1
    rest = jnp.where(a[-1] != 0, a[-1] ** 2, 1)
    quarter, half = (jnp.sum(a[start : 2 * start] ** 2, 0) / rest for start in (orders // 4, orders // 2))
    least, most = 2**0.5 - 1, 2**1.5 - 1
    fast = jnp.clip((half - least) / (most - least), 0, 1)
    b = jnp.minimum(jnp.log1p(half) / (1 - 2**-0.5), 60.0)  # there is nothing beyond
    steep = jnp.exp(b / 2) - jnp.exp(b * (1 - 2**-0.5))
    kinked = 2 - 2**0.5 + fast * (6 - 2**0.5)
    away = [((quarter - each) / (1 + quarter)) ** 2 for each in (kinked, steep)]
    away[0] = away[0] + ((half - least - fast * (most - least)) / (1 + half)) ** 2
    return fast, away[0] ** 2 / jnp.maximum(away[0] ** 2 + away[1] ** 2, 1e-30), b


def _steep(x: Any, b: Any) -> Any:
    """b/2 √(π/x) e^−x e^y² erfc y, 1 at x = 0; of large y by a continued fraction."""
    some = x > 1e-12
    root = jnp.sqrt(jnp.where(some, x, 1))
    y = root + b / (2 * root)
    near = jnp.minimum(y, 5.0)
    fraction = jnp.maximum(y, 5.0)
    for k in range(40, 0, -1):
        fraction = jnp.maximum(y, 5.0) + k / 2 / fraction
    scaled = jnp.where(y < 5, jnp.exp(near**2) * jax.scipy.special.erfc(near), 1 / (np.sqrt(np.pi) * fraction))
    return jnp.where(some, b / 2 * np.sqrt(np.pi) / root * jnp.exp(-x) * scaled, 1)
