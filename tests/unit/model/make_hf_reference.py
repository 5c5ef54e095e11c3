"""Makes hf_reference.json: configurations as they appear in config.json, and what Hugging Face
transformers makes of them (dimensions, biases, windows, RoPE frequencies).

Needs torch and transformers (made with 5.23). Run: python make_hf_reference.py > hf_reference.json
"""
import json
import tempfile
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
SMALL = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}

CASES = {
    "llama_defaults": LLAMA,
    "mistral_defaults": MISTRAL,
    "qwen2_defaults": QWEN2,
    "qwen3_defaults": QWEN3,
    "llama31_8b": {**LLAMA, "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
                   "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                   "rope_theta": 500000.0, "rope_scaling": {**LLAMA3, "rope_type": "llama3"},
                   "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009],
                   "torch_dtype": "bfloat16"},
    "llama3_new_form": {**LLAMA, **SMALL, "dtype": "float16",
                        "rope_parameters": {**LLAMA3, "rope_type": "llama3", "rope_theta": 500000.0}},
    "llama3_original_outside": {**LLAMA, **SMALL, "original_max_position_embeddings": 1024,
                                "rope_theta": 10000.0,
                                "rope_scaling": {**LLAMA3, "rope_type": "llama3"}},
    "linear_old_name": {**LLAMA, **SMALL, "rope_scaling": {"type": "linear", "factor": 4}},
    "both_forms": {**LLAMA, **SMALL, "rope_scaling": {"type": "linear", "factor": 2.0},
                   "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
    "empty_scaling": {**LLAMA, **SMALL, "rope_scaling": {},
                      "rope_parameters": {"rope_type": "default", "rope_theta": 77777.0}},
    "llama_biases": {**LLAMA, **SMALL, "attention_bias": True, "mlp_bias": True, "head_dim": 32,
                     "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None},
    "llama_no_kv_heads": {**LLAMA, **{k: v for k, v in SMALL.items() if k != "num_key_value_heads"}},
    "mistral_v02": {**MISTRAL, **SMALL, "sliding_window": None, "rope_theta": 1e6},
    "mistral_sliding": {**MISTRAL, **SMALL, "sliding_window": 100, "head_dim": 24},
    "qwen2_yarn": {**QWEN2, **SMALL, "head_dim": 128, "rope_theta": 1e6,
                   "rope_scaling": {"type": "yarn", "factor": 4.0,
                                    "original_max_position_embeddings": 32768}},
    "qwen2_sliding": {**QWEN2, **SMALL, "use_sliding_window": True, "sliding_window": 128,
                      "max_window_layers": 2},
    "qwen2_sliding_off": {**QWEN2, **SMALL, "use_sliding_window": False, "sliding_window": 128,
                          "max_window_layers": 0},
    "qwen2_sliding_null": {**QWEN2, **SMALL, "use_sliding_window": True, "sliding_window": None,
                           "max_window_layers": 0},
    "qwen3_layer_types": {**QWEN3, **SMALL, "attention_bias": True, "use_sliding_window": True,
                          "sliding_window": 64,
                          "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "yarn_null_factor": {**QWEN3, **SMALL, "max_position_embeddings": 131072,
                         "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": None,
                                             "original_max_position_embeddings": 32768}},
    "yarn_mscale": {**QWEN3, **SMALL,
                    "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0,
                                        "original_max_position_embeddings": 4096, "mscale": 0.707,
                                        "mscale_all_dim": 1.3, "beta_fast": 48, "beta_slow": 2}},
    "yarn_one_mscale": {**QWEN3, **SMALL,
                        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0,
                                            "factor": 40.0, "original_max_position_embeddings": 4096,
                                            "mscale": 0.707, "mscale_all_dim": 0, "beta_fast": 0}},
    "yarn_given_attention": {**QWEN3, **SMALL,
                             "rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0,
                                                 "factor": 32.0, "truncate": False,
                                                 "attention_factor": 1.25,
                                                 "original_max_position_embeddings": 4096}},
    "yarn_short_original": {**LLAMA, **SMALL,
                            "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0,
                                                "factor": 2.0,
                                                "original_max_position_embeddings": 4}},
}


def window_of(config, layer):
    if config.model_type == "mistral":
        return config.sliding_window
    if config.model_type == "llama":
        return None
    return config.sliding_window if config.layer_types[layer] == "sliding_attention" else None


def expected(raw):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(raw))
        config = AutoConfig.from_pretrained(folder)
    windows = [window_of(config, i) for i in range(config.num_hidden_layers)]
    config.num_hidden_layers = 1
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:1]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    layer = model.model.layers[0]
    rotary = type(model.model.rotary_emb)(config)
    eos = config.eos_token_id
    return {
        "vocab_size": config.vocab_size, "d_model": config.hidden_size,
        "d_ff": config.intermediate_size, "n_layers": len(windows),
        "n_heads": config.num_attention_heads, "n_kv_heads": config.num_key_value_heads,
        "head_dim": layer.self_attn.head_dim, "max_seq_len": config.max_position_embeddings,
        "norm_eps": config.rms_norm_eps, "qkv_bias": layer.self_attn.q_proj.bias is not None,
        "attention_output_bias": layer.self_attn.o_proj.bias is not None,
        "mlp_bias": layer.mlp.gate_proj.bias is not None,
        "qk_norm": hasattr(layer.self_attn, "q_norm"), "tied": config.tie_word_embeddings,
        "windows": windows, "bos": config.bos_token_id,
        "eos": eos if isinstance(eos, list) else [] if eos is None else [eos],
        "attention_scale": rotary.attention_scaling,
        "inverse_frequencies": [float(x) for x in rotary.inv_freq],
    }


if __name__ == "__main__":
    rows = []
    for name, raw in CASES.items():
        row = {"name": name, "config": raw, "expected": expected(raw)}
        rows.append(json.dumps(row))
    print("[\n" + ",\n".join(rows) + "\n]")
