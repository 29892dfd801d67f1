"""Weights of GPTs in the layout that hubs share them in (GPT-2, Llama, Qwen3), in and out."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from zoo import checks
from zoo.gpt import GPT, stack_blocks, unstack_blocks
from zoo.parameterization import parameterization
from zoo.roles import placed
from zoo.safetensors_file import read_safetensors, safetensors_of, write_safetensors

_MLPS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
_OLDER = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")  # constants in older files
_AS_HUB = {"norm", "positions", "mlp", "logits", "b_std"}


class _Name(NamedTuple):
    """Where a parameter is: its name on the hub, whether transposed, and which of three side by side."""

    hub: str
    transposed: bool = False
    part: int | None = None


def _gpt2_block() -> dict[str, _Name]:
    names = {"attention.out": "attn.c_proj", "mlp.mlp_1": "mlp.c_fc", "mlp.mlp_2": "mlp.c_proj"}
    found = {f"{ours}.kernel": _Name(f"{hub}.weight") for ours, hub in names.items()}
    found |= {f"{ours}.bias": _Name(f"{hub}.bias") for ours, hub in names.items()}
    for part, ours in enumerate(("query", "key", "value")):
        found[f"attention.{ours}.kernel"] = _Name("attn.c_attn.weight", part=part)
        found[f"attention.{ours}.bias"] = _Name("attn.c_attn.bias", part=part)
    for i in (1, 2):
        found |= {f"norm_{i}.scale": _Name(f"ln_{i}.weight"), f"norm_{i}.bias": _Name(f"ln_{i}.bias")}
    return found


def _llama_block() -> dict[str, _Name]:
    parts = {"query": "q", "key": "k", "value": "v", "out": "o"}
    names = {f"attention.{ours}": f"self_attn.{hub}_proj" for ours, hub in parts.items()}
    names |= {"mlp.mlp_gate": "mlp.gate_proj", "mlp.mlp_1": "mlp.up_proj", "mlp.mlp_2": "mlp.down_proj"}
    found = {f"{ours}.kernel": _Name(f"{hub}.weight", True) for ours, hub in names.items()}
    found |= {f"{ours}.bias": _Name(f"{hub}.bias") for ours, hub in names.items()}
    norms = {
        "norm_1": "input_layernorm",
        "norm_2": "post_attention_layernorm",
        "attention.query_norm": "self_attn.q_norm",
    }
    norms |= {"attention.key_norm": "self_attn.k_norm"}
    return found | {f"{ours}.scale": _Name(f"{hub}.weight") for ours, hub in norms.items()}


# By family: the prefix of blocks, what is in them, what is outside.
_FAMILIES: dict[str, tuple[str, dict[str, _Name], dict[str, _Name]]] = {
    "gpt2": ("transformer.h", _gpt2_block(), {
        "embedding.embedding": _Name("transformer.wte.weight"), "positions.embedding": _Name("transformer.wpe.weight"),
        "norm.scale": _Name("transformer.ln_f.weight"), "norm.bias": _Name("transformer.ln_f.bias"),
        "readout.kernel": _Name("lm_head.weight", True),
    }),
    "llama": ("model.layers", _llama_block(), {
        "embedding.embedding": _Name("model.embed_tokens.weight"), "norm.scale": _Name("model.norm.weight"),
        "readout.kernel": _Name("lm_head.weight", True),
    }),
}  # fmt: skip


def family_of(net: GPT) -> str:
    """ "gpt2" or "llama": which layout these weights have; an error where there is none."""
    p, biases = parameterization(net.parameterization), float(net.b_std) > 0
    if net.norm == "layer" and net.positions == "learned" and net.mlp in _MLPS.values() and biases:
        family = "gpt2"
    elif net.norm == "rms" and net.positions == "rotary" and net.mlp == "swiglu":
        family = "llama"
    else:
        said = ", ".join(f"{name}={getattr(net, name)!r}" for name in sorted(_AS_HUB))
        raise ValueError(
            'gpt_weights: there are layouts for GPT-2 (norm="layer", positions="learned", an MLP without gate, b_std > 0) and '
            f'Llama (norm="rms", positions="rotary", mlp="swiglu"); this GPT has {said}.'
        )
    if net.logits != "1/sqrt(d)":
        raise ValueError(f'gpt_weights: {family} has logits="1/sqrt(d)"; this GPT has logits={net.logits!r}.')
    more = {
        "kv_heads": net.kv_heads not in (None, net.head_count),
        "head_dim": net.head_size * net.head_count != net.width,
        "qk_norm": net.qk_norm,
    }
    if family == "gpt2" and any(more.values()):
        said = ", ".join(f"{name}={getattr(net, name)!r}" for name, other in more.items() if other)
        raise ValueError(
            f"gpt_weights: gpt2 has a head of keys for each of queries, of width / heads, without norms; this GPT has {said}."
        )
    plain = float(p.output_scale(net.width, net.gamma)) == 1 and float(net.branch_scale) == 1
    if not plain or any(float(each.multiplier) != 1 for each in _flat(placed(net, net.example)).values()):
        raise ValueError(
            f"gpt_weights: this GPT multiplies by powers of its width or depth ({p.name}), which shared weights do not know: "
            'take parameterization="standard", or a member that is based on this size.'
        )
    return family


@checks.arguments(net=checks.a(GPT, "a zoo.GPT"), params=checks.tree)
def to_hub(net: GPT, params: Any) -> dict[str, np.ndarray]:
    """Parameters as arrays with the hub's names and layouts.

    >>> net = GPT(8, 1, vocabulary=5, context=4, norm="rms", positions="rotary", mlp="swiglu", logits="1/sqrt(d)",
    ...           parameterization="standard")
    >>> params = net.init(jax.random.key(0), jnp.ones((1, 2), int))["params"]
    >>> to_hub(net, params)["model.layers.0.self_attn.q_proj.weight"].shape
    (8, 8)
    """
    given = _flat(jax.tree.map(np.asarray, unstack_blocks(params) if net.scan else params))
    parts: dict[str, list[np.ndarray]] = {}
    for ours, name in sorted(_table(net).items(), key=lambda each: each[1].part or 0):
        array = given[ours]
        parts.setdefault(name.hub, []).append(array.T if name.transposed else array)
    return {hub: np.concatenate(each, axis=-1) if len(each) > 1 else each[0] for hub, each in parts.items()}


@checks.arguments(net=checks.a(GPT, "a zoo.GPT"), tensors=checks.table)
def from_hub(net: GPT, tensors: Mapping[str, Any]) -> Any:
    """The parameters of this GPT, from arrays with the hub's names; what is missing, left over or of another shape is said."""
    kept = [name for name in tensors if not name.endswith(_OLDER)]
    found = {name if "." in name and name.split(".")[0] in ("transformer", "model", "lm_head") else f"transformer.{name}":
             tensors[name] for name in kept}  # fmt: skip
    if len(found) < len(kept):
        twice = next(name for name in kept if f"transformer.{name}" in kept)
        raise ValueError(
            f"from_hub: there are {twice} and transformer.{twice}, which are one parameter: leave out either."
        )
    if net.tied:
        _check_tied(found, found.pop("lm_head.weight", None), _FAMILIES[family_of(net)][2]["embedding.embedding"].hub)
    table, out = _table(net), {}
    shapes = _flat(jax.eval_shape(net.clone(scan=False).init, jax.random.key(0), net.example)["params"])
    wanted = {name.hub for name in table.values()}
    if wanted != found.keys():
        missing, more = sorted(wanted - found.keys()), sorted(found.keys() - wanted)
        raise ValueError(
            f"from_hub: of {len(wanted)} arrays {len(missing)} are missing ({', '.join(missing[:3])}), and {len(more)} are no "
            f"parameters of this GPT ({', '.join(more[:3])}): define it as their config.json says (load_gpt does)."
        )
    for ours, name in table.items():
        array = np.asarray(found[name.hub])
        if name.part is not None:
            *rows, size = shapes[ours].shape
            if array.shape != (*rows, 3 * size):
                raise ValueError(
                    f"from_hub: {name.hub} is {array.shape}, and queries, keys and values of this GPT side by side are "
                    f"{(*rows, 3 * size)}."
                )
            array = np.split(array, 3, axis=-1)[name.part]
        out[ours] = array.T if name.transposed else array
        if out[ours].shape != shapes[ours].shape:
            raise ValueError(f"from_hub: {name.hub} gives {out[ours].shape} for {ours}, which is {shapes[ours].shape}.")
    store = jax.dtypes.canonicalize_dtype(float)
    out = {name: jnp.asarray(a, store) for name, a in out.items()}
    lost = sorted(table[name].hub for name, a in out.items() if not jnp.isfinite(a).all())
    if lost:
        raise ValueError(
            f"from_hub: {', '.join(lost[:3])} ({len(lost)} of {len(out)} arrays) have entries that are NaN or infinite in "
            f"{store}: the weights are damaged, or of a run that diverged."
        )
    params = flax.traverse_util.unflatten_dict(out, sep=".")
    return stack_blocks(params) if net.scan else params


