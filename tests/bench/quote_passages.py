#!/usr/bin/env python3
"""Answers that quote 200 tokens of a document, with and without guesses: tokens per step, and time.

usage: quote_passages.py LONGHAUL [--draft-max 16] [--ranks 1] [--d-ff 65536] [--repetitions 2]

No model at hand that was trained can quote so much, so one is made by formula (below): a Llama of two
layers that copies what followed the last twelve tokens where they stood before, with the tokens of the
demo model and FFNs of --d-ff columns that add nothing, so that a step reads as much memory as a
model of some size. The document is the demo's log; each of five questions is the beginning of a
passage. Prints a table; exits 1 when a text with guesses is not the text without, or when fewer than
four of five answers are the passage itself.
"""
import argparse
import json
import math
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "needle"
N_QUOTED = 200  # tokens of an answer

# The model. A token has a code of BITS signs. The first layer's head h attends to the token h places
# back, by position alone, and writes its code beside the token's own; the second layer looks for the
# place before which the same WIDTH tokens stand, and says the code of the token there:
#
#   residual    [code | 1 | code of 1 back | code of 2 back | ... | said]
#   layer 0     query of head h and key: fast rotary pairs, turned by h against each other
#   layer 1     query: own code and those of 1 .. WIDTH - 1 back; key: those of 1 .. WIDTH back; in
#               rotary pairs so slow that a document's length does not turn them
#   head        codes of all tokens against what was said
VOCAB, BITS, WIDTH, HEAD_DIM = 1536, 12, 24, 512
D_MODEL = 320
ONE, BACK, SAID = BITS, BITS + 1, BITS + 1 + WIDTH * BITS
PAIRS = HEAD_DIM // 2
N_FAST, FIRST_SLOW = 60, 112  # 144 slow pairs: 288 = WIDTH * BITS dimensions
ROPE_THETA = 1e12
EPS = 1e-5


def bf16(values):
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *((w + 0x7FFF + ((w >> 16) & 1)) >> 16 for w in words))


def matrix(n_rows, n_columns, entries):
    """Zeros but for {(row, column): value}."""
    rows = [[0.0] * n_columns for _ in range(n_rows)]
    for (row, column), value in entries.items():
        rows[row][column] = value
    return (n_rows, n_columns), b"".join(bf16(row) for row in rows)


def codes():
    """Signs whose every two differ in two places at least: the last one is the parity."""
    numbers = random.Random(5).sample(range(2 ** (BITS - 1)), VOCAB)
    return [[1.0 if (n * 2 + bin(n).count("1") % 2) >> b & 1 else -1.0 for b in range(BITS)]
            for n in numbers]


def rms_after_norm(n_ones):
    """What RMSNorm makes of a one, in a row of so many ones and minus ones."""
    return 1 / math.sqrt(n_ones / D_MODEL + EPS)


def slow_dim(i):
    return FIRST_SLOW + i if i < PAIRS - FIRST_SLOW else PAIRS + FIRST_SLOW + i - (PAIRS - FIRST_SLOW)


def tensors(d_ff):
    code = codes()
    yield "model.embed_tokens.weight", matrix(VOCAB, D_MODEL, {
        **{(t, b): code[t][b] for t in range(VOCAB) for b in range(BITS)},
        **{(t, ONE): 1.0 for t in range(VOCAB)}})
    yield "lm_head.weight", matrix(VOCAB, D_MODEL, {
        (t, SAID + b): code[t][b] for t in range(VOCAB) for b in range(BITS)})
    # Scores: a place off costs 2.8 of N_FAST, and is to cost 20; a sign that differs costs 2.
    one = rms_after_norm(BITS + 1)
    gain = math.sqrt(20 / 2.8 * math.sqrt(HEAD_DIM)) / one
    near, key = {}, {}
    for i in range(N_FAST):
        angle = ROPE_THETA ** (-2 * i / HEAD_DIM)
        key[(i, ONE)] = gain
        for h in range(WIDTH):
            near[(h * HEAD_DIM + i, ONE)] = gain * math.cos((h + 1) * angle)
            near[(h * HEAD_DIM + PAIRS + i, ONE)] = -gain * math.sin((h + 1) * angle)
    value = {(b, b): 1 / one for b in range(BITS)}
    back = {(BACK + h * BITS + b, h * HEAD_DIM + b): 1.0 for h in range(WIDTH) for b in range(BITS)}
    yield from layer(0, d_ff, near, key, value, back)
    one = rms_after_norm(BITS + 1 + WIDTH * BITS)
    gain = math.sqrt(4 * math.sqrt(HEAD_DIM)) / one
    same, before = {}, {}
    for m in range(WIDTH):
        for b in range(BITS):
            dim = slow_dim(m * BITS + b)
            same[(dim, b if m == 0 else BACK + (m - 1) * BITS + b)] = gain
            before[(dim, BACK + m * BITS + b)] = gain
    value = {(b, b): 1 / one for b in range(BITS)}
    yield from layer(1, d_ff, same, before, value, {(SAID + b, b): 1.0 for b in range(BITS)})
    yield "model.norm.weight", matrix(1, D_MODEL, {(0, i): 1.0 for i in range(D_MODEL)})


