#!/usr/bin/env python3
"""Counts the instructions of the hot kernels under callgrind, which needs no quiet machine.

usage: count_instructions.py RUN_KERNEL [--record FILE | --compare FILE]

Runs tests/bench/run_kernel (built with -DLONGHAUL_BENCH=ON) once per kernel with AVX2 kernels, for
valgrind knows no AVX-512, counts what happens inside the operator alone, and prints a Markdown table. --record writes
it to FILE; --compare prints the change against FILE and exits with 1 if a kernel takes over 2 %
more instructions than there. Counts depend on compiler and flags: record and compare with the same.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Name in `longhaul bench kernels --list --max-length 512` and the function that is counted.
KERNELS = [
    ("attention/causal_512/d128/bf16", "longhaul::attention(*"),
    ("attention/causal_512/d64/bf16", "longhaul::attention(*"),
    ("attention/causal_512/d128/int8", "longhaul::attention(*"),
    ("attention/causal_512/d128/int4", "longhaul::attention(*"),
    ("attention/decode_512/d128/gqa4/bf16", "longhaul::attention(*"),
    ("attention/decode_512/d128/gqa4/int8", "longhaul::attention(*"),
    ("attention/decode_512/d128/gqa4/int4", "longhaul::attention(*"),
    ("linear/1B_up/rows_1/bf16", "longhaul::linear_by(*"),
    ("linear/1B_up/rows_1/int8", "longhaul::linear_by(*"),
    ("linear/8B_up/rows_8/int8", "longhaul::linear_by(*"),
]
ALLOWED = 1.02
TIMEOUT_S = 600


def count(run_kernel, kernel, function):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}",
                   f"--toggle-collect={function}", run_kernel, kernel]
        environment = dict(os.environ, LONGHAUL_ISA="avx2", OMP_NUM_THREADS="1")
        done = subprocess.run(command, env=environment, capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)
        if done.returncode != 0:
            sys.exit(f"{kernel}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        totals = re.search(r"^(?:totals|summary):\s*(\d+)", out.read_text(), re.M)
        if not totals or int(totals[1]) == 0:
            sys.exit(f"{kernel}: callgrind counted nothing inside {function}")
        return int(totals[1]), float(done.stdout)


def table(counts):
    lines = ["| kernel | million instructions | per 1000 operations |", "|---|---|---|"]
    for name, (instructions, flops) in counts.items():
        lines.append(f"| {name} | {instructions / 1e6:.2f} | {1e3 * instructions / flops:.1f} |")
    return "\n".join(lines)


def recorded(path):
    rows = re.findall(r"^\| (\S+/\S+) \| ([\d.]+) \|", path.read_text(), re.M)
    return {name: float(millions) * 1e6 for name, millions in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run_kernel")
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--compare", type=pathlib.Path)
    arguments = parser.parse_args()
    counts = {}
    for kernel, function in KERNELS:
        print(f"{kernel} ...", file=sys.stderr)
        counts[kernel] = count(arguments.run_kernel, kernel, function)
    print(table(counts))
    if arguments.record:
        arguments.record.write_text(
            "# Instructions of the hot kernels\n\nOne thread, AVX2 kernels, under callgrind; written by "
            "`tools/dev/count_instructions.py RUN_KERNEL --record` this file.\nA multiply-add is two "
            "operations: eight of them a 256-bit instruction make 62.5 instructions per 1000.\n\n"
            + table(counts) + "\n")
    if not arguments.compare:
        return 0
    worse = 0
    for name, before in recorded(arguments.compare).items():
        if name not in counts:
            continue
        ratio = counts[name][0] / before
        print(f"{name}: {100 * (ratio - 1):+.1f} %")
        worse += ratio > ALLOWED
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
