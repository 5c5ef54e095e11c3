#!/usr/bin/env python3
"""The whole model beside llama.cpp: the same weights, threads and machine, in one run.

usage: compare_llama_cpp.py LONGHAUL [--shape llama-3.2-1b] [--layers 4] [--threads N]

Needs llama-cpp-python (built for this machine), gguf, numpy and safetensors from PyPI. Writes
random weights of a Llama shape once as a Hugging Face folder and once as GGUF, measures prefill of
--prompt tokens and generation at --depth with both, in turns, and prints a Markdown table of the
best of --repetitions. Weights (--weights, all unless given): bf16 in both; int8 against Q8_0 (8 bits
and a scale for 32); int4 (4.5 bits a weight, the head too, the embedding bf16) against Q4_K_M, which
llama.cpp makes of the bf16 file (4.5 to 6.6 bits, by its own choice of matrices). Sizes are told. Caches: bf16 in Longhaul, f16 in llama.cpp, with its flash attention. Both programs must first pick
the same next token after the same 64 tokens, or nothing is measured. --plain-buffers: llama.cpp
without its own layouts of weights (repacked, for AMX), where it crashes with them.
"""
import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import gguf
import numpy as np
from safetensors.numpy import save_file

SHAPES = {  # d_model, d_ff, heads, KV heads, head_dim, vocabulary
    "llama-3.2-1b": (2048, 8192, 32, 8, 64, 32000),
    "llama-3.1-8b": (4096, 14336, 32, 8, 128, 32000),
    "tiny": (256, 512, 4, 2, 64, 1000),
}
ROPE_THETA = 500000.0
NORM_EPS = 1e-5
TIMEOUT_S = 3600


