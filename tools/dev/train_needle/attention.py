"""Attention with rotary positions and masks as a torch function: attention.cc, compiled on first use, and the same in plain torch."""
import ctypes
import hashlib
import math
import os
import pathlib
import subprocess
import tempfile

import torch

HEAD_DIM = 64
NEAR = 64  # keys at most this far back are never counted more than once
FLAGS = ["-std=c++20", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]


class Args(ctypes.Structure):
    """AttentionArgs of attention.cc."""
    _fields_ = ([(name, ctypes.c_void_p) for name in ("qkv", "cos", "sin", "log_copies", "reach", "out", "log_sum", "grad_out",
                                                      "grad_qkv")] +
                [(name, ctypes.c_int32) for name in ("n_sequences", "n_tokens", "n_heads", "n_kv_heads", "sink", "near")])


def compile_library(compiler=os.environ.get("CXX", "g++")):
    """Compiles attention.cc for this machine; a copy is kept by the text it came from."""
    source = pathlib.Path(__file__).with_name("attention.cc")
    key = hashlib.sha256(source.read_bytes() + " ".join([compiler] + FLAGS).encode()).hexdigest()[:16]
    library = pathlib.Path(tempfile.gettempdir()) / f"train_needle_attention_{os.getuid()}_{key}.so"
    if not library.exists():
        partial = library.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, *FLAGS, str(source), "-o", str(partial)], check=True)
        partial.replace(library)
    return ctypes.CDLL(str(library))


_library = None


def library():
    global _library
    if _library is None:
        _library = compile_library()
    return _library


def padded(n_tokens):
    return (n_tokens + 15) // 16 * 16


class FusedAttention(torch.autograd.Function):
    """out[n_sequences, n_tokens, n_heads * 64] of attention.cc; arguments as in `attention`."""

    @staticmethod
    def forward(ctx, qkv, tables, reach, log_copies, sink, n_heads):
        n_sequences, n_tokens, width = qkv.shape
        n_kv_heads = (width // HEAD_DIM - n_heads) // 2
        tensors = dict(qkv=qkv.contiguous(), cos=tables[0], sin=tables[1], log_copies=log_copies, reach=reach,
                       out=torch.empty(n_sequences, n_tokens, n_heads * HEAD_DIM),
                       log_sum=torch.empty(n_sequences, n_heads, n_tokens))
        assert reach.shape == (n_sequences, n_kv_heads, n_tokens) and reach.dtype == torch.int32
        assert log_copies.shape == (n_sequences, padded(n_tokens)) and tables[0].shape == (n_sequences, n_tokens, HEAD_DIM // 2)
        assert all(t.is_contiguous() for t in tensors.values())
        ctx.tensors = tensors
        ctx.sizes = dict(n_sequences=n_sequences, n_tokens=n_tokens, n_heads=n_heads, n_kv_heads=n_kv_heads, sink=sink, near=NEAR)
        call("attention_forward", tensors, ctx.sizes)
        return tensors["out"]

    @staticmethod
    def backward(ctx, grad_out):
        grad_qkv = torch.empty_like(ctx.tensors["qkv"])
        call("attention_backward", dict(ctx.tensors, grad_out=grad_out.contiguous(), grad_qkv=grad_qkv), ctx.sizes)
        ctx.tensors = None
        return grad_qkv, None, None, None, None, None


def call(function, tensors, sizes):
    args = Args(**{name: tensor.data_ptr() for name, tensor in tensors.items()}, **sizes)
    getattr(library(), function)(ctypes.byref(args))


def attention(qkv, tables, reach, log_copies, sink, n_heads):
    """Causal attention of n_heads query heads that share the key-value heads in equal groups.

    qkv [n_sequences, n_tokens, (n_heads + 2 n_kv_heads) * 64] before rotation; tables: cos and sin [n_sequences, n_tokens, 32]. A query
    sees the first `sink` tokens and its last reach[n_sequences, n_kv_heads, n_tokens] ones; where reach is n_tokens or more, keys more than
    NEAR back get log_copies[n_sequences, padded(n_tokens)] added to their scores.
    """
    return FusedAttention.apply(qkv, tables, reach, log_copies, sink, n_heads)


def plain_attention(qkv, tables, reach, log_copies, sink, n_heads):
    """The same from torch operations: slow, and what the fused one is tested against."""
    n_sequences, n_tokens, width = qkv.shape
    n_kv_heads = (width // HEAD_DIM - n_heads) // 2
    heads = qkv.view(n_sequences, n_tokens, -1, HEAD_DIM).transpose(1, 2)
    q, k, v = heads.split([n_heads, n_kv_heads, n_kv_heads], dim=1)

    def rotate(x):
        a, b = x.chunk(2, dim=-1)
        cos, sin = (t[:, None] for t in tables)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    group = n_heads // n_kv_heads
    k, v, per_head = (t.repeat_interleave(group, dim=1) for t in (rotate(k), v, reach))
    scores = rotate(q) @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM)
    query, key = torch.arange(n_tokens)[:, None], torch.arange(n_tokens)[None]
    far = (key < query - NEAR) & (per_head >= n_tokens)[..., None]
    scores = scores + far * log_copies[:, None, None, :n_tokens]
    seen = (key <= query) & ((key < sink) | (query - key < per_head[..., None]))
    out = torch.softmax(scores.masked_fill(~seen, -math.inf), dim=-1) @ v
    return out.transpose(1, 2).reshape(n_sequences, n_tokens, n_heads * HEAD_DIM)
