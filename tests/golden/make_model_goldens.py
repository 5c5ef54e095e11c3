#!/usr/bin/env python3
"""Makes tests/golden/models/: tiny random models of every supported architecture and RoPE scaling, with the logits that
Hugging Face transformers computes for them. README.md beside this file says what each folder holds and which versions
made it. Deterministic: a second run with the same versions writes the same bytes.

  python make_model_goldens.py [NAME ...]     (all cases without names)

The logits are always computed from the folder as written (AutoModelForCausalLM.from_pretrained), so that config.json, in
whichever form, is part of what is tested.
"""

import dataclasses
import json
import pathlib
import shutil
import sys
import zlib

import torch
import transformers
from safetensors.torch import save_file

N_TOKENS = 300
FOLDER = pathlib.Path(__file__).parent / "models"

LLAMA = ("LlamaConfig", "LlamaForCausalLM")
MISTRAL = ("MistralConfig", "MistralForCausalLM")
QWEN2 = ("Qwen2Config", "Qwen2ForCausalLM")
QWEN3 = ("Qwen3Config", "Qwen3ForCausalLM")

# Fits 300 tokens, and far enough past `original` that every scaling changes the result.
LLAMA3_SCALING = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=64)


@dataclasses.dataclass
class Case:
    name: str
    classes: tuple
    sizes: tuple  # d_model, d_ff, n_layers, n_heads, n_kv_heads
    config: dict = dataclasses.field(default_factory=dict)
    theta: float = 10000.0
    scaling: dict = dataclasses.field(default_factory=dict)
    # How config.json is written: "new" as transformers 5 does (rope_parameters, dtype), "old" as published models have it
    # (rope_theta, rope_scaling, torch_dtype), "oldest" with rope_scaling.type in place of rope_type.
    form: str = "old"
    dtype: str = "float32"
    shard_size: str = "1GB"


CASES = [
    Case("llama2_mha", LLAMA, (32, 64, 3, 4, 4)),
    Case("llama3_gqa", LLAMA, (64, 80, 2, 4, 2), theta=500000.0),
    Case("llama_mqa_large_eps", LLAMA, (48, 64, 2, 3, 1), dict(rms_norm_eps=0.05), form="new"),
    Case("llama_rope_llama3", LLAMA, (32, 64, 2, 2, 1), theta=500000.0, scaling=LLAMA3_SCALING),
    Case("llama_rope_llama3_new_form", LLAMA, (32, 64, 2, 2, 1), theta=500000.0,
         scaling=LLAMA3_SCALING | dict(factor=4.0, low_freq_factor=1.5, high_freq_factor=3.0), form="new"),
    Case("llama_rope_linear", LLAMA, (32, 64, 2, 4, 2), scaling=dict(rope_type="linear", factor=2.5), form="oldest"),
    Case("llama_rope_yarn_mscale", LLAMA, (32, 64, 2, 2, 2),
         scaling=dict(rope_type="yarn", factor=6.0, original_max_position_embeddings=64, mscale=1.3, mscale_all_dim=0.6),
         form="new"),
    Case("llama_rope_yarn_attention_factor", LLAMA, (32, 64, 2, 2, 1), dict(head_dim=32),
         scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=96, attention_factor=1.25,
                      beta_fast=4.0, beta_slow=0.5, truncate=False)),
    Case("llama_biases", LLAMA, (32, 64, 2, 4, 2), dict(attention_bias=True, mlp_bias=True)),
    Case("llama_head_dim", LLAMA, (40, 56, 2, 4, 2), dict(head_dim=32)),
    Case("llama_tied", LLAMA, (32, 64, 2, 4, 2), dict(tie_word_embeddings=True), form="new"),
    Case("llama_f16", LLAMA, (32, 64, 2, 4, 2), dtype="float16"),
    Case("llama_bf16", LLAMA, (64, 96, 2, 4, 2), dtype="bfloat16"),
    Case("llama_sharded", LLAMA, (32, 64, 3, 4, 2), shard_size="40KB"),
    Case("mistral_window", MISTRAL, (32, 64, 2, 4, 2), dict(sliding_window=37, head_dim=16)),
    Case("mistral_no_window", MISTRAL, (32, 64, 2, 4, 2), dict(sliding_window=None), theta=1000000.0),
    # Published Qwen2 files name a window that use_sliding_window = false switches off.
    Case("qwen2_biases", QWEN2, (32, 64, 2, 4, 2),
         dict(use_sliding_window=False, sliding_window=37, max_window_layers=1), theta=1000000.0),
    Case("qwen2_window", QWEN2, (32, 64, 3, 4, 2),
         dict(use_sliding_window=True, sliding_window=37, max_window_layers=1), theta=1000000.0),
    Case("qwen2_layer_types", QWEN2, (32, 64, 3, 4, 2),
         dict(use_sliding_window=True, sliding_window=50,
              layer_types=["sliding_attention", "full_attention", "sliding_attention"]), form="new"),
    Case("qwen2_rope_yarn", QWEN2, (32, 64, 2, 2, 1), theta=1000000.0,
         scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64), form="oldest"),
    Case("qwen2_5_tied_bf16", QWEN2, (64, 96, 2, 4, 2), dict(tie_word_embeddings=True), theta=1000000.0, dtype="bfloat16"),
    Case("qwen3", QWEN3, (32, 64, 2, 4, 2), dict(head_dim=16), theta=1000000.0),
    Case("qwen3_tied_biases_window", QWEN3, (32, 64, 2, 4, 2),
         dict(head_dim=16, tie_word_embeddings=True, attention_bias=True, use_sliding_window=True, sliding_window=41,
              max_window_layers=1), form="new"),
]


