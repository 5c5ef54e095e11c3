#!/usr/bin/env python3
"""Speed of torch's operators on the shapes of gpu_bench, for tools/dev/gpu_check.sh: causal attention by cuDNN, products of bf16 and of fp8.
Appends a JSON object for each to FILE. Usage: gpu_peers.py FILE"""
import json
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

KV_HEADS, GROUP, DIM = 8, 4, 128


def milliseconds_of(call):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(7):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[3]


def note(file, name, flops, call):
    try:
        ms = milliseconds_of(call)
    except (RuntimeError, AttributeError, TypeError) as error:  # this torch or this GPU has it not
        print(f"{name}: not run: {str(error).splitlines()[0]}")
        return
    rate = flops / ms / 1e9
    print(f"{name}: {ms:.3f} ms, {rate:.1f} TFLOP/s", flush=True)
    file.write(json.dumps({"name": name, "milliseconds": ms, "rate": rate, "unit": "TFLOP/s"}) + "\n")
    file.flush()


def attention(file, n, backend, word):
    q = torch.randn(1, KV_HEADS * GROUP, n, DIM, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(1, KV_HEADS, n, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    flops = 4 * KV_HEADS * GROUP * DIM * n * (n + 1) / 2

    def call():
        with sdpa_kernel(backend):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    note(file, f"causal bf16 q {n} kv {n} heads {KV_HEADS}x{GROUP}, {word}", flops, call)


def products(file, m, k, n):
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    flops = 2.0 * m * k * n
    note(file, f"matmul bf16 {m} x {k} x {n}, bf16 output", flops, lambda: a @ b.T)
    one = torch.ones((), device="cuda")
    a8, b8 = (x.to(torch.float8_e4m3fn) for x in (a, b))
    note(file, f"_scaled_mm fp8 {m} x {k} x {n}, bf16 output", flops,
         lambda: torch._scaled_mm(a8, b8.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16))


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: gpu_peers.py FILE")
    if not torch.cuda.is_available():
        sys.exit("gpu_peers: torch sees no GPU")
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        for n in (16384, 32768, 65536):
            attention(file, n, SDPBackend.CUDNN_ATTENTION, "cuDNN")
            attention(file, n, SDPBackend.FLASH_ATTENTION, "flash")
        for shape in ((8192, 8192, 8192), (8192, 4096, 14336), (512, 4096, 4096)):
            products(file, *shape)


main()
