"""Weights in the hub's layout, and logits of the reference implementation for the same weights."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import gpt_inputs

from zoo import GPT
from zoo.gpt_weights import config_of, from_hub, gpt_of, load_gpt, save_gpt, to_hub
from zoo.safetensors_file import read_safetensors, write_safetensors

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "gpt.npz")
CASES = gpt_inputs.CASES


def tensors(case: str) -> dict[str, np.ndarray]:
    """All weights of the reference implementation, by its names."""
    return {
        name: gpt_inputs.weights(name, tuple(shape))
        for name, shape in json.loads(str(GOLDEN[f"{case}/shapes"])).items()
    }


QUICK = ("gpt2, relu, narrow", "gpt2", "llama, biases", "qwen3, tied")


@pytest.mark.parametrize("case", [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in CASES])
def test_logits_are_those_of_the_reference_implementation(case):
    net, x = gpt_of(CASES[case]), jnp.asarray(gpt_inputs.tokens(CASES[case]["vocab_size"]))
    mask = gpt_inputs.PADDED

    def logits(params: Any) -> Any:
        variables = {"params": params}
        positions = jnp.maximum(jnp.cumsum(jnp.asarray(mask), axis=1) - 1, 0)
        return net.apply(variables, x), net.apply(variables, x, mask=jnp.asarray(mask), positions=positions)

    found, padded = map(np.asarray, jax.jit(logits)(from_hub(net, tensors(case))))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, GOLDEN[f"{case}/logits"], atol=1e-5)
    np.testing.assert_allclose(padded[mask], GOLDEN[f"{case}/padded"][mask], atol=1e-5)


@pytest.mark.parametrize(
    "case", ["gpt2, relu, narrow", pytest.param("llama, biases", marks=pytest.mark.slow), "qwen3, tied"]
)
def test_what_is_saved_is_what_was_loaded(case, tmp_path):
    net, given = gpt_of(CASES[case]), tensors(case)
    save_gpt(tmp_path, net, from_hub(net, given))
    for name, array in read_safetensors(tmp_path / "model.safetensors").items():
        np.testing.assert_array_equal(array, given[name])
    again, params = load_gpt(tmp_path, scan=False)
    assert again == net.clone(scan=False)
    assert to_hub(again, params).keys() == given.keys()


def test_files_are_those_of_the_reference(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(GOLDEN["safetensors"].tobytes())
    found = read_safetensors(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(found["a.weight"], np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(found["b"], (jnp.arange(3.0).astype("bfloat16") / 3))
    write_safetensors(tmp_path / "b.safetensors", found)
    assert {n: (a.dtype, a.shape) for n, a in read_safetensors(tmp_path / "b.safetensors").items()} == {
        n: (a.dtype, a.shape) for n, a in found.items()
    }
    (tmp_path / "c.safetensors").write_bytes(GOLDEN["safetensors"].tobytes()[:-2])
    with pytest.raises(ValueError, match=r"c.safetensors: .* is cut or damaged"):
        read_safetensors(tmp_path / "c.safetensors")


def test_older_files_without_prefix_are_read_too():
    case = "gpt2, one block"
    net, given = gpt_of(CASES[case]), tensors(case)
    older = {name.removeprefix("transformer."): array for name, array in given.items()}
    older["h.0.attn.bias"] = np.ones((1, 1, 12, 12))
    mine, theirs = (jax.tree.leaves(from_hub(net, each)) for each in (given, older))
    assert all(map(np.array_equal, mine, theirs))


LLAMA: dict[str, Any] = {"norm": "rms", "positions": "rotary", "mlp": "swiglu", "logits": "1/sqrt(d)"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"there are layouts for GPT-2 .* this GPT has b_std=0.0, logits='1/d', mlp='gelu'"),
        (
            LLAMA | {"logits": "1/d", "parameterization": "standard"},
            r'llama has logits="1/sqrt\(d\)"; this GPT has logits=\'1/d\'\.',
        ),
        (
            {"b_std": 1.0, "parameterization": "standard"},
            r'gpt2 has logits="1/sqrt\(d\)"; this GPT has logits=\'1/d\'\.',
        ),
        (
            {
                "b_std": 1.0,
                "logits": "1/sqrt(d)",
                "heads": 4,
                "kv_heads": 2,
                "qk_norm": True,
                "parameterization": "standard",
            },
            r"this GPT has kv_heads=2, qk_norm=True\.",
        ),
        (LLAMA | {"parameterization": "mup"}, r"multiplies by powers of its width or depth \(mup\)"),
    ],
)
def test_a_gpt_that_no_layout_holds_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        config_of(GPT(8, 1, vocabulary=5, context=4, **fields))


def test_other_weights_and_configs_are_refused():
    net, given = gpt_of(CASES["llama"]), tensors("llama")
    del given["model.norm.weight"]
    with pytest.raises(ValueError, match=r"of 21 arrays 1 are missing \(model.norm.weight\), and 0 are no parameters"):
        from_hub(net, given)
    with pytest.raises(ValueError, match=r"gives \(16, 24\) for block_1.mlp.mlp_1.kernel, which is \(16, 64\)"):
        from_hub(net.clone(mlp_ratio=4), tensors("llama"))
    broken = tensors("llama")["model.norm.weight"] * np.nan
    with pytest.raises(ValueError, match=r"model.norm.weight \(1 of 21 arrays\) have entries that are NaN or infinite"):
        from_hub(net, tensors("llama") | {"model.norm.weight": broken})
    with pytest.raises(ValueError, match=r"kind 'yarn'"):
        gpt_of(CASES["llama"] | {"rope_parameters": {"rope_type": "yarn"}})
    with pytest.raises(ValueError, match="hidden_act must be 'silu' here; the config says 'relu'"):
        gpt_of(CASES["llama"] | {"hidden_act": "relu"})


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_queries_keys_and_values_of_another_shape_are_said(name):
    net, given = gpt_of(CASES["gpt2"]), tensors("gpt2")
    at = f"transformer.h.0.attn.c_attn.{name}"
    shape = given[at].shape
    for other in ((*shape[:-1], shape[-1] - 1), ()):
        with pytest.raises(ValueError, match=re.escape(f"{at} is {other}, and queries, keys and values of this GPT")):
            from_hub(net, given | {at: np.zeros(other)})


def test_one_parameter_under_two_names_is_refused():
    net, given = gpt_of(CASES["gpt2"]), tensors("gpt2")
    with pytest.raises(
        ValueError, match=r"there are wte\.weight and transformer\.wte\.weight, which are one parameter"
    ):
        from_hub(net, given | {"wte.weight": given["transformer.wte.weight"]})


@pytest.mark.parametrize(
    ("case", "name", "value", "wanted"),
    [
        ("gpt2", "n_embd", None, "an integer of at least 1, got None"),
        ("gpt2", "n_head", "3", "an integer of at least 1, got '3'"),
        ("gpt2", "n_inner", 0, "None, or an integer of at least 1; got 0"),
        ("gpt2", "layer_norm_epsilon", None, "a finite number ≥ 0, got None"),
        ("gpt2", "activation_function", "tanh", 'one of "gelu_new", "gelu_pytorch_tanh", "gelu", "relu"; got \'tanh\''),
        ("gpt2", "activation_function", ["relu"], 'one of "gelu_new"'),
        ("llama", "hidden_size", 16.5, "an integer of at least 1, got 16.5"),
        ("llama", "rope_theta", None, "a finite number > 0, got None"),
    ],
)
def test_fields_of_a_config_that_cannot_be_used_are_named(tmp_path, case, name, value, wanted):
    config = {key: each for key, each in CASES[case].items() if name != "rope_theta" or key != "rope_parameters"}
    (tmp_path / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(ValueError, match=re.escape(f"in the config, {name} must be {wanted}")):
        load_gpt(tmp_path)


def test_two_files_with_the_same_arrays_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CASES["gpt2"]))
    for file in ("a", "b"):
        write_safetensors(tmp_path / f"{file}.safetensors", {"transformer.ln_f.bias": np.zeros(3, np.float32)})
    with pytest.raises(
        ValueError, match=r"ln_f\.bias is both in a\.safetensors and in b\.safetensors of .*: leave one"
    ):
        load_gpt(tmp_path)


@pytest.mark.parametrize(
    "other",
    [{"data_offsets": [-12, 0]}, {"shape": [-3, -1]}, {"shape": [3.0]}, {"dtype": ["F32"]}, {"data_offsets": [12, 0]}],
)
def test_a_header_with_impossible_numbers_is_damaged(tmp_path, other):
    text = json.dumps({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]} | other}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"0" * 12)
    with pytest.raises(ValueError, match=r"a\.safetensors: its header is damaged"):
        read_safetensors(tmp_path / "a.safetensors")


def test_damaged_files_of_a_folder_are_named(tmp_path):
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    config.write_text('{"model_type": "gpt2", "n_embd": 8}')
    with pytest.raises(
        ValueError, match=r"config\.json: .* no 'vocab_size' and 'n_layer'.*, which model_type='gpt2' needs"
    ):
        load_gpt(tmp_path)
    config.write_text('{"model_type": ')
    with pytest.raises(ValueError, match=r"config\.json is no config\.json of a hub"):
        load_gpt(tmp_path)
    for text in (b"{{}", b'{"a": {"dtype": "F32"}}', b'{"a": 3}', b"\xff\xfe"):
        weights.write_bytes(len(text).to_bytes(8, "little") + text)
        with pytest.raises(ValueError, match=r"model\.safetensors: its header is damaged"):
            read_safetensors(weights)


def test_an_index_says_which_files_the_weights_are_in(tmp_path):
    net, given = gpt_of(CASES["gpt2, one block"]), tensors("gpt2, one block")
    (tmp_path / "config.json").write_text(json.dumps(CASES["gpt2, one block"]))
    parts = {f"model-0000{i}-of-00002.safetensors": list(given)[i - 1 :: 2] for i in (1, 2)}
    for file, names in parts.items():
        write_safetensors(tmp_path / file, {name: given[name] for name in names})
    write_safetensors(tmp_path / "consolidated.safetensors", given)  # the same once more, as some hubs have it
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: file for file, names in parts.items() for name in names}}))
    expected = jax.tree.leaves(from_hub(net, given))
    assert all(map(np.array_equal, jax.tree.leaves(load_gpt(tmp_path)[1]), expected))
    write_safetensors(tmp_path / "model.safetensors", given)  # the whole, beside its parts
    assert all(map(np.array_equal, jax.tree.leaves(load_gpt(tmp_path)[1]), expected))
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of the 2 files that .* names are missing .*: model-00002-of-00002"):
        load_gpt(tmp_path)
    index.write_text('{"weight_map": ["a"]}')
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json is no index of weights"):
        load_gpt(tmp_path)


def test_a_tied_gpt_with_another_readout_is_refused():
    net, given = gpt_of(CASES["gpt2, one block"]).clone(tied=True), tensors("gpt2, one block")
    embedding = given["transformer.wte.weight"]
    from_hub(net, given | {"lm_head.weight": embedding})
    from_hub(net, given | {"lm_head.weight": embedding.astype(np.float16)})  # the same, in fewer digits
    with pytest.raises(
        ValueError, match=r"lm_head\.weight is another matrix than transformer\.wte\.weight: .*tied=False"
    ):
        from_hub(net, given | {"lm_head.weight": 2 * embedding})


def test_rotary_positions_that_are_scaled_or_partial_are_refused_and_plain_ones_taken():
    config = CASES["llama"]
    assert gpt_of(config | {"rope_scaling": {"rope_type": "default"}, "partial_rotary_factor": 1.0}) == gpt_of(config)
    assert gpt_of(config | {"rope_scaling": None, "partial_rotary_factor": None}) == gpt_of(config)
    for kind in ("type", "rope_type"):
        with pytest.raises(ValueError, match="rotary positions of the kind 'linear'"):
            gpt_of(config | {"rope_scaling": {kind: "linear", "factor": 2.0}})
    for other in ({"partial_rotary_factor": 0.5}, {"rope_parameters": {"partial_rotary_factor": 0.5}}):
        with pytest.raises(ValueError, match="partial_rotary_factor must be 1 here"):
            gpt_of(config | other)
