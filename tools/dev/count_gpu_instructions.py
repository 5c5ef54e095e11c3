#!/usr/bin/env python3
"""Instructions of GPU kernels' hottest loops, counted without a GPU; needs nvcc, and for machine code nvdisasm.

usage: count_gpu_instructions.py [--arch sm_90a] [--nvdisasm FILE] [--ptx] [FILE.cu ...]
       count_gpu_instructions.py --budgets

Compiles each file (attention over caches, unless given) and prints for each kernel: registers, bytes that spill, and of the loop with the
most tensor instructions how many it has, and how many a warp issues on the usual way through it: of the ways with all products and all
loads of words the shortest, so without masks, new references of exponentials and the look at the next 32 blocks.

--budgets compiles the kernels of BUDGETS alone and fails where one of them issues more than it may, or where attention on Hopper has not all
exponentials of a unit between its waits for scores and for outputs. Counted in PTX, which nvcc always gives, and in machine code where there is
nvdisasm: a part of the CUDA Toolkit; PyPI has it as nvidia-cuda-nvdisasm. Says SKIPPED without nvcc, or with another than the counts are of.
"""
import argparse
import collections
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TENSOR = ("HMMA", "IMMA", "HGMMA", "QGMMA", "mma", "wgmma")
FILES = ("attention_hopper.cu", "attention_mma_bf16.cu", "attention_mma_int4.cu", "attention_mma_int8.cu", "attention_mma_kivi.cu")

# For each kernel what a warp may issue, in PTX and in machine code of sm_90a by CUDA 13.0: 2 % more than it does (docs/cuda_checks.md). Of
# decode a warp's 32 keys of a tile of 128, of Hopper's prefill a warp's 16 rows and 64 keys.
RELEASE = "13.0"
Budget = collections.namedtuple("Budget", "name source ptx sass exponentials")


def decode(name, kind, head_dim, row_groups, ptx, sass):
    config = f"DecodeConfig<KvType::{kind}, {head_dim}, {row_groups}, 1, false>"
    return Budget(name, '#include "kernels/cuda/attention_decode.cuh"\nnamespace longhaul::cuda {\nvoid launch_it(Stream& stream, '
                  f'const AttentionWork& work) {{ launch_decode_config<{config}>(stream, "", work); }}\n}}\n', ptx, sass, 0)


BUDGETS = (
    decode("int4, head_dim 128, up to 8 rows", "kInt4", 128, 1, 569, 525),
    decode("int4, head_dim 128, up to 16 rows", "kInt4", 128, 2, 700, 638),
    decode("int4, head_dim 64, up to 8 rows", "kInt4", 64, 1, 396, 353),
    decode("int8, head_dim 128, up to 8 rows", "kInt8", 128, 1, 1477, 916),
    decode("int8, head_dim 128, up to 16 rows", "kInt8", 128, 2, 1608, 1028),
    decode("bf16, head_dim 128, up to 8 rows", "kBf16", 128, 1, 228, 355),
    decode("bf16, head_dim 128, up to 16 rows", "kBf16", 128, 2, 326, 496),
    Budget("prefill on Hopper, head_dim 128", '#include "kernels/cuda/attention_hopper.cu"\n', 429, 395, 34),
)


def find_nvdisasm():
    """A path, or None: in PATH, in the toolkit, or in Python's packages."""
    folders = [pathlib.Path("/usr/local/cuda/bin")]
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations if spec else None) or []:
        folders += sorted(pathlib.Path(folder).glob("cu*/bin"))
    found = shutil.which("nvdisasm") or shutil.which("nvdisasm", path=":".join(map(str, folders)))
    return pathlib.Path(found) if found else None


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


def ptx_kernels_of(text):
    """The same of PTX."""
    found, code = {}, None
    text = re.sub(r"//[^\n]*", "", text)
    for line in re.split(r"[;\n]", re.sub(r"\{([^{}\n;]*)\}", r"(\1)", text)):
        line = line.strip("{} \t")
        if match := re.match(r"(?:\.visible |\.weak )*\.entry (\S+?)\(?$", line):
            code = found.setdefault(match.group(1), [])
        elif code is not None and (match := re.match(r"(\$?[\w$]+):$", line)):
            code.append((match.group(1), None))
        elif code is not None and re.match(r"(@!?%\w+ )?[a-z]\w*\.?\w*", line):
            code.append((None, line))
    return found


def kind_of(instruction):
    return re.sub(r"^@!?U?%?[Pp]\w*\s+", "", instruction).split()[0].split(".")[0]


