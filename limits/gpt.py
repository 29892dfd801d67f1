"""The infinite-width twin of `zoo/gpt.py`, read off its code."""

import dataclasses
from typing import Any

import numpy as np

from limits.sampled_twin import SampledTwin
from limits.twin import register_twin
from limits.types import AbsentError, Provenance
from zoo import GPT

_TIED = (
    "the readout is the embedding's transpose, so that f_v(0) = ⟨h E_v⟩ N^(1/2 − d) / γ₀ is no random function but a number for "
    "every token v: it {how}, and the kernel of outputs v depends on whether v stands in the sequence. Take tied=False: the "
    "limit of independent weights."
)
_HOW = {0.5: "stays where features learn, at any width", 0.0: "grows with the width, and there is no kernel regime"}


_RANDOM = (
    "attention of a fixed number of heads stays random where logits do ({why}), so that kernels and training differ from one "
    'network to the next, however wide. Take logits="1/d" and heads that grow with the width, or heads="grow".'
)


@register_twin(GPT)
@dataclasses.dataclass(frozen=True)
class GPTTwin(SampledTwin):
    """NNGP and NTK of a decoder between tokens of sequences: [n1, n2, t, t], causal in both.

    Logits scaled by 1/d vanish at initialisation, as queries and keys are independent: attention is the mean over the tokens
    so far, groups, rotary positions (turns of queries and keys) and norms of queries leave it so, and kernels are exact, or
    a series or rule that says its error. Logits scaled by 1/√d, and those of heads whose size does not grow, stay random:
    kernels are drawn, with errors; a fixed number of heads makes them differ from one network to the next, and then there is
    no limit of training. `lazy` and `rich` are on tasks with targets at every position.

    >>> from limits import twin
    >>> k = twin(GPT(width=16, depth=1, vocabulary=7, context=8)).kernels(np.array([[1, 2, 3], [1, 2, 4]]))
    >>> k.ntk.shape, k.provenance["nngp"].kind, bool(abs(k.ntk[0, 0, :2, :2] - k.ntk[0, 1, :2, :2]).max() < 1e-12)
    ((2, 2, 3, 3), 'exact', True)
    """

    net: GPT

    deepens = True

    @property
    def net_read(self) -> Any:
        """Where logits vanish, positions that turn queries and keys make no difference; a scan's weights are of one depth."""
        vanish = self.net.positions == "rotary" and self.net.logits == "1/d"
        net = self.net.clone(positions=None) if vanish else self.net
        return net.clone(scan=False) if self.deep else net

    def absent(self, x: Any) -> dict[str, Provenance]:  # noqa: D102
        if self.net.tied:
            reason = _TIED.format(how=_HOW.get(float(self.parameterization.d), "goes with the width"))
            return dict.fromkeys(("nngp", "ntk"), Provenance("absent", reason))
        return super().absent(x)

    def check_training(self, x: Any) -> None:
        """Raises where outputs at the start are no random functions, or attention differs from one network to the next."""
        net = self.net
        if net.tied:
            raise AbsentError(
                f"GPT: {_TIED.format(how=_HOW.get(float(self.parameterization.d), 'goes with the width'))}"
            )
        if net.heads != "grow" and (net.head_dim is not None or net.logits != "1/d"):
            why = f"heads of {net.head_dim}" if net.head_dim is not None else "scaled by 1/√d"
            raise AbsentError(f"GPT: {_RANDOM.format(why=why)}")
        super().check_training(x)

    def _drawn(
        self, names: tuple[str, ...], first: Any, second: Any, samples: int, replicas: int, seed: int, dtype: Any
    ) -> dict[str, Any]:
        """Kernels [replicas, n1, n2, t, t]: every token of every sequence is an input, and its output one of one token."""
        fields = {f.name: getattr(self.net, f.name) for f in dataclasses.fields(self.net) if f.init}
        each = SampledTwin(
            OneToken(**{k: v for k, v in fields.items() if k not in ("parent", "name")}), None, self.trained
        )
        others = None if second is None else _by_token(second)
        found = each._drawn(names, _by_token(first), others, samples, replicas, seed, dtype)
        t, n1, n2 = first.shape[1], len(first), len(first if second is None else second)
        return {name: a.reshape(-1, n1, t, n2, t).transpose(0, 1, 3, 2, 4) for name, a in found.items()}


class OneToken(GPT):
    """The first of the outputs of one token, [n, 1]: the token's number is the last entry of x [n, t + 1].

    Outputs have independent readouts of one law, and a kernel of them all costs a backward pass for each.

    >>> import jax
    >>> x = jax.numpy.array([[1, 2, 3, 0], [1, 2, 3, 2]])
    >>> OneToken(width=16, depth=1, vocabulary=7, context=8).init_with_output(jax.random.key(0), x)[0].shape
    (2, 1)
    """

    @property
    def outputs(self) -> int:  # noqa: D102
        return 1

    def __call__(self, x: Any, intermediates: bool = False) -> Any:  # noqa: D102  # pyright: ignore
        f = super().__call__(x[:, :-1], intermediates, at=x[:, -1])
        return (f[0][:, :1], f[1]) if intermediates else f[:, :1]


def _by_token(x: np.ndarray) -> np.ndarray:
    """Every sequence once for each of its tokens, with its number behind: [n t, t + 1]."""
    n, t = x.shape
    return np.concatenate([np.repeat(x, t, axis=0), np.tile(np.arange(t, dtype=x.dtype), n)[:, None]], axis=1)
