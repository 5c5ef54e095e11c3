#!/usr/bin/env python3
"""A host that is lost in each phase of a supervised job, which takes longer than CI has time for: phase_trials.py PROGRAM EXAMPLE [Phases.test_...].

A line for each trial: the phase, the fault, how long the job took to end, how often it was started again, what it said of the host. After every one of them the job
has ended with all answers on the hosts that are left, each once. See job_on_hosts.main.
"""
import re
import time

import job_on_hosts
from hosts import wait_for
from job_on_hosts import ThreeHosts, main

VICTIM = 1  # node2
PHASES = ("launching", "connecting", "probing", "reading", "answering", "ending")


class Phases(ThreeHosts):
    def wrote(self, words):
        with open(self.errors_file.name) as text:
            return words in text.read()

    def n_answers(self, output):
        return (self.hosts[0].read(output) or b"").count(b"\n")

    def await_phase(self, phase, job, output):
        """Until the job is there, or has ended."""
        there = {
            "launching": lambda: True,
            "connecting": lambda: self.hosts[VICTIM].runs(f"^{job_on_hosts.PROGRAM} run"),
            "probing": lambda: self.wrote("longhaul 0."),
            "reading": lambda: self.wrote("plan "),
            "answering": lambda: self.n_answers(output) > 0,
            "ending": lambda: self.n_answers(output) >= len(self.want),
        }[phase]
        wait_for(lambda: there() or job.poll() is not None, 300, phase)

    def others(self):
        return [host for i, host in enumerate(self.hosts) if i != VICTIM]

    def lose(self, fault):
        victim = self.hosts[VICTIM]
        if fault == "cut off":
            self.hosts.cut(victim)
        elif fault == "deaf":
            victim.firewall(*self.others())
        elif fault == "mute":
            for host in self.others():
                host.firewall(victim)

    def mend(self, fault):
        if fault == "cut off":
            self.hosts.mend(self.hosts[VICTIM])
        for host in self.hosts:
            host.do("sh", "-c", "nft delete table inet drops 2>/dev/null; true")

    def trial(self, phase, fault, seconds=None, dead_after="3"):
        """`seconds`: after them the fault is mended; else when the job has ended."""
        output = f"{phase}-{fault.replace(' ', '_')}-{seconds}.jsonl"
        job = self.supervised(output, "--start-timeout", "20", dead_after=dead_after)
        try:
            self.await_phase(phase, job, output)
            lost = time.monotonic()
            self.lose(fault)
            if seconds:
                time.sleep(seconds)
                self.mend(fault)
            status, errors = self.end_of(job, 300)
        finally:
            self.mend(fault)
            self.hosts[VICTIM].do("sh", "-c", "pkill -9 orted; pkill -9 longhaul; true")
        took = time.monotonic() - lost
        said = sorted(set(re.findall(r"rank 1 [^;]*?(?:has not been heard of|is gone)|no rank [^,]*|node2 does not answer", errors)))
        print(f"\n{phase:10} {fault:8} {'for ever' if seconds is None else f'{seconds} s'}: status {status}, {took:5.1f} s after the loss,"
              f" {errors.count('starts again')} restarts: {'; '.join(said)}", flush=True)
        self.assertEqual(status, 0, errors)
        self.expect_all_answers(output)
        return errors

    def trials(self, phase):
        for fault in ("cut off", "deaf", "mute"):
            with self.subTest(phase=phase, fault=fault):
                errors = self.trial(phase, fault)
                if phase != "ending":
                    self.assertIn("node2 does not answer; goes on with node1, node3", errors)

    def test_ten_seconds(self):
        for phase in PHASES:
            with self.subTest(phase=phase):
                self.trial(phase, "cut off", 10, dead_after="30")

    def test_launching(self):
        self.trials("launching")

    def test_connecting(self):
        self.trials("connecting")

    def test_probing(self):
        self.trials("probing")

    def test_reading(self):
        self.trials("reading")

    def test_answering(self):
        self.trials("answering")

    def test_ending(self):
        self.trials("ending")


if __name__ == "__main__":
    main()
