#!/usr/bin/env python3
"""Makes tests/golden/kept_tokens.json: which tokens kvpress's presses would keep of the first 160 tokens of some stored models
(tests/golden/models, random, made by make_model_goldens.py).

Written from kvpress's published source (version 0.5.5: snapkv_press.py, tova_press.py, pyramidkv_press.py, adakv_press.py, utils.py) in plain
Python with double precision, because torch and transformers are too large for the machine that made the file; so it is a second implementation of what
that source says, not a run of it. Its forward pass is checked here against the logits that Hugging Face transformers computed (logits.safetensors).
Every choice is clear: cases in which the scores of a token that stays and of one that goes differ by less than a part in 20,000 are left out.

  python make_kept_goldens.py
"""

import json
import math
import pathlib
import struct

FOLDER = pathlib.Path(__file__).parent
N_TOKENS = 160
MODELS = ["llama2_mha", "llama3_gqa"]
CLEAR = 5e-5


def read_safetensors(path):
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", name
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[8 + n + begin:8 + n + end]))
    return tensors


def matrix(tensors, name):
    (rows, columns), values = tensors[name]
    return [values[i * columns:(i + 1) * columns] for i in range(rows)]


def apply(weight, rows):
    return [[math.fsum(map(float.__mul__, w, x)) for w in weight] for x in rows]


def normalized(rows, weight, eps):
    out = []
    for x in rows:
        scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + eps)
        out.append([v * scale * w for v, w in zip(x, weight)])
    return out


def rotated(head, position, theta):
    half = len(head) // 2
    out = list(head)
    for i in range(half):
        angle = position * theta ** (-i / half)
        c, s = math.cos(angle), math.sin(angle)
        out[i] = head[i] * c - head[half + i] * s
        out[half + i] = head[half + i] * c + head[i] * s
    return out


def softmax(scores):
    largest = max(scores)
    weights = [math.exp(s - largest) for s in scores]
    total = math.fsum(weights)
    return [w / total for w in weights]


