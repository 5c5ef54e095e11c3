#!/usr/bin/env python3
"""Interrupts a run again and again while it reads a document of 133 thousand tokens, goes on with other ranks each time, and
compares the answers with an undisturbed run's; after every interruption all files of the checkpoint must be whole, and no run may
read more for the second time than one interval.

  tools/dev/interrupt_reading.py build/release/tools/longhaul [--points 20] [--every 4] [--longest 8] [--seed 1]
      [--kinds "kill -9"] [--ranks 1,2,3,5] [--mpirun "mpirun --oversubscribe -n"]

With --mpirun the ranks are processes that differ from one another, and any one of them is killed or told to stop; else they are
threads of one process. Prints a line for each interruption; exits 1 when anything is wrong. The short form of it is
tests/fault/checkpoint_ranks_test.cc. With one number of --ranks every run has the same plan, and then log-probabilities must be the undisturbed
run's, bit for bit; else they may differ by what tests/support/tolerance.h allows logits of bf16.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "needle"
CHUNK = 2048  # tokens
ABSOLUTE, RELATIVE = 0.1, 0.05  # logits of bf16
SIGNALS = {"kill -9": signal.SIGKILL, "SIGUSR1": signal.SIGUSR1, "SIGTERM": signal.SIGTERM}


def command(args, output, more=()):
    if len(args.ranks) == 1 and not args.mpirun:
        more = [*more, "--ranks", str(args.ranks[0]), "--cluster", lopsided(output.parent, args.ranks[0])]
    return [args.program, "run", "-m", EXAMPLES / "model", "--head-profile", EXAMPLES / "profile",
            "-i", output.parent / "requests.jsonl", "-o", output, "--no-progress", *more]


def write_requests(folder):
    """Those of the example, with log-probabilities."""
    with (folder / "requests.jsonl").open("w") as out:
        for line in (EXAMPLES / "archive_128k.jsonl").read_text().splitlines():
            request = json.loads(line)
            for document in request["body"]["documents"]:
                document["path"] = str(EXAMPLES / document["path"])
            request["body"]["logprobs"] = 5
            out.write(json.dumps(request) + "\n")


def answers(output):
    return {line["custom_id"]: line["response"]["body"]["choices"][0] for line in map(json.loads, output.read_text().splitlines())}


def pairs_of(got, want):
    """Log-probabilities of the same tokens in two answers of the same text."""
    yield from zip(got["token_logprobs"], want["token_logprobs"])
    for here, there in zip(got["top_logprobs"], want["top_logprobs"]):
        yield from ((here[token], there[token]) for token in here.keys() & there.keys())


def compare(args, output, want):
    """Ends the program if answers differ; else how far log-probabilities do at most."""
    got = answers(output)
    if len(args.ranks) == 1:
        if got != want:
            sys.exit("answers or log-probabilities differ from the undisturbed run's")
        return 0.0
    if {name: choice["text"] for name, choice in got.items()} != {name: choice["text"] for name, choice in want.items()}:
        sys.exit("answers differ from the undisturbed run's")
    pairs = [pair for name in want for pair in pairs_of(got[name]["logprobs"], want[name]["logprobs"])]
    for a, b in pairs:
        if abs(a - b) > ABSOLUTE + RELATIVE * abs(b):
            sys.exit(f"a log-probability is {a}, and {b} in the undisturbed run")
    return max(abs(a - b) for a, b in pairs)


def verify(args, folder):
    """What `kv verify` says of the checkpoint: empty where there is none yet."""
    if not folder.exists():
        return ""
    result = subprocess.run([args.program, "kv", "verify", folder], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"a checkpoint is not whole: {result.stdout}{result.stderr}")
    tokens = re.search(r"(\d+) tokens", result.stdout)
    return tokens.group(1) if tokens else ""


def lopsided(folder, n_ranks):
    """A cluster of ranks that differ: one has most of the memory, one is slow, one has little room."""
    path = folder / f"cluster-{n_ranks}.toml"
    lines = ["headroom = 0.0"]
    for i in range(n_ranks):
        memory = "256 MiB" if i == 0 else "20 MiB" if i == n_ranks - 1 else "48 MiB"
        speed = "gflops = 6.7\ngb_per_s = 3.3" if i == 1 else "gflops = 20.0\ngb_per_s = 10.0"
        lines.append(f'[[node]]\nname = "n{i}"\nmemory = "{memory}"\n{speed}')
    path.write_text("\n".join(lines) + "\n")
    return path


def rank_processes(mpirun):
    """Ids of the processes that this mpirun started."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"PPid:\t{mpirun}\n" in (entry / "status").read_text():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def start(args, n_ranks, output, stderr):
    words = command(args, output, ["--checkpoint-every", args.every])
    if args.mpirun:
        words = [*args.mpirun.split(), str(n_ranks), *words, "--cluster", lopsided(output.parent, n_ranks), "--dead-after", "3"]
    else:
        words += [] if len(args.ranks) == 1 else ["--ranks", str(n_ranks)]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.Popen(words, stderr=stderr, stdout=stderr, env=os.environ | root)


