#!/usr/bin/env python3
"""Jobs under Slurm on several hosts, by the script in examples/slurm. See job_on_hosts.main."""
import json
import os
import pathlib
import shutil
import tempfile
import time

import job_on_hosts
from hosts import DISK
from job_on_hosts import SLOWLY, STOPPED, ThreeHosts, answers, main, make_requests, wait_for
from slurm import Slurm, why_not

SCRIPT = pathlib.Path(__file__).parents[2] / "examples/slurm/longhaul.sbatch"

SRUN_THAT_HANGS_ONCE = f"""#!/bin/sh
{shutil.which("srun")} "$@" || exit
[ -e {DISK}/hung ] && exit
touch {DISK}/hung
sleep infinity
"""

# Slurm's own failure, then a rank that crashes when it starts.
SRUN_THAT_FAILS_TWICE = f"""#!/bin/sh
[ -e {DISK}/crashed ] && exec {shutil.which("srun")} "$@"
[ -e {DISK}/failed ] && touch {DISK}/crashed && exit 139
touch {DISK}/failed
echo "srun: error: Application launch failed: Job credential expired" >&2
exit 167
"""

SRUN_THAT_CRASHES = """#!/bin/sh
exit 139
"""


class WithSlurm(ThreeHosts):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.slurm = Slurm(cls.hosts)
        cls.hosts[0].put(SCRIPT, "longhaul.sbatch")

    def evidence(self):
        return self.slurm.evidence()

    def submit(self, output, *more, nodes="3", launch="", slowly=SLOWLY, example="needle", options=(), exports=()):
        """The job, which reads slowly. `options`: more of sbatch's; `exports`: more of its environment."""
        flags = [word.replace(f"{DISK}/needle/", f"{DISK}/{example}/") for word in self.words(output, *slowly, "--dead-after", "3", *more)[2:]]
        environment = ",".join(["--export=ALL", f"LONGHAUL={job_on_hosts.PROGRAM}", f"LONGHAUL_LAUNCH={launch}", *exports])
        return self.slurm.submit("-N", nodes, environment, *options, f"{DISK}/longhaul.sbatch", *flags)

    def srun(self, words, environment=lambda: ()):
        """Of a rank on each of the three nodes. Open MPI's start crashes once in a while on a busy machine: longhaul.sbatch then tries again, and so does this, if the program has said nothing yet."""
        for _ in range(3):
            status, out, errors = self.slurm.run(*environment(), "srun", "--mpi=pmix", "-N3", "--ntasks-per-node=1", *words)
            if status != 139 or "longhaul 0." in errors:
                break
        return status, out, errors

    def expect_done(self, number, output, seconds=300):
        self.slurm.await_state(number, ["COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"], seconds)
        self.assertEqual(self.slurm.job(number, "JobState"), "COMPLETED", self.slurm.logs(number))
        self.expect_all_answers(output)


