#!/usr/bin/env python3
"""Writes the manual page from what the program says of itself: make_man_page.py PROGRAM OUT.1

Every command's --help becomes a section, so that the page cannot say other things than the program.
"""
import pathlib
import re
import subprocess
import sys


def help_of(program, *words):
    return subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True).stdout


def commands_in(text):
    part = text.partition("Subcommands:\n")[2]
    return re.findall(r"^  ([a-z][a-z-]*)", part.partition("\n\n")[0], re.M)


def escaped(text):
    lines = text.rstrip().replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


def as_it_is(text):
    """Lines that nothing fills or indents: help texts are 80 columns wide, as terminals are."""
    return f".nf\n.in 0\n{escaped(text)}\n.fi"


def section(program, words):
    """The help of a command, and of those below it."""
    text = help_of(program, *words)
    yield f'.SH "{" ".join(["longhaul", *words]).upper()}"\n{as_it_is(text)}'
    for name in commands_in(text):
        yield from section(program, [*words, name])


def main():
    program, out = sys.argv[1:]
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    text = help_of(program)
    parts = [f'.TH LONGHAUL 1 "" "{version}" "Longhaul"\n.nh\n.ad l',
             ".SH NAME\nlonghaul \\- answers questions about documents of up to millions of tokens with an LLM",
             f".SH DESCRIPTION\n{as_it_is(text)}"]
    for name in commands_in(text):
        parts += section(program, [name])
    parts.append(".SH ENVIRONMENT\nEvery flag can be set in the environment: \\-\\-ctx\\-size is LONGHAUL_CTX_SIZE, a flag of several names has one for each; the flag wins, then the first of its names that is set.\n"
                 ".PP\nHF_HUB_CACHE, HF_HOME: where downloaded models lie.")
    pathlib.Path(out).write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
