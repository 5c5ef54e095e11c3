#!/usr/bin/env python3
"""Runs the program again and again, disturbs each run at random, and checks that nothing is lost, doubled, torn or wrongly called done.

A trial is: how many ranks (one process, threads, mpirun), a phase (starting, reading, answering), and a disturbance: a signal to a rank or
to mpirun, or damage to a file that the run uses. After each, the rest is completed on another number of ranks, and every answer must be
there once, with the text of an undisturbed run.

  random_trials.py PROGRAM MODEL DOCUMENT --trials 5                 the short form, as the tests run it
  random_trials.py PROGRAM MODEL DOCUMENT --minutes 60 --seed 7      for an hour; prints a summary
Needs python3 alone; MPI's launcher where --mpiexec names it. Exits 1 when any trial failed, after telling how to repeat it.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Names that share no word, which the example model finds surely.
NAMES = ["amber falcon", "silver river", "golden castle", "crimson garden", "violet lantern", "azure mirror",
         "scarlet anchor", "ivory badger", "copper beacon", "bronze bridge", "emerald canyon", "cobalt cedar"]
N_DOCUMENTS = 3
GOOD, SOME_FAILED, USAGE, ENVIRONMENT, STOPPED = 0, 1, 2, 4, 75
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]


class Failure(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise Failure(message)


def make_inputs(folder, prose):
    """Documents with records, and a request for each."""
    sentences = [s for s in prose.split(".") if "code" not in s]
    requests = []
    for d in range(N_DOCUMENTS):
        text = ""
        for i, at in enumerate(range(d, len(NAMES), N_DOCUMENTS)):
            text += ".".join(sentences[d * 40 + i * 6 : d * 40 + i * 6 + 6]) + "."
            text += f" The access code of {NAMES[at]} is {104729 + 37813 * at}."
        (folder / f"{d}.txt").write_text(text)
    for i, name in enumerate(NAMES):
        body = {"prompt": f"\nQuestion: What is the access code of {name}?\nAnswer:", "max_tokens": 12,
                "documents": [{"path": f"{i % N_DOCUMENTS}.txt"}]}
        requests.append(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": body}))
    (folder / "requests.jsonl").write_text("\n".join(requests) + "\n")


def texts_of(path):
    """Every line whole, no request twice: custom_id -> text."""
    texts = {}
    if not path.exists():
        return texts
    data = path.read_text()
    expect(data == "" or data.endswith("\n"), f"{path.name}: the last line is torn")
    for number, line in enumerate(data.splitlines(), 1):
        try:
            value = json.loads(line)
        except ValueError:
            raise Failure(f"{path.name}:{number} is no JSON") from None
        name = value["custom_id"]
        expect(name not in texts, f"{path.name}:{number}: {name} comes twice")
        texts[name] = value["response"]["body"]["choices"][0]["text"]
    return texts


def n_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def remove(paths):
    for path in list(paths):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


class Trials:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.requests = folder / "requests.jsonl"
        self.environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_rmaps_base_oversubscribe="1")
        self.counts = collections.Counter()
        self.want = None

    def command(self, output, ranks, more=()):
        kind, n = ranks
        words = [self.args.program, "run", "-m", self.args.model, "-i", str(self.requests), "-o", str(output), "--threads", "1",
                 "--parallel", "2", "--chunk-len", "128", "--no-progress", *more]
        if kind == "mpirun":
            return [*self.args.mpiexec.split(), str(n), *words, "--dead-after", "3", "--start-timeout", "20"]
        return words + (["--ranks", str(n)] if kind == "threads" else [])

    def start(self, output, ranks, more=()):
        errors = open(self.folder / "stderr.txt", "w")
        return subprocess.Popen(self.command(output, ranks, more), stdout=subprocess.DEVNULL, stderr=errors, env=self.environment)

    def errors(self):
        return (self.folder / "stderr.txt").read_text(errors="replace")

    def wait(self, process, seconds=120):
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure(f"still running after {seconds} s: {self.errors()[-400:]}") from None

    def complete(self, output, ranks, more=()):
        status = self.wait(self.start(output, ranks, more))
        expect(status == GOOD, f"completing ended with status {status}: {self.errors()[-600:]}")
        expect(texts_of(output) == self.want, "texts differ from an undisturbed run's")

    def ranks_of(self, process, ranks):
        """Process ids to send signals to: ranks under mpirun (its children), else the process itself."""
        if ranks[0] != "mpirun":
            return [process.pid]
        children = []
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                if f"\nPPid:\t{process.pid}\n" in status.read_text():
                    children.append(int(status.parent.name))
            except OSError:
                pass
        return sorted(children)

    def await_phase(self, phase, process, output, rng):
        deadline = time.time() + 60
        if phase == "starting":
            time.sleep(rng.uniform(0, 0.4))
        while phase == "reading" and "longhaul 0." not in self.errors() and process.poll() is None and time.time() < deadline:
            time.sleep(0.005)
        goal = rng.randint(1, len(NAMES) - 3)
        while phase == "answering" and n_lines(output) < goal and process.poll() is None and time.time() < deadline:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))

    # --- Disturbances. Each returns (allowed exit statuses, how to go on) ---

    def send_signal(self, process, ranks, output, rng):
        number = rng.choice(SIGNALS + [signal.SIGSTOP])
        targets = self.ranks_of(process, ranks)
        if ranks[0] == "mpirun" and rng.random() < 0.2 and number != signal.SIGSTOP:
            targets = [process.pid]  # mpirun itself
        victim = rng.choice(targets) if targets else process.pid
        where = "the process" if ranks[0] != "mpirun" else "mpirun" if victim == process.pid else "a rank"
        self.note = f"{number.name} to {where}"
        try:
            os.kill(victim, number)
            if number == signal.SIGSTOP:
                time.sleep(0.3)
                os.kill(victim, signal.SIGCONT)
        except ProcessLookupError:
            pass
        # mpirun has statuses of its own for ranks that were killed, and 1 for its own aborts.
        return {GOOD, STOPPED, 1, 128 + number, -number}, ()

    def change_document(self, process, ranks, output, rng):
        # Once it says what it runs, it has hashed the documents; a change before that is simply another document.
        self.await_phase("reading", process, output, rng)
        path = self.folder / f"{rng.randrange(N_DOCUMENTS)}.txt"
        before = path.read_text()
        self.note = f"{path.name} changes"
        path.write_text(before + " More text.")
        status = self.wait(process)
        path.write_text(before)
        # Read before or after the change; never answered under the other text's hash.
        return {GOOD, SOME_FAILED, 5}, ("--retry-errors",), status

    def remove_results(self, process, ranks, output, rng):
        self.note = "results are removed"
        output.unlink(missing_ok=True)
        status = self.wait(process)
        expect(status != GOOD or output.exists(), "status 0 although the results are gone")
        remove(output.parent.glob(output.stem + "*"))
        return {GOOD, ENVIRONMENT, STOPPED, 1}, (), status

    def cut_results(self, process, ranks, output, rng):
        self.note = "results are cut off"
        if output.exists():
            os.truncate(output, rng.randrange(output.stat().st_size + 1))
        status = self.wait(process)
        if status == GOOD:
            expect(texts_of(output) == self.want, "status 0 although the results were cut off")
        data = output.read_bytes() if output.exists() else b""
        output.write_bytes(data[: data.rfind(b"\n") + 1])
        return {GOOD, ENVIRONMENT, STOPPED, 1, 5}, (), status

    def tear_results_afterwards(self, process, ranks, output, rng):
        self.note = "killed, then the last line is torn"
        process.kill()
        self.wait(process)
        time.sleep(0.2 if ranks[0] != "mpirun" else 1.5)  # ranks without their mpirun leave by themselves
        if output.exists() and output.stat().st_size > 2:
            os.truncate(output, output.stat().st_size - rng.randint(1, 2))
        return None, (), None

    def run_one(self, number, seed):
        rng = random.Random(seed)
        kinds = ["process", "threads", "threads"] + (["mpirun"] * 3 if self.args.mpiexec else [])
        kind = rng.choice(kinds)
        ranks = (kind, 1 if kind == "process" else rng.randint(2, 3))
        phase = rng.choice(["starting", "reading", "answering", "answering"])
        disturb = rng.choice([self.send_signal] * 4 +
                             [self.change_document, self.remove_results, self.cut_results, self.tear_results_afterwards])
        output = self.folder / f"trial{number}.jsonl"
        self.note = disturb.__name__
        process = self.start(output, ranks)
        try:
            self.await_phase(phase, process, output, rng)
            allowed, more, *known = disturb(process, ranks, output, rng)
            status = known[0] if known else self.wait(process)
            self.what = f"{kind} of {ranks[1]}, {phase}: {self.note}: status {status}"
            if allowed is not None:
                expect(status in allowed, f"status {status} is none of {sorted(allowed)}: {self.errors()[-600:]}")
                texts_of(output)  # else torn on purpose: completing repairs it
            if kind == "mpirun":
                self.await_orphans(output)
            self.complete(output, rng.choice([("process", 1), ("threads", 2), ("threads", 3)]), more)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        left = sorted(str(path.relative_to(self.folder)) for path in (self.folder / f"trial{number}.checkpoints").rglob("*"))
        remove(self.folder.glob(f"trial{number}*"))
        expect(not left, f"checkpoints are left although all is answered: {left}")
        self.counts[f"{kind}: {self.note}"] += 1

    def await_orphans(self, output):
        """Ranks that outlive their mpirun still hold the lock on the results."""
        for _ in range(100):
            if not any(str(output) in line for line in self.command_lines()):
                return
            time.sleep(0.05)

    def command_lines(self):
        """Of the processes that there are; one that ends meanwhile has none."""
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                yield path.read_text(errors="replace")
            except OSError:
                pass

    def run(self):
        undisturbed = self.folder / "undisturbed.jsonl"
        status = self.wait(self.start(undisturbed, ("process", 1)))
        expect(status == GOOD, f"the undisturbed run ended with status {status}: {self.errors()[-600:]}")
        self.want = texts_of(undisturbed)
        expect(len(self.want) == len(NAMES), "the undisturbed run did not answer everything")
        end = time.time() + 60 * self.args.minutes
        number, failed = 0, []
        while number < self.args.trials or time.time() < end:
            seed = self.args.seed + number
            self.what = ""
            try:
                self.run_one(number, seed)
                print(f"trial {number} (seed {seed}): ok: {self.what}", flush=True)
            except Failure as failure:
                failed.append(seed)
                print(f"trial {number} (seed {seed}): FAILED: {self.what or self.note}: {failure}", flush=True)
                make_inputs(self.folder, pathlib.Path(self.args.document).read_text())
            number += 1
        print(f"\n{number} trials, {len(failed)} failed{': seeds ' + ', '.join(map(str, failed)) if failed else ''}")
        for name, count in sorted(self.counts.items()):
            print(f"  {count:5}  {name}")
        return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("document", help="prose to hide records in")
    parser.add_argument("--mpiexec", default="", help="launcher up to the number of ranks: 'mpirun --oversubscribe -n'")
    parser.add_argument("--trials", type=int, default=1, help="at least so many")
    parser.add_argument("--minutes", type=float, default=0, help="go on for so long")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-trials-"))
    try:
        make_inputs(folder, pathlib.Path(args.document).read_text())
        return Trials(args, folder).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