class Loop:
    """The loop of a kernel with the most tensor instructions that has no such loop in it."""

    def __init__(self, code):
        self.start, self.code = {}, []
        for label, instruction in code:
            if label is not None:
                self.start[label] = len(self.code)
            else:
                self.code.append(instruction)
        loops = []
        for end, instruction in enumerate(self.code):
            begin = self.target(instruction)
            # Behind the kernel's end there is code that comes back into it.
            is_inside = begin is not None and not any(re.match(r"(EXIT|ret|RET)\b", i) for i in self.code[begin:end])
            if is_inside and begin <= end and "DIV" not in instruction:
                loops.append((sum(map(self.is_tensor, self.code[begin:end + 1])), begin, end))
        loops = [a for a in loops if a[0] and not any(b[0] and a != b and a[1] <= b[1] and b[2] <= a[2] for b in loops)]
        _, self.begin, self.end = max(loops, default=(0, 0, -1))

    def target(self, instruction):
        if kind_of(instruction) not in ("BRA", "bra"):
            return None
        match = re.search(r"[.$]L[\w$]+", instruction)
        return self.start.get(match.group(0)) if match else None

    @staticmethod
    def is_tensor(instruction):
        return kind_of(instruction) in TENSOR and "fence" not in instruction and "group" not in instruction

    def is_usual(self, instruction):
        return self.is_tensor(instruction) or ("LDG" in instruction and "CONSTANT" in instruction) or "ld.global.nc" in instruction

    def all(self):
        return self.code[self.begin:self.end + 1]

    def next_of(self, n):
        instruction = self.code[n]
        kind = kind_of(instruction)
        goes_on = instruction.startswith("@") or "DIV" in instruction or re.search(r"BRA(\.\w+)* !?U?P\d", instruction)
        found = [n + 1] if goes_on or kind not in ("BRA", "bra", "EXIT", "ret", "RET") else []
        target = self.target(instruction)
        return found + ([target] if target is not None else [])

    def usual_way(self):
        best = {self.begin: (0, 0, None)}
        for n in range(self.begin, self.end + 1):
            if n not in best:
                continue
            ahead = (best[n][0] - self.is_usual(self.code[n]), best[n][1] + 1, n)
            for after in self.next_of(n):
                if n < after <= self.end and (after not in best or ahead[:2] < best[after][:2]):
                    best[after] = ahead
        way, n = [], self.end if self.end in best else None
        while n is not None:
            way.append(self.code[n])
            n = best[n][2]
        return way[::-1]


def compile_ptx(nvcc, arch, source):
    built = subprocess.run([nvcc, "-std=c++20", "-O3", f"-arch={arch}", "-DLONGHAUL_BUILDS_SM90A", f"-I{ROOT}", "-ptx", "-o", "-", str(source)],
                           capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(built.stderr)
    return ptx_kernels_of(built.stdout)


def compile_code(nvcc, arch, nvdisasm, source):
    """({kernel: code}, {kernel: resources})."""
    with tempfile.TemporaryDirectory() as folder:
        binary = pathlib.Path(folder) / "code.cubin"
        built = subprocess.run([nvcc, "-std=c++20", "-O3", f"-arch={arch}", "-DLONGHAUL_BUILDS_SM90A", f"-I{ROOT}", "-Xptxas", "-v",
                                "-cubin", "-o", str(binary), str(source)], capture_output=True, text=True)
        if built.returncode != 0:
            sys.exit(built.stderr)
        listing = subprocess.run([nvdisasm, "-c", str(binary)], capture_output=True, text=True, check=True).stdout
    return kernels_of(listing), resources(built.stderr)


def readable(name):
    filt = shutil.which("c++filt")
    full = subprocess.run([filt, name], capture_output=True, text=True).stdout.strip() if filt else name
    return full.replace("longhaul::cuda::", "").replace("(anonymous namespace)::", "").replace("longhaul::", "").split("(CudaArgs")[0][:100]


def exponentials_under_outputs(way):
    """How many stand between the wait for all products but the last group and that for the last."""
    text = "\n".join(way)
    return text.partition("gsb0, 0x1")[2].partition("gsb0, 0x0")[0].count("MUFU.EX2")


def longest(kernels):
    """Of instances of one kernel that with the most products."""
    return max(map(Loop, kernels.values()), key=lambda loop: sum(map(loop.is_tensor, loop.all()))).usual_way()


def check_budgets(nvcc, arch, nvdisasm):
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    if f"release {RELEASE}," not in version:
        sys.exit(f"SKIPPED: the counts are those of CUDA {RELEASE}")
    failed = False
    print("| kernel | PTX | may be | machine code | may be |\n|---|---|---|---|---|")
    for budget in BUDGETS:
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "kernel.cu"
            source.write_text(budget.source)
            ptx, sass = len(longest(compile_ptx(nvcc, arch, source))), None
            failed |= not 0 < ptx <= budget.ptx
            if nvdisasm:
                way = longest(compile_code(nvcc, arch, nvdisasm, source)[0])
                sass = len(way)
                failed |= not 0 < sass <= budget.sass or exponentials_under_outputs(way) != budget.exponentials
        print(f"| {budget.name} | {ptx} | {budget.ptx} | {'not counted' if sass is None else sass} | {budget.sass} |", flush=True)
    if nvdisasm is None:
        print("machine code was not counted: nvdisasm is not there")
    if failed:
        sys.exit("a kernel issues more instructions than it may, or waits for outputs before its exponentials")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--nvdisasm", default=find_nvdisasm(), type=pathlib.Path)
    parser.add_argument("--ptx", action="store_true")
    parser.add_argument("--budgets", action="store_true")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    if not pathlib.Path(args.nvcc).exists():
        sys.exit(f"SKIPPED: nvcc is not there: {args.nvcc}")
    if args.budgets:
        return check_budgets(args.nvcc, args.arch, args.nvdisasm)
    if not args.ptx and (args.nvdisasm is None or not args.nvdisasm.exists()):
        sys.exit("nvdisasm is not there: give --nvdisasm, or count in --ptx")
    print("| file | kernel | registers | spilled bytes | instructions of the loop | issued | most of them |\n|---|---|---|---|---|---|---|")
    for source in args.files or [ROOT / "kernels/cuda" / name for name in FILES]:
        if args.ptx:
            kernels, used = compile_ptx(args.nvcc, args.arch, source), {}
        else:
            kernels, used = compile_code(args.nvcc, args.arch, args.nvdisasm, source)
        for name, code in kernels.items():
            loop = Loop(code)
            way = loop.usual_way()
            registers, spilled = used.get(name, ("?", "?"))
            most = ", ".join(f"{kind} {n}" for kind, n in collections.Counter(map(kind_of, way)).most_common(6))
            print(f"| {source.name} | {readable(name)} | {registers} | {spilled} | {len(loop.all())} | {len(way)} | {most} |", flush=True)


if __name__ == "__main__":
    main()
