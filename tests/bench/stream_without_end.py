#!/usr/bin/env python3
"""Streams millions of tokens of made-up prose through a model whose heads keep a window, and tells whether perplexity, memory and time per token
stay flat; beside it the window computed anew for each token. StreamingLLM's comparison (arXiv 2309.17453, sections 4.1 and 4.5).

  tests/bench/stream_without_end.py LONGHAUL examples/needle/model [--tokens 4000000] [--threads 1] -o FOLDER

Writes FOLDER/METHOD-TOKENS.csv, the curves, and prints a table for docs/benchmarks/methods.md. The text does not repeat: one seed gives one text.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent
METHODS = {"streaming": "streaming:sink=4,window=512", "infinite": "infinite:sink=4,cap=512,slide=64"}
N_POINTS = 40


def score(arguments, policies, n_tokens, name, more=()):
    prefix = arguments.output / name
    command = [arguments.longhaul, "eval", "perplexity", "-m", arguments.model, "-f", arguments.output / "prose.txt", "--tokens", n_tokens,
               "--bucket", max(1, n_tokens // N_POINTS), "-t", arguments.threads, "--no-progress", "-o", prefix, "--policy", *policies, *more]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    curves = json.loads(prefix.with_suffix(".json").read_text())["policies"]
    prefix.with_suffix(".json").unlink()  # every token's score: the curve in the CSV file is enough
    return curves


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("longhaul", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=4_000_000)
    parser.add_argument("--recomputed", type=int, default=2000, help="tokens of the window computed anew (0: none)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, ROOT / "examples/needle/make_document.py", "--characters", str(3 * arguments.tokens), "--records", "1", "--document",
                    arguments.output / "prose.txt", "--requests", arguments.output / "prose.jsonl"], check=True, stdout=subprocess.DEVNULL)
    seconds = {}
    for name, method in METHODS.items():
        for n_tokens in (arguments.tokens // 4, arguments.tokens // 2, arguments.tokens):
            (curve,) = score(arguments, [method], n_tokens, f"{name}-{n_tokens}")
            seconds[name] = curve["seconds_per_token"]
            ranges = [r["mean_nll"] for r in curve["ranges"] if r["mean_nll"] is not None]
            print(f"{method}: {n_tokens} tokens, {1e6 * curve['seconds_per_token']:.1f} us a token, {curve['kv_bytes']} bytes of caches at most, "
                  f"perplexity {curve['perplexity']:.4f}; of {len(ranges)} parts {math.exp(min(ranges)):.4f} to {math.exp(max(ranges)):.4f}", flush=True)
    if arguments.recomputed > 0:
        (curve,) = score(arguments, ["recompute"], arguments.recomputed, "recompute", ("--window", 512))
        ratio = curve["seconds_per_token"] / seconds["streaming"]
        print(f"window of 512 computed anew: {1e6 * curve['seconds_per_token']:.1f} us a token over {arguments.recomputed} tokens, "
              f"{ratio:.1f} times streaming")


main()
