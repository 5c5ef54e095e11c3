#!/usr/bin/env python3
"""Checks what can be checked of the words: every path of this repository that a comment or a document names exists; CONTRIBUTING's map has
every folder of code; and a source without a header of its name opens with a comment that says what it is for.

Prints each breach as file:line: what; exits 1 if there is one.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = ("base", "kernels", "model", "partition", "cluster", "worker", "coordinator", "tools", "packaging", "tests")
SOURCES = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake"}
# A path from the repository's root: a top-level folder, then names. What contains "foo" or capitals stands for any name.
PATH = re.compile(r"(?<![\w./-])((?:%s|docs|examples|cmake)/[\w./-]*\w\.(?:h|cc|cu|cuh|md|py|sh|cmake|toml|txt|json))\b" % "|".join(CODE))
PLACEHOLDER = re.compile(r"foo|[A-Z]")


def sources():
    for folder in CODE + ("cmake",):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SOURCES or path.name == "CMakeLists.txt":
                yield path


def comment_of(path, line):
    if path.suffix in {".py", ".sh", ".cmake", ".txt"}:
        return line
    return line.partition("//")[2]


def dangling(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        words = line if path.suffix == ".md" else comment_of(path, line)
        for name in PATH.findall(words):
            if not PLACEHOLDER.search(pathlib.PurePath(name).stem) and not (ROOT / name).exists():
                yield f"{path.relative_to(ROOT)}:{number}: {name} does not exist"


def unexplained(path, text):
    if path.suffix not in {".cc", ".cu"} or "tests/fuzz/corpus" in str(path):
        return
    if any(path.with_suffix(suffix).exists() for suffix in (".h", ".cuh")) or path.stem.endswith("_test"):
        return
    if not text.startswith("//"):
        yield f"{path.relative_to(ROOT)}:1: no header of its name and no comment says what it is for"


def missing_in_map():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    start = guide.index("## Map")
    rows = re.findall(r"^\| `([\w/]+)/` \|(.*)$", guide[start : guide.index("**Start here**", start)], re.M)
    described = {folder: set(re.findall(r"`([^`]*)`", text)) for folder, text in rows}
    for folder in CODE:
        if folder not in described:
            yield f"CONTRIBUTING.md: the map has no {folder}/"
            continue
        named = {word.rstrip("/") for words in described[folder] for word in words.split()}
        for child in sorted(p for p in (ROOT / folder).iterdir() if (p / "CMakeLists.txt").exists() or any(p.glob("*.cc")) or any(p.glob("*.cu"))):
            if child.is_dir() and child.name not in named:
                yield f"CONTRIBUTING.md: the map does not say what {folder}/{child.name}/ is"


def main():
    breaches = list(missing_in_map())
    for path in sources():
        text = path.read_text()
        breaches += [*dangling(path, text), *unexplained(path, text)]
    for path in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "tests").rglob("*.md"))]:
        breaches += dangling(path, path.read_text())
    print("\n".join(breaches))
    print(f"check_words: {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
