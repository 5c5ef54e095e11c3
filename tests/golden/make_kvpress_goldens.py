#!/usr/bin/env python3
"""Makes tests/golden/kept_tokens.json: which tokens kvpress's presses keep of the first 160 tokens of some stored models
(tests/golden/models, random, made by make_model_goldens.py). A run of kvpress itself, whatever its version: on transformers, in float32, on a CPU.

What a press keeps is read back from the cache that it leaves: the rows of a dense run's keys that are still there. AdaKVPress drops nothing but masks
keys, so there it is the keys that are not masked. ObservedAttentionPress divides a token's attention by how many queries saw it and keeps no last
tokens for their place; SumsOfAttentionPress takes that back, which is H2O's choice at the end of a prompt. Every choice is clear: cases whose choice changes when all scores are perturbed by a part in 100,000
are left out, since equal scores are decided by rounding.

  python -m pip install torch transformers kvpress
  python make_kvpress_goldens.py [--compare]     --compare: writes nothing, says whether the stored file is what comes out now
"""

import contextlib
import dataclasses
import importlib.metadata
import json
import pathlib
import sys

import torch
from kvpress import AdaKVPress, KeyDiffPress, ObservedAttentionPress, PyramidKVPress, SnapKVPress, StreamingLLMPress, TOVAPress
from transformers import AutoModelForCausalLM, DynamicCache

FOLDER = pathlib.Path(__file__).parent
N_TOKENS = 160
MODELS = ["llama2_mha", "llama3_gqa"]
CLEAR = 1e-5


def keys_of(cache):
    return [layer.keys[0] for layer in cache.layers]  # [layers][kv_heads, tokens, head_dim]


def run(model, tokens, press=None):
    cache = DynamicCache()
    with torch.no_grad(), (press(model) if press else contextlib.nullcontext()):
        model.model(torch.tensor([tokens]), past_key_values=cache)
        masked = [getattr(layer.self_attn, "masked_key_indices", None) for layer in model.model.layers]
    return keys_of(cache), masked


def kept_by(model, tokens, dense, press):
    """[layers][kv_heads] ascending positions."""
    keys, masked = run(model, tokens, press)
    kept = []
    for layer, (have, all_keys) in enumerate(zip(keys, dense)):
        heads = []
        for head in range(all_keys.shape[0]):
            position_of = {tuple(row.tolist()): i for i, row in enumerate(all_keys[head])}
            assert len(position_of) == N_TOKENS, "two tokens with the same key"
            positions = sorted(position_of[tuple(row.tolist())] for row in have[head])
            if masked[layer] is not None:
                _, of_head, gone = masked[layer]
                positions = sorted(set(positions) - set(gone[of_head == head].tolist()))
            heads.append(positions)
        kept.append(heads)
    return kept


@dataclasses.dataclass
class SumsOfAttentionPress(ObservedAttentionPress):
    recent: int = 1

    def score(self, *arguments, **named):
        scores = super().score(*arguments, **named)
        scores = scores * torch.arange(scores.shape[-1], 0, -1)
        scores[..., -self.recent:] = torch.inf
        return scores


class Perturbed:
    """A press whose scores are each changed by up to a part in 100,000."""

    def __init__(self, press, seed):
        self.scorer = press.press if isinstance(press, AdaKVPress) else press
        self.seed = seed

    def __enter__(self):
        score = type(self.scorer).score
        generator = torch.Generator().manual_seed(self.seed)

        def changed(*arguments, **named):
            scores = score(self.scorer, *arguments, **named)
            return scores * (1 + CLEAR * (2 * torch.rand(scores.shape, generator=generator) - 1))

        self.scorer.score = changed

    def __exit__(self, *_):
        del self.scorer.score


def presses(n_layers):
    beta = {2: 2, 3: 4}[n_layers]
    for window, kernel in ((16, 5), (8, 7), (32, 1)):
        shape = f"window={window},kernel={kernel}"
        for ratio in (0.25, 0.5, 0.75):
            snapkv = lambda: SnapKVPress(compression_ratio=ratio, window_size=window, kernel_size=kernel)
            yield f"snapkv:ratio={ratio},{shape}", snapkv()
            yield f"adakv:ratio={ratio},{shape},floor=0.2", AdaKVPress(snapkv(), alpha_safeguard=0.2)
        if window == 8:
            yield (f"pyramidkv:ratio=0.5,{shape},beta={beta}",
                   PyramidKVPress(compression_ratio=0.5, window_size=window, kernel_size=kernel, beta=beta))
    for ratio in (0.25, 0.5, 0.75):
        yield f"tova:ratio={ratio}", TOVAPress(compression_ratio=ratio)
        yield f"keydiff:ratio={ratio}", KeyDiffPress(compression_ratio=ratio)
        n_kept = int(N_TOKENS * (1 - ratio))
        for n_sink in (4, 9):  # a window here counts the next query's own token, too
            yield (f"streaming:sink={n_sink},window={n_kept + 1},positions=text",
                   StreamingLLMPress(compression_ratio=ratio, n_sink=n_sink))
        for recent in (1, 20):
            yield f"h2o:capacity={n_kept},recent={recent}", SumsOfAttentionPress(compression_ratio=ratio, recent=recent)


def main():
    cases = []
    for name in MODELS:
        folder = FOLDER / "models" / name
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
        tokens = json.loads((folder / "tokens.json").read_text())[:N_TOKENS]
        dense = {}  # its keys' last bits depend on how attention is computed
        for how in ("sdpa", "eager"):
            model.set_attn_implementation(how)
            dense[how], _ = run(model, tokens)
        for method, press in presses(model.config.num_hidden_layers):
            how = "eager" if isinstance(press, ObservedAttentionPress) else "sdpa"
            model.set_attn_implementation(how)
            kept = kept_by(model, tokens, dense[how], press)
            changed = []
            for seed in range(3):
                with Perturbed(press, seed):
                    changed.append(kept_by(model, tokens, dense[how], press))
            if any(other != kept for other in changed):
                print("left out:", name, method)
                continue
            cases.append({"model": name, "method": method, "kept": kept})
        print(name, len(cases))
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    made_by = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("kvpress", "transformers", "torch"))
    text = f'{{"made_by":"{made_by}","n_tokens":{N_TOKENS},"cases":[\n{text}\n]}}\n'
    path = FOLDER / "kept_tokens.json"
    if "--compare" in sys.argv:
        before = {(c["model"], c["method"]): c["kept"] for c in json.loads(path.read_text())["cases"]}
        now = {(c["model"], c["method"]): c["kept"] for c in cases}
        same = [case for case in before if now.get(case) == before[case]]
        print(f"{len(same)} of {len(before)} stored cases are the same; differ:",
              [case for case in before if case in now and now[case] != before[case]],
              "only stored:", [case for case in before if case not in now],
              "only now:", [case for case in now if case not in before])
    else:
        path.write_text(text)


main()
