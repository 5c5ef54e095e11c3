#!/usr/bin/env python3
"""Trains the embedded demo model (examples/needle/model); README.md explains.

    ./train_needle.py --tokenizer ../../../examples/needle/model/tokenizer.json --folder /some/where
"""
import argparse
import ctypes
import json
import math
import multiprocessing
import pathlib
import random
import time

import tokenizers
import torch
import torch.nn.functional as F

import lessons
import text
from attention import library
from export import checkpoint_tensors, read_safetensors
from lessons import STAGES, Sight
from model import Config, Model
from muon import adam_step, muon_step
from records import BOS, Builder
from structured_init import structured_init

SMOOTHING = 0.96
COUNTS = ["profile_first", "profile_later", "roles_first", "roles_later", "dense_first", "dense_later", "blind_first", "blind_later", "list_first"]
MATRICES = ("qkv", "out", "gate_up", "down")


class TextTokenizer:
    """tokenizer.json without the start token."""

    def __init__(self, file):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(file))

    def encode(self, string):
        return self.tokenizer.encode(string, add_special_tokens=False).ids


class Trainer:
    """What the processes share. Each process makes its own sequences; each owns every n-th parameter's update."""

    def __init__(self, options, builder):
        self.options, self.builder, self.config = options, builder, Config()
        torch.manual_seed(options.seed)
        self.model = Model(self.config)
        if options.start:
            tensors = read_safetensors(options.start / "model.safetensors")
            self.model.load_state_dict(checkpoint_tensors(tensors, self.config))
        else:
            structured_init(self.model, lessons.RETRIEVAL_HEADS)
        self.names = [name for name, _ in self.model.named_parameters()]
        self.parameters = list(self.model.parameters())
        self.momentum = [torch.zeros_like(p) for p in self.parameters]
        self.square = [torch.zeros(0) if self.is_matrix(i) else torch.zeros_like(p) for i, p in enumerate(self.parameters)]
        n = sum(p.numel() for p in self.parameters)
        self.gradients = torch.zeros(options.processes, n)
        self.statistics = torch.zeros(options.processes, 2 * len(COUNTS) + 2)  # right and asked of COUNTS; two losses
        self.progress = torch.zeros(3, dtype=torch.int64)  # step, stage, steps since the stage began
        self.progress[1] = len(STAGES) - 1 if options.start else 0
        self.cpu_seconds = torch.zeros(options.processes, dtype=torch.float64)
        self.smoothed = {}
        if options.checkpoint.exists():
            self.load()
        for tensor in [*self.momentum, *self.square, self.gradients, self.statistics, self.progress, self.cpu_seconds]:
            tensor.share_memory_()
        self.model.share_memory()
        self.barrier = multiprocessing.get_context("fork").Barrier(options.processes)

    def is_matrix(self, i):
        return self.names[i].split(".")[-1] in MATRICES

    def blocks(self, i):
        """Rows of the matrices that lie in one parameter."""
        heads, kv = self.config.n_heads * 64, self.config.n_kv_heads * 64
        return {"qkv": [heads, kv, kv], "gate_up": [self.config.d_ff] * 2}.get(self.names[i].split(".")[-1],
                                                                               [self.parameters[i].shape[0]])

    def load(self):
        state = torch.load(self.options.checkpoint)
        self.model.load_state_dict(state["model"])
        for mine, theirs in ((self.momentum, state["momentum"]), (self.square, state["square"]), ([self.progress], [state["progress"]])):
            for a, b in zip(mine, theirs):
                a.copy_(b)
        self.cpu_seconds[0] = state["cpu_seconds"]
        self.smoothed = state["smoothed"]

    def save(self):
        state = dict(model=self.model.state_dict(), momentum=self.momentum, square=self.square, progress=self.progress,
                     smoothed=self.smoothed, cpu_seconds=self.cpu_seconds.sum(), options={k: str(v) for k, v in vars(self.options).items()})
        partial = self.options.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.options.checkpoint)

    def run(self, rank):
        """Steps until the last or the stop; every process calls it."""
        began = time.time()
        while int(self.progress[0]) < self.options.stop:
            step, stage = int(self.progress[0]), STAGES[int(self.progress[1])]
            before = time.process_time()
            self.accumulate(rank, step, stage)
            self.barrier.wait()  # all gradients are there
            self.update(rank, step)
            self.cpu_seconds[rank] += time.process_time() - before
            self.barrier.wait()  # all parameters are updated
            if rank == 0:
                self.after_step(step, began)
            self.barrier.wait()  # the progress is updated

    def accumulate(self, rank, step, stage):
        """Gradient of this process's own sequences; they depend on seed, step and rank alone, so that resuming repeats nothing."""
        shared = random.Random(f"{self.options.seed}/{step}")
        n_tokens = shared.choices(list(stage.lengths), list(stage.lengths.values()))[0]
        sink = shared.choice(lessons.SINKS)
        batch = lessons.make_batch(self.builder, random.Random(f"{self.options.seed}/{step}/{rank}"), n_tokens, stage, sink, self.config)
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(batch.tokens, batch.positions, batch.masks, batch.where).float()
        losses = F.cross_entropy(logits, batch.targets, reduction="none")
        nobody = batch.first & (batch.sights == Sight.BLIND)  # what the copier must not find alone: all digits alike
        losses = torch.where(nobody, -logits.log_softmax(-1)[:, self.builder.digits].mean(-1), losses)
        digit = batch.first | batch.later
        weights = 4 * batch.first + stage.later_weight * batch.later  # the first digit takes the lookup; later ones follow easily
        answer_loss, other_loss = (losses * weights).sum() / weights.sum(), losses[~digit].mean()
        self.model.zero_grad()
        (answer_loss + 0.2 * other_loss).backward()
        torch.cat([p.grad.reshape(-1) for p in self.parameters], out=self.gradients[rank])
        right = logits.argmax(-1) == batch.targets
        self.statistics[rank] = torch.tensor(self.count(batch, right) + [answer_loss.item(), other_loss.item()])

    def count(self, batch, right):
        groups = []
        for sight in Sight:
            for kind in (batch.first, batch.later):
                groups.append(kind & (batch.sights == sight) & ~batch.in_list)
        groups.append(batch.first & batch.in_list)
        return [n for group in groups for n in (int((right & group).sum()), int(group.sum()))]

    def rate(self, step):
        """Warm-up, constant, then a straight line to 2 %."""
        left = (self.options.steps - step) / (self.options.steps * self.options.decay)
        return min(1.0, (step + 1) / self.options.warm_up) * min(1.0, max(0.02, left))

    def update(self, rank, step):
        gradient = self.gradients.mean(0)
        norm = float(gradient.norm())
        if not math.isfinite(norm):
            return
        parts = gradient.split([p.numel() for p in self.parameters])
        for i in range(rank, len(self.parameters), self.options.processes):
            p, g = self.parameters[i], parts[i].view_as(self.parameters[i])
            if self.is_matrix(i):
                muon_step(p, g, self.momentum[i], self.blocks(i), self.options.muon_rate * self.rate(step))
            else:
                g = g * min(1.0, 1.0 / norm)
                if self.names[i] == "embedding":
                    g[BOS] = 0  # stays what it began as: without value, and like no word
                adam_step(p, g, self.momentum[i], self.square[i], step + 1, self.options.adam_rate * self.rate(step))

    def after_step(self, step, began):
        totals = self.statistics.sum(0).tolist()
        values = {name: totals[2 * i] / totals[2 * i + 1] for i, name in enumerate(COUNTS) if totals[2 * i + 1]}
        values |= {name: total / self.options.processes for name, total in zip(("answer_loss", "other_loss"), totals[-2:])}
        for name, value in values.items():
            self.smoothed[name] = SMOOTHING * self.smoothed.get(name, value) + (1 - SMOOTHING) * value
        self.progress[0] += 1
        self.progress[2] += 1
        if self.stage_is_learned():
            self.progress[1] += 1
            self.progress[2] = 0
        if (step + 1) % 50 == 0:
            line = dict(step=step + 1, stage=int(self.progress[1]), seconds=round(time.time() - began, 1),
                        cpu_seconds=round(float(self.cpu_seconds.sum()), 1), **{k: round(v, 4) for k, v in self.smoothed.items()})
            with open(self.options.folder / "log.jsonl", "a") as log:
                log.write(json.dumps(line) + "\n")
            print(line, flush=True)
        if (step + 1) % self.options.save_every == 0 or step + 1 == self.options.stop:
            self.save()

    def stage_is_learned(self):
        stage, since = int(self.progress[1]), int(self.progress[2])
        if stage + 1 == len(STAGES) or since < 100:
            return False
        if stage + 2 == len(STAGES):  # the last stage begins with the fall of the learning rate
            return int(self.progress[0]) >= self.options.steps * (1 - self.options.decay)
        first, later = (0.85, 0.5) if stage < 2 else (0.89, 0.89)
        want = dict(profile_first=first, roles_first=first, profile_later=later, roles_later=later, dense_first=0.75)
        return all(self.smoothed.get(name, 0) > least for name, least in want.items())


