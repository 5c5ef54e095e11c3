#!/usr/bin/env python3
"""Checks that files stay small: 500 lines (600 in tests), unless tools/dev/size_exceptions.txt lists the file with a reason."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake"}


def exceptions():
    listed = {}
    for line in (ROOT / "tools/dev/size_exceptions.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            file, _, reason = line.partition(" ")
            if not reason.strip():
                sys.exit(f"size_exceptions.txt: {file} has no reason")
            listed[file] = reason.strip()
    return listed


def source_files():
    """What git tracks, or every file where this is no checkout (a release archive)."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode == 0:
        return [ROOT / line for line in listing.stdout.splitlines()]
    return [p for p in ROOT.rglob("*") if "build" not in p.relative_to(ROOT).parts[:1]]


def main():
    allowed, too_long = exceptions(), 0
    for path in sorted(source_files()):
        if not path.is_file() or (path.suffix not in SUFFIXES and path.name != "CMakeLists.txt"):
            continue
        file = path.relative_to(ROOT).as_posix()
        gate = 600 if file.startswith("tests/") else 500
        n_lines = len(path.read_text(encoding="utf-8", errors="replace").splitlines())
        if n_lines > gate and file not in allowed:
            print(f"{file}: {n_lines} lines, at most {gate}; split it, or list it in size_exceptions.txt with a reason")
            too_long += 1
    print(f"check_sizes: {too_long} files too long")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
