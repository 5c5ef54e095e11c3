#!/usr/bin/env python3
"""Refuses GPU code that spills registers, or whose products the compiler serialised; needs nvcc, no GPU. A step of the build.

usage: check_gpu_code.py [--nvcc FILE] [--arch sm_90a] [--stamp FILE] FILE.cu ...

Kernels of head_dim 256 are left out: they spill, which is known (docs/cuda.md). --stamp is touched when all is well.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
MAY_SPILL = re.compile(r"mma_kernel\w*Li256E")


def complaints(messages):
    """What `ptxas -v` said that must not be, a line each."""
    found, function = [], None
    for line in messages.splitlines():
        if match := re.search(r"Function properties for (\S+)", line):
            function = match.group(1)
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            is_known = function is not None and MAY_SPILL.search(function)
            if not is_known and (int(match.group(1)) or int(match.group(2))):
                found.append(f"{function}: {match.group(0)}")
        elif "Potential Performance Loss" in line or re.search(r"wgmma.*serialized", line):
            found.append(line.strip())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--stamp", type=pathlib.Path)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    found = []
    for source in args.files:
        with tempfile.TemporaryDirectory() as folder:
            built = subprocess.run(
                [args.nvcc, "-std=c++20", "-O3", f"-arch={args.arch}", f"-I{ROOT}", "-DLONGHAUL_BUILDS_SM90A", "-Xptxas", "-v",
                 "-cubin", "-o", str(pathlib.Path(folder) / "code.cubin"), str(source)], capture_output=True, text=True)
        if built.returncode != 0:
            sys.exit(f"{source}: nvcc failed\n{built.stdout}{built.stderr}")
        if "Function properties" not in built.stderr + built.stdout:
            sys.exit(f"{source}: nvcc did not say what registers are used")
        found += [f"{source}: {text}" for text in complaints(built.stdout + built.stderr)]
    if found:
        sys.exit("\n".join(found))
    if args.stamp:
        args.stamp.touch()


if __name__ == "__main__":
    main()
