#!/usr/bin/env python3
"""Refuses GPU code that spills registers, or whose products the compiler serialised; needs nvcc, no GPU. A step of the build.

usage: check_gpu_code.py [--only NAME.cu ...] -- NVCC ARGUMENTS ... -c FILE.cu ...

Compiles as nvcc does that, which must be told to say what registers are used (-Xptxas=-v; needed for the files of --only alone, all others
are compiled unlooked at). What is complained of leaves no object file. Chips before 9.0 are not looked at, nor kernels of head_dim 256: they
spill, which is known (docs/cuda.md).
"""
import argparse
import pathlib
import re
import subprocess
import sys

CHIP = "sm_90a"
MAY_SPILL = re.compile(r"mma_kernel\w*Li256E")


def complaints(messages):
    """What `ptxas -v` said that must not be, a line each."""
    found, function, is_looked_at = [], None, True
    for line in messages.splitlines():
        if match := re.search(r"Compiling entry function '\S+' for '(\S+)'", line):
            is_looked_at = match.group(1) == CHIP
        elif not is_looked_at:
            continue
        elif match := re.search(r"Function properties for (\S+)", line):
            function = match.group(1)
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            is_known = function is not None and MAY_SPILL.search(function)
            if not is_known and (int(match.group(1)) or int(match.group(2))):
                found.append(f"{function}: {match.group(0)}")
        elif "Potential Performance Loss" in line or re.search(r"wgmma.*serialized", line):
            found.append(line.strip())
    return found


def is_chatter(line):
    """Whether ptxas says it of well-made code."""
    return re.match(r"ptxas info\s+: (Compil|Function properties|Used|\d+ bytes gmem)|\s+\d+ bytes stack frame|$", line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    sources = [pathlib.Path(word) for word in command if word.endswith(".cu")]
    if "-c" not in command or not any(source.name in args.only for source in sources):
        sys.exit(subprocess.run(command).returncode)
    built = subprocess.run(command, capture_output=True, text=True)
    messages = built.stdout + built.stderr
    sys.stderr.write("".join(line + "\n" for line in messages.splitlines() if not is_chatter(line)))
    if built.returncode != 0:
        sys.exit(built.returncode)
    found = [f"{sources[0]}: {text}" for text in complaints(messages)]
    if "Function properties" not in messages:
        found = [f"{sources[0]}: nvcc did not say what registers are used"]
    if found:
        if "-o" in command:
            pathlib.Path(command[command.index("-o") + 1]).unlink(missing_ok=True)
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
