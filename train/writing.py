"""Text, or tokens, from a trained GPT: prompts of any length, and as many tokens as wanted."""

from typing import Any

import jax
import numpy as np

from train.data.text import END
from zoo import checks
from zoo.generate import generate
from zoo.gpt import GPT

BYTES = 256


@checks.arguments(
    net=checks.a(GPT, "a zoo.GPT"),
    params=checks.tree,
    prompt=checks.Check(
        "tokens [t], whole numbers, at least one",
        lambda v: np.ndim(v) == 1 and len(v) > 0 and np.asarray(v).dtype.kind in "iu",
    ),
    tokens=checks.count(),
    seed=checks.seed,
    temperature=checks.number(0),
    draws=checks.count(1),
)
def continued(
    net: GPT, params: Any, prompt: Any, tokens: int, seed: int = 0, temperature: float = 1.0, draws: int = 1
) -> np.ndarray:
    """The tokens after the prompt [t], [draws, tokens], drawn by the seed. Where the context is full, the latest half of it is
    kept, and read again.

    >>> net = GPT(width=16, depth=1, vocabulary=7, context=8)
    >>> params = jax.jit(net.init)(jax.random.key(0), jax.numpy.ones((1, 8), int))["params"]
    >>> continued(net, params, [1, 2], tokens=20, draws=3).shape
    (3, 20)
    """
    half, key = max(net.context // 2, 1), jax.random.key(seed)
    if net.context < 2:
        raise ValueError("A GPT with a context of one token has no room for another.")
    seen = np.tile(np.asarray(prompt), (draws, 1))
    if seen.shape[1] >= net.context:
        seen = seen[:, -half:]
    found = np.zeros((draws, 0), seen.dtype)
    while found.shape[1] < tokens:
        key, piece = jax.random.split(key)
        steps = net.context - seen.shape[1]  # more than wanted at the end: one program for all pieces
        whole = np.asarray(generate(net, params, seen, steps, key=piece, temperature=temperature))
        found = np.concatenate([found, whole[:, seen.shape[1] :]], axis=1)
        seen = whole[:, -half:]
    return found[:, :tokens]


def tokens_of(text: str, vocabulary: int) -> np.ndarray:
    """Bytes, after the one that begins a document, for a vocabulary of 256; else numbers, as in "3 1 4". Bytes of a command line
    that are no text are taken as they are.

    >>> tokens_of("ab", 256).tolist(), tokens_of("3 1 4", 8).tolist()
    ([0, 97, 98], [3, 1, 4])
    """
    if vocabulary == BYTES:
        return np.frombuffer(END + _bytes_of(text), np.uint8).astype(np.int32)
    try:
        found = [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        found = []
    if not found or not all(0 <= each < vocabulary for each in found):
        raise ValueError(
            f"The network has {vocabulary} tokens, not the 256 bytes: a prompt is numbers from 0 to {vocabulary - 1}, such as "
            f'"0 1"; got {text!r}.'
        )
    return np.array(found, np.int32)


def _bytes_of(text: str) -> bytes:
    try:
        return text.encode(errors="surrogateescape")  # as Python has bytes of a command line that are no text
    except UnicodeEncodeError as error:
        raise ValueError(
            f"The prompt is no text: at {error.start} it has half a character, {text[error.start]!r}."
        ) from None


def text_of(tokens: np.ndarray, vocabulary: int) -> str:
    """What `tokens_of` reads; bytes that are no text are shown as �, the end of a document as a line of its own.

    >>> text_of(np.array([104, 105, 0, 33]), 256)
    'hi\\n⏹\\n!'
    """
    if vocabulary != BYTES:
        return " ".join(map(str, tokens.tolist()))
    return bytes(tokens.tolist()).replace(END, "\n⏹\n".encode()).decode(errors="replace")


def write(
    net: GPT, params: Any, prompt: str = "", tokens: int = 200, seed: int = 0, temperature: float = 0.8, draws: int = 1
) -> list[str]:
    """The prompt and `tokens` tokens more, as text, in so many draws; bytes that are no text are shown as �.

    >>> net = GPT(width=16, depth=1, vocabulary=256, context=8)
    >>> params = jax.jit(net.init)(jax.random.key(0), jax.numpy.ones((1, 8), int))["params"]
    >>> write(net, params, "def", tokens=5)[0][:3]
    'def'
    """
    found = continued(net, params, tokens_of(prompt, net.vocabulary), tokens, seed, temperature, draws)
    joined = "" if net.vocabulary == BYTES else " "
    shown = _bytes_of(prompt).decode(errors="replace")
    return [shown + joined + text_of(each, net.vocabulary) for each in found]
