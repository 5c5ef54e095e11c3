#!/usr/bin/env python3
"""The files of this repository, for the checks beside this: what git tracks, and what is new, not ignored and in a folder that git knows;
where this is no checkout (a release archive) every file outside folders of builds.

    repository.py [SUFFIX ...]      prints them, of these suffixes (.h .cc), relative to its root
"""
import functools
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def listed_by_git(*options):
    if not shutil.which("git"):
        return []
    listing = subprocess.run(["git", "ls-files", "-z", *options], cwd=ROOT, capture_output=True, text=True)
    return [pathlib.PurePosixPath(name) for name in listing.stdout.split("\0") if name]


@functools.cache
def files():
    """Paths from the root, sorted; only what is there."""
    tracked = listed_by_git()
    # None also of an archive that was unpacked within another checkout.
    if tracked:
        folders = {path.parts[0] for path in tracked if len(path.parts) > 1}
        new = [path for path in listed_by_git("--others", "--exclude-standard") if len(path.parts) == 1 or path.parts[0] in folders]
        listed = tracked + new
    else:
        listed = [pathlib.PurePosixPath(path.relative_to(ROOT).as_posix()) for path in ROOT.rglob("*")]
        listed = [path for path in listed if not path.parts[0].startswith("build") and path.parts[0] != ".git" and path.suffix != ".pyc"]
    return sorted(path for path in set(listed) if (ROOT / path).is_file())


if __name__ == "__main__":
    print(*(path for path in files() if not sys.argv[1:] or path.suffix in sys.argv[1:]), sep="\n")
