#!/usr/bin/env python3
"""Prints what tools/dev/gpu_check.sh left in a folder as one Markdown page: the machine, checks, figures beside what the chip attains and
beside torch's, clocks. Usage: gpu_table.py FOLDER"""
import csv
import json
import pathlib
import sys


def lines_of(path):
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def row(*cells):
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def head(*names):
    return [row(*names), "|" + "---|" * len(names)]


def checks_of(folder):
    out = ["## Checks", ""] + head("part", "check", "ended", "seconds")
    for path in sorted(folder.glob("checks-*.tsv")):
        out += [row(*line.split("\t")) for line in lines_of(path)]
    return out if len(out) > 4 else []


def figures_of(folder):
    figures = [json.loads(line) for line in lines_of(folder / "figures.jsonl") if line]
    if not figures:
        return []
    out = ["## Operators", "", "Milliseconds of a call on the GPU; decode and forks as replays of a graph. Host: microseconds to queue a call.", ""]
    out += head("what", "ms", "host us", "rate", "share")
    for f in figures:
        share = f"{100 * f['rate'] / f['attainable']:.0f} % of {f['beside']}" if f["attainable"] else ""
        out.append(row(f["name"], f"{f['milliseconds']:.3f}", f"{f['host_microseconds']:.0f}", f"{f['rate']:.1f} {f['unit']}", share))
    return out


def peers_of(folder):
    peers = [json.loads(line) for line in lines_of(folder / "peers.jsonl") if line]
    if not peers:
        return []
    return ["## torch in the same run", ""] + head("what", "ms", "rate") + [
        row(p["name"], f"{p['milliseconds']:.3f}", f"{p['rate']:.1f} {p['unit']}") for p in peers]


def model_of(folder):
    lines = [line for line in lines_of(folder / "bench-speed_of_a_model.log") if line.strip()]
    return ["## Model", "", "```"] + lines + ["```"] if lines else []


def benches_of(folder):
    lines = [line for path in sorted(folder.glob("program-bench_*.log")) for line in lines_of(path) if line.startswith("|") or not line]
    return ["## longhaul bench", ""] + lines if any(lines) else []


def kernels_of_token(path):
    """(name, grid) -> [launches, microseconds] of what Nsight Compute saw between two tokens' last kernels."""
    samples = list(csv.reader(line for line in lines_of(path) if line.startswith('"')))
    if not samples or not any(name.startswith("gpu__time_duration") for name in samples[0]):
        return {}
    name_at, grid_at = samples[0].index("Kernel Name"), samples[0].index("Grid Size")
    time_at = next(i for i, name in enumerate(samples[0]) if name.startswith("gpu__time_duration"))
    launches = [(sample[name_at], sample[grid_at], sample[time_at]) for sample in samples[2:]]  # behind the units, which are ns
    ends = [i for i, (name, _, _) in enumerate(launches) if "best_of_row" in name]
    kernels = {}
    for name, grid, nanoseconds in launches[ends[0] + 1:ends[1] + 1] if len(ends) > 1 else []:
        of = kernels.setdefault((name.split("(")[0].removeprefix("void "), grid), [0, 0.0])
        of[0] += 1
        of[1] += float(nanoseconds.replace(",", "")) / 1e3
    return kernels


def tokens_of(folder):
    out = []
    for path in sorted(folder.glob("profile-kernels_of_tokens*.log")):
        kernels = kernels_of_token(path)
        if kernels:
            out += ["", "## " + path.stem.removeprefix("profile-").replace("_", " "), ""]
            out += head("kernel", "grid", "launches", "us") + [
                row(name, grid, n, f"{us:.0f}") for (name, grid), (n, us) in sorted(kernels.items(), key=lambda item: -item[1][1])]
    return out[1:]


def clocks_of(folder):
    samples = list(csv.reader(lines_of(folder / "clocks.csv"), skipinitialspace=True))
    if len(samples) < 2:
        return []
    out = ["## Clocks meanwhile", ""] + head("what", "least", "median", "most")
    for column, name in enumerate(samples[0]):
        values = []
        for sample in samples[1:]:
            try:
                values.append(float(sample[column]))
            except (ValueError, IndexError):
                pass
        if values:
            values.sort()
            out.append(row(name, values[0], values[len(values) // 2], values[-1]))
    reasons = sorted({sample[-1] for sample in samples[1:] if sample and len(sample) == len(samples[0])})
    return out + ["", "Throttle reasons seen (masks of nvidia-smi): " + ", ".join(reasons)]


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit("usage: gpu_table.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    parts = [["# What tools/dev/gpu_check.sh found"], lines_of(folder / "environment.txt") and ["```"] + lines_of(
        folder / "environment.txt") + ["```"]]
    parts += [part(folder) for part in (checks_of, figures_of, peers_of, model_of, benches_of, tokens_of, clocks_of)]
    print("\n\n".join("\n".join(part) for part in parts if part))


main()
