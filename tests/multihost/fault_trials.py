#!/usr/bin/env python3
"""Faults between hosts that take longer than CI has time for: fault_trials.py PROGRAM EXAMPLE [Faults.test_...]. See job_on_hosts.main.

After every one of them: finished answers are whole and kept, people are told rank, host and what it was doing, the exit status is as documented, and the
same command ends with all answers. The clock's trial needs libfaketime.
"""
import subprocess
import time

from hosts import DISK, FAKETIME
from job_on_hosts import FAILED_ENVIRONMENT, SLOWLY, STOPPED, ThreeHosts, main


class Faults(ThreeHosts):
    def finish(self, output):
        status, _, errors = self.hosts[0].run(self.job(output), 300)
        self.assertEqual(status, 0, errors)
        self.expect_all_answers(output)

    def told(self, what, status, errors):
        print(f"\n{what}: status {status}; " + " ".join(line for line in errors.splitlines() if "rank" in line and "error" in line))

    def test_a_host_that_hears_nothing_is_named_and_left_out(self):
        job = self.supervised("deaf.jsonl")
        self.await_answers("deaf.jsonl", 1)
        self.hosts[1].firewall(self.hosts[0], self.hosts[2])
        try:
            status, errors = self.end_of(job, 300)
        finally:
            self.hosts[1].no_firewall()
            self.hosts[1].do("sh", "-c", "pkill -9 orted; pkill -9 longhaul; true")
        self.told("deaf host", status, errors)
        self.assertEqual(status, 0, errors)
        self.assertRegex(errors, r"rank 1 on node2|node2")
        self.expect_all_answers("deaf.jsonl")

    def test_a_host_that_nobody_hears_is_named_and_left_out(self):
        job = self.supervised("mute.jsonl")
        self.await_answers("mute.jsonl", 1)
        for host in (self.hosts[0], self.hosts[2]):
            host.firewall(self.hosts[1])
        try:
            status, errors = self.end_of(job, 300)
        finally:
            for host in (self.hosts[0], self.hosts[2]):
                host.no_firewall()
            self.hosts[1].do("sh", "-c", "pkill -9 orted; pkill -9 longhaul; true")
        self.told("mute host", status, errors)
        self.assertEqual(status, 0, errors)
        self.assertRegex(errors, r"rank 1.*has not been heard of for")
        self.expect_all_answers("mute.jsonl")

    def test_a_firewall_that_begins_to_drop_between_two_workers_is_a_hang_with_names(self):
        job = self.start("drops.jsonl", "--step-timeout", "8")
        self.await_answers("drops.jsonl", 1)
        self.hosts[1].firewall(self.hosts[2])
        self.hosts[2].firewall(self.hosts[1])
        try:
            status, errors = self.end_of(job, 300)
            self.told("workers cut off from each other", status, errors)
            self.assertEqual(status, STOPPED, errors)
            self.assertRegex(errors, r"rank [12] on node[23]")
            status, _, errors = self.hosts[0].run(self.job("drops.jsonl", "--start-timeout", "20"))
            self.assertEqual(status, FAILED_ENVIRONMENT, errors)
            self.assertIn("node2           yes      -     NO", errors)
        finally:
            for host in self.hosts:
                subprocess.run(host.words("nft", "delete", "table", "inet", "drops"), stderr=subprocess.DEVNULL)
                host.do("sh", "-c", "pkill -9 longhaul; true")
        self.finish("drops.jsonl")

    def test_a_link_down_for_ten_seconds_costs_nothing_but_time(self):
        job = self.start("ten.jsonl")
        self.await_answers("ten.jsonl", 1)
        self.hosts.cut(self.hosts[1])
        time.sleep(10)
        self.hosts.mend(self.hosts[1])
        status, errors = self.end_of(job, 300)
        self.told("link down 10 s", status, errors)
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("ten.jsonl")

    def fill(self, host):
        host.do("sh", "-c", f"dd if=/dev/zero of={DISK}/filler bs=64k 2>/dev/null; true")

    def test_a_full_disk_of_rank_0_ends_the_job_and_tears_no_line(self):
        job = self.start("full.jsonl")
        self.await_answers("full.jsonl", 1)
        self.fill(self.hosts[0])
        try:
            status, errors = self.end_of(job, 300)
        finally:
            self.hosts[0].do("rm", f"{DISK}/filler")
        self.told("full disk of rank 0", status, errors)
        self.assertIn(status, (FAILED_ENVIRONMENT, STOPPED), errors)
        self.assertRegex(errors, "No space left")
        self.finish("full.jsonl")

    def test_a_full_disk_of_a_worker_does_not_disturb(self):
        job = self.start("worker_full.jsonl")
        self.await_answers("worker_full.jsonl", 1)
        self.fill(self.hosts[1])
        try:
            status, errors = self.end_of(job, 300)
        finally:
            self.hosts[1].do("rm", f"{DISK}/filler")
        self.told("full disk of a worker", status, errors)
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("worker_full.jsonl")

    def test_clocks_that_jump_do_not_disturb(self):
        if not FAKETIME:
            self.skipTest("libfaketime is not installed")
        for host in self.hosts:
            host.do("sh", "-c", f"echo '+0' > {DISK}/clock")
        env = ["env", f"LD_PRELOAD={FAKETIME[0]}", f"FAKETIME_TIMESTAMP_FILE={DISK}/clock", "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
        mpirun = self.hosts.mpirun((1, 1, 1))
        words = mpirun + env + self.words("jump.jsonl", *SLOWLY, "--dead-after", "5")
        with open(f"{self.hosts.folder}/jump", "w+") as errors:
            job = self.hosts[0].start(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
            for i, jump in enumerate(("+3600", "-86400", "+0")):
                self.await_answers("jump.jsonl", i + 1)
                for host in self.hosts if i else [self.hosts[1]]:
                    host.do("sh", "-c", f"echo '{jump}' > {DISK}/clock")
            job.wait(300)
            errors.seek(0)
            text = errors.read()
        self.told("clocks that jump", job.returncode, text)
        self.assertEqual(job.returncode, 0, text)
        self.expect_all_answers("jump.jsonl")


if __name__ == "__main__":
    main()