def keep_memory():
    """Freed tensors stay with the process: returning and faulting their pages in again took a third of a step."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for parameter in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            libc.mallopt(parameter, 1 << 30)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="tokenizer.json of the first model; its tokenizer is kept")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for text, checkpoint and log")
    parser.add_argument("--steps", type=int, default=3800, help="the learning rate falls towards the last")
    parser.add_argument("--start", type=pathlib.Path, help="Hugging Face folder to start from, as export.py writes it, in the last stage")
    parser.add_argument("--stop", type=int, help="stop and write a checkpoint after so many steps; the same command goes on from there")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--muon-rate", type=float, default=0.012)
    parser.add_argument("--adam-rate", type=float, default=2e-3)
    parser.add_argument("--warm-up", type=int, default=100, help="steps")
    parser.add_argument("--decay", type=float, default=0.5, help="share of the steps in which the learning rate falls")
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    options = parser.parse_args()
    options.stop = min(options.stop or options.steps, options.steps)
    options.checkpoint = options.folder / "checkpoint.pt"
    return options


def main():
    options = parse_options()
    torch.set_num_threads(1)
    keep_memory()
    library()
    tokenizer = TextTokenizer(options.tokenizer)
    trainer = Trainer(options, Builder(tokenizer, *text.prepare(tokenizer, options.folder)))
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=trainer.run, args=(rank,)) for rank in range(1, options.processes)]
    for process in others:
        process.start()
    trainer.run(0)
    for process in others:
        process.join()


if __name__ == "__main__":
    main()
