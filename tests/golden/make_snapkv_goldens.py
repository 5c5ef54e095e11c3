#!/usr/bin/env python3
"""Makes tests/golden/kept_apart.json: which tokens SnapKV's published code keeps for each query head by itself (kvpress averages over the query heads
of a KV head) of the first 160 tokens of some stored models (tests/golden/models, random, made by make_model_goldens.py). Queries and keys after RoPE are
those of transformers in float32 on a CPU; what is done with them is written from SnapKV's paper (arXiv 2404.14469, 4) and published code: keys are repeated for
all query heads, the last `window` queries' softmax weights are summed, pooled, and the best are taken.

Every choice is clear: cases whose choice changes when all scores are perturbed by a part in 100,000 are left out.

  python -m pip install torch transformers
  python make_snapkv_goldens.py [--compare]     --compare: writes nothing, says whether the stored file is what comes out now
"""

import importlib.metadata
import json
import math
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM
from transformers.models.llama import modeling_llama

FOLDER = pathlib.Path(__file__).parent
N_TOKENS = 160
MODELS = ["llama2_mha", "llama3_gqa"]
CLEAR = 1e-5


def queries_and_keys(model, tokens):
    """[layers] of q [heads, tokens, head_dim] and k [kv_heads, tokens, head_dim], after RoPE."""
    seen = []
    rotate = modeling_llama.apply_rotary_pos_emb

    def noted(*arguments, **named):
        q, k = rotate(*arguments, **named)
        seen.append((q[0], k[0]))
        return q, k

    modeling_llama.apply_rotary_pos_emb = noted
    try:
        with torch.no_grad():
            model.model(torch.tensor([tokens]), use_cache=False)
    finally:
        modeling_llama.apply_rotary_pos_emb = rotate
    return seen


def kept_by(q, k, capacity, window, kernel, pool, perturb=None):
    """[heads] ascending positions."""
    k = k.repeat_interleave(q.shape[0] // k.shape[0], dim=0)
    scores = q[:, -window:] @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    hidden = torch.ones(window, window, dtype=torch.bool).triu(1)
    scores[:, :, -window:].masked_fill_(hidden, torch.finfo(torch.float32).min)
    sums = torch.softmax(scores, dim=-1, dtype=torch.float32)[:, :, :-window].sum(dim=1)
    pooling = {"avg": torch.nn.functional.avg_pool1d, "max": torch.nn.functional.max_pool1d}[pool]
    pooled = pooling(sums[None], kernel_size=kernel, padding=kernel // 2, stride=1)[0]
    if perturb is not None:
        pooled = pooled * (1 + CLEAR * (2 * torch.rand(pooled.shape, generator=perturb) - 1))
    best = pooled.topk(capacity - window, dim=-1).indices
    last = list(range(k.shape[1] - window, k.shape[1]))
    return [sorted(head) + last for head in best.tolist()]


def main():
    cases = []
    for name in MODELS:
        folder = FOLDER / "models" / name
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        tokens = json.loads((folder / "tokens.json").read_text())[:N_TOKENS]
        layers = queries_and_keys(model, tokens)
        assert len(layers) == model.config.num_hidden_layers
        for window, kernel, pool in ((16, 5, "avg"), (32, 7, "max"), (8, 3, "avg"), (32, 5, "max")):
            for capacity in (40, 80, 120):
                kept = [kept_by(q, k, capacity, window, kernel, pool) for q, k in layers]
                method = f"snapkv:capacity={capacity},window={window},kernel={kernel},pool={pool},group=each"
                generators = [torch.Generator().manual_seed(seed) for seed in range(3)]
                if any([kept_by(q, k, capacity, window, kernel, pool, g) for q, k in layers] != kept for g in generators):
                    print("left out:", name, method)
                    continue
                cases.append({"model": name, "method": method, "kept": kept})
        print(name, len(cases))
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    made_by = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("transformers", "torch"))
    text = f'{{"made_by":"{made_by}","n_tokens":{N_TOKENS},"cases":[\n{text}\n]}}\n'
    path = FOLDER / "kept_apart.json"
    if "--compare" in sys.argv:
        same = json.loads(path.read_text())["cases"] == cases
        print("the stored cases come out again" if same else "the stored cases differ")
    else:
        path.write_text(text)


main()
