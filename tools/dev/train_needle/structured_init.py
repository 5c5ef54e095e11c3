"""Weights to start from that already copy and compare, so that looking up a name forms within some hundred steps.

Without this the first digit of answers stayed at chance for as long as anyone waited. Everything here is trained afterwards.
"""
import math

import torch

from attention import HEAD_DIM
from records import BOS

HALF = HEAD_DIM // 2
CONSTANT, START = 0, 1     # embedding channels: one that all tokens but <s> share, and one that only <s> has
CONSTANT_VALUE = 0.4
CONSTANT_INSIDE = 2.5      # about what a norm makes of it behind the first layer
OFFSET_PAIRS = range(12)   # pairs of dimensions by which heads of layer 0 find the token 1 to 8 back
OFFSET_SCORE = 5.5         # score that each of them gives
LOCAL_PAIRS = range(3, 11)  # pairs by which other streaming heads prefer the last tens of tokens
LOCAL_SCORE = 1.5
SINK_DIM = HALF - 1        # hardly turns; <s> is found by it from anywhere
SINK_MARGIN = 4.5          # score of <s> above other tokens; four fifths of the attention rest there, adding nothing
RETRIEVAL_SINK = 3.5       # the same of retrieval heads, which have no LOCAL_SCORE
COPY = 0.06                # how much of a value comes out again as what it was
MATCH = 1.3


@torch.no_grad()
def structured_init(model, retrieval_heads):
    config = model.config
    frequencies = config.frequencies()
    still = [j for j in range(HALF) if frequencies[j] * 1e6 < 1.0]
    still_dims = [j for j in still if j != SINK_DIM] + [j + HALF for j in still]
    init_embedding(model.embedding)
    group = config.n_heads // config.n_kv_heads
    for index, layer in enumerate(model.layers):
        layer.out.mul_(0.1)
        layer.down.mul_(0.1)
        q, k, v = heads_of(layer, config)
        for kv in range(config.n_kv_heads):
            query_heads = range(kv * group, (kv + 1) * group)
            values = torch.linalg.qr(torch.randn(config.d_model, HEAD_DIM))[0].t()
            v[kv] = values
            v[kv, :, [CONSTANT, START]] = 0
            for h in query_heads:
                layer.out[:, h * HEAD_DIM:(h + 1) * HEAD_DIM] += COPY * values.t()
            if index >= 2:
                match = torch.randn(len(still_dims), config.d_model) * MATCH * config.d_model ** -0.5
                match[:, [CONSTANT, START]] = 0
                for head in [k[kv]] + [q[h] for h in query_heads]:
                    head[still_dims] = match
            if index == 0:
                for h in query_heads:
                    prefer_offset(q[h], k[kv], h + 1, frequencies)
            else:
                local = (index, kv) not in retrieval_heads
                for h in query_heads:
                    rest_on_start(q[h], k[kv], local)


def heads_of(layer, config):
    """Views [heads, HEAD_DIM, d_model] of a layer's query, key and value matrices."""
    sizes = [config.n_heads, config.n_kv_heads, config.n_kv_heads]
    return [part.view(-1, HEAD_DIM, config.d_model) for part in layer.qkv.split([n * HEAD_DIM for n in sizes])]


def init_embedding(embedding):
    embedding[:, CONSTANT] = CONSTANT_VALUE
    embedding[:, START] = 0
    embedding[BOS] = 0
    embedding[BOS, START] = 1.2


def prefer_offset(q, k, offset, frequencies):
    """Scores that peak `offset` tokens back, from the constant channel alone."""
    constant = CONSTANT_VALUE / math.sqrt(0.08 ** 2 + CONSTANT_VALUE ** 2 / q.shape[1])  # behind the norm
    weight = math.sqrt(OFFSET_SCORE * math.sqrt(HEAD_DIM)) / constant
    for j in OFFSET_PAIRS:
        angle = -float(frequencies[j]) * offset
        q[j, CONSTANT], q[j + HALF, CONSTANT] = weight * math.cos(angle), weight * math.sin(angle)
        k[j, CONSTANT], k[j + HALF, CONSTANT] = weight, 0


def rest_on_start(q, k, local):
    """Scores that prefer <s> and, for streaming heads, recent tokens."""
    margin = RETRIEVAL_SINK
    if local:
        weight = math.sqrt(LOCAL_SCORE * math.sqrt(HEAD_DIM)) / CONSTANT_INSIDE
        for j in LOCAL_PAIRS:
            q[j, CONSTANT], q[j + HALF, CONSTANT] = weight, 0
            k[j, CONSTANT], k[j + HALF, CONSTANT] = weight, 0
        margin = SINK_MARGIN + LOCAL_SCORE * len(LOCAL_PAIRS)
    start = math.sqrt(q.shape[1])  # <s> has no other channel, so this is what a norm makes of START
    q[SINK_DIM], k[SINK_DIM] = 0, 0
    q[SINK_DIM, CONSTANT] = margin * math.sqrt(HEAD_DIM) / (CONSTANT_INSIDE * start)
    k[SINK_DIM, START] = 1.0
