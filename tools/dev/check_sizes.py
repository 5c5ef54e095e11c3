#!/usr/bin/env python3
"""Checks that files stay small: 500 lines (600 in tests), unless tools/dev/size_exceptions.txt lists the file with a reason."""
import sys

from repository import ROOT, files

SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".html", ".js", ".md"}


def exceptions():
    listed = {}
    for line in (ROOT / "tools/dev/size_exceptions.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            file, _, reason = line.partition(" ")
            if not reason.strip():
                sys.exit(f"size_exceptions.txt: {file} has no reason")
            listed[file] = reason.strip()
    return listed


def main():
    allowed, too_long = exceptions(), 0
    for path in files():
        if path.suffix not in SUFFIXES and path.name != "CMakeLists.txt":
            continue
        file = str(path)
        gate = 600 if file.startswith("tests/") else 500
        n_lines = len((ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines())
        if n_lines > gate and file not in allowed:
            print(f"{file}: {n_lines} lines, at most {gate}; split it, or list it in size_exceptions.txt with a reason")
            too_long += 1
    print(f"check_sizes: {too_long} files too long")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