def layer(number, d_ff, q, k, v, o):
    name = f"model.layers.{number}."
    n_q = WIDTH * HEAD_DIM
    yield name + "self_attn.q_proj.weight", matrix(n_q, D_MODEL, q)
    yield name + "self_attn.k_proj.weight", matrix(HEAD_DIM, D_MODEL, k)
    yield name + "self_attn.v_proj.weight", matrix(HEAD_DIM, D_MODEL, v)
    yield name + "self_attn.o_proj.weight", matrix(D_MODEL, n_q, o)
    some = bf16([0.01]) * (d_ff * D_MODEL)
    yield name + "mlp.gate_proj.weight", ((d_ff, D_MODEL), some)
    yield name + "mlp.up_proj.weight", ((d_ff, D_MODEL), some)
    yield name + "mlp.down_proj.weight", ((D_MODEL, d_ff), bytes(2 * d_ff * D_MODEL))
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield name + norm + ".weight", matrix(1, D_MODEL, {(0, i): 1.0 for i in range(D_MODEL)})


def write_model(folder, d_ff):
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / "model" / name, folder)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB,
        "hidden_size": D_MODEL, "intermediate_size": d_ff, "num_hidden_layers": 2,
        "num_attention_heads": WIDTH, "num_key_value_heads": 1, "head_dim": HEAD_DIM,
        "hidden_act": "silu", "max_position_embeddings": 1 << 20, "rms_norm_eps": EPS,
        "rope_theta": ROPE_THETA, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "bos_token_id": 0, "eos_token_id": 1}))
    header, data = {}, []
    end = 0
    for name, (shape, raw) in tensors(d_ff):
        shape = [shape[1]] if "norm" in name else list(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + len(raw)]}
        end += len(raw)
        data.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for raw in data:
            out.write(raw)


def write_requests(folder, n_bytes):
    """Five passages' beginnings: two sentences each. Returns what follows them."""
    text = (DEMO / "documents" / "harbour_log.txt").read_text()[:n_bytes]
    (folder / "harbour_log.txt").write_text(text)
    rest = []
    with open(folder / "requests.jsonl", "w", encoding="utf-8") as out:
        for i in range(5):
            begin = text.index(". ", (i + 1) * len(text) // 8) + 1
            end = text.index(".", text.index(".", begin) + 1) + 1
            rest.append(text[end:])
            out.write(json.dumps({
                "custom_id": f"passage-{i}", "method": "POST", "url": "/v1/completions",
                "body": {"documents": [{"path": "harbour_log.txt"}], "max_tokens": N_QUOTED,
                         "prompt": text[begin:end]}}) + "\n")
    return rest


def run(args, folder, name, extra):
    """Texts, what the last lines say of the run, and the seconds that it took."""
    output = folder / f"{name}.jsonl"
    begin = time.perf_counter()
    done = subprocess.run(
        [args.longhaul, "run", "-m", str(folder / "model"), "-i", str(folder / "requests.jsonl"),
         "-o", str(output), "--overwrite", "--parallel", str(args.parallel), "--ranks", str(args.ranks),
         *(["-t", str(args.threads)] if args.threads else []), *extra],
        capture_output=True, text=True, timeout=3600, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(f"longhaul run ended with status {done.returncode}: {done.stderr}")
    texts = {}
    for line in output.read_text().splitlines():
        result = json.loads(line)
        texts[result["custom_id"]] = result["response"]["body"]["choices"][0]["text"]
    return texts, done.stderr, seconds


def decode_facts(stderr):
    """("994 tokens, 512/s", "6.9 a step, 850 of 1001 guesses came true") of the last progress."""
    last = [part for line in stderr.splitlines() for part in line.split("  ")]
    decode = [part for part in last if part.startswith("decode ")]
    guesses = [part for part in last if "guesses came true" in part]
    return (decode or ["?"])[-1].removeprefix("decode "), (guesses or ["1.0 a step"])[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("longhaul")
    parser.add_argument("--draft-max", type=int, default=16)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=1, help="answers at the same time")
    parser.add_argument("--d-ff", type=int, default=65536)
    parser.add_argument("--bytes", type=int, help="of the document, from its beginning; all of it")
    parser.add_argument("--repetitions", type=int, default=2, help="in turns")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder / "model", args.d_ff)
        rest = write_requests(folder, args.bytes)
        print("| guesses | decode | a step | whole run, s |\n|---|---|---|---|")
        want = None
        for _ in range(args.repetitions):
            for draft_max in (0, args.draft_max):
                texts, stderr, seconds = run(args, folder, f"draft-{draft_max}",
                                             ["--draft-max", str(draft_max)])
                decode, a_step = decode_facts(stderr)
                print(f"| {draft_max} | {decode} | {a_step} | {seconds:.1f} |", flush=True)
                want = want or texts
                if texts != want:
                    sys.exit("the texts with guesses are not those without")
        n_quoted = sum(rest[i].startswith(want[f"passage-{i}"]) for i in range(len(rest)))
        print(f"\n{n_quoted} of {len(rest)} answers are the passage, word for word")
        if n_quoted + 1 < len(rest):
            sys.exit("too few: the model made by formula does not copy")


if __name__ == "__main__":
    main()
