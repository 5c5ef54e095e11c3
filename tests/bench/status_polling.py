#!/usr/bin/env python3
"""Whether somebody who polls /status.json slows a job's steps: the same job with and without, in turns.

usage: status_polling.py LONGHAUL examples/needle [--ranks 1 2] [--pairs 3] [--polls 10] [--characters 200000] [--mpirun]

Reads the beginning of the example's archive in chunks of 2048 and answers eleven questions with 96 tokens each, one at a time. Every
run serves its status; in every second one a client on the same machine asks for it --polls times a second: the processor time that it takes
itself is told. A chunk is compared with the same chunk of the run beside it (events "chunk" of rank
0's log), steps of answers by their seconds. Prints a row for each number of ranks, for docs/operators.md.
"""
import argparse
import json
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

DECODE = re.compile(r"decode (\S+) s predicted, (\S+) s measured")


def poll(port, seconds_between, until):
    """Asks until `until()`; (how often it was answered, the slowest answer in seconds)."""
    answers, slowest, at = 0, 0.0, time.monotonic()
    while not until():
        begun = time.monotonic()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(b"GET /status.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                if connection.recv(64).startswith(b"HTTP/1.1 200"):
                    answers += 1
                    slowest = max(slowest, time.monotonic() - begun)
                while connection.recv(1 << 16):
                    pass
        except OSError:
            pass  # the job ends
        at = max(at + seconds_between, time.monotonic())
        time.sleep(at - time.monotonic() if at > time.monotonic() else 0)
    return answers, slowest


class Run:
    def __init__(self, args, ranks, polls):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            requests = [json.loads(line) for line in (args.example / "archive_128k.jsonl").read_text().splitlines()]
            document = folder / "document.txt"
            document.write_text((args.example / "documents/archive_128k.txt").read_text()[:args.characters])
            with open(folder / "in.jsonl", "w") as out:
                for request in requests:
                    request["body"].update(max_tokens=96, ignore_eos=True, documents=[{"path": str(document)}])
                    out.write(json.dumps(request) + "\n")
            launcher = ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(ranks)] if args.mpirun else []
            words = launcher + [str(args.program), "run", "-m", str(args.example / "model"), "--head-profile", str(args.example / "profile"), "-i",
                                str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"), "-t", "1", "--chunk-len", "2048", "--parallel", "1",
                                "--checkpoint-every", "never", "--no-progress", "--status", "0", "--log-dir", str(folder / "log")]
            words += [] if launcher else ["--ranks", str(ranks)]
            errors = open(folder / "err", "w+")
            job = subprocess.Popen(words, stderr=errors, stdout=errors)
            text = ""
            while not (found := re.search(r"status at http://\S+?:(\d+)/", text)) and job.poll() is None:
                time.sleep(0.01)
                text = (folder / "err").read_text()
            before = resource.getrusage(resource.RUSAGE_SELF)
            self.answers, self.slowest = poll(int(found[1]), 1 / polls, lambda: job.poll() is not None) if polls and found else (0, 0.0)
            after = resource.getrusage(resource.RUSAGE_SELF)
            self.client_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            if job.wait() != 0:
                sys.exit((folder / "err").read_text())
            events = [json.loads(line) for line in (folder / "log/rank-0000.jsonl").read_text().splitlines()]
            self.chunks = [event["seconds"] for event in events if event["event"] == "chunk" and event["tokens"] == 2048]
            self.decode_steps = sum(event["steps"] for event in events if event["event"] == "decode")
            self.decode_s = sum(event["seconds"] for event in events if event["event"] == "decode")
            done = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
            self.texts = {line["custom_id"]: line["response"]["body"]["choices"][0]["text"] for line in done}


def per_cent(ratio):
    return f"{100 * (ratio - 1):+.2f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("example", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--polls", type=float, default=10)
    parser.add_argument("--characters", type=int, default=200_000)
    parser.add_argument("--mpirun", action="store_true")
    args = parser.parse_args()
    print("| ranks | asked | a chunk, alone | with a client | chunks with and without, median (middle half) | sum of chunks | a step of answers, alone, with a client "
          "| slowest answer | the client's own time |\n|---|---|---|---|---|---|---|---|---|")
    for ranks in args.ranks:
        runs = {False: [], True: []}
        for pair in range(args.pairs):
            for polled in (pair % 2 == 1, pair % 2 == 0):
                runs[polled].append(Run(args, ranks, args.polls if polled else 0))
        alone, asked = runs[False], runs[True]
        if any(run.texts != alone[0].texts for run in alone + asked):
            sys.exit("answers differ")
        ratios = sorted(b / a for x, y in zip(alone, asked) for a, b in zip(x.chunks, y.chunks))
        low, _, high = statistics.quantiles(ratios, n=4)
        total = sum(map(sum, (y.chunks for y in asked))) / sum(map(sum, (x.chunks for x in alone)))
        chunk = {polled: statistics.median(s for run in of for s in run.chunks) for polled, of in runs.items()}
        decode = {polled: statistics.median(run.decode_s / run.decode_steps for run in of) for polled, of in runs.items()}
        print(f"| {ranks} | {sum(run.answers for run in asked)} times | {1e3 * chunk[False]:.1f} ms | {1e3 * chunk[True]:.1f} ms "
              f"| {per_cent(statistics.median(ratios))} ({per_cent(low)} to {per_cent(high)}) | {per_cent(total)} "
              f"| {1e3 * decode[False]:.3f} ms, {1e3 * decode[True]:.3f} ms | {1e3 * max(run.slowest for run in asked):.0f} ms "
              f"| {sum(run.client_s for run in asked):.2f} s |", flush=True)


if __name__ == "__main__":
    main()
