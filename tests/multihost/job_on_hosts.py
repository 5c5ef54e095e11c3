"""What tests of several hosts share: a job of the example model on three hosts, and the answers that it must give."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hosts import DISK, Hosts, wait_for, why_not  # noqa: E402

PROGRAM, EXAMPLE = None, None
FAILED_ENVIRONMENT, STOPPED = 4, 75
N_COPIES = 6


def answers(text):
    """custom_id -> text of each line; every line is whole, none comes twice."""
    found = {}
    for line in text.decode().splitlines():
        value = json.loads(line)
        assert value["custom_id"] not in found, f"{value['custom_id']} comes twice"
        found[value["custom_id"]] = value["response"]["body"]["choices"][0]["text"]
    return found


def make_requests(folder, n_copies=N_COPIES):
    """The example, with its document in several forms, so that a job lasts some seconds."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    requests = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    text = (folder / requests[0]["body"]["documents"][0]["path"]).read_text()
    with open(folder / "requests.jsonl", "w") as out:
        for copy in range(n_copies):
            (folder / f"copy{copy}.txt").write_text(f"Copy {copy}. " + text)
            for request in requests:
                request["body"]["documents"] = [{"path": f"copy{copy}.txt"}]
                out.write(json.dumps({**request, "custom_id": f"{copy}-{request['custom_id']}"}) + "\n")


# So that seconds are left after the first answer, in which hosts can be lost and jobs stopped.
SLOWLY = ["--chunk-len", "8", "--parallel", "1"]


class ThreeHosts(unittest.TestCase):
    errors_file = None

    @classmethod
    def setUpClass(cls):
        cls.hosts = Hosts(3)
        cls.addClassCleanup(cls.hosts.__exit__)
        with tempfile.TemporaryDirectory() as folder:
            make_requests(pathlib.Path(folder))
            cls.hosts.put(folder, "needle")
        status, _, errors = cls.hosts[0].run(cls.words("one_rank.jsonl"))
        assert status == 0, errors
        cls.want = answers(cls.hosts[0].read("one_rank.jsonl"))
        assert len(cls.want) > 1

    @staticmethod
    def words(output, *more):
        needle = f"{DISK}/needle"
        return [PROGRAM, "run", "--model", f"{needle}/model", "--head-profile", f"{needle}/profile", "-i", f"{needle}/requests.jsonl",
                "-o", f"{DISK}/{output}", "--threads", "1", "--no-progress", *more]

    def job(self, output, *more, ranks=(1, 1, 1), launcher=(), patient=("--dead-after", "120")):
        """`patient`: where no host is to be lost. On a busy virtual machine a rank has stood still for half a minute, while nothing else was wrong."""
        return self.hosts.mpirun(ranks, *launcher) + self.words(output, *patient, *more)

    def expect_all_answers(self, output):
        self.assertEqual(answers(self.hosts[0].read(output)), self.want)

    def start(self, output, *more, before=(), launcher=()):
        """Starts the job, which reads slowly; `before`: words before its launcher's, `launcher`: more of those."""
        self.errors_file = tempfile.NamedTemporaryFile("r")  # no pipe: what a lost host leaves behind would hold it open
        self.addCleanup(self.errors_file.close)
        with open(self.errors_file.name, "w") as errors:
            return self.hosts[0].start([*before, *self.job(output, *SLOWLY, *more, launcher=launcher, patient=())],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)

    def supervised(self, output, *more, launcher=(), dead_after="3"):
        before = [PROGRAM, "supervise", "--grace", "4", "--launch-timeout", "90", "--probe-timeout", "8", "--"]
        return self.start(output, "--dead-after", dead_after, *more, before=before, launcher=launcher)

    def end_of(self, job, seconds=300):
        """(status, what it wrote to stderr)."""
        try:
            job.wait(seconds)
        except subprocess.TimeoutExpired:
            self.hosts[0].end_all()
            job.wait()
            self.fail(f"has not ended within {seconds} s: {self.errors_file.read()}")
        return job.returncode, self.errors_file.read()

    def await_answers(self, output, n):
        """Waits long: beside other tests it reads slowly."""
        try:
            wait_for(lambda: (self.hosts[0].read(output) or b"").count(b"\n") >= n, 200, f"{n} answers")
        except TimeoutError as error:
            raise AssertionError(f"{error}; {self.evidence()}") from None

    def evidence(self):
        """For a test that fails: what there is to see of the job."""
        written = self.errors_file.read() if self.errors_file else ""
        return f"the job wrote:\n{written}\n{self.hosts.processes()}"


def main(also_why_not=lambda: None):
    """For the file that calls it: FILE PROGRAM EXAMPLE [CLASS.TEST...]; EXAMPLE is the folder of the needle example."""
    global PROGRAM, EXAMPLE
    PROGRAM, EXAMPLE = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])  # hosts have a current folder of their own
    missing = why_not() or also_why_not()
    if missing:
        print("SKIPPED:", missing)
        return
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