def _check_tied(found: Mapping[str, Any], head: Any, embedding: str) -> None:
    """Raises where a readout comes with the embedding that should be it, and is another matrix."""
    both = [np.asarray(each) for each in (head, found.get(embedding)) if each is not None]
    coarser = min((each.dtype for each in both), key=lambda kind: kind.itemsize, default=None)
    if len(both) == 2 and not np.array_equal(*(each.astype(coarser).astype(float) for each in both), equal_nan=True):
        raise ValueError(
            f"from_hub: this GPT is tied, and lm_head.weight is another matrix than {embedding}: define it with tied=False "
            "(load_gpt(folder, tied=False)), or leave lm_head.weight out."
        )


def _table(net: GPT) -> dict[str, _Name]:
    """Our names of all parameters, of the network with scan=False, and where each is."""
    prefix, inside, outside = _FAMILIES[family_of(net)]
    names = {
        f"block_{l + 1}.{ours}": name._replace(hub=f"{prefix}.{l}.{name.hub}")
        for l in range(net.depth)
        for ours, name in inside.items()
    } | outside
    shapes = _flat(jax.eval_shape(net.clone(scan=False).init, jax.random.key(0), net.example)["params"])
    return {ours: names[ours] for ours in shapes}


def _flat(tree: Any) -> dict[str, Any]:
    return flax.traverse_util.flatten_dict(tree, sep=".")