def interrupt(args, draw, output, log):
    kind = draw.choice(args.kinds.split(","))
    n_ranks = draw.choice(args.ranks)
    with log.open("w") as stderr:
        process = start(args, n_ranks, output, stderr)
        try:
            process.wait(draw.uniform(0.5, args.longest))
        except subprocess.TimeoutExpired:
            victims = rank_processes(process.pid) if args.mpirun else [process.pid]
            if victims:
                os.kill(draw.choice(victims), SIGNALS[kind])
            process.wait(120)
    went_on = re.search(r"document of .*", log.read_text())
    twice = re.search(r"(\d+) of them for the second time", log.read_text())
    if twice and int(twice.group(1)) > int(args.every) * CHUNK:
        sys.exit(f"more than one interval was read twice: {went_on.group(0)}")
    if process.returncode not in (0, 75, 137, -9):
        sys.exit(f"status {process.returncode}: {log.read_text()}")
    return kind, n_ranks, went_on.group(0) if went_on else "nothing was restored before that"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--every", default="4", help="chunks, as --checkpoint-every")
    parser.add_argument("--longest", type=float, default=8, help="seconds until an interruption")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(SIGNALS), help="of interruptions, to be drawn from")
    parser.add_argument("--mpirun", default="", help="words to stand before the number of ranks")
    parser.add_argument("--ranks", default="1,2,3,5", help="to be drawn from; under mpirun more than one number",
                        type=lambda text: [int(number) for number in text.split(",")])
    args = parser.parse_args()
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_requests(folder)
        started = time.monotonic()
        subprocess.run(command(args, folder / "undisturbed.jsonl", ["--checkpoint-every", "never"]), check=True,
                       stderr=subprocess.DEVNULL)
        want = answers(folder / "undisturbed.jsonl")
        print(f"undisturbed: {len(want)} answers in {time.monotonic() - started:.0f} s", flush=True)
        output, log, n_runs, furthest = folder / "out.jsonl", folder / "log", 0, 0.0
        for point in range(args.points):
            kind, n_ranks, went_on = interrupt(args, draw, output, log)
            saved = verify(args, folder / "out.checkpoints")
            print(f"{point + 1:3} {kind:8} {n_ranks} ranks; saved {saved or 'nothing'}; {went_on}", flush=True)
            if output.exists() and len(answers(output)) == len(want):  # it came to the end: once more from the start
                n_runs += 1
                furthest = max(furthest, compare(args, output, want))
                for path in folder.glob("out.*"):
                    path.unlink()
        subprocess.run(command(args, output), check=True, stderr=subprocess.DEVNULL)
        furthest = max(furthest, compare(args, output, want))
        if (folder / "out.checkpoints").exists():
            sys.exit("files were left behind")
        print(f"{args.points} interruptions, {n_runs + 1} whole runs: all answers equal the undisturbed run's; "
              f"log-probabilities differ by {furthest:.3g} at most")


main()
