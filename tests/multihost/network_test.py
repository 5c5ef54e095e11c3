#!/usr/bin/env python3
"""The program on several hosts: answers, networks that lead nowhere, firewalls. See job_on_hosts.main."""
import re
import time
import tomllib

from hosts import DISK
from job_on_hosts import FAILED_ENVIRONMENT, ThreeHosts, main


class Networks(ThreeHosts):
    def test_answers_are_those_of_one_rank_beside_networks_of_containers(self):
        status, _, errors = self.hosts[0].run(self.job("beside.jsonl", ranks=(1, 2, 1)))
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("beside.jsonl")
        for host in self.hosts:
            self.assertIn(f"on {host.name}", errors)
        self.assertNotIn("Open MPI", errors)
        self.assertRegex(errors, r"links between hosts [\d.]+ GB/s")
        self.assertRegex(errors, r"prefill \S+ s predicted, \S+ s measured.*; decode \S+ s predicted")

    def test_a_hostfile_names_the_hosts(self):
        self.hosts[0].write("hosts", "".join(f"{host.name} slots=1\n" for host in self.hosts))
        words = self.job("hostfile.jsonl")
        at = words.index("--host")
        words[at : at + 2] = ["--hostfile", f"{DISK}/hosts"]
        status, _, errors = self.hosts[0].run(words)
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("hostfile.jsonl")
        for host in self.hosts:
            self.assertIn(f"on {host.name}", errors)

    def test_a_slow_link_is_measured_and_written_down(self):
        self.hosts[1].rate(100)
        cluster = f"{DISK}/cluster.toml"
        try:
            status, _, errors = self.hosts[0].run(self.job("slow.jsonl", "--save-cluster", cluster))
        finally:
            self.hosts[1].no_rate()
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("slow.jsonl")
        found = tomllib.loads(self.hosts[0].read("cluster.toml").decode())
        self.assertEqual([node["name"] for node in found["node"]], ["node1", "node2", "node3"])
        # Two of three links lead to that host: theirs is the median.
        self.assertLess(found["link"]["between_hosts_gb_per_s"], 0.016)
        self.assertEqual(max(found["host_link"], key=lambda link: link["gb_per_s"])["hosts"], ["node1", "node3"])

    def test_a_link_that_delays_and_loses_costs_time_and_no_answer(self):
        if not self.hosts[1].can_delay():
            self.skipTest("this kernel has no netem")
        self.hosts[1].delay(5, 0.2)
        try:
            status, _, errors = self.hosts[0].run(self.job("late.jsonl", "--save-cluster", f"{DISK}/late.toml"))
        finally:
            self.hosts[1].no_rate()
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("late.jsonl")
        found = tomllib.loads(self.hosts[0].read("late.toml").decode())
        self.assertGreater(found["link"]["between_hosts_latency_us"], 2000)

    def test_named_interfaces_are_used(self):
        for wanted in ("eth0", "10.77.0.0/16"):
            status, _, errors = self.hosts[0].run(self.job("named.jsonl", "--interfaces", wanted, "--overwrite"))
            self.assertEqual(status, 0, errors)
            self.expect_all_answers("named.jsonl")

    def test_an_interface_that_is_not_there_is_refused(self):
        status, _, errors = self.hosts[0].run(self.job("none.jsonl", "--interfaces", "ib7"))
        self.assertEqual(status, 2, errors)
        self.assertRegex(errors, r"no network interface ib7; it has .*eth0 10\.77\.0\.1/24")

    def test_a_network_that_leads_nowhere_is_named_with_the_flag_to_set(self):
        start = time.monotonic()
        status, _, errors = self.hosts[0].run(self.job("nowhere.jsonl", "--interfaces", "docker0", "--start-timeout", "20"))
        self.assertEqual(status, FAILED_ENVIRONMENT, errors)
        self.assertLess(time.monotonic() - start, 60)
        self.assertIn("--interfaces", errors)
        self.assertIn("docker0 172.17.0.1/16", errors)

    def test_a_firewall_between_two_workers_is_shown_as_a_table(self):
        second, third = self.hosts[1], self.hosts[2]
        second.firewall(third)
        third.firewall(second)
        try:
            status, _, errors = self.hosts[0].run(self.job("wall.jsonl", "--start-timeout", "20"))
        finally:
            second.no_firewall()
            third.no_firewall()
        self.assertEqual(status, FAILED_ENVIRONMENT, errors)
        rows = [line.split() for line in errors.splitlines() if re.match(r" +node\d ", line)]
        self.assertEqual(rows, [["node1", "-", "yes", "yes"], ["node2", "yes", "-", "NO"], ["node3", "yes", "NO", "-"]], errors)
        self.assertIn("firewall", errors)

    def test_a_folder_that_one_host_has_is_refused_before_anything_is_read(self):
        for flag in ("--checkpoint-dir", "--save-kv"):
            status, _, errors = self.hosts[0].run(self.job("apart.jsonl", flag, f"{DISK}/apart"))
            self.assertEqual(status, FAILED_ENVIRONMENT, errors)
            self.assertIn(f"{flag} {DISK}/apart: this folder is not shared by node2, node3", errors)
            self.assertFalse(self.hosts[0].read("apart.jsonl"))

    def test_without_a_shared_folder_beside_the_results_there_are_no_checkpoints(self):
        status, _, errors = self.hosts[0].run(self.job("results.jsonl", "--checkpoint-every", "1"))
        self.assertEqual(status, 0, errors)
        self.assertIn(f"the folder {DISK}/results.checkpoints is not shared by node2, node3", errors)
        self.expect_all_answers("results.jsonl")
        self.assertFalse(self.hosts[0].has(f"{DISK}/results.checkpoints"))

    def test_ipv6_alone_does(self):
        names = [(self.hosts.folder / f"names-{host.name}") for host in self.hosts]
        before = [path.read_text() for path in names]
        for host, path, text in zip(self.hosts, names, before):
            host.do("ip", "addr", "del", f"{host.address}/24", "dev", "eth0")
            for other in self.hosts:
                text = text.replace(f"{other.address} ", f"{other.address6} ")
            path.write_text(text)
        try:
            status, _, errors = self.hosts[0].run(self.job("six.jsonl"))
        finally:
            for host, path, text in zip(self.hosts, names, before):
                host.do("ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
                path.write_text(text)
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("six.jsonl")


if __name__ == "__main__":
    main()
