#!/usr/bin/env python3
"""Checks what can be checked of the words: every path of this repository and every test that a comment or a document names exists;
CONTRIBUTING's map has every folder; and a source without a header of its name opens with a comment that says what it is for.

Prints each breach as file:line: what; exits 1 if there is one.
"""
import functools
import re
import sys

from repository import ROOT, files

# Of these the comments are read, of everything else whole lines.
CODE = {".h", ".cc", ".cu", ".cuh", ".html", ".js"}
# What is data, texts of others, or licences.
NOT_READ = {".json", ".jsonl", ".txt", ".csv", ".svg", ".tsv", ".safetensors", ".ids", ".hashes", ".bin", ".jinja", ""}
# A path from the repository's root: a top-level folder, then names.
TOP = sorted({path.parts[0] for path in files() if len(path.parts) > 1})
PATH = re.compile(r"(?<![\w./${}-])((?:%s)/[\w./*-]*[\w*])" % "|".join(map(re.escape, TOP)))
# What a reader puts a name of his own for: foo, and words in capitals.
PLACEHOLDER = re.compile(r"foo|(?<![A-Za-z])(?!README|CMakeLists|LICENSE)[A-Z]+(?![a-z])")
TEST = re.compile(r"(?<![\w./-])(\w+_(?:test|bench|on_host|conformance)|(?:dev|house)\.(?!py|sh)\w+)(?![\w./*-])")


def comment_of(path, line):
    # Messages and help name documents, too.
    if path.suffix in CODE and "docs/" not in line:
        return line.partition("<!--" if path.suffix == ".html" else "//")[2]
    return line


@functools.cache
def programs():
    """What CMake makes in the folders, as folder/name."""
    made = set()
    for path in files():
        if path.name == "CMakeLists.txt":
            names = re.findall(r"(?:add_executable|longhaul_add_\w+)\((\w+)", (ROOT / path).read_text())
            made.update(f"{path.parent}/{name}" for name in names)
    return made


@functools.cache
def exists(name):
    """A file or a folder, what CMake makes there, files that begin so (model/tokenizer/unicode for .h and .cc), a pattern."""
    path = ROOT / name
    if path.exists() or name in programs() or ("*" in name and any(ROOT.glob(name))):
        return True
    return any(path.parent.glob(path.name + "[._]*"))


@functools.cache
def names_of_tests():
    """Files of tests, and what CMake calls its tests and programs."""
    names = {path.stem for path in files()}
    for path in files():
        if path.name in ("CMakeLists.txt", "house_checks.cmake") and path.parts[0] in ("tests", "kernels"):
            names.update(re.findall(r"[\w.]+", (ROOT / path).read_text()))
    return names


def dangling(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        words = comment_of(path, line)
        for name in PATH.findall(words):
            if not PLACEHOLDER.search(name) and not exists(name):
                yield f"{path}:{number}: {name} does not exist"
        # Of scripts the comments: functions have such names, too.
        for name in TEST.findall(words.partition("#")[2] if path.suffix in {".py", ".sh"} else words):
            if name not in names_of_tests() and not PLACEHOLDER.search(name):
                yield f"{path}:{number}: there is no test or program {name}"


def unexplained(path, text):
    if path.suffix not in {".cc", ".cu"} or path.stem.endswith("_test"):
        return
    if any((ROOT / path).with_suffix(suffix).exists() for suffix in (".h", ".cuh")):
        return
    if not text.startswith("//"):
        yield f"{path}:1: no header of its name and no comment says what it is for"


def missing_in_map():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    start = guide.index("## Map")
    rows = re.findall(r"^\| `([\w./]+)/` \|(.*)$", guide[start : guide.index("**Start here**", start)], re.M)
    described = {folder: {word.rstrip("/") for words in re.findall(r"`([^`]*)`", text) for word in words.split()} for folder, text in rows}
    for folder in TOP:
        children = {path.parts[1] for path in files() if path.parts[0] == folder and len(path.parts) > 2}
        apart = {child for child in children if f"{folder}/{child}" in described}
        if folder not in described and (children - apart or not children):
            yield f"CONTRIBUTING.md: the map has no {folder}/"
        for child in sorted(children - apart - described.get(folder, set())):
            yield f"CONTRIBUTING.md: the map does not say what {folder}/{child}/ is"


def is_read(path):
    if path.name == "CMakeLists.txt" or str(path) in ("tools/completion/longhaul", ".ci/run"):
        return True
    # That has names that must not be there.
    return path.suffix not in NOT_READ and str(path) != "tests/dev/house_checks_test.py"


def main():
    breaches = list(missing_in_map())
    for path in filter(is_read, files()):
        text = (ROOT / path).read_text(encoding="utf-8")
        breaches += [*dangling(path, text), *unexplained(path, text)]
    print("\n".join(breaches))
    print(f"check_words: {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
