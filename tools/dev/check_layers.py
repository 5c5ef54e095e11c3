#!/usr/bin/env python3
"""Checks who includes whom: the order of the rooms, and the fences around MPI, NCCL, CUDA, HDF5 and Asio.

A room is a folder with a purpose of its own; ROOMS says it in a line, and what a room may include. A room may include only rooms that
stand above it in the table, so there are no circles; there are no exceptions. What nobody uses of what is allowed is a breach, too, so
that the table says what is so. docs/design.md, "Layers and fences", explains the order.
Prints each breach as FILE:LINE: reason; exits 1 if there is any.  check_layers.py --rooms prints the table.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# room -> (what it is for, the rooms that it may include; itself always)
ROOMS = {
    "base": ("errors, JSON, files, logging, number types, ids", ()),
    "base/device": ("devices: streams, buffers, events and step graphs of GPUs, without operators", ("base",)),
    "kernels": ("operators: contracts and dispatch, over cpu/, cuda/ and reference/", ("base", "base/device")),
    "model": ("what a model is on disk: specification, safetensors, head profiles, tokenizer", ("base",)),
    "model/heads": ("what each KV head sees and keeps: policies, tables, methods, block formulas; pure", ("base", "model")),
    "model/forms": ("forms that answers must have: automata over bytes, masks over a vocabulary; pure", ("base",)),
    "model/chat": ("chat templates: an engine for the Jinja that published ones use; pure", ("base",)),
    "partition": ("the planner: model x heads x cluster x workload -> plan; pure", ("base", "base/device", "model", "model/heads")),
    "cluster": ("how ranks talk: comm/ between ranks, wire/ between coordinator and ranks", ("base", "base/device")),
    "worker": ("one rank: weights, caches, the forward pass, sampling, saved caches",
               ("base", "base/device", "kernels", "model", "model/heads", "partition", "cluster")),
    "coordinator": ("one per job: requests, documents, scheduling, results", ("base", "model", "model/chat", "model/forms", "model/heads", "partition", "cluster")),
    "tools/status": ("what a job shows of itself while it runs: page, JSON, metrics, over HTTP", ("base", "partition", "cluster", "coordinator")),
    "tools/job": ("what brings up ranks, measures them, plans, serves and ends a job",
                  ("base", "base/device", "kernels", "model", "model/chat", "model/heads", "partition", "cluster", "worker", "coordinator", "tools/status")),
    "tools/flags": ("flags that several commands have, each declared once", ("base", "kernels", "model/heads", "partition", "tools/job")),
    "tools/eval": ("what measures how well a model reads: needles and perplexity, through a job's links",
                   ("base", "model", "model/heads", "partition", "cluster", "coordinator", "tools/job", "tools/flags")),
    "tools/bench": ("what measures speed beside its bound: a model through a job's links, single operators",
                    ("base", "base/device", "kernels", "model", "model/heads", "partition", "cluster", "worker", "coordinator", "tools/job",
                     "tools/flags", "tools/eval")),
    "tools/identify": ("what finds a model's retrieval heads: gates trained by gradients, scores of heads, profiles",
                       ("base", "base/device", "kernels", "model", "partition", "cluster", "worker", "coordinator", "tools/job", "tools/eval")),
    "tools/doctor": ("whether a cluster is fit for a job: facts of each rank, and what they mean",
                     ("base", "base/device", "kernels", "cluster", "worker", "coordinator", "tools/job")),
    "tools/supervise": ("what starts a job again until it is done, from outside", ("base", "cluster", "tools/job")),
    "tools": ("the longhaul program: commands",
              ("base", "kernels", "model", "model/heads", "partition", "cluster", "worker", "coordinator",
               "tools/status", "tools/job", "tools/flags", "tools/eval", "tools/bench", "tools/identify", "tools/doctor", "tools/supervise")),
    "tests": ("what shows that all of it is true",
              ("base", "base/device", "kernels", "model", "model/chat", "model/forms", "model/heads", "partition", "cluster", "worker", "coordinator",
               "tools/status", "tools/job", "tools/flags", "tools/eval", "tools/bench", "tools/identify", "tools/doctor", "tools/supervise", "tools")),
}

# (pattern of the included header, patterns of the files that may include it, name)
FENCES = [
    (r"mpi\.h$", [r"cluster/comm/mpi"], "MPI"),
    (r"nccl\.h$", [r"cluster/comm/nccl"], "NCCL"),
    (r"(cuda|cublas|cuda_runtime|cuda_bf16|cuda_fp16)[a-zA-Z_]*\.h$",
     [r"base/device/", r"kernels/cuda/", r"cluster/comm/(nccl|gpu_(copies|peers)\.cc)", r"tests/(cuda_on_host|fake_nccl)/",
      r"tests/unit/kernels/cuda_on_host_test"], "CUDA"),
    (r"hdf5|H5[A-Z]?.*\.h$", [r"worker/snapshot/"], "HDF5"),
    (r"boost/asio", [r"cluster/wire/tcp", r"tools/status/http_server", r"tests/unit/wire/"], "Asio"),
    (r"boost/beast", [r"tools/status/http_server"], "Beast"),
    (r"oneapi/dnnl", [r"kernels/cpu/", r"tests/bench/onednn"], "oneDNN"),
    (r"pcre2\.h", [r"model/tokenizer/"], "PCRE2"),
    (r"unicode/", [r"model/tokenizer/", r"model/chat/unicode\.cc$"], "ICU"),
    (r"nlohmann/", [r"base/json\.cc$"], "nlohmann::json"),
    (r"openssl/", [r"base/(sha256|tag128)\.cc$", r"cluster/wire/"], "OpenSSL"),
    (r"CLI/", [r"tools/(?!job/)", r"tests/unit/(tools|bench)/"], "CLI11"),
    (r"toml\+\+", [r"partition/"], "toml++"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    """The innermost room that holds the file; None outside all of them."""
    folder = path
    while "/" in folder:
        folder = folder.rsplit("/", 1)[0]
        if folder in ROOMS:
            return folder
    return None


def breaches_of_table():
    above = set()
    for room, (purpose, includes) in ROOMS.items():
        if not purpose or "\n" in purpose:
            yield f"{room}: its purpose must be said in one line"
        for other in includes:
            if other not in above:
                yield f"{room} may include {other}, which does not stand above it"
        if not (ROOT / room).is_dir():
            yield f"{room} is no folder"
        above.add(room)


def breaches_of_line(file, kind, header):
    own = room_of(file)
    if kind == '"':
        other = room_of(header)
        if other is None:
            if header not in ("build_info.h", "status_page.h"):
                yield f'"{header}" is not a path from the repository root'
        elif other != own and other not in ROOMS[own][1]:
            yield f"{own} must not include {other} ({header})"
    for pattern, allowed, name in FENCES if kind == "<" else ():
        if re.search(pattern, header) and not any(re.match(a, file) for a in allowed):
            yield f"{name} is fenced: {header} may be included only by {', '.join(allowed)}"


def includes():
    """Of every source: file, line, kind ('<' or '"') and name of each header that it includes."""
    tops = sorted({room.split("/", 1)[0] for room in ROOMS})
    for path in sorted(p for top in tops for p in (ROOT / top).rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
            continue
        file = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := INCLUDE.match(line):
                yield file, number, *match.groups()


def unused_permissions(found):
    rooms_used = {(room_of(file), room_of(header)) for file, _, kind, header in found if kind == '"'}
    for room, (_, allowed) in ROOMS.items():
        for other in allowed:
            if (room, other) not in rooms_used:
                yield f"{room} may include {other}, and no file of it does"
    for pattern, allowed, name in FENCES:
        files = {file for file, _, kind, header in found if kind == "<" and re.search(pattern, header)}
        for place in allowed:
            if not any(re.match(place, file) for file in files):
                yield f"{name} may be included by {place}, and no such file does"


def main():
    if sys.argv[1:] == ["--rooms"]:
        for room, (purpose, _) in ROOMS.items():
            print(f"{room + '/':<16} {purpose}")
        return 0
    every_include = [*includes()]
    found = [*breaches_of_table(), *unused_permissions(every_include)]
    for file, number, kind, header in every_include:
        found += [f"{file}:{number}: {reason}" for reason in breaches_of_line(file, kind, header)]
    print(*found, f"check_layers: {len(found)} breaches", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
