"""The model: a small Llama in float32 whose attention takes a mask for each head and query."""
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from attention import HEAD_DIM, attention


@dataclasses.dataclass(frozen=True)
class Config:
    vocab_size: int = 1536
    d_model: int = 128
    d_ff: int = 384
    n_layers: int = 4
    n_heads: int = 8
    n_kv_heads: int = 4
    rope_theta: float = 1e12  # 6 pairs of dimensions turn within ten tokens, 15 hardly turn within a million
    norm_eps: float = 1e-5

    def frequencies(self):
        """Angle of each pair of dimensions for one token, [HEAD_DIM / 2], float64."""
        return self.rope_theta ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)


@dataclasses.dataclass
class Masks:
    """What queries see; see attention.attention."""
    reach: torch.Tensor       # [n_layers, n_sequences, n_kv_heads, n_tokens], int32
    log_copies: torch.Tensor  # [n_sequences, padded(n_tokens)]
    sink: int


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        d, f, heads, kv = config.d_model, config.d_ff, config.n_heads * HEAD_DIM, config.n_kv_heads * HEAD_DIM

        def matrix(n_out, n_in, scale):
            return nn.Parameter(torch.randn(n_out, n_in) * scale * n_in ** -0.5)

        self.attention_norm, self.mlp_norm = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.qkv = matrix(heads + 2 * kv, d, 1.0)
        self.out = matrix(d, heads, 0.5)
        self.gate_up = matrix(2 * f, d, 1.0)
        self.down = matrix(d, f, 0.5)

    def forward(self, x, tables, reach, masks, where=slice(None)):
        """Rows `where` of the layer's output, [n, d_model]; x is [n_sequences, n_tokens, d_model]."""
        c = self.config
        h = F.rms_norm(x, (c.d_model,), self.attention_norm, c.norm_eps)
        mixed = attention((h @ self.qkv.t()).float(), tables, reach, masks.log_copies, masks.sink, c.n_heads)
        x = x.reshape(-1, c.d_model)[where] + mixed.reshape(-1, mixed.shape[-1])[where] @ self.out.t()
        h = F.rms_norm(x, (c.d_model,), self.mlp_norm, c.norm_eps)
        gate, up = (h @ self.gate_up.t()).chunk(2, dim=-1)
        return x + (F.silu(gate) * up) @ self.down.t()


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.randn(config.vocab_size, config.d_model) * 0.08)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.norm = nn.Parameter(torch.ones(config.d_model))

    def forward(self, tokens, positions, masks, where):
        """Logits [len(where), vocab_size] of the tokens whose flat indices are `where`."""
        # float32 frequencies, as engines have them: at a million tokens the rounding is seen
        angles = positions.double()[..., None] * self.config.frequencies().float().double()
        tables = angles.cos().float(), angles.sin().float()
        x = F.embedding(tokens, self.embedding)
        for layer, reach in zip(self.layers[:-1], masks.reach):
            x = layer(x, tables, reach, masks).view_as(x)
        x = self.layers[-1](x, tables, masks.reach[-1], masks, where)
        return F.rms_norm(x, (self.config.d_model,), self.norm, self.config.norm_eps) @ self.embedding.t()