def make_config(case):
    d_model, d_ff, n_layers, n_heads, n_kv_heads = case.sizes
    rope = dict(rope_theta=case.theta) | (case.scaling or dict(rope_type="default"))
    settings = dict(vocab_size=80, hidden_size=d_model, intermediate_size=d_ff, num_hidden_layers=n_layers,
                    num_attention_heads=n_heads, num_key_value_heads=n_kv_heads, max_position_embeddings=512,
                    rms_norm_eps=1e-5, rope_parameters=rope, bos_token_id=1, eos_token_id=2, pad_token_id=None,
                    tie_word_embeddings=False)
    return getattr(transformers, case.classes[0])(**(settings | case.config))


def fill(model, generator):
    """Every weight random, norms and biases too, in sizes that make attention far from uniform and logits well spread."""
    def normal(shape, std, mean=0.0):
        return torch.randn(shape, generator=generator) * std + mean

    for name, weight in model.named_parameters():
        with torch.no_grad():
            if name.endswith("bias"):
                weight.copy_(normal(weight.shape, 0.5))
            elif "norm" in name:
                weight.copy_(normal(weight.shape, 0.3, mean=1.0))
            elif "embed" in name:
                weight.copy_(normal(weight.shape, 0.6))
            else:
                gain = 1.5 if "q_proj" in name or "k_proj" in name else 3.0 if "lm_head" in name else 1.0
                weight.copy_(normal(weight.shape, gain / weight.shape[1] ** 0.5))


def write_config(case, folder):
    """Rewrites config.json as published models have it. save_pretrained has already written the new form."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if case.form != "new":
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        rope_type = rope.pop("rope_type")
        key = "rope_type" if case.form == "old" else "type"
        config["rope_scaling"] = None if rope_type == "default" else {key: rope_type} | rope
        config["torch_dtype"] = config.pop("dtype")
        config.pop("layer_types", None)  # not written before transformers 4.53
        if case.classes == QWEN2:  # save_pretrained forgets a window that is switched off
            config["sliding_window"] = case.config.get("sliding_window", 4096)
        config["transformers_version"] = "4.45.0"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def logits_of(folder, ids, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].to(torch.float32).contiguous()


def save_logits(path, logits, case, computed_in):
    # One metadata entry only: safetensors writes several in a random order.
    made_by = (f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, eager attention, "
               f"weights {case.dtype}, computed in {computed_in}")
    save_file(dict(logits=logits), path, metadata=dict(made_by=made_by))


def describe(case, logits):
    top = logits.topk(2, dim=-1).values
    margin = top[:, 0] - top[:, 1]
    print(f"{case.name:34} std {logits.std():6.3f}  distinct argmax {logits.argmax(-1).unique().numel():3}  "
          f"margin min {margin.min():.2e} median {margin.median():.3f}  below 0.01: {(margin < 1e-2).sum()}")


def make(case):
    folder = FOLDER / case.name
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    model = getattr(transformers, case.classes[1])(make_config(case))
    fill(model, generator)
    model.to(getattr(torch, case.dtype)).save_pretrained(folder, max_shard_size=case.shard_size)
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_config(case, folder)

    vocab_size = model.config.vocab_size
    ids = [1] + torch.randint(3, vocab_size, (N_TOKENS - 1,), generator=generator).tolist()
    (folder / "tokens.json").write_text(json.dumps(ids) + "\n")
    logits = logits_of(folder, ids, torch.float32)
    save_logits(folder / "logits.safetensors", logits, case, "float32")
    if case.dtype == "bfloat16":
        save_logits(folder / "logits_bf16.safetensors", logits_of(folder, ids, torch.bfloat16), case, "bfloat16")
    for file in folder.iterdir():
        file.chmod(0o644)
    describe(case, logits)


def main():
    torch.set_num_threads(1)  # the same order of additions everywhere
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    wanted = sys.argv[1:]
    unknown = set(wanted) - {case.name for case in CASES}
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    for case in CASES:
        if not wanted or case.name in wanted:
            make(case)


if __name__ == "__main__":
    main()
