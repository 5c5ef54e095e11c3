#!/usr/bin/env python3
"""Fails when object files of an instruction set share functions with other code.

The files under kernels/cpu/isa are compiled once per instruction set. A weak symbol (an inline function or a template
instantiation) that several object files define is kept once by the linker: a machine without AVX-512 could then run the
AVX-512 copy and die of SIGILL. So these objects may define only symbols inside their own namespace.

Usage: check_isa_symbols.py <nm> <isa> <object file>...
"""
import subprocess
import sys


def main() -> int:
    nm, isa, objects = sys.argv[1], sys.argv[2], sys.argv[3:]
    if not objects:
        print("no object files given")
        return 1
    mangled = f"8longhaul3cpu{len(isa)}{isa}"  # namespace longhaul::cpu::<isa>
    wrong = []
    n_symbols = 0
    for path in objects:
        listing = subprocess.run([nm, "--defined-only", path], check=True, capture_output=True, text=True).stdout
        for line in listing.splitlines():
            fields = line.split()
            kind, name = fields[-2], fields[-1]
            n_symbols += 1
            shared = kind in "WwVvu" or (kind.isupper() and kind != "N")
            if shared and mangled not in name:
                wrong.append(f"{path}: {kind} {name}")
            elif kind in "WwVvu":
                wrong.append(f"{path}: {kind} {name} (weak although in its namespace: make it static)")
    for line in wrong:
        print(line)
    print(f"{isa}: {n_symbols} symbols in {len(objects)} object files, {len(wrong)} of them shared with other code")
    return 1 if wrong or n_symbols == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