class Jobs(WithSlurm):
    def test_srun_gives_the_answers_of_one_rank(self):
        status, _, errors = self.srun(self.words("srun.jsonl"))
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("srun.jsonl")
        for host in self.hosts:
            self.assertIn(f"on {host.name}", errors)

    def test_the_doctor_examines_what_srun_starts(self):
        status, out, errors = self.srun([job_on_hosts.PROGRAM, "doctor", "--json", "--scratch", DISK, "-m", f"{DISK}/needle/model"])
        self.assertEqual(status, 0, out + errors)
        found = {finding["check"]: finding for finding in json.loads(out)["findings"]}
        self.assertIn("3 hosts reach each other", found["reach"]["text"])
        self.assertEqual([check for check, finding in found.items() if finding["result"] == "FAIL"], [], found)
        # Tasks that do not find each other are a fault that only srun makes.
        status, out, errors = self.slurm.run("srun", "--mpi=none", "-N3", "--ntasks-per-node=1", job_on_hosts.PROGRAM, "doctor", "--scratch", DISK)
        self.assertIn("Slurm started 3 tasks", out, errors)

    def test_a_job_that_is_warned_twice_goes_on_twice(self):
        number = self.submit("warned.jsonl")
        done = 0
        for restarts in range(2):
            self.await_answers("warned.jsonl", done + 1)
            self.slurm.command("scancel", "--signal=USR1", number)
            wait_for(lambda: self.slurm.job(number, "Restarts") == str(restarts + 1), 60, "a restart")
            done = (self.hosts[0].read("warned.jsonl") or b"").count(b"\n")
            self.assertLess(done, len(self.want), "it was stopped before it was done")
        self.expect_done(number, "warned.jsonl")
        self.assertEqual(self.slurm.logs(number).count("stopped early"), 2, self.slurm.logs(number))

    def test_slurms_own_warning_before_a_jobs_time_is_over_queues_it_again(self):
        # Slurm looks at limits twice a minute, and warns as soon as it may be too late the next time: with 15 s, 15 to 45 s after the job's start. (With 40 s it may be at once, when there
        # are no ranks yet to hear it.) The job lasts longer on any machine. It must not look at the clock itself here.
        with tempfile.TemporaryDirectory() as folder:
            make_requests(pathlib.Path(folder), n_copies=60)
            self.hosts.put(folder, "many")
        number = self.submit("timed.jsonl", slowly=["--chunk-len", "2", "--parallel", "1"], example="many", options=["-t", "1", "--signal=USR1@15"],
                             exports=["SLURM_JOB_END_TIME=9999999999"])
        try:
            # Open MPI's start crashes once in a while on a busy machine (longhaul.sbatch): the job is then queued again before it is warned.
            wait_for(lambda: "stopped early" in self.slurm.logs(number), 360, "an early stop")
            restarts = str(1 + self.slurm.logs(number).count("a rank crashed"))
            wait_for(lambda: self.slurm.job(number, "Restarts") == restarts, 60, f"restart {restarts}")
        except TimeoutError as error:
            raise AssertionError(f"{error}; {self.evidence()}") from None
        self.slurm.command("scontrol", "update", f"JobId={number}", "TimeLimit=30")
        self.assertEqual(self.slurm.logs(number).count("stopped early"), 1, self.slurm.logs(number))
        self.await_answers("timed.jsonl", len(answers(self.hosts[0].read("timed.jsonl") or b"")) + 1)
        self.slurm.command("scancel", number)
        self.slurm.await_state(number, ["CANCELLED"])
        found = answers(self.hosts[0].read("timed.jsonl"))
        self.assertLessEqual({name: found[name] for name in found if name in self.want}.items(), self.want.items())

    def test_a_job_whose_time_is_short_stops_by_itself_and_goes_on(self):
        words = self.words("short.jsonl", *SLOWLY)
        status, _, errors = self.srun(words, environment=lambda: ["env", f"SLURM_JOB_END_TIME={int(time.time()) + 4}"])
        self.assertEqual(status, STOPPED, errors)
        self.assertIn("stopped early", errors)
        status, _, errors = self.srun(words)
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("short.jsonl")

    def test_mpirun_in_an_allocation_and_an_array_of_files(self):
        for task in (1, 2):
            self.hosts[0].do("cp", f"{DISK}/needle/requests.jsonl", f"{DISK}/needle/requests-{task}.jsonl")
        by_mpirun = self.submit("mpirun.jsonl", launch="mpirun --map-by ppr:1:node --bind-to none")
        array = self.slurm.submit("--array=1-2", "-w", self.hosts[0].name, f"--export=ALL,LONGHAUL={job_on_hosts.PROGRAM}", f"{DISK}/longhaul.sbatch",
                                  *[word.replace("requests.jsonl", "requests-%a.jsonl") for word in self.words("array-%a.jsonl")[2:]])
        self.expect_done(by_mpirun, "mpirun.jsonl")
        for task in (1, 2):
            self.expect_done(f"{array}_{task}", f"array-{task}.jsonl")

    def submit_components(self, output, path=os.environ["PATH"]):
        """One task on the first node, one on each of the others, as two components."""
        return self.slurm.submit("-w", self.hosts[0].name, f"--export=ALL,LONGHAUL={job_on_hosts.PROGRAM},PATH={path}",
                                 ":", "-N", "2", "--ntasks-per-node=1", "-w", f"{self.hosts[1].name},{self.hosts[2].name}", f"{DISK}/longhaul.sbatch",
                                 *self.words(output)[2:])

    def test_components_of_unequal_nodes_are_one_job(self):
        self.expect_done(self.submit_components("components.jsonl"), "components.jsonl")

    def path_with_srun(self, folder, script):
        """A PATH that leads to this srun first."""
        self.hosts[0].do("mkdir", f"{DISK}/{folder}")
        self.hosts[0].write(f"{folder}/srun", script)
        self.hosts[0].do("chmod", "+x", f"{DISK}/{folder}/srun")
        return f"{DISK}/{folder}:{os.environ['PATH']}"

    def submit_with_srun(self, output, folder, script, *exports):
        environment = ",".join(["--export=ALL", f"LONGHAUL={job_on_hosts.PROGRAM}", f"PATH={self.path_with_srun(folder, script)}", *exports])
        return self.slurm.submit("-N", "3", environment, f"{DISK}/longhaul.sbatch", *self.words(output)[2:])

    def test_a_job_whose_ranks_do_not_start_is_queued_again(self):
        number = self.submit_with_srun("launched.jsonl", "fails", SRUN_THAT_FAILS_TWICE)
        self.expect_done(number, "launched.jsonl")
        self.assertIn("the ranks were not started", self.slurm.logs(number))
        self.assertIn("a rank crashed", self.slurm.logs(number))

    def test_a_job_that_crashes_again_and_again_ends(self):
        number = self.submit_with_srun("crashed.jsonl", "crashes", SRUN_THAT_CRASHES, "LONGHAUL_MAX_CRASHES=0")
        self.slurm.await_state(number, ["FAILED"], 120)

    def test_an_srun_that_outlives_the_ranks_does_not_keep_the_nodes(self):
        number = self.submit_components("hung.jsonl", path=self.path_with_srun("hangs", SRUN_THAT_HANGS_ONCE))
        self.expect_done(number, "hung.jsonl", seconds=400)  # it may be queued more than once
        self.assertIn("no rank is left on this host", self.slurm.logs(number))

    def test_a_cancelled_job_keeps_its_answers(self):
        number = self.submit("cancelled.jsonl")
        self.await_answers("cancelled.jsonl", 1)
        self.slurm.command("scancel", number)
        self.slurm.await_state(number, ["CANCELLED"])
        self.expect_done(self.submit("cancelled.jsonl"), "cancelled.jsonl")


class ANode(WithSlurm):
    """Hosts of its own: one of them loses its power."""

    def test_that_dies_leaves_the_job_to_the_others(self):
        number = self.submit("died.jsonl", nodes="2-3")
        self.await_answers("died.jsonl", 1)
        self.hosts[2].power_off()
        self.expect_done(number, "died.jsonl")


if __name__ == "__main__":
    main(why_not)