def gpt_of(config: Mapping[str, Any], **changes: Any) -> GPT:
    """The definition that a config.json of the hub says (model_type gpt2, llama, qwen3), with some fields changed.

    >>> gpt_of({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}).mlp
    'gelu_tanh'
    """
    kind, get = config.get("model_type"), config.get
    if kind in ("gpt2", "llama", "qwen3"):
        _check_numbers(config, "gpt2" if kind == "gpt2" else "llama")
    fields: dict[str, Any] = {"parameterization": "standard", "logits": "1/sqrt(d)", "vocabulary": get("vocab_size")}
    fields |= {"bias_init": "zeros", "embedding_std": get("initializer_range", 0.02)}
    if kind == "gpt2":
        _refuse(config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
        width, mlp = config["n_embd"], get("activation_function", "gelu_new")
        checks.choice(*_MLPS)("gpt_of: in the config, activation_function", mlp)
        fields |= {
            "width": width,
            "depth": config["n_layer"],
            "heads": config["n_head"],
            "context": config["n_positions"],
        }
        fields |= {
            "mlp": _MLPS[mlp],
            "mlp_ratio": (get("n_inner") or 4 * width) / width,
        }
        fields |= {
            "norm_epsilon": get("layer_norm_epsilon", 1e-5),
            "tied": get("tie_word_embeddings", True),
            "b_std": 1.0,
        }
        return GPT(**{**fields, "position_std": fields["embedding_std"], **changes})
    if kind not in ("llama", "qwen3"):
        raise ValueError(f'gpt_of: model_type must be "gpt2", "llama" or "qwen3"; got {kind!r}.')
    biased = bool(get("attention_bias", False))
    _refuse(config, hidden_act="silu", mlp_bias=biased if kind == "llama" else False, pretraining_tp=1,
            use_sliding_window=False, partial_rotary_factor=1)  # fmt: skip
    if kind == "qwen3" and biased:
        raise ValueError("gpt_of: biases of attention without biases of the MLP: there is no such GPT here.")
    rotary = get("rope_parameters") or {}
    for each in (rotary, get("rope_scaling") or {}):
        if (said := each.get("rope_type", each.get("type", "default"))) != "default":
            raise ValueError(f"gpt_of: rotary positions of the kind {said!r} are not known here.")
        _refuse(each, partial_rotary_factor=1)
    width, heads = config["hidden_size"], config["num_attention_heads"]
    fields |= {"width": width, "depth": config["num_hidden_layers"], "heads": heads, "norm": "rms", "mlp": "swiglu"}
    fields |= {"kv_heads": get("num_key_value_heads") or heads, "head_dim": get("head_dim") or width // heads}
    fields |= {"context": config["max_position_embeddings"], "mlp_ratio": config["intermediate_size"] / width}
    fields |= {
        "norm_epsilon": get("rms_norm_eps", 1e-6),
        "tied": get("tie_word_embeddings", False),
        "positions": "rotary",
    }
    base = rotary.get("rope_theta", get("rope_theta", 1e4))
    checks.number(positive=True)("gpt_of: in the config, rope_theta", base)
    fields |= {"rotary_base": float(base), "b_std": float(biased)}
    return GPT(**{**fields, "qk_norm": kind == "qwen3", **changes})


# Numbers in a config: sizes, sizes that may be null, others.
_SIZES = {
    "gpt2": ("vocab_size", "n_embd", "n_layer", "n_head", "n_positions"),
    "llama": ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
              "intermediate_size"),
}  # fmt: skip
_MAY_BE_NULL = {"gpt2": ("n_inner",), "llama": ("num_key_value_heads", "head_dim")}
_NUMBERS = {"gpt2": ("layer_norm_epsilon", "initializer_range"), "llama": ("rms_norm_eps", "initializer_range")}


def _check_numbers(config: Mapping[str, Any], family: str) -> None:
    """Raises where a size is missing, or a field that is there is no number of its kind."""
    missing = [name for name in _SIZES[family] if name not in config]
    if missing:
        kind = config["model_type"]
        raise ValueError(
            f"gpt_of: the config has no {' and '.join(map(repr, missing))}, which model_type={kind!r} needs."
        )
    kinds = dict.fromkeys(_SIZES[family], checks.count(1)) | dict.fromkeys(_NUMBERS[family], checks.number(0))
    kinds |= dict.fromkeys(_MAY_BE_NULL[family], checks.nothing | checks.count(1))
    for name, check in kinds.items():
        if name in config:
            check(f"gpt_of: in the config, {name}", config[name])


def _refuse(config: Mapping[str, Any], **wanted: Any) -> None:
    for name, value in wanted.items():
        if config.get(name) not in (None, value):
            raise ValueError(f"gpt_of: {name} must be {value!r} here; the config says {config[name]!r}.")


def config_of(net: GPT) -> dict[str, Any]:
    """The config.json of a GPT."""
    hidden, common = round(net.mlp_ratio * net.width), {"vocab_size": net.vocabulary, "tie_word_embeddings": net.tied}
    if family_of(net) == "gpt2":
        mlp = next(theirs for theirs, ours in _MLPS.items() if ours == net.mlp)
        sizes = {"n_embd": net.width, "n_layer": net.depth, "n_head": net.head_count, "n_positions": net.context}
        return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **common, **sizes, "n_inner": hidden,
                "activation_function": mlp, "layer_norm_epsilon": net.norm_epsilon}  # fmt: skip
    kind, biased = ("qwen3", False) if net.qk_norm else ("llama", float(net.b_std) > 0)
    sizes = {"hidden_size": net.width, "num_hidden_layers": net.depth, "num_attention_heads": net.head_count}
    sizes |= {
        "num_key_value_heads": net.kv_heads or net.head_count,
        "head_dim": net.head_size,
        "intermediate_size": hidden,
    }
    sizes |= {"max_position_embeddings": net.context, "rms_norm_eps": net.norm_epsilon, "rope_theta": net.rotary_base}
    name = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}[kind]
    return {"model_type": kind, "architectures": [name], **common, **sizes, "attention_bias": biased, "mlp_bias": biased,
            "hidden_act": "silu"}  # fmt: skip


