#!/usr/bin/env python3
"""What commands print on a terminal of 80 columns fits it, line by line, and what they print into a pipe is whole:

    check_terminal_width.py LONGHAUL MODEL PROFILE
"""
import fcntl
import os
import pathlib
import pty
import struct
import subprocess
import sys
import tempfile
import termios

WIDTH = 80


def on_terminal(command, folder):
    """Lines on stdout, which is a terminal; stderr, which is prose, is not looked at."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.PIPE)
    os.close(terminal)
    text = b""
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        text += more
    errors = process.stderr.read().decode()
    assert process.wait() == 0, f"{command}: status {process.returncode}: {errors}"
    os.close(master)
    return text.decode().replace("\r\n", "\n").splitlines()


def in_pipe(command, folder):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()


def check(command, folder, wide_in_pipe=True):
    lines = on_terminal(command, folder)
    assert lines, command
    too_wide = [line for line in lines if len(line) > WIDTH]
    assert not too_wide, "\n".join([" ".join(command), *too_wide])
    if wide_in_pipe:
        assert max(len(line) for line in in_pipe(command, folder)) > WIDTH, command
    print("fits:", " ".join(command[1:3]))


def main():
    longhaul, model, profile = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:4])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("The sea was calm, and nobody was on it. " * 60)
        with_model = ["-m", model, "-t", "1"]
        subprocess.run([longhaul, "run", *with_model, "-f", "text.txt", "-p", "Who?", "-n", "1", "--save-kv", "saved", "--cache-type-k", "kivi4"],
                       cwd=folder, capture_output=True, check=True)
        check([longhaul, "kv", "list", "saved"], folder)
        check([longhaul, "kv", "info", "saved"], folder)
        bench = [longhaul, "bench", *with_model, "-p", "16", "-n", "2", "-r", "1"]
        check(bench, folder)
        check([*bench, "-pg", "128,16", "-d", "1K", "-b", "64", "-ctk", "int8", "--head-profile", profile, "--ranks", "2", "-o", "md"], folder)
        check([longhaul, "bench", "kernels", "-t", "1", "-r", "1", "--only", "streaming", "--max-length", "500", "--chunk-len", "300"], folder)
        check([longhaul, "bench", "kv", "--layers", "1", "--tokens", "64", "-ctk", "kivi4", "-ctv", "kivi4"], folder, wide_in_pipe=False)
        check([longhaul, "eval", "needle", *with_model, "--lengths", "200,210,220,230,240,250,260,270,280", "--depths", "0"], folder)
        check([longhaul, "eval", "methods", *with_model, "--lengths", "256", "--depths", "50", "--budgets", "50", "--method", "dense",
               "snapkv:window=16,pool=max", "--text", "text.txt", "--text-tokens", "4"], folder)
        check([longhaul, "eval", "perplexity", *with_model, "-f", "text.txt", "--tokens", "200", "--policy",
               "dense,window,streaming,streaming-absolute,duo", "--head-profile", profile, "--policy", "infinite:cap=64,slide=8",
               "--policy", "streaming:sink=8,window=64"], folder)
        check([longhaul, "plan", "--shape", "llama-3.1-8b", "--ranks", "5", "--memory", "64G", "--document-tokens", "1M", "--stages", "2"],
              folder, wide_in_pipe=False)
        for words in (["kv", "list"], ["run"], ["eval", "methods"]):
            check([longhaul, *words, "--help"], folder, wide_in_pipe=False)


if __name__ == "__main__":
    main()
