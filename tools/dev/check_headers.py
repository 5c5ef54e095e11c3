#!/usr/bin/env python3
"""Checks that every header compiles alone: each goes through the compiler in a file with this one #include, syntax only.

    check_headers.py [--all] COMPILER [FLAG ...]      flags as for the sources (-std, -I, ...)

Without --all only headers that no foo.cc includes before all else, and of the tests those of tests/support. The others a build shows, but
whole only if it compiles file by file (LONGHAUL_JOINT_FILES=0): of the files that are compiled as one, it shows the first. --all takes
minutes; headers of tests alone would make half as much again of what the check takes without.
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("base", "kernels", "model", "partition", "cluster", "worker", "coordinator", "tools")
# Included by one .cc per instruction set, inside a namespace that it names; in the place of a library's header; with a macro of its
# target's: not headers in their own right.
NOT_ALONE = ("kernels/cpu/isa/", "kernels/cuda/", "tests/cuda_on_host/include/", "tests/multirank/support/fake_nccl_calls.h")
# Private headers of a part that is built only where its package is.
OPTIONAL = ("hdf5.h: No such file", "nccl.h: No such file", "cuda_runtime.h: No such file")


def is_first_in_its_source(header):
    source = (ROOT / header).with_suffix(".cc")
    if not source.exists():
        return False
    first = next((line for line in source.read_text().splitlines() if line and not line.startswith("//")), "")
    return first == f'#include "{header}"'


def check(command, header):
    text = f'#include "{header}"\n'
    done = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=text, capture_output=True, text=True, cwd=ROOT)
    return header, done.returncode, done.stderr


def main():
    everything = sys.argv[1:2] == ["--all"]
    command = sys.argv[2 if everything else 1:]
    folders = (*FOLDERS, "tests" if everything else "tests/support")
    headers = [p.relative_to(ROOT).as_posix() for folder in folders for p in sorted((ROOT / folder).rglob("*.h"))]
    headers = [h for h in headers if not h.startswith(NOT_ALONE)]
    alone = [h for h in headers if everything or not is_first_in_its_source(h)]
    failed = skipped = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, code, errors in pool.map(lambda h: check(command, h), alone):
            if code != 0 and any(package in errors for package in OPTIONAL):
                skipped += 1
            elif code != 0:
                failed += 1
                print(f"{header} does not compile alone:\n{errors}")
    print(f"check_headers: {len(headers)} headers, {len(alone)} of them compiled alone; {failed} do not compile" + (f", {skipped} need packages that are not here" if skipped else ""))
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
