#!/usr/bin/env python3
"""Makes tests/golden/fp8_models/: tiny random models whose layers' matrices are fp8 (e4m3), in the three forms that published
models have, with logits. README.md beside this file says which versions made it. Deterministic.

  python make_fp8_goldens.py

On a CPU transformers does not multiply fp8 weights: it makes bf16 of them first, which rounds. So the weights are quantised here
(torch casts to float8_e4m3fn), written to the folder, dequantised again by the published formula, weight = scale * code, in
float32, and transformers computes the logits in float32 from a model with these.
"""

import dataclasses
import json
import pathlib
import shutil
import zlib

import torch
import transformers
from safetensors.torch import save_file

N_TOKENS = 150
FOLDER = pathlib.Path(__file__).parent / "fp8_models"
LARGEST = 448.0  # of e4m3

BLOCKS = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128],
              modules_to_not_convert=["lm_head"])
TENSORS = dict(quant_method="fp8", activation_scheme="static", weight_block_size=None, modules_to_not_convert=["lm_head"])
CHANNELS = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "kv_cache_scheme": None,
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False},
        "input_activations": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True},
    }},
}


@dataclasses.dataclass
class Case:
    name: str
    classes: tuple
    sizes: tuple  # d_model, d_ff, n_layers, n_heads, n_kv_heads, head_dim
    quantisation: dict
    block: tuple  # outputs, inputs; 0: all
    suffix: str
    scale_dtype: torch.dtype
    tied: bool = False


CASES = [
    # As Qwen3-*-FP8: scales in bf16. Blocks end within matrices and within heads.
    Case("qwen3_blocks", ("Qwen3Config", "Qwen3ForCausalLM"), (160, 288, 2, 4, 2, 40), BLOCKS, (128, 128), "_scale_inv",
         torch.bfloat16),
    Case("llama_channels", ("LlamaConfig", "LlamaForCausalLM"), (64, 96, 2, 4, 2, 16), CHANNELS, (1, 0), "_scale",
         torch.float32),
    Case("llama_tensors_tied", ("LlamaConfig", "LlamaForCausalLM"), (48, 80, 2, 2, 1, 24), TENSORS, (0, 0), "_scale_inv",
         torch.float32, tied=True),
]


def make_config(case):
    d_model, d_ff, n_layers, n_heads, n_kv_heads, head_dim = case.sizes
    return getattr(transformers, case.classes[0])(
        vocab_size=80, hidden_size=d_model, intermediate_size=d_ff, num_hidden_layers=n_layers, num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads, head_dim=head_dim, max_position_embeddings=512, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_theta=10000.0, rope_type="default"), bos_token_id=1, eos_token_id=2, pad_token_id=None,
        tie_word_embeddings=case.tied)


def random_weight(name, shape, generator):
    """As make_model_goldens.py has them; and rows and columns of very different sizes, so that scales show."""
    def normal(std, mean=0.0):
        return torch.randn(shape, generator=generator) * std + mean

    if "norm" in name:
        return normal(0.3, mean=1.0)
    if "embed" in name:
        return normal(0.6)
    gain = 1.5 if "q_proj" in name or "k_proj" in name else 3.0 if "lm_head" in name else 1.0
    weight = normal(gain / shape[1] ** 0.5)
    if "_proj" in name:
        weight *= torch.exp(torch.randn(shape[0], 1, generator=generator) * 0.7)
    return weight


def expanded(scales, block, shape):
    """A scale for each weight, [n_out, n_in]."""
    rows = torch.arange(shape[0]) // block[0]
    columns = torch.arange(shape[1]) // block[1]
    return scales[rows][:, columns]


def quantise(weight, case):
    """Codes, scales [blocks of outputs, blocks of inputs], and what they stand for in float32."""
    shape = weight.shape
    block = (case.block[0] or shape[0], case.block[1] or shape[1])
    n_blocks = (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
    scales = torch.empty(n_blocks)
    for i in range(n_blocks[0]):
        for j in range(n_blocks[1]):
            part = weight[i * block[0]:(i + 1) * block[0], j * block[1]:(j + 1) * block[1]]
            scales[i, j] = part.abs().max() / LARGEST
    scales = scales.to(case.scale_dtype)
    of_weights = expanded(scales.float(), block, shape)
    codes = (weight / of_weights).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return codes, scales, codes.float() * of_weights


def make(case):
    folder = FOLDER / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    model = getattr(transformers, case.classes[1])(make_config(case))
    tensors = {}
    for name, parameter in model.named_parameters():
        weight = random_weight(name, parameter.shape, generator)
        if "_proj" in name:
            tensors[name], scales, weight = quantise(weight, case)
            tensors[name + case.suffix] = scales.reshape(()) if case.block == (0, 0) else scales
        else:
            tensors[name] = weight.to(torch.bfloat16)
            weight = tensors[name].float()
        with torch.no_grad():
            parameter.copy_(weight)
    save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
    config = json.loads(model.config.to_json_string())
    config["torch_dtype"] = "bfloat16"
    config.pop("dtype", None)
    config["architectures"] = [case.classes[1]]
    config["quantization_config"] = case.quantisation
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    ids = [1] + torch.randint(3, 80, (N_TOKENS - 1,), generator=generator).tolist()
    (folder / "tokens.json").write_text(json.dumps(ids) + "\n")
    model.set_attn_implementation("eager")
    with torch.no_grad():
        logits = model.eval()(torch.tensor([ids])).logits[0].contiguous()
    made_by = (f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, eager attention, "
               "dequantised weights, computed in float32")
    save_file(dict(logits=logits), folder / "logits.safetensors", metadata=dict(made_by=made_by))
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{case.name:20} std {logits.std():6.3f}  distinct argmax {logits.argmax(-1).unique().numel()}")


def main():
    torch.set_num_threads(1)  # the same order of additions everywhere
    for case in CASES:
        make(case)


if __name__ == "__main__":
    main()
