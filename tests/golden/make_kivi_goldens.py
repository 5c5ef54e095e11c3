#!/usr/bin/env python3
"""Makes tests/golden/kivi_groups.json: groups of 32 numbers and what KIVI's published formula (Liu et al. 2024, arXiv 2402.02750; quant/new_pack.py
of its code, asymmetric, per group) makes of them with 4 and 2 bits:

    scale = (largest - smallest) / (2^bits - 1), minimum = smallest; both f16
    code  = round(clamp((x - minimum) / scale, 0, 2^bits - 1)), halves to even

Numbers are f16 values, as there, and f32 values as Longhaul has them. Python's own arithmetic alone: double precision, rounded to f32 and to f16 by
struct. Groups where a code hangs on the last bit of that arithmetic are left out. `half` counts the codes that differ when every operation is rounded
to f16, as the published code does it on f16 tensors.

  python make_kivi_goldens.py
"""

import json
import pathlib
import random
import struct

GROUP = 32


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bits_of(x):
    return struct.unpack("<H", struct.pack("<e", x))[0]


def quantise(values, bits, rounded):
    most = 2**bits - 1
    scale = f16(rounded(rounded(max(values) - min(values)) / most))
    minimum = f16(min(values))
    exact = [rounded(rounded(x - minimum) / scale) if scale else 0.0 for x in values]
    return scale, minimum, [round(min(max(x, 0.0), float(most))) for x in exact], exact


def is_clear(exact):
    return all(abs(x - int(x) - 0.5) > 1e-5 for x in exact)


def main():
    rng = random.Random(2402)
    groups = []
    n_half = n_codes = 0
    while len(groups) < 60:
        size = 10.0 ** rng.uniform(-3, 3)
        offset = rng.choice([0.0, 0.0, rng.uniform(-4, 4)]) * size
        keep = rng.choice([f16, f32])
        values = [keep(rng.gauss(0, 1) * size + offset) for _ in range(GROUP)]
        if len(groups) == 0:
            values = [0.375] * GROUP  # constant
        if len(groups) == 1:
            values = [f32(-1.0 + 0.125 * (i % 16)) for i in range(GROUP)]  # codes are i % 16
        results = {}
        for bits in (4, 2):
            scale, minimum, codes, exact = quantise(values, bits, f32)
            if len(groups) > 1 and not is_clear(exact):
                break
            results[bits] = {"scale": bits_of(scale), "minimum": bits_of(minimum), "codes": codes}
            if keep is f16 and len(groups) > 1:
                half = quantise(values, bits, f16)[2]
                n_half += sum(a != b for a, b in zip(codes, half))
                n_codes += GROUP
        if len(results) == 2:
            groups.append({"values": values, "kivi4": results[4], "kivi2": results[2]})
    out = {"half": {"differ": n_half, "of": n_codes}, "groups": groups}
    lines = ",\n".join(json.dumps(group) for group in groups)
    text = '{"half":' + json.dumps(out["half"]) + ',"groups":[\n' + lines + "\n]}\n"
    path = pathlib.Path(__file__).parent / "kivi_groups.json"
    path.write_text(text)
    print(f"{path.name}: {len(groups)} groups; in f16 throughout {n_half} of {n_codes} codes differ")


if __name__ == "__main__":
    main()
