"""Computes golden logits of small GPT-2, Llama and Qwen3 networks with the reference implementation.

The environment is that of requirements_gpt.txt, apart from the project's own; seconds; writes gpt.npz here.
"""

import json
import tempfile
from pathlib import Path

import gpt_inputs
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

HERE = Path(__file__).parent


def network(config):
    kind = config["model_type"]
    cls = {"gpt2": "GPT2", "llama": "Llama", "qwen3": "Qwen3"}[kind]
    fields = {name: value for name, value in config.items() if name != "model_type"}
    theta = fields.pop("rope_theta", None)
    if theta is not None:
        fields["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    made = getattr(transformers, f"{cls}Config")(**fields, attn_implementation="eager")
    net = getattr(transformers, f"{cls}LMHeadModel" if kind == "gpt2" else f"{cls}ForCausalLM")(made).eval()
    shapes = {name: tuple(p.shape) for name, p in net.named_parameters()}
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(torch.from_numpy(gpt_inputs.weights(name, tuple(parameter.shape))))
    return net, shapes


def main():
    out = {"versions": np.array(json.dumps({m.__name__: m.__version__ for m in (transformers, torch, np)}))}
    for case, config in gpt_inputs.CASES.items():
        net, shapes = network(config)
        x, mask = torch.from_numpy(gpt_inputs.tokens(config["vocab_size"])), torch.from_numpy(gpt_inputs.PADDED)
        with torch.no_grad():
            out[f"{case}/logits"] = net(input_ids=x).logits.numpy()
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            padded = net(input_ids=x, attention_mask=mask.long(), position_ids=positions).logits
            out[f"{case}/padded"] = padded.numpy()
        out[f"{case}/shapes"] = np.array(json.dumps(shapes))
        print(case, out[f"{case}/logits"].std(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        arrays = {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.arange(3.0).to(torch.bfloat16) / 3}
        save_file(arrays, path, metadata={"format": "pt"})
        out["safetensors"] = np.frombuffer(path.read_bytes(), np.uint8)
    np.savez_compressed(HERE / "gpt.npz", **out)
    assert (HERE / "gpt.npz").stat().st_size < 2**20


if __name__ == "__main__":
    main()
