"""Small GPT-2, Llama and Qwen3 networks whose logits are golden: their configs, weights and tokens, by formulas."""

from typing import Any

import numpy as np

GPT2: dict[str, Any] = {
    "model_type": "gpt2", "vocab_size": 23, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 12, "n_inner": None,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 23, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 4, "intermediate_size": 24, "max_position_embeddings": 12, "rms_norm_eps": 1e-6,
    "rope_theta": 1e4, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "hidden_act": "silu",
}  # fmt: skip
BIASED = {"attention_bias": True, "mlp_bias": True}
CASES: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "gpt2, one block": GPT2 | {"n_layer": 1},
    "gpt2, four blocks": GPT2 | {"n_layer": 4},
    "gpt2, one head": GPT2 | {"n_head": 1},
    "gpt2, eight heads": GPT2 | {"n_head": 8},
    "gpt2, not tied": GPT2 | {"tie_word_embeddings": False},
    "gpt2, exact gelu": GPT2 | {"activation_function": "gelu"},
    "gpt2, relu, narrow": GPT2 | {"activation_function": "relu", "n_inner": 24},
    "gpt2, other epsilon": GPT2 | {"layer_norm_epsilon": 1e-1, "n_positions": 9},
    "gpt2, wider": GPT2 | {"n_embd": 48, "n_head": 3, "vocab_size": 11},
    "llama": LLAMA,
    "llama, groups of two": LLAMA | {"num_key_value_heads": 2},
    "llama, one head of keys": LLAMA | {"num_key_value_heads": 1},
    "llama, tied": LLAMA | {"tie_word_embeddings": True},
    "llama, other base": LLAMA | {"rope_theta": 300.0, "num_hidden_layers": 3},
    "llama, other head size": LLAMA | {"head_dim": 6, "num_key_value_heads": 2},
    "llama, biases": LLAMA | BIASED,
    "llama, one block": LLAMA | {"num_hidden_layers": 1, "rms_norm_eps": 1e-1},
    "llama, wider": LLAMA | {"hidden_size": 48, "intermediate_size": 128, "num_attention_heads": 6, "num_key_value_heads": 3,
                             "head_dim": 8},
    "qwen3": LLAMA | {"model_type": "qwen3", "num_key_value_heads": 2, "rms_norm_eps": 1e-3},
    "qwen3, tied": LLAMA | {"model_type": "qwen3", "head_dim": 8, "tie_word_embeddings": True},
}  # fmt: skip
PADDED = np.arange(9)[None] >= np.array([0, 2, 4])[:, None]  # what counts, of tokens that are padded on the left


def weights(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that look random, around 1 for gains, of about 1/√inputs for matrices."""
    phase = sum((i + 1) * ord(letter) for i, letter in enumerate(name)) % 1000
    wave = np.sin(1.7 * np.arange(1, 1 + np.prod(shape)) ** 1.1 + phase).reshape(shape)
    if len(shape) == 1:
        return (1 + 0.3 * wave if name.endswith("weight") else 0.5 * wave).astype(np.float32)
    outside = any(part in name for part in ("wte", "wpe", "embed", "lm_head"))  # so that logits are of about 1
    return (wave * (1.0 if outside else 2.0) * min(shape) ** -0.5).astype(np.float32)


def tokens(vocabulary: int) -> np.ndarray:
    """Three sequences of nine tokens."""
    return (np.arange(27) ** 2 * 7 + np.arange(27) * 3).reshape(3, 9) % vocabulary
