#!/usr/bin/env python3
"""Predicted beside measured times on slow networks: network_times.py PROGRAM EXAMPLE [--characters N] [--mbit 1000 100] [--hosts 3 4]
[--answer-tokens N].

Reads a long document on hosts of unequal memory whose links are shaped, compares the answers with one rank's, and prints a table. The first run on each
network writes the cluster with the speeds that fit it (--save-cluster); a second run, over a document half as long again, is predicted with those.
"ranks computed" is the part of their time that they did not wait for each other in the ring.
For docs/benchmarks; not part of CI, since times on a busy machine say little.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hosts import DISK, Hosts  # noqa: E402
from job_on_hosts import answers  # noqa: E402

TIMES = re.compile(r"prefill ([\d.e+]+) s predicted, ([\d.e+]+) s measured.*; decode ([\d.e+]+) s predicted, ([\d.e+]+) s measured")
MEMORY = (None, 6 << 30, 4 << 30, 3 << 30)  # address space of each host's processes


def words(program, text, output, *more):
    needle = f"{DISK}/needle"
    return [program, "run", "--model", f"{needle}/model", "--head-profile", f"{needle}/profile", "-i", f"{DISK}/{text}.jsonl", "-o", f"{DISK}/{output}",
            "--weights", "f32", "--threads", "1", "--no-progress", "--overwrite", "--checkpoint-every", "never", *more]


def checked(result):
    status, _, errors = result
    if status != 0:
        raise SystemExit(f"status {status}: {errors}")
    return errors


def phases(hosts):
    """Seconds that all ranks of the last run computed, and that they waited for each other in the ring."""
    spent = [rank["phase_seconds"] for rank in json.loads(hosts[0].read("report.json"))["ranks"]]
    waited = sum(of_rank.get("ring wait", 0) for of_rank in spent)
    return sum(sum(of_rank.values()) for of_rank in spent) - waited, waited


class Text:
    """A document with its requests on all hosts, and what one rank answers."""

    def __init__(self, hosts, program, name, document, requests, answer_tokens):
        self.name = name
        hosts.put(document, f"{name}.txt")
        lines = [json.loads(line) for line in requests.read_text().splitlines()]
        for line in lines:
            line["body"]["documents"] = [{"path": f"{name}.txt"}]
            if answer_tokens:
                line["body"] |= {"max_tokens": answer_tokens, "min_tokens": answer_tokens, "ignore_eos": True}
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            hosts.put(file.name, f"{name}.jsonl")
        checked(hosts[0].run(words(program, name, f"one-{name}.jsonl", "--report", f"{DISK}/report.json"), 1800))
        self.answers = answers(hosts[0].read(f"one-{name}.jsonl"))
        self.seconds, _ = phases(hosts)


def made(folder, example, name, characters):
    """(document, requests) of the example's kind."""
    document, requests = folder / f"{name}.txt", folder / f"{name}.jsonl"
    subprocess.run([sys.executable, str(example / "make_document.py"), "--characters", str(characters), "--records", "6", "--seed", "3",
                    "--document", str(document), "--requests", str(requests)], check=True, stdout=subprocess.DEVNULL)
    return document, requests


def measure(hosts, n, mbit, program, texts):
    """A row for each text: the first by what the start measured, the others by the speeds that fitted it."""
    ranks = [1] * n + [0] * (len(hosts.hosts) - n)
    for i, text in enumerate(texts):
        if i == 1:  # every host has a disk of its own
            fit = hosts[0].read("fit.toml")
            for host in hosts:
                subprocess.run(host.words("sh", "-c", f"cat > {DISK}/fit.toml"), input=fit, check=True)
        flags = ["--save-cluster" if i == 0 else "--cluster", f"{DISK}/fit.toml", "--report", f"{DISK}/report.json"]
        errors = checked(hosts[0].run(hosts.mpirun(ranks) + words(program, text.name, "out.jsonl", *flags), 1800))
        plan = re.search(r"plan \w+: (.*?); .* chunks of (\d+)", errors)
        links = re.search(r"links between hosts ([\d.]+) GB/s", errors)
        read, read_in, decoded, decoded_in = (float(x) for x in TIMES.search(errors).groups())
        computed, waited = phases(hosts)
        same = answers(hosts[0].read("out.jsonl")) == text.answers
        print(f"| {n} | {mbit} Mbit/s | {links.group(1)} GB/s | {'probed' if i == 0 else 'calibrated'}, {text.name} | {plan.group(1)}, chunks of {plan.group(2)} "
              f"| {read:.3g} / {read_in:.3g} s ({100 * (read_in / read - 1):+.0f}%) | {decoded:.3g} / {decoded_in:.3g} s "
              f"({100 * (decoded_in / decoded - 1):+.0f}%) | {100 * computed / (computed + waited):.0f} % | {text.seconds / (read_in + decoded_in):.2f} "
              f"| {'equal' if same else 'DIFFER'} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("example", type=pathlib.Path)
    parser.add_argument("--characters", type=int, default=100_000)
    parser.add_argument("--mbit", type=int, nargs="+", default=[1000, 100])
    parser.add_argument("--hosts", type=int, nargs="+", default=[3, 4])
    parser.add_argument("--archive", action="store_true", help="also read the example's document of 133 thousand tokens")
    parser.add_argument("--answer-tokens", type=int, help="tokens of each answer, so that decoding takes long enough to be measured (default: the code's)")
    args = parser.parse_args()
    example, program = args.example.resolve(), str(pathlib.Path(args.program).resolve())
    with Hosts(max(args.hosts), memory=MEMORY) as hosts, tempfile.TemporaryDirectory() as folder:
        hosts.put(example, "needle")
        sources = {name: made(pathlib.Path(folder), example, name, characters)
                   for name, characters in (("long", args.characters), ("longer", args.characters * 3 // 2))}
        if args.archive:
            sources["archive"] = (example / "documents/archive_128k.txt", example / "archive_128k.jsonl")
        texts = [Text(hosts, program, name, *source, args.answer_tokens) for name, source in sources.items()]
        print("| hosts | links | measured | cluster, document | plan | reading: predicted / measured | decoding | ranks computed | times one rank's speed | answers |\n"
              "|---|---|---|---|---|---|---|---|---|---|")
        for n in args.hosts:
            for mbit in args.mbit:
                hosts.rate(mbit)
                measure(hosts, n, mbit, program, texts)


if __name__ == "__main__":
    main()