def run(folder):
    """Attention weights [layer][head][query][key <= query] and logits of the first tokens."""
    config = json.loads((folder / "config.json").read_text())
    tokens = json.loads((folder / "tokens.json").read_text())[:N_TOKENS]
    tensors = read_safetensors(folder / "model.safetensors")
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    group = config["num_attention_heads"] // config["num_key_value_heads"]
    theta, eps = config["rope_theta"], config["rms_norm_eps"]
    embedding = matrix(tensors, "model.embed_tokens.weight")
    x = [list(embedding[token]) for token in tokens]
    attention = []
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        h = normalized(x, tensors[prefix + "input_layernorm.weight"][1], eps)
        q, k, v = (apply(matrix(tensors, f"{prefix}self_attn.{p}_proj.weight"), h) for p in "qkv")
        heads_of = lambda row, turn, t: [
            rotated(row[i:i + head_dim], t, theta) if turn else row[i:i + head_dim] for i in range(0, len(row), head_dim)]
        q = [heads_of(row, True, t) for t, row in enumerate(q)]
        k = [heads_of(row, True, t) for t, row in enumerate(k)]
        v = [heads_of(row, False, t) for t, row in enumerate(v)]
        outputs = [[] for _ in tokens]
        of_layer = []
        for head in range(config["num_attention_heads"]):
            rows = []
            for t in range(len(tokens)):
                scores = [sum(map(float.__mul__, q[t][head], k[j][head // group])) / math.sqrt(head_dim) for j in range(t + 1)]
                rows.append(softmax(scores))
                outputs[t] += [math.fsum(w * v[j][head // group][d] for j, w in enumerate(rows[-1])) for d in range(head_dim)]
            of_layer.append(rows)
        attention.append(of_layer)
        for row, added in zip(x, apply(matrix(tensors, prefix + "self_attn.o_proj.weight"), outputs)):
            row[:] = [a + b for a, b in zip(row, added)]
        h = normalized(x, tensors[prefix + "post_attention_layernorm.weight"][1], eps)
        gate, up = (apply(matrix(tensors, f"{prefix}mlp.{p}_proj.weight"), h) for p in ("gate", "up"))
        wide = [[g / (1 + math.exp(-g)) * u for g, u in zip(a, b)] for a, b in zip(gate, up)]
        for row, added in zip(x, apply(matrix(tensors, prefix + "mlp.down_proj.weight"), wide)):
            row[:] = [a + b for a, b in zip(row, added)]
    x = normalized(x, tensors["model.norm.weight"][1], eps)
    logits = apply(matrix(tensors, "lm_head.weight"), x)
    (entry,) = read_safetensors(folder / "logits.safetensors").values()
    (_, vocab), want = entry
    for t in range(len(tokens)):
        for i in range(vocab):
            assert abs(logits[t][i] - want[t * vocab + i]) < 1e-3, (folder.name, t, i)
    return attention, group


class Unclear(Exception):
    pass


def topk(scores, n):
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    last, following = scores[order[n - 1]], scores[order[n]] if n < len(scores) else -math.inf
    if last != following and last != math.inf and (last - following) / last <= CLEAR:
        raise Unclear()
    return order[:n]


def snapkv_scores(of_layer, group, window, kernel):
    """SnapKVPress.score: per KV head; the window's own tokens always stay."""
    n_heads, n = len(of_layer), N_TOKENS
    pooled = []
    for head in range(n_heads):
        mean = [math.fsum(of_layer[head][t][j] for t in range(n - window, n)) / window for j in range(n - window)]
        half = kernel // 2
        pooled.append([math.fsum(mean[max(0, j - half):j + half + 1]) / kernel for j in range(len(mean))])
    return [[math.fsum(pooled[g][j] for g in range(first, first + group)) / group for j in range(n - window)] + [math.inf] * window
            for first in range(0, n_heads, group)]


def tova_scores(of_layer, group):
    """TOVAPress.score: the last query, mean over all heads, the same for every KV head."""
    n_heads, n = len(of_layer), N_TOKENS
    mean = [math.fsum(of_layer[h][n - 1][j] for h in range(n_heads)) / n_heads for j in range(n - 1)] + [math.inf]
    return [mean] * (n_heads // group)


def layer_budget(layer, n_layers, window, ratio, beta):
    """PyramidKVPress.get_layer_budget."""
    mean = N_TOKENS * (1 - ratio)
    least = mean / beta
    most = 2 * mean - least
    assert N_TOKENS >= most >= least >= window and most < N_TOKENS - window
    return round(most - layer * (most - least) / (n_layers - 1))


def adakv(scores, n_kept, alpha):
    """AdaKVPress.compress: every head's best stay, then the best of all heads."""
    scores = [list(head) for head in scores]
    for head in scores:
        for i in topk(head, max(1, int(n_kept * alpha))):
            head[i] = math.inf
    flat = [s for head in scores for s in head]
    kept = topk(flat, n_kept * len(scores))
    return [sorted(i % N_TOKENS for i in kept if i // N_TOKENS == head) for head in range(len(scores))]


def main():
    cases = []
    for name in MODELS:
        attention, group = run(FOLDER / "models" / name)
        n_layers = len(attention)

        def add(method, choose):
            try:
                cases.append({"model": name, "method": method, "kept": [choose(i, layer) for i, layer in enumerate(attention)]})
            except Unclear:
                print("left out:", name, method)

        def best(scores, n):
            return [sorted(topk(head, n)) for head in scores]

        beta = {2: 2, 3: 4}[n_layers]
        for window, kernel in ((16, 5), (8, 7), (32, 1)):
            shape = f"window={window},kernel={kernel}"
            for ratio in (0.25, 0.5, 0.75):
                n = int(N_TOKENS * (1 - ratio))
                add(f"snapkv:ratio={ratio},{shape}", lambda i, layer: best(snapkv_scores(layer, group, window, kernel), n))
                add(f"adakv:ratio={ratio},{shape},floor=0.2", lambda i, layer: adakv(snapkv_scores(layer, group, window, kernel), n, 0.2))
            if window == 8:
                add(f"pyramidkv:ratio=0.5,{shape},beta={beta}",
                    lambda i, layer: best(snapkv_scores(layer, group, window, kernel), layer_budget(i, n_layers, window, 0.5, beta)))
        for ratio in (0.25, 0.5, 0.75):
            add(f"tova:ratio={ratio}", lambda i, layer: best(tova_scores(layer, group), int(N_TOKENS * (1 - ratio))))
        print(name, len(cases))
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (FOLDER / "kept_tokens.json").write_text(f'{{"n_tokens":{N_TOKENS},"cases":[\n{text}\n]}}\n')


main()
