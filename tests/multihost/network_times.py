#!/usr/bin/env python3
"""Predicted beside measured times on slow networks: network_times.py PROGRAM EXAMPLE [--characters N] [--mbit 1000 100] [--hosts 3 4].

Reads a long document on hosts of unequal memory whose links are shaped, compares the answers with one rank's, and prints a table. The first run on each
network writes the cluster with the speeds that fit it (--save-cluster); a second run, over a document half as long again, is predicted with those.
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


def measure(hosts, n, mbit, args, want):
    ranks = [1] * n + [0] * (len(hosts.hosts) - n)
    for text, flags in (("long", ("--save-cluster", f"{DISK}/fit.toml")), ("longer", ("--cluster", f"{DISK}/fit.toml"))):
        if text == "longer":  # every host has a disk of its own
            fit = hosts[0].read("fit.toml")
            for host in hosts:
                subprocess.run(host.words("sh", "-c", f"cat > {DISK}/fit.toml"), input=fit, check=True)
        errors = checked(hosts[0].run(hosts.mpirun(ranks) + words(args.program, text, "out.jsonl", *flags), 1800))
        plan = re.search(r"plan \w+: (.*?); .* chunks of (\d+)", errors)
        links = re.search(r"links between hosts ([\d.]+) GB/s", errors)
        times = [float(x) for x in TIMES.search(errors).groups()]
        same = answers(hosts[0].read("out.jsonl")) == want[text]
        print(f"| {n} | {mbit} Mbit/s | {links.group(1)} GB/s | {'calibrated' if text == 'longer' else 'probed'}, {text} | {plan.group(1)}, chunks of {plan.group(2)} "
              f"| {times[0]:.3g} / {times[1]:.3g} s ({100 * (times[1] / times[0] - 1):+.0f}%) | {times[2]:.3g} / {times[3]:.3g} s "
              f"({100 * (times[3] / times[2] - 1):+.0f}%) | {'equal' if same else 'DIFFER'} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("example", type=pathlib.Path)
    parser.add_argument("--characters", type=int, default=100_000)
    parser.add_argument("--mbit", type=int, nargs="+", default=[1000, 100])
    parser.add_argument("--hosts", type=int, nargs="+", default=[3, 4])
    args = parser.parse_args()
    args.example, args.program = args.example.resolve(), str(pathlib.Path(args.program).resolve())
    with Hosts(max(args.hosts), memory=MEMORY) as hosts, tempfile.TemporaryDirectory() as folder:
        hosts.put(args.example, "needle")
        want = {}
        for text, characters in (("long", args.characters), ("longer", args.characters * 3 // 2)):
            made = pathlib.Path(folder) / text
            subprocess.run([sys.executable, str(args.example / "make_document.py"), "--characters", str(characters), "--records", "6", "--seed", "3",
                            "--document", f"{made}.txt", "--requests", f"{made}.jsonl"], check=True, stdout=subprocess.DEVNULL)
            hosts.put(f"{made}.txt", f"{text}.txt")
            lines = [json.loads(line) for line in pathlib.Path(f"{made}.jsonl").read_text().splitlines()]
            for line in lines:
                line["body"]["documents"] = [{"path": f"{text}.txt"}]
            pathlib.Path(f"{made}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            hosts.put(f"{made}.jsonl", f"{text}.jsonl")
            checked(hosts[0].run(words(args.program, text, f"one-{text}.jsonl"), 1800))
            want[text] = answers(hosts[0].read(f"one-{text}.jsonl"))
        print("| hosts | links | measured | cluster, document | plan | reading: predicted / measured | decoding | answers |\n|---|---|---|---|---|---|---|---|")
        for n in args.hosts:
            for mbit in args.mbit:
                hosts.rate(mbit)
                measure(hosts, n, mbit, args, want)


if __name__ == "__main__":
    main()
