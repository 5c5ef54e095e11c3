#!/usr/bin/env python3
"""Writes a checkpoint as a Hugging Face Llama folder in bfloat16, and its head profile in DuoAttention's form.

    ./export.py --checkpoint DIR/checkpoint.pt --tokenizer-from ../../../examples/needle/model --out DIR/export
"""
import argparse
import json
import pathlib
import shutil
import struct

import numpy as np
import torch

import lessons
from attention import HEAD_DIM
from model import Config
from records import BOS, EOS

LONGEST = 1 << 20  # tokens
SINK, RECENT = 16, 128


def hugging_face_tensors(state, config):
    """{name: tensor} of a LlamaForCausalLM with tied embeddings."""
    tensors = {"model.embed_tokens.weight": state["embedding"], "model.norm.weight": state["norm"]}
    heads, kv = config.n_heads * HEAD_DIM, config.n_kv_heads * HEAD_DIM
    for i in range(config.n_layers):
        layer = {name.split(".", 2)[2]: tensor for name, tensor in state.items() if name.startswith(f"layers.{i}.")}
        parts = dict(zip(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), layer["qkv"].split([heads, kv, kv])))
        parts |= dict(zip(("mlp.gate_proj", "mlp.up_proj"), layer["gate_up"].split(config.d_ff)))
        parts |= {"self_attn.o_proj": layer["out"], "mlp.down_proj": layer["down"],
                  "input_layernorm": layer["attention_norm"], "post_attention_layernorm": layer["mlp_norm"]}
        tensors |= {f"model.layers.{i}.{name}.weight": tensor for name, tensor in parts.items()}
    return tensors


def checkpoint_tensors(tensors, config):
    """The reverse: a state of model.Model."""
    state = {"embedding": tensors["model.embed_tokens.weight"], "norm": tensors["model.norm.weight"]}
    for i in range(config.n_layers):
        layer = {name.split(".", 3)[3].removesuffix(".weight"): tensor for name, tensor in tensors.items()
                 if name.startswith(f"model.layers.{i}.")}
        state |= {f"layers.{i}.{name}": tensor for name, tensor in {
            "attention_norm": layer["input_layernorm"], "mlp_norm": layer["post_attention_layernorm"],
            "qkv": torch.cat([layer[f"self_attn.{p}_proj"] for p in "qkv"]), "out": layer["self_attn.o_proj"],
            "gate_up": torch.cat([layer["mlp.gate_proj"], layer["mlp.up_proj"]]), "down": layer["mlp.down_proj"]}.items()}
    return state


def read_safetensors(file):
    """{name: float32 tensor} of a file of bfloat16 tensors."""
    data = file.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            raise SystemExit(f"{file}: {name} is {entry['dtype']}, not BF16")
        begin, end = entry["data_offsets"]
        bits = np.frombuffer(data, "<u2", (end - begin) // 2, 8 + length + begin).astype(np.uint32) << 16
        tensors[name] = torch.from_numpy(bits.view(np.float32).copy()).view(entry["shape"])
    return tensors


def write_safetensors(tensors, file):
    """bfloat16, little-endian: a length, a JSON header, the bytes."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        blob = tensors[name].detach().to(torch.bfloat16).contiguous().view(torch.int16).numpy().astype("<i2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def hugging_face_config(config):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": config.vocab_size,
        "hidden_size": config.d_model, "intermediate_size": config.d_ff, "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads, "num_key_value_heads": config.n_kv_heads, "head_dim": HEAD_DIM,
        "hidden_act": "silu", "max_position_embeddings": LONGEST, "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta, "rope_scaling": None, "tie_word_embeddings": True, "attention_bias": False,
        "mlp_bias": False, "attention_dropout": 0.0, "bos_token_id": BOS, "eos_token_id": EOS, "initializer_range": 0.02,
        "use_cache": True, "pretraining_tp": 1, "torch_dtype": "bfloat16",
    }


def write_profile(folder, config, retrieval_heads):
    folder.mkdir(parents=True, exist_ok=True)
    rows = [[1.0 if (layer, head) in retrieval_heads else 0.0 for head in range(config.n_kv_heads)] for layer in range(config.n_layers)]
    (folder / "full_attention_heads.tsv").write_text("".join("\t".join(f"{x:.18e}" for x in row) + "\n" for row in rows))
    (folder / "config.json").write_text(json.dumps({"sink_size": SINK, "recent_size": RECENT}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer-from", type=pathlib.Path, required=True, help="folder with the tokenizer's files")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="model/ and profile/ are made in it")
    args = parser.parse_args()
    config, model = Config(), args.out / "model"
    model.mkdir(parents=True, exist_ok=True)
    state = torch.load(args.checkpoint)
    write_safetensors(hugging_face_tensors(state["model"], config), model / "model.safetensors")
    (model / "config.json").write_text(json.dumps(hugging_face_config(config), indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(args.tokenizer_from / name, model / name)
    write_profile(args.out / "profile", config, lessons.RETRIEVAL_HEADS)
    print(f"{args.out}: step {int(state['progress'][0])}, {sum(t.numel() for t in state['model'].values())} parameters")


if __name__ == "__main__":
    main()
