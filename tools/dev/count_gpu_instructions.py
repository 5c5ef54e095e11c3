#!/usr/bin/env python3
"""Instructions of GPU kernels' hottest loops, from their machine code; needs nvcc and nvdisasm, no GPU.

usage: count_gpu_instructions.py [--arch sm_90] [--nvdisasm FILE] [FILE.cu ...]

Compiles each file (kernels/cuda/attention_mma_*.cu unless given) and prints for each kernel: registers, bytes that spill, and of the
loop with the most tensor instructions how many instructions it has, by kind. nvdisasm is part of the CUDA Toolkit; PyPI has it as
nvidia-cuda-nvdisasm.
"""
import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
TENSOR = ("HMMA", "IMMA", "HGMMA", "QGMMA")


def resources(messages):
    """ptxas -v -> {kernel: (registers, bytes of spill stores and loads)}."""
    found, name, spilled = {}, None, 0
    for line in messages.splitlines():
        if match := re.search(r"Function properties for (\S+)", line):
            name = match.group(1)
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(match.group(1)) + int(match.group(2))
        elif match := re.search(r"Used (\d+) registers", line):
            found[name] = (int(match.group(1)), spilled)
    return found


def kernels_of(listing):
    """nvdisasm's listing -> {kernel: [(label, None) or (None, instruction)]}."""
    found, code = {}, None
    for line in listing.splitlines():
        if match := re.match(r"\.text\.(\S+):", line):
            code = found.setdefault(match.group(1), [])
        elif code is not None and (match := re.match(r"(\.L\S+):", line)):
            code.append((match.group(1), None))
        elif code is not None and (match := re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?);", line)):
            code.append((None, match.group(1)))
    return found


def kind_of(instruction):
    return re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0].split(".")[0]


def hottest_loop(code):
    """Kinds of the instructions between a branch back and where it goes, of the loop with the most tensor instructions."""
    start, kinds, best = {}, [], []
    for label, instruction in code:
        if label is not None:
            start[label] = len(kinds)
            continue
        kinds.append(kind_of(instruction))
        target = re.search(r"\.L[\w$]+", instruction)
        if kinds[-1] == "BRA" and target and target.group(0) in start:
            loop = kinds[start[target.group(0)]:]
            if sum(kind in TENSOR for kind in loop) > sum(kind in TENSOR for kind in best):
                best = loop
    return collections.Counter(best)


def readable(name):
    filt = shutil.which("c++filt")
    full = subprocess.run([filt, name], capture_output=True, text=True).stdout.strip() if filt else name
    return full.replace("longhaul::cuda::", "").replace("(anonymous namespace)::", "").replace("longhaul::", "").split("(CudaArgs")[0][:100]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm") or "/usr/local/cuda/bin/nvdisasm")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    for tool in (args.nvcc, args.nvdisasm):
        if not pathlib.Path(tool).exists():
            sys.exit(f"{pathlib.Path(tool).name} is not there: {tool}")
    print("| file | kernel | registers | spilled bytes | instructions of the loop | most of them |\n|---|---|---|---|---|---|")
    for source in args.files or sorted((ROOT / "kernels/cuda").glob("attention_mma_*.cu")):
        with tempfile.TemporaryDirectory() as folder:
            binary = pathlib.Path(folder) / "code.cubin"
            built = subprocess.run([args.nvcc, "-std=c++20", "-O3", f"-arch={args.arch}", f"-I{ROOT}", "-Xptxas", "-v", "-cubin",
                                    "-o", str(binary), str(source)], capture_output=True, text=True)
            if built.returncode != 0:
                sys.exit(built.stderr)
            listing = subprocess.run([args.nvdisasm, "-c", str(binary)], capture_output=True, text=True, check=True).stdout
        used = resources(built.stderr)
        for name, code in kernels_of(listing).items():
            loop = hottest_loop(code)
            registers, spilled = used.get(name, ("?", "?"))
            most = ", ".join(f"{kind} {n}" for kind, n in loop.most_common(6))
            print(f"| {source.name} | {readable(name)} | {registers} | {spilled} | {sum(loop.values())} | {most} |")


if __name__ == "__main__":
    main()
