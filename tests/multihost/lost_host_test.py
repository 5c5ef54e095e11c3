#!/usr/bin/env python3
"""Hosts and links that are lost in the middle of a job, for a while or for ever. See job_on_hosts.main."""
import time

from job_on_hosts import STOPPED, ThreeHosts, main


class Links(ThreeHosts):
    def test_a_link_that_is_down_for_three_seconds_costs_nothing_but_time(self):
        job = self.start("outage.jsonl")
        self.await_answers("outage.jsonl", 1)
        self.hosts.cut(self.hosts[1])
        time.sleep(3)
        self.hosts.mend(self.hosts[1])
        status, errors = self.end_of(job)
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("outage.jsonl")

    def test_a_link_that_stays_down_is_named_and_the_job_goes_on_without_its_host(self):
        job = self.supervised("cut.jsonl")
        self.await_answers("cut.jsonl", 1)
        self.hosts.cut(self.hosts[1])
        try:
            status, errors = self.end_of(job)
        finally:
            self.hosts.mend(self.hosts[1])
            self.hosts[1].do("sh", "-c", "pkill -9 orted; pkill -9 longhaul; true")
        self.assertEqual(status, 0, errors)
        self.assertRegex(errors, r"rank 1.*has not been heard of for")
        self.assertIn("node2 does not answer; goes on with node1, node3", errors)
        self.expect_all_answers("cut.jsonl")

    def test_a_host_that_is_lost_before_there_is_a_rank_is_left_out(self):
        self.hosts.cut(self.hosts[1])
        try:
            status, errors = self.end_of(self.supervised("launched.jsonl"))
        finally:
            self.hosts.mend(self.hosts[1])
            self.hosts[1].do("sh", "-c", "pkill -9 orted; true")
        self.assertEqual(status, 0, errors)
        self.assertIn("node2 does not answer; goes on with node1, node3", errors)
        self.expect_all_answers("launched.jsonl")

    def test_a_launcher_that_fails_on_hosts_that_answer_is_not_started_again(self):
        job = self.supervised("flag.jsonl", launcher=["--no-such-flag"])
        status, errors = self.end_of(job)
        self.assertEqual(status, 1, errors)
        self.assertNotIn("starts again", errors)

    def test_a_supervised_job_that_is_stopped_on_purpose_stays_stopped(self):
        job = self.supervised("stopped.jsonl")
        self.await_answers("stopped.jsonl", 1)
        self.hosts[0].do("pkill", "-TERM", "-f", "longhaul supervise")
        status, errors = self.end_of(job)
        self.assertEqual(status, STOPPED, errors)
        self.assertNotIn("starts again", errors)
        status, _, errors = self.hosts[0].run(self.job("stopped.jsonl"))
        self.assertEqual(status, 0, errors)
        self.expect_all_answers("stopped.jsonl")


class AHost(ThreeHosts):
    """Hosts of its own: one of them loses its power."""

    def test_the_job_goes_on_with_those_that_are_left(self):
        job = self.supervised("lost.jsonl")
        self.await_answers("lost.jsonl", 1)
        self.hosts[2].power_off()
        status, errors = self.end_of(job)
        self.assertEqual(status, 0, errors)
        self.assertIn("node3 does not answer; goes on with node1, node2", errors)
        self.expect_all_answers("lost.jsonl")


if __name__ == "__main__":
    main()
