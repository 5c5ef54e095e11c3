#!/usr/bin/env python3
"""What a running job shows of itself, and what hostile readers do to it:   check_status.py LONGHAUL MODEL [--mpiexec WORDS...]

  * while a job runs: /status.json, /metrics, the page and `longhaul top` say what it does; names of documents are escaped;
  * garbage, headers of a megabyte, requests that never end, a hundred connections at once, wrong tokens and foreign names of the host
    are refused or cut off, and a reader beside them is still answered;
  * its answers are those of a job that nobody looks at; its logs say what happened, and hold nothing of the document's text.
"""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time

SAMPLE = re.compile(r'^[a-zA-Z_:][\w:]*(\{[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*"(,[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*")*\})? '
                    r"(NaN|[+-]?Inf|[+-]?\d+(\.\d+)?([eE][+-]?\d+)?)$")
WANTED = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total", "generation_tokens_total",
          "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_count", "e2e_request_latency_seconds_sum",
          "ring_step_seconds_count", "ring_wait_seconds_sum", "journal_fsync_seconds_count", "plan_vs_actual_bytes", "eta_seconds"]
DOCUMENT = 'log <b>of "harbour".txt'


def write_inputs(folder, model):
    text = (model.parent / "documents/harbour_log.txt").read_text()
    (folder / DOCUMENT).write_text(text)
    (folder / "second.txt").write_text(text[::-1])
    (folder / "third.txt").write_text(text + text)
    names = re.findall(r"code of ([a-z]+ [a-z]+) is", text)[:4]
    with open(folder / "in.jsonl", "w") as out:
        for document in (DOCUMENT, "second.txt", "third.txt"):
            for i, name in enumerate(names * 2):
                body = {"prompt": f"\nQuestion: What is the access code of {name}?\nAnswer:", "max_tokens": 12,
                        "documents": [{"path": document}]}
                out.write(json.dumps({"custom_id": f"{document[:6]}-{i}", "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
    return text


class Job:
    def __init__(self, program, model, folder, name, *more, launcher=()):
        self.folder, self.results = folder, folder / f"{name}.jsonl"
        words = [*launcher, program, "run", "-m", model, "--head-profile", model.parent / "profile", "--weights", "f32", "-i", "in.jsonl",
                 "-o", self.results, "--chunk-len", "128", "-t", "1", "--no-progress", "--dead-after", "300", *more]
        self.errors = open(folder / f"{name}.err", "w+")
        self.process = subprocess.Popen([str(w) for w in words], cwd=folder, stderr=self.errors, stdout=self.errors)

    def text(self):
        return (self.folder / self.errors.name).read_text()

    def address(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = re.search(r"status at http://(\S+?):(\d+)/(?:\?token=(\w+))?\n", self.text())
            if found:
                return found[1], int(found[2]), found[3]
            time.sleep(0.01)
        sys.exit("no status address: " + self.text())

    def signal_rank_1(self, number):
        """Under mpirun, whose child it is; a job that waits for it does not end before it was looked at."""
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = re.search(r"PPid:\s*(\d+)", (process / "status").read_text())[1]
                if int(parent) == self.process.pid and b"OMPI_COMM_WORLD_RANK=1\0" in (process / "environ").read_bytes():
                    os.kill(int(process.name), number)
            except OSError:
                continue  # it has ended

    def answers(self):
        if self.process.wait(timeout=300) != 0:
            sys.exit(self.text())
        lines = map(json.loads, self.results.read_text().splitlines())
        return {line["custom_id"]: line["response"]["body"]["choices"][0]["text"] for line in lines}


class Reader:
    def __init__(self, host, port, token=None):
        self.host, self.port, self.token = host, port, token

    def get(self, path, host=None, token="own"):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        token = self.token if token == "own" else token
        headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **({"Host": host} if host else {})}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def raw(self, data, wait=True):
        with socket.create_connection((self.host, self.port), timeout=20) as connection:
            try:
                connection.sendall(data)
                return connection.recv(200) if wait else b""
            except OSError:  # cut off while it was sent
                return b""


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def check_histogram(name, samples):
    """For each set of labels: buckets count upwards, and the last of them has all that is counted."""
    buckets, counts = {}, {}
    for sample in samples:
        labels = tuple(sorted(item for item in sample.labels.items() if item[0] != "le"))
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_count"):
            counts[labels] = sample.value
    check(counts and buckets.keys() == counts.keys(), f"{name} has buckets and counts")
    for labels, found in buckets.items():
        values = [value for _, value in found]
        check(found == sorted(found) and values == sorted(values) and found[-1] == (float("inf"), counts[labels]), f"{name} counts upwards: {found}")


try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None


def check_metrics(text):
    families = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            check(name not in families, f"{name} comes twice")
            families[name] = kind
        elif not line.startswith("#"):
            check(SAMPLE.match(line), f"no sample: {line}")
    for name in WANTED:
        check(f"\nlonghaul_{name}" in text, f"longhaul_{name} is missing")
    if text_string_to_metric_families is None:
        return
    parsed = {family.name: family for family in text_string_to_metric_families(text)}
    for name, kind in families.items():
        family = parsed.get(name.removesuffix("_total") if kind == "counter" else name)
        check(family is not None and family.type == kind, f"a Prometheus parser finds the {kind} {name}")
        if kind == "histogram":
            check_histogram(name, family.samples)


def wait_until(reader, what):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        status = json.loads(reader.get("/status.json")[1])
        if what(status):
            return status
        time.sleep(0.005)
    sys.exit(f"the job never came so far: {status}")


def stop_while_it_runs(job, reader):
    """So that it does not end before it was looked at, however fast the machine: what a rank says of itself comes once a second. Not before
    the first step, or rank 0 waits for the other's weights and says nothing of itself."""
    wait_until(reader, lambda s: s["tokens"]["prefilled"] > 0)
    job.signal_rank_1(signal.SIGSTOP)
    wait_until(reader, lambda s: any("memory_bytes" in r for r in s["ranks"]))


def check_views(reader, program):
    status = json.loads(reader.get("/status.json")[1])
    check(status["requests"]["total"] == 24 and len(status["ranks"]) == 2, f"ranks and requests: {status}")
    check(any(d["name"] == DOCUMENT for d in status["documents"]["next"]), "the documents are named")
    check(all(r["connected"] and r["planned_bytes"]["limit"] > 0 for r in status["ranks"]), "ranks have a plan")
    check_metrics(reader.get("/metrics")[1])
    page = reader.get("/")[1]
    check("<b>of" not in page and "log &lt;b&gt;of &quot;harbour&quot;.txt" in page, "names are escaped")
    check(not re.search(r'(src|href)=|https?://|@import|url\(', page), "the page needs no other file")
    lines = reader.get("/status.txt?columns=80")[1].splitlines()
    check(max(map(len, lines)) <= 80 and "requests" in lines[1], f"80 columns: {lines}")
    (reader.folder / "token").write_text(reader.token + "\n")
    top = subprocess.run([program, "top", f"{reader.host}:{reader.port}", "--once", "--status-token-file", reader.folder / "token"],
                         capture_output=True, text=True)
    check(top.returncode == 0 and "longhaul" in top.stdout and "rank" in top.stdout, f"top: {top}")


def check_refusals(reader):
    check(reader.get("/status.json", token="0" * 64)[0] == 401, "a wrong token")
    check(reader.get("/status.json", token=None)[0] == 401, "no token")
    check(reader.get(f"/?token={reader.token}", token=None)[0] == 200, "the token of the address")
    check(reader.get("/../etc/passwd")[0] == 404, "another path")
    bearer = f"Authorization: Bearer {reader.token}\r\n".encode()
    check(b" 405 " in reader.raw(b"DELETE / HTTP/1.1\r\n" + bearer + b"\r\n"), "another method")
    check(b" 413 " in reader.raw(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n123456789"), "a body")


def attack(reader):
    """A hundred connections that never end their request, among them garbage and a header of a megabyte."""
    slow = []
    for i in range(100):
        connection = socket.create_connection((reader.host, reader.port), timeout=20)
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * i)
        except OSError:
            pass
        slow.append(connection)
        if i % 20 == 0:
            check(reader.get("/status.json")[0] == 200, "a reader among slow ones")
    check(b" 400 " in reader.raw(b"\x00\xff\x16\x03\x01garbage\r\n\r\n"), "garbage")
    check(b" 431 " in reader.raw(b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 20)), "a header of a megabyte")
    reader.raw(os.urandom(5000), wait=False)
    check(reader.get("/metrics")[0] == 200, "a reader after all of them")
    return slow


def check_logs(program, folder, text):
    """Both ranks' events, on one clock, and a report that holds nothing of what the documents say."""
    logs = [[json.loads(line) for line in (folder / f"logs/rank-000{r}.jsonl").read_text().splitlines()] for r in (0, 1)]
    first, second = ([event["event"] for event in log] for log in logs)
    check(first[0] == "start" and first[-1] == "end" and "plan" in first and first.count("request_done") == 24, f"events: {first}")
    check("weights_read" in second and "chunk" in second and "shutdown" in second, f"events of rank 1: {second}")
    for log in logs:
        times = [event["ts"] for event in log]
        check(times == sorted(times), "times go up")
    chunks = [[event for event in log if event["event"] == "chunk"] for log in logs]
    check(len(chunks[0]) == len(chunks[1]) and sum(c["tokens"] for c in chunks[0]) == sum(c["tokens"] for c in chunks[1]), "chunks")
    report = folder / "report.tar.gz"
    subprocess.run([program, "report", "-o", report, "--log-dir", folder / "logs", "--results", folder / "watched.jsonl"],
                   check=True, capture_output=True)
    with tarfile.open(report) as archive:
        files = {m.name.split("/")[-1]: archive.extractfile(m).read().decode() for m in archive.getmembers() if m.isfile()}
    check(sorted(files) == ["host.json", "manifest.json", "plan.json", "rank-0000.jsonl", "rank-0001.jsonl"], f"the report has {list(files)}")
    words = text.split()
    phrases = {" ".join(words[i : i + 3]) for i in range(len(words) - 2)} | set(re.findall(r"code of ([a-z ]+) is", text)) | {"access code"}
    for name, content in files.items():
        found = [phrase for phrase in phrases if phrase in content]
        check(not found, f"{name} quotes the documents: {found[:5]}")


def main():
    program, model = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    launcher = sys.argv[sys.argv.index("--mpiexec") + 1 :] if "--mpiexec" in sys.argv else []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = write_inputs(folder, model)
        ranks = [*launcher, "2"] if launcher else []
        more = [] if launcher else ["--ranks", "2"]
        watched = Job(program, model, folder, "watched", "--status", "0.0.0.0:0", "--log-dir", "logs", *more, launcher=ranks)
        _, port, token = watched.address()
        reader = Reader("127.0.0.1", port, token)
        reader.folder = folder
        stop_while_it_runs(watched, reader)
        check_views(reader, program)
        check_refusals(reader)
        slow = attack(reader)
        is_running = watched.process.poll() is None
        watched.signal_rank_1(signal.SIGCONT)
        answers = watched.answers()
        check(is_running, "the job ended before its readers: they have not disturbed anything")
        for connection in slow:
            connection.close()
        check_logs(program, folder, text)
        alone = Job(program, model, folder, "alone", "--status", "0")
        host, port, token = alone.address()
        check(token is None and Reader(host, port).get("/", host="evil.example")[0] == 403, "a foreign name of this host")
        check(alone.answers() == answers, "answers of a job that nobody disturbs")
    print("status: seen, refused, and 24 answers equal")
    if text_string_to_metric_families is None:
        print("SKIPPED: prometheus_client is not installed; all but it was checked")


if __name__ == "__main__":
    main()