def to_bf16(x):
    """float32 -> the upper halves of its bits, to nearest even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def matrices(shape, n_layers):
    """Yields (name, float32 matrix whose values bf16 holds)."""
    d_model, d_ff, n_heads, n_kv, head_dim, vocab = SHAPES[shape]
    rng = np.random.default_rng(1)

    def draw(*size):
        x = rng.standard_normal(size, dtype=np.float32) * (size[-1] ** -0.5)
        return from_bf16(to_bf16(x))

    yield "model.embed_tokens.weight", draw(vocab, d_model) * 16
    for i in range(n_layers):
        p = f"model.layers.{i}."
        yield p + "self_attn.q_proj.weight", draw(n_heads * head_dim, d_model)
        yield p + "self_attn.k_proj.weight", draw(n_kv * head_dim, d_model)
        yield p + "self_attn.v_proj.weight", draw(n_kv * head_dim, d_model)
        yield p + "self_attn.o_proj.weight", draw(d_model, n_heads * head_dim)
        yield p + "mlp.gate_proj.weight", draw(d_ff, d_model)
        yield p + "mlp.up_proj.weight", draw(d_ff, d_model)
        yield p + "mlp.down_proj.weight", draw(d_model, d_ff)
        yield p + "input_layernorm.weight", np.ones(d_model, np.float32)
        yield p + "post_attention_layernorm.weight", np.ones(d_model, np.float32)
    yield "model.norm.weight", np.ones(d_model, np.float32)
    yield "lm_head.weight", draw(vocab, d_model)


def write_hf(folder, shape, n_layers, max_len):
    d_model, d_ff, n_heads, n_kv, head_dim, vocab = SHAPES[shape]
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": d_model,
        "intermediate_size": d_ff, "num_hidden_layers": n_layers, "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv, "head_dim": head_dim, "vocab_size": vocab,
        "rms_norm_eps": NORM_EPS, "rope_theta": ROPE_THETA, "max_position_embeddings": max_len,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "bos_token_id": 1, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: to_bf16(x) for name, x in matrices(shape, n_layers)}
    # safetensors' numpy side has no bf16: written as U16 and renamed in the header.
    path = folder / "model.safetensors"
    save_file(tensors, str(path))
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    for entry in header.values():
        if isinstance(entry, dict) and entry.get("dtype") == "U16":
            entry["dtype"] = "BF16"
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size:])


def rotated_rows(x, n_heads):
    """Rows of Q or K in the order of GGUF's llama, whose rotary pairs are neighbours."""
    return x.reshape(n_heads, 2, x.shape[0] // n_heads // 2, -1).swapaxes(1, 2).reshape(x.shape)


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    if not name.startswith("model.layers."):
        return {"model.embed_tokens.weight": "token_embd.weight",
                "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}[name]
    layer, part = name[len("model.layers."):].removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{GGUF_NAMES[part]}.weight"


def write_gguf(path, shape, n_layers, max_len, kind):
    d_model, d_ff, n_heads, n_kv, head_dim, vocab = SHAPES[shape]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(n_layers)
    writer.add_context_length(max_len)
    writer.add_embedding_length(d_model)
    writer.add_feed_forward_length(d_ff)
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(n_kv)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(ROPE_THETA)
    writer.add_layer_norm_rms_eps(NORM_EPS)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("no_vocab")
    for name, x in matrices(shape, n_layers):
        if ".q_proj" in name:
            x = rotated_rows(x, n_heads)
        if ".k_proj" in name:
            x = rotated_rows(x, n_kv)
        if x.ndim == 1:
            writer.add_tensor(gguf_name(name), x)
        else:
            data = gguf.quants.quantize(x, kind)
            writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_q4_k_m(path, bf16_path, n_threads):
    """gguf's Python has no K-quants: llama.cpp makes them, as llama-quantize does."""
    import llama_cpp
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M
    params.nthread = n_threads
    status = llama_cpp.llama_model_quantize(str(bf16_path).encode(), str(path).encode(),
                                            ctypes.byref(params))
    if status != 0:
        sys.exit(f"llama.cpp could not quantize {bf16_path} (status {status})")


def write_theirs(folder, weights, args, max_len):
    """The file of weights as llama.cpp has them at about so many bits."""
    path = folder / f"{weights}.gguf"
    if weights == "int8":
        write_gguf(path, args.shape, args.layers, max_len, gguf.GGMLQuantizationType.Q8_0)
    elif weights == "int4":
        write_q4_k_m(path, folder / "bf16.gguf", args.threads)
    return path  # bf16 is there


def prompt_of(n, vocab):
    return [3 + (i * 7919) % (vocab - 3) for i in range(n)]


def llama_cpp_rates(path, args, vocab):
    """Best tokens/s of prefill and of generation at a depth."""
    from llama_cpp import Llama
    prefill, decode = [], []
    n_ctx = max(args.prompt, args.depth + args.generated) + 64
    model = Llama(str(path), n_ctx=n_ctx, n_batch=2048, n_ubatch=512, n_threads=args.threads,
                  n_threads_batch=args.threads, flash_attn=True, verbose=False, logits_all=False)
    for _ in range(args.repetitions):
        model.reset()
        begin = time.perf_counter()
        model.eval(prompt_of(args.prompt, vocab))
        prefill.append(args.prompt / (time.perf_counter() - begin))
        if args.depth != args.prompt:
            model.reset()
            model.eval(prompt_of(args.depth, vocab))
        begin = time.perf_counter()
        for token in prompt_of(args.generated, vocab):
            model.eval([token])
        decode.append(args.generated / (time.perf_counter() - begin))
    model.close()
    return max(prefill), max(decode)


def longhaul_rates(program, folder, weights, args):
    command = [program, "bench", "-m", str(folder), "--weights", weights, "-t", str(args.threads),
               "-r", str(args.repetitions), "-o", "json", "--no-progress"]
    rates, size = [], 0
    for extra in (["-p", str(args.prompt), "-n", "0"],
                  ["-p", "0", "-n", str(args.generated), "-d", str(args.depth)]):
        done = subprocess.run(command + extra, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command + extra)}: {done.stderr}")
        row = json.loads(done.stdout)[0]
        rates.append(max(row["samples_ts"]))
        size = row["model_size"]
    return rates, size


def use_plain_buffers():
    import llama_cpp.llama_cpp as api
    usual = api.llama_model_default_params

    def plain():
        params = usual()
        params.use_extra_bufts = False
        return params
    api.llama_model_default_params = plain


def check_same_token(folder, path, vocab):
    """The next token by llama.cpp and by the formulas, from the Hugging Face folder's weights."""
    from llama_cpp import Llama
    model = Llama(str(path), n_ctx=128, verbose=False, logits_all=True)
    tokens = prompt_of(64, vocab)
    model.eval(tokens)
    theirs = int(np.argmax(model.scores[len(tokens) - 1]))
    model.close()
    ours = int(np.argmax(reference_logits(folder, tokens)))
    if ours != theirs:
        sys.exit(f"the weights are not the same: next token {ours} by the formulas, {theirs} by "
                 "llama.cpp")


def reference_logits(folder, tokens):
    """A plain Llama in numpy."""
    config = json.loads((folder / "config.json").read_text())
    raw = load_raw(folder / "model.safetensors")
    x = raw["model.embed_tokens.weight"][tokens]
    n, d = len(tokens), config["head_dim"]
    angles = np.arange(n)[:, None] * ROPE_THETA ** (-np.arange(0, d, 2) / d)[None]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def norm(v):
        return v / np.sqrt((v * v).mean(-1, keepdims=True) + NORM_EPS)

    def rotate(v):
        a, b = v[..., :d // 2], v[..., d // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    for i in range(config["num_hidden_layers"]):
        w = {k.split(".", 3)[3].removesuffix(".weight"): v for k, v in raw.items()
             if k.startswith(f"model.layers.{i}.")}
        h = norm(x)
        q = rotate((h @ w["self_attn.q_proj"].T).reshape(n, -1, d))
        k = rotate((h @ w["self_attn.k_proj"].T).reshape(n, -1, d))
        v = (h @ w["self_attn.v_proj"].T).reshape(n, -1, d)
        group = q.shape[1] // k.shape[1]
        scores = np.einsum("qhd,khd->hqk", q, k.repeat(group, 1)) / d ** 0.5
        scores[:, np.triu_indices(n, 1)[0], np.triu_indices(n, 1)[1]] = -np.inf
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", p, v.repeat(group, 1)).reshape(n, -1) \
            @ w["self_attn.o_proj"].T
        h = norm(x)
        gate = h @ w["mlp.gate_proj"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
    return norm(x[-1]) @ raw["lm_head.weight"].T


def load_raw(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    out = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = np.frombuffer(raw[8 + size + begin:8 + size + end], np.uint16)
        out[name] = from_bf16(data).reshape(entry["shape"])
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("longhaul")
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.2-1b")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=8192)
    parser.add_argument("--depth", type=int, default=8192)
    parser.add_argument("--generated", type=int, default=32)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--plain-buffers", action="store_true",
                        help="llama.cpp without repacking and AMX")
    parser.add_argument("--weights", default="bf16,int8,int4", help="of these, between commas")
    args = parser.parse_args()
    if args.plain_buffers:
        use_plain_buffers()
    kinds = args.weights.split(",")
    if not set(kinds) <= {"bf16", "int8", "int4"}:
        parser.error(f"--weights {args.weights}: bf16, int8 and int4 are compared")
    vocab = SHAPES[args.shape][5]
    max_len = max(args.prompt, args.depth) + 1024
    print(f"{args.shape}, {args.layers} layers, {args.threads} threads\n\n| weights | test | "
          "Longhaul t/s | llama.cpp t/s | ratio | MB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_hf(folder, args.shape, args.layers, max_len)
        whole = folder / "bf16.gguf"
        write_gguf(whole, args.shape, args.layers, max_len, gguf.GGMLQuantizationType.BF16)
        check_same_token(folder, whole, vocab)
        for weights in kinds:
            path = write_theirs(folder, weights, args, max_len)
            theirs = llama_cpp_rates(path, args, vocab)
            ours, size = longhaul_rates(args.longhaul, folder, weights, args)
            sizes = f"{size / 1e6:.0f}, {path.stat().st_size / 1e6:.0f}"
            tests = (f"pp{args.prompt}", f"tg{args.generated} @ d{args.depth}")
            for test, a, b in zip(tests, ours, theirs):
                print(f"| {weights} | {test} | {a:.1f} | {b:.1f} | {a / b:.2f} "
                      f"| {sizes} |", flush=True)


if __name__ == "__main__":
    main()
