#!/usr/bin/env python3
"""Checks that the program writes to stderr in ways that cannot fail it: base/print_stderr.h, or write(2) where a log or a signal handler does.
fmt::print(stderr, ...) throws where stderr is full or closed, also in destructors and while a failure is reported.

Prints each breach as file:line: what; exits 1 if there is one.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("base", "kernels", "model", "partition", "cluster", "worker", "coordinator", "tools")
ALLOWED = {"base/print_stderr.cc"}
# What is no code, each ending where C++ says: raw strings, strings, characters (not the marks in 1'000), comments. In re.VERBOSE.
NO_CODE = r"""R"(?P<mark>[^()\\\s]{0,16})\((?:.|\n)*?\)(?P=mark)"
  | "(?:\\.|[^"\\\n])*"
  | (?<![0-9A-Za-z_'])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'
  | //.*
  | /\*(?:.|\n)*?\*/"""
WORDS = re.compile(NO_CODE + r"| \b(?P<code>std::w?cerr|std::w?clog|stderr|v?dprintf|perror|psignal)\b", re.VERBOSE)


def breaches(file, text):
    for match in WORDS.finditer(text):
        if match["code"]:
            line = text.count("\n", 0, match.start()) + 1
            yield f"{file}:{line}: {match['code']}: print_stderr (base/print_stderr.h) says it without failing"


def main():
    found = []
    for path in sorted(p for room in ROOMS for p in (ROOT / room).rglob("*")):
        file = path.relative_to(ROOT).as_posix()
        if path.suffix in {".h", ".cc", ".cu", ".cuh"} and file not in ALLOWED:
            found += breaches(file, path.read_text(encoding="utf-8"))
    print(*found, f"check_stderr: {len(found)} breaches", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
