#!/usr/bin/env python3
"""Makes gates.json: gates of tiny random models after 50 steps of DuoAttention's optimisation, by a straightforward PyTorch
implementation of the published two-way forward (Xiao et al. 2024, arXiv 2410.10819): teacher and student over the whole text, gradients
by autograd, torch's AdamW and LambdaLR. In double precision, so that it says what is right and not how floats round.

  python make_gate_goldens.py

Models are those of models/ (make_model_goldens.py); the text of step i is the first length(i) tokens of their tokens.json, of which the
last N_ANSWER are compared. Layers that have windows of their own have no gates: teacher and student both see that window.
"""

import json
import math
import pathlib

import torch
from safetensors.torch import load_file

FOLDER = pathlib.Path(__file__).parent
MODELS = ["llama3_gqa", "llama_biases", "qwen3", "qwen2_layer_types"]
N_STEPS, N_ANSWER, SINK, RECENT = 50, 24, 4, 16
LEARNING_RATE, REGULARISATION = 0.02, 0.05

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def length(step):
    return 100 + step * 61 % 200


class Model:
    def __init__(self, name):
        folder = FOLDER / "models" / name
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {key: value.double() for key, value in load_file(folder / "model.safetensors").items()}
        self.tokens = torch.tensor(json.loads((folder / "tokens.json").read_text()))
        c = self.config
        self.n_layers, self.n_heads, self.n_kv = c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"]
        self.dim = c.get("head_dim") or c["hidden_size"] // self.n_heads
        theta = c["rope_theta"] if "rope_theta" in c else c["rope_parameters"]["rope_theta"]
        self.frequencies = theta ** (-torch.arange(0, self.dim, 2) / self.dim)
        types = c.get("layer_types") or ["full_attention"] * self.n_layers
        self.windows = [c["sliding_window"] if t == "sliding_attention" else None for t in types]

    def linear(self, name, x):
        return torch.nn.functional.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def norm(self, name, x):
        return self.weights[name + ".weight"] * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])

    def heads(self, layer, which, x, n):
        y = self.linear(f"{layer}.self_attn.{which}_proj", x).view(len(x), n, self.dim)
        if which != "v" and f"{layer}.self_attn.{which}_norm.weight" in self.weights:
            y = self.norm(f"{layer}.self_attn.{which}_norm", y)
        if which == "v":
            return y
        angles = torch.arange(len(x))[:, None] * self.frequencies[None, :]
        cos, sin = torch.cos(angles)[:, None, :], torch.sin(angles)[:, None, :]
        a, b = y[..., : self.dim // 2], y[..., self.dim // 2 :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(self, layer, x, mask):
        q = self.heads(layer, "q", x, self.n_heads)
        k, v = (self.heads(layer, which, x, self.n_kv).repeat_interleave(self.n_heads // self.n_kv, 1) for which in "kv")
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(self.dim)
        return torch.einsum("hij,jhd->ihd", scores.masked_fill(~mask, -math.inf).softmax(-1), v)

    def rest(self, layer, x, heads):
        x = x + self.linear(f"{layer}.self_attn.o_proj", heads.reshape(len(x), -1))
        y = self.norm(f"{layer}.post_attention_layernorm", x)
        gate = torch.nn.functional.silu(self.linear(f"{layer}.mlp.gate_proj", y))
        return x + self.linear(f"{layer}.mlp.down_proj", gate * self.linear(f"{layer}.mlp.up_proj", y))

    def two_ways(self, n_tokens, gates):
        """Final hidden states of teacher and student."""
        i, j = torch.arange(n_tokens)[:, None], torch.arange(n_tokens)[None, :]
        causal = j <= i
        teacher = student = self.weights["model.embed_tokens.weight"][self.tokens[:n_tokens]]
        for index in range(self.n_layers):
            layer, window = f"model.layers.{index}", self.windows[index]
            full = causal if window is None else causal & (i - j < window)
            with torch.no_grad():
                theirs = self.attention(layer, self.norm(f"{layer}.input_layernorm", teacher), full)
                teacher = self.rest(layer, teacher, theirs)
            normed = self.norm(f"{layer}.input_layernorm", student)
            if window is None:
                own = self.attention(layer, normed, causal & ((j < SINK) | (i - j < RECENT)))
                alpha = gates[index].clamp(0, 1).repeat_interleave(self.n_heads // self.n_kv)[None, :, None]
                heads = alpha * theirs + (1 - alpha) * own
            else:
                heads = self.attention(layer, normed, full)
            student = self.rest(layer, student, heads)
        return self.norm("model.norm", teacher), self.norm("model.norm", student)


def train(name):
    model = Model(name)
    gates = [torch.nn.Parameter(torch.ones(model.n_kv)) for _ in range(model.n_layers)]
    trained = [g for g, window in zip(gates, model.windows) if window is None]
    optimiser = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0)
    fifth = N_STEPS // 5
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, max((step + 1) / fifth, 0.1), max((N_STEPS - step) / fifth, 0.1)))
    distances = []
    for step in range(N_STEPS):
        with torch.no_grad():
            for gate in trained:
                gate.clamp_(0, 1)
        teacher, student = model.two_ways(length(step), gates)
        distance = (teacher[-N_ANSWER:] - student[-N_ANSWER:]).pow(2).mean(-1).sum() / N_ANSWER
        loss = distance + REGULARISATION * torch.cat(trained).abs().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        distances.append(distance.item())
    return {"gates": [gate.tolist() for gate in gates], "distances": distances}


def main():
    out = {
        "made_by": {"torch": torch.__version__, "dtype": "float64"},
        "settings": {"steps": N_STEPS, "answer_tokens": N_ANSWER, "sink": SINK, "recent": RECENT, "learning_rate": LEARNING_RATE,
                     "regularisation": REGULARISATION, "lengths": [length(step) for step in range(N_STEPS)]},
        "models": {name: train(name) for name in MODELS},
    }
    (FOLDER / "gates.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
