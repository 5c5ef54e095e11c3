"""Optimiser, export and resuming, on models of a few steps."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import needle_imports
import export
import numpy as np
import torch
from attention import HEAD_DIM, padded
from lessons import RETRIEVAL_HEADS
from model import Config, Masks, Model
from muon import orthogonalised
from structured_init import structured_init


class Muon(unittest.TestCase):
    def test_singular_values_become_about_one(self):
        torch.manual_seed(1)
        for shape in ((64, 32), (32, 64)):
            values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)))
            self.assertGreater(values.min(), 0.6)
            self.assertLess(values.max(), 1.3)


class Start(unittest.TestCase):
    def test_heads_of_the_first_layer_look_back_one_to_eight_tokens(self):
        torch.manual_seed(1)
        config = Config()
        model = Model(config)
        structured_init(model, RETRIEVAL_HEADS)
        h = torch.nn.functional.rms_norm(model.embedding[torch.randint(2, 1500, (64,))], (config.d_model,))
        qkv = (h @ model.layers[0].qkv.t()).view(64, -1, HEAD_DIM)
        angles = torch.arange(64)[:, None] * config.frequencies().float()
        a, b = qkv.chunk(2, dim=-1)
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
        for head in range(config.n_heads):
            scores = turned[40:, head] @ turned[:, config.n_heads + head // 2].t()
            back = torch.arange(40, 64)[:, None] - torch.arange(64)[None]
            best = back[torch.arange(24), scores.masked_fill(back < 0, -1e9).argmax(1)]
            self.assertGreater(((best - head - 1).abs() <= 1).float().mean(), 0.8)


class Export(unittest.TestCase):
    def test_tensors_are_those_of_a_plain_llama(self):
        """Reads the file back by hand and computes one forward pass as Llama models are defined."""
        torch.manual_seed(2)
        config = Config()
        model = Model(config)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "model.safetensors"
            export.write_safetensors(export.hugging_face_tensors(model.state_dict(), config), file)
            weights = read_bfloat16(file)
        tokens = torch.randint(0, config.vocab_size, (40,))
        want = plain_llama(weights, export.hugging_face_config(config), tokens)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.to(torch.bfloat16))
            masks = Masks(torch.full((4, 1, 4, 40), 40, dtype=torch.int32), torch.zeros(1, padded(40)), 16)
            got = model(tokens[None], torch.arange(40)[None], masks, torch.arange(40))
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


class Bfloat16(unittest.TestCase):
    def test_products_in_bfloat16_change_logits_and_gradients_little(self):
        torch.manual_seed(3)
        config = Config()
        model = Model(config)
        masks = Masks(torch.full((4, 1, 4, 64), 64, dtype=torch.int32), torch.zeros(1, padded(64)), 16)
        tokens, where = torch.randint(0, config.vocab_size, (1, 64)), torch.arange(64)
        results = []
        for enabled in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                logits = model(tokens, torch.arange(64)[None], masks, where).float()
            loss = torch.nn.functional.cross_entropy(logits, tokens[0].roll(-1))
            results.append((logits.detach(), torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])))
        for exact, rounded in zip(*results):
            self.assertEqual(rounded.dtype, torch.float32)
            self.assertLess((exact - rounded).norm() / exact.norm(), 0.03)


def read_bfloat16(file):
    data = file.read_bytes()
    n, = struct.unpack("<Q", data[:8])
    weights = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            bits = np.frombuffer(data[8 + n + begin:8 + n + end], "<u2").astype(np.uint32) << 16
            weights[name] = torch.from_numpy(bits.view(np.float32).copy()).view(entry["shape"])
    return weights


def plain_llama(weights, config, tokens):
    def norm(x, w):
        return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"])

    def half_turn(x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([-b, a], dim=-1)

    n, head_dim = len(tokens), config["head_dim"]
    inverse = 1.0 / config["rope_theta"] ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.cat([torch.arange(n)[:, None] * inverse] * 2, dim=-1)
    x = weights["model.embed_tokens.weight"][tokens]
    for i in range(config["num_hidden_layers"]):
        w = {k.split(".", 3)[3]: v for k, v in weights.items() if k.startswith(f"model.layers.{i}.")}
        h = norm(x, w["input_layernorm.weight"])
        q, k, v = ((h @ w[f"self_attn.{t}_proj.weight"].t()).view(n, -1, head_dim).transpose(0, 1) for t in "qkv")
        q, k = (t * angles.cos() + half_turn(t) * angles.sin() for t in (q, k))
        k, v = (t.repeat_interleave(q.shape[0] // k.shape[0], 0) for t in (k, v))
        scores = (q @ k.transpose(1, 2) / head_dim ** 0.5).masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
        x = x + (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1) @ w["self_attn.o_proj.weight"].t()
        h = norm(x, w["post_attention_layernorm.weight"])
        x = x + (torch.nn.functional.silu(h @ w["mlp.gate_proj.weight"].t()) * (h @ w["mlp.up_proj.weight"].t())) @ w["mlp.down_proj.weight"].t()
    return norm(x, weights["model.norm.weight"]) @ weights["model.embed_tokens.weight"].t()


class Resuming(unittest.TestCase):
    def test_a_stopped_run_ends_where_one_without_a_stop_does(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            runs = {name: folder / name for name in ("whole", "parts")}
            for run in runs.values():
                run.mkdir()
                (run / "text.txt").write_text("The tide was late and nobody knew why the lamp burned. " * 400)
            self.train(runs["whole"], stop=4)
            self.train(runs["parts"], stop=2)
            self.train(runs["parts"], stop=4)
            states = [torch.load(run / "checkpoint.pt") for run in runs.values()]
            self.assertEqual(int(states[1]["progress"][0]), 4)
            for name, tensor in states[0]["model"].items():
                torch.testing.assert_close(tensor, states[1]["model"][name], rtol=1e-5, atol=1e-6)

    def train(self, folder, stop):
        script = needle_imports.ROOT / "tools/dev/train_needle/train_needle.py"
        subprocess.run([sys.executable, str(script), "--tokenizer", str(needle_imports.TOKENIZER), "--folder", str(folder), "--steps", "4",
                        "--stop", str(stop)], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    unittest.main()
