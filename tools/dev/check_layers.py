#!/usr/bin/env python3
"""Checks who includes whom: the order of the layers, and the fences around MPI, NCCL, CUDA, HDF5 and Asio.

The rules stand in docs/design.md, "Layers and fences". Prints each breach as FILE:LINE: reason; exits 1 if there is any.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# layer -> the layers that it may include (itself always)
LAYERS = {
    "base": set(),
    "kernels": {"base"},
    "model": {"base"},
    "cluster": {"base"},
    "partition": {"base", "model"},
    "worker": {"base", "kernels", "model", "partition", "cluster"},
    "coordinator": {"base", "model", "partition", "cluster"},
    "tools": {"base", "kernels", "model", "partition", "cluster", "worker", "coordinator"},
    "tests": {"base", "kernels", "model", "partition", "cluster", "worker", "coordinator", "tools"},
}

# layer -> single headers of other layers that it may include beside: device_cuda knows base only.
ALSO = {"cluster": {"kernels/device_cuda.h"}}

# (pattern of the included header, patterns of the files that may include it, name)
FENCES = [
    (r"mpi\.h$", [r"cluster/comm/mpi", r"tests/multirank/mpi"], "MPI"),
    (r"nccl\.h$", [r"cluster/comm/nccl"], "NCCL"),
    (r"(cuda|cublas|cuda_runtime|cuda_bf16|cuda_fp16)[a-zA-Z_]*\.h$",
     [r"kernels/cuda/", r"kernels/(device_cuda|step_graph)\.", r"cluster/comm/(nccl|gpu_copies\.cc)", r"tests/((cuda|streams)_on_host|fake_nccl)/", r"tests/unit/kernels/cuda_on_host_test"], "CUDA"),
    (r"hdf5|H5[A-Z]?.*\.h$", [r"worker/snapshot/", r"tools/snapshot"], "HDF5"),
    (r"boost/asio", [r"cluster/wire/tcp", r"coordinator/server", r"tests/unit/wire/"], "Asio"),
    (r"oneapi/dnnl", [r"kernels/cpu/", r"kernels/onednn", r"tests/bench/onednn"], "oneDNN"),
    (r"pcre2\.h|unicode/", [r"model/tokenizer/"], "PCRE2 and ICU"),
    (r"nlohmann/", [r"base/json\.cc$"], "nlohmann::json"),
    (r"openssl/", [r"coordinator/sha256\.cc$", r"cluster/wire/", r"worker/snapshot/"], "OpenSSL"),
    (r"CLI/", [r"tools/", r"tests/unit/(tools|bench)/"], "CLI11"),
    (r"toml\+\+", [r"partition/", r"tools/"], "toml++"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    return path.split("/", 1)[0]


def breaches_of_line(file, kind, header):
    own = layer_of(file)
    if kind == '"':
        other = layer_of(header)
        if "/" not in header or other not in LAYERS:
            if header not in ("build_info.h",):
                yield f'"{header}" is not a path from the repository root'
        elif other != own and other not in LAYERS[own] and header not in ALSO.get(own, ()):
            yield f"{own} must not include {other} ({header})"
    for pattern, allowed, name in FENCES if kind == "<" else ():
        if re.search(pattern, header) and not any(re.match(a, file) for a in allowed):
            yield f"{name} is fenced: {header} may be included only by {', '.join(allowed)}"


def main():
    found = 0
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*")):
            if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
                continue
            file = path.relative_to(ROOT).as_posix()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                for reason in breaches_of_line(file, *match.groups()) if match else ():
                    print(f"{file}:{number}: {reason}")
                    found += 1
    print(f"check_layers: {found} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