@checks.arguments(folder=checks.path)
def load_gpt(folder: str | Path, **changes: Any) -> tuple[GPT, Any]:
    """(definition, parameters) of a folder with config.json and safetensors files, as hubs share them.

    changes: fields of the definition, such as scan=False or dtype="bfloat16".
    """
    folder = Path(folder)
    net = _gpt_in(folder / "config.json", changes)
    files = safetensors_of(folder)
    tensors, places = {}, {}
    for file in files:
        for name, array in read_safetensors(file).items():
            if name in places:
                raise ValueError(
                    f"load_gpt: {name} is both in {places[name]} and in {file.name} of {folder}: leave one file, or the parts "
                    "of one model, there."
                )
            tensors[name], places[name] = array, file.name
    return net, from_hub(net, tensors)


def _gpt_in(file: Path, changes: Mapping[str, Any]) -> GPT:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        return gpt_of(config, **changes)
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise ValueError(f"load_gpt: {file} is no config.json of a hub ({error}).") from error
    except ValueError as error:
        raise ValueError(f"load_gpt: {file}: {error}") from error


@checks.arguments(folder=checks.path, net=checks.a(GPT, "a zoo.GPT"), params=checks.tree)
def save_gpt(folder: str | Path, net: GPT, params: Any) -> None:
    """Writes config.json and model.safetensors, from which `load_gpt` and other libraries make the same network."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(net), indent=2) + "\n", encoding="utf-8")
    write_safetensors(folder / "model.safetensors", to_hub(net, params))
