#!/usr/bin/env python3
"""`longhaul doctor` on healthy hosts and on broken ones. See job_on_hosts.main."""
import json
import os
import re
import unittest

import job_on_hosts
from hosts import DISK, FAKETIME, Hosts
from job_on_hosts import FAILED_ENVIRONMENT, main


class Doctor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = Hosts(3)
        cls.addClassCleanup(cls.hosts.__exit__)
        cls.hosts.put(job_on_hosts.EXAMPLE, "needle")

    def examine(self, *flags, before=(), ranks=(1, 1, 1)):
        words = self.hosts.mpirun(ranks) + [*before, job_on_hosts.PROGRAM, "doctor", "--start-timeout", "60", *(flags if "--scratch" in flags else ("--scratch", DISK, *flags))]
        return self.hosts[0].run(words)

    def findings(self, *flags, **how):
        """(status, check -> finding)."""
        status, out, errors = self.examine("--json", *flags, **how)
        try:
            return status, {finding["check"]: finding for finding in json.loads(out)["findings"]}
        except ValueError:
            self.fail(f"status {status}: {out}{errors}")

    def test_healthy_hosts_pass(self):
        status, found = self.findings("-m", f"{DISK}/needle/model")
        self.assertEqual(status, 0, found)
        self.assertEqual([check for check, finding in found.items() if finding["result"] == "FAIL"], [])
        self.assertIn("3 hosts reach each other", found["reach"]["text"])
        self.assertEqual(found["model"]["result"], "PASS", found["model"])
        self.assertEqual(found["HDF5"]["result"], "PASS", found["HDF5"])
        self.assertEqual(found["GPUs"]["result"], "PASS", found["GPUs"])
        # Each of these hosts has a disk of its own.
        self.assertIn("node2, node3 and node1 do not share it", found["scratch"]["text"])

    def test_a_slow_link_is_named(self):
        self.hosts[2].rate(100)
        try:
            status, found = self.findings()
        finally:
            self.hosts[2].no_rate()
        self.assertEqual((status, found["links"]["result"]), (0, "WARN"), found["links"])
        # 0.0125 GB/s are allowed; a machine with ten more tests on it gave half.
        speeds = re.findall(r"node2 - node3  (\S+) GB/s", found["links"]["text"])
        self.assertTrue(speeds and 0.002 < float(speeds[0]) < 0.02, found["links"])

    def test_a_firewall_is_named(self):
        self.hosts[1].firewall(self.hosts[2])
        try:
            status, found = self.findings()
        finally:
            self.hosts[1].no_firewall()
        self.assertEqual((status, found["reach"]["result"]), (FAILED_ENVIRONMENT, "FAIL"))
        self.assertIn("node2           yes      -     NO", found["reach"]["text"])

    def test_a_full_disk_is_named(self):
        for host in self.hosts:
            host.do("mkdir", "-p", f"{DISK}/scratch")
        self.hosts[1].do("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", f"{DISK}/scratch")
        try:
            status, found = self.findings("--scratch", f"{DISK}/scratch")
        finally:
            self.hosts[1].do("umount", f"{DISK}/scratch")
        self.assertEqual((status, found["scratch"]["result"]), (FAILED_ENVIRONMENT, "FAIL"))
        self.assertRegex(found["scratch"]["text"], "on node2: cannot .* No space left")

    def test_a_model_that_is_missing_or_differs_is_named(self):
        folder = f"{DISK}/needle/model"
        self.hosts[2].do("mv", folder, folder + "-away")
        try:
            status, found = self.findings("-m", folder)
        finally:
            self.hosts[2].do("mv", folder + "-away", folder)
        self.assertEqual((status, found["model"]["result"]), (FAILED_ENVIRONMENT, "FAIL"))
        self.assertIn("on node3: ", found["model"]["text"])
        self.hosts[1].do("sh", "-c", f"cp {folder}/config.json {DISK}/kept; sed -i 's/\"rms_norm_eps\": [^,]*/\"rms_norm_eps\": 0.001/' {folder}/config.json")
        try:
            status, found = self.findings("-m", folder)
        finally:
            self.hosts[1].do("mv", f"{DISK}/kept", f"{folder}/config.json")
        self.assertEqual((status, found["model"]["result"]), (FAILED_ENVIRONMENT, "FAIL"))
        self.assertIn("node2 has another one than node1: config.json", found["model"]["text"])

    def findings_when(self, before, **how):
        """What is found when the shell does something on node2 before the program begins."""
        script = f'if [ "$(hostname)" = node2 ]; then {before}; fi; exec "$0" "$@"'
        return self.findings(before=["sh", "-c", script], **how)

    def test_what_is_wrong_with_one_host_is_named(self):
        other = f"{DISK}/other"
        self.hosts[1].do("sh", "-c", f"cp {job_on_hosts.PROGRAM} {other} && echo >> {other}")
        for before, check, result, said in (
                ("ulimit -n 100", "limits", "FAIL", r"on node2 \(100\)"),
                ("ulimit -s unlimited", "limits", "WARN", "on node2"),
                ("ulimit -v 900000", "memory", "FAIL", "MiB on node2"),
                ("export LONGHAUL_ISA=baseline", "CPUs", "WARN", "baseline on node2"),
                ("taskset -pc 0 $$ >/dev/null", "cores", "WARN", "ranks on node2 are bound to one core"),
                (f'exec {other} "$@"', "program", "FAIL", "node2 runs another program")):
            if check == "cores" and len(os.sched_getaffinity(0)) == 1:
                continue
            with self.subTest(before):
                status, found = self.findings_when(before)
                if found["CPUs"]["text"] == "baseline everywhere":
                    continue  # a machine that has no other
                self.assertEqual((status, found[check]["result"]), (FAILED_ENVIRONMENT if result == "FAIL" else 0, result), found)
                self.assertRegex(found[check]["text"], said)
                self.assertEqual([name for name, finding in found.items() if finding["result"] == "FAIL" and name != check], [], found)

    def test_little_shared_memory_is_named_where_ranks_share_a_host(self):
        self.hosts[1].do("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", "/dev/shm")
        try:
            status, found = self.findings(ranks=(1, 2, 0))
        finally:
            self.hosts[1].do("umount", "/dev/shm")
        self.assertEqual((status, found["/dev/shm"]["result"]), (0, "WARN"), found)
        self.assertIn("on node2", found["/dev/shm"]["text"])

    @unittest.skipUnless(FAKETIME, "libfaketime is not installed")
    def test_a_clock_that_is_wrong_is_named(self):
        status, found = self.findings_when(f"export LD_PRELOAD={FAKETIME[0]} FAKETIME=+70s FAKETIME_DONT_FAKE_MONOTONIC=1")
        self.assertEqual((status, found["clocks"]["result"]), (0, "WARN"), found)
        self.assertRegex(found["clocks"]["text"], "node2")

    def test_it_is_read_on_a_terminal(self):
        status, out, _ = self.examine()
        self.assertEqual(status, 0, out)
        self.assertEqual([line for line in out.splitlines() if len(line) > 80], [])


if __name__ == "__main__":
    main()
